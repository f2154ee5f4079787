"""The states a slot's action passes through, and what a proxy does in each.

A state is stored before it is acted on, so a topom that restarts goes on from what it reads.
"""

from enum import StrEnum


class SlotState(StrEnum):
    """State of a slot's action. A slot at rest has no action at all."""

    PENDING = "pending"
    """Planned, not begun. Proxies send to the source."""
    PREPARING = "preparing"
    """About to be locked. Proxies send to the source and no longer read from replicas."""
    PREPARED = "prepared"
    """Locked: proxies hold new requests and wait for what is in flight at the source (**drained**)."""
    MIGRATING = "migrating"
    """The target owns the slot; a key still at the source is moved before a command names it."""
    FINISHED = "finished"
    """Every key has moved. Proxies send to the target; the action ends once all have heard."""

    @property
    def owned_by_target(self) -> bool:
        """Whether commands for the slot run at the target rather than at the source."""
        return self in (SlotState.MIGRATING, SlotState.FINISHED)
