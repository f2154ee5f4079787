"""The states a slot's action passes through, and what a proxy does in each.

A state is stored before it is acted on, so a topom that restarts goes on from what it reads.
"""

from enum import StrEnum


class SlotState(StrEnum):
    """State of a slot's action. A slot at rest has no action at all."""

    PENDING = "pending"
    """Planned, not begun. Proxies send to the source."""
    COPYING = "copying"
    """The target gets a copy of the keys by the replication stream, which nobody is shown. Proxies do as at rest."""
    PREPARING = "preparing"
    """About to be locked. Proxies send to the source, and no longer read from replicas."""
    PREPARED = "prepared"
    """Locked: proxies hold new requests and wait for the requests under way at the source (**drained**)."""
    MIGRATING = "migrating"
    """The target owns the slot; a key still at the source is moved before a command names it."""
    FINISHED = "finished"
    """Every key has moved. Proxies send to the target; the action ends once every proxy knows."""

    @property
    def owned_by_target(self) -> bool:
        """Whether commands for the slot run at the target rather than at the source."""
        return self in (SlotState.MIGRATING, SlotState.FINISHED)


AS_AT_REST = (SlotState.PENDING, SlotState.COPYING)
"""States in which proxies do as at rest."""
AT_SOURCE = (*AS_AT_REST, SlotState.PREPARING)
"""States in which proxies send to the source."""
UNTOUCHED = (*AT_SOURCE, SlotState.PREPARED)
"""States in which no key has moved yet, while the course is forward."""


class Course(StrEnum):
    """Which way an action goes: on to its target, or back because an operator cancelled it.

    Keys that have moved by then go back through the same states: ``migrating`` with :attr:`TURNING` is locked as
    ``prepared`` with :attr:`BACK`, in which source and target have changed places, then it is ``migrating`` and
    ``finished`` with :attr:`BACK`. If the lock is given up it is ``migrating`` with :attr:`TURNING` again, as before.
    """

    FORWARD = "forward"
    """On the way to its target, as it began."""
    TURNING = "turning"
    """Cancelled while ``migrating``, to be turned round. Until that is done, proxies do as for :attr:`FORWARD`."""
    BACK = "back"
    """Turned round. For a key that is on both servers, the target's copy counts; the target was the source before."""
