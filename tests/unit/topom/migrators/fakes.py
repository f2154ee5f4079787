"""A migrator that a test speaks for, and copies that it makes."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from migrator.progress import Progress
from slots.keyslots import KeySlots
from slots.messages.copies import RegisterMigrator, ToMigrator
from topom.migrators.copies import RemoteCopy
from topom.migrators.gathering import Gathering, Place
from topom.migrators.members import Migrators

ID = "c0ffee" + "0" * 26


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


async def ready() -> tuple[str, str]:
    """Both servers are ready, and have these run ids."""
    return "a" * 40, "b" * 40


def copy_of(
    migrators: Migrators,
    progress: Progress,
    make_ready: Callable[[], Awaitable[tuple[str, str]]] = ready,
    id: str = ID,
    gathering: Gathering | None = None,
) -> RemoteCopy:
    """A copy of the slots 3 and 5 of a:1, which has the replica a:2. In a gathering it is the member of its name."""
    return RemoteCopy(
        migrators,
        "a:1",
        "b:1",
        [5, 3],
        id,
        progress,
        ["a:2"],
        Place(gathering or Gathering(), id, id),
        key_slots=KeySlots("crc32", 16),
        instance="1" * 32,
        term=7,
        make_ready=make_ready,
    )
