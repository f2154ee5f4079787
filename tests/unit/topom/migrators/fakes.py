"""A migrator that a test speaks for."""

from dataclasses import dataclass, field

from slots.messages.copies import RegisterMigrator, ToMigrator


@dataclass
class FakeLink:
    """Writes down what is said."""

    said: list[ToMigrator] = field(default_factory=list)
    ended: bool = False

    def say(self, message: ToMigrator) -> None:
        self.said.append(message)

    def end(self) -> None:
        self.ended = True


def registration(number: int = 1, node: str = "", datacenter: str = "") -> RegisterMigrator:
    return RegisterMigrator(
        instance=f"{number:032x}", hostname="host", pid=number, version="0", node=node, datacenter=datacenter
    )
