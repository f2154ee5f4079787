"""Decides which copy counts when both servers of a moving slot have a key. The run ids of the action's start decide.

Both servers have a key once it was placed at one and not dropped at the other (:mod:`slots.moving`). The other cause is
a server that has older data back, because it was restarted or replaced by another one. No client can cause it: by
**absent-first** no command on a key runs at one server while the server that gives keys has that key. So while both
servers are the processes that the action began with, the copies are equal. A process that was started later may hold
data of any earlier time. Its run id shows that it is another process (**run-id**). The action stores both run ids.

S is the server that the slot left, and T the server that the slot was sent to:

| S is | T is | going (S gives) | going back (T gives) | why |
|---|---|---|---|---|
| as begun | as begun | S | T | they are equal, and the one that gives looks at itself in the step that moves |
| as begun | another | S | S | T may hold it as it was once; a key that S has was not written at T since |
| another | as begun | T | T | a key that had left S is back there, as it was |
| another | another | T | T | nothing is known, and T was the last to own it for sure |

T was swept of the slot's keys before the action began (**owned**, :mod:`migrator.sweep`). So T as begun has no older
copies. A server whose group has had another master since then has an unknown run id, which matches no process.

One case stays open. A key is deleted at T, and later S comes back with data from before the key had left. Then the key
is alive again once it has moved, though T that acknowledged the delete was there all the time: whether S has older data
or all that it had, no server says. Slots that are copied by a stream do not have this case, for no key of them moves. A
key that is deleted after S came back stays deleted: a process that deletes a key at T has checked, since it was told
to, that S does not have the key (**absent-first**, :mod:`proxy.moving.migrating`). An expired key at T counts as a
deleted one.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Beginning:
    """**by-action**: the run ids of the server that gives keys and of the one that takes them, as the action began.

    ``back`` is true once the action was turned round."""

    source: str = ""
    target: str = ""
    back: bool = False

    def keeps_target(self, source: str, target: str) -> bool:
        """Whether the copy at the taking server counts, for a key on both servers. The arguments are the present run
        ids."""
        if source and source == self.source:
            return False
        return not self.back or bool(target and target == self.target)


UNKNOWN = Beginning()
"""The beginning of an action of which nothing is known."""
