"""What the action of a slot began with, and by that whose copy counts of a key that is on both its servers.

A key is on both once it was placed at the one and not dropped at the other (:mod:`slots.moving`); or because one of the
servers has older data back, having been started anew or replaced by another. No client can have made it so: by
**absent-first** nobody runs a command on a key at the one server while the other one, which gives keys, has it. So
while both servers are the processes that the action began with, the copies are equal. A process that was started since
may hold what it held at any earlier time. Its run id tells whether it is one (**run-id**); the action has both.

With S for the server that the slot set out from, and T for the one that it was sent to:

| S is | T is | going (S gives) | going back (T gives) | why |
|---|---|---|---|---|
| as begun | as begun | S | T | they are equal, and the one that gives looks at itself in the step that moves |
| as begun | another | S | S | T may hold it as it was once; a key that S has was not written at T since |
| another | as begun | T | T | a key that had left S is back there, as it was |
| another | another | T | T | nothing is known, and T was the last to own it for sure |

T was swept of the slot's keys before the action began (**owned**, :mod:`migrator.sweep`), so that as begun it has no
older ones. A run id that is not known is nobody's: that of a server whose group has had another master since.

What no evidence brings back: a key that was deleted at T before S came back with data in which it had not left yet is
alive again, as it would be at any server that is started from older data. One that is deleted after that is not: who
takes a key away at T has seen since it was told to that S does not have it (**absent-first**, :mod:`proxy.migrating`).
What expires at T is as what was deleted before.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Beginning:
    """**by-action**: the run ids of those that give and take keys, as the action began; ``back`` once it was turned."""

    source: str = ""
    target: str = ""
    back: bool = False

    def keeps_target(self, source: str, target: str) -> bool:
        """Whether of a key on both servers the copy of the one that takes counts; the run ids are those of now."""
        if source and source == self.source:
            return False
        return not self.back or bool(target and target == self.target)


UNKNOWN = Beginning()
"""Of which nothing is known."""
