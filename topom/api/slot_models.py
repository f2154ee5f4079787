"""The objects of ``/slots`` and of what changed in the slot table, as pydantic models."""

from typing import Literal

from pydantic import BaseModel, Field

from topom.api.models import In, Ranges
from topom.reasons import Reason


class SlotAction(BaseModel):
    """What is happening to a slot."""

    state: Literal["pending", "copying", "preparing", "prepared", "migrating", "finished"] | None = None
    target_id: int | None = None
    course: Literal["turning", "back"] | None = Field(
        default=None, description="For one that was cancelled: `turning`, then `back` with source and target changed."
    )
    min_replicas: int | None = Field(
        default=None,
        description="Of the target, that have to have a key before it is deleted at its source; left out for 0.",
    )


class BigKey(In):
    """One of the biggest keys of a slot."""

    key: str = Field(examples=["user:1:inbox"], description="Its name. Bytes that are no UTF-8 are written as `\\xNN`.")
    database: int = Field(ge=0, le=1_000_000)
    type: str = Field(max_length=100, examples=["hash"], description="As TYPE says it.")
    bytes: int = Field(ge=0, lt=2**63, description="Of memory.")


class Slot(BaseModel):
    """A slot: its owner, and what is happening to it."""

    id: int
    group_id: int = Field(description="0: offline. The source while an action runs.")
    action: SlotAction = Field(description="`{}` for a slot at rest.")
    skipped: bool | None = Field(default=None, description="Whether it steps aside until it is retried.")
    reason: Reason | None = Field(default=None, description="Why its action does not go on, if it does not.")
    bytes: int | None = Field(
        default=None, description="Memory of its keys when it was last measured; left out while that is unknown."
    )
    keys: int | None = Field(default=None, description="Their number then.")
    biggest: list[BigKey] | None = Field(default=None, description="The biggest of them, by descending bytes.")
    sized_at: float | None = Field(default=None, description="When that was, in seconds since 1970, UTC.")


class Slots(BaseModel):
    """All slots, as of an epoch of the slot table."""

    epoch: int
    slots: list[Slot]


class SlotsToGroup(In):
    """Slots, and the group that gets them."""

    slots: Ranges
    group_id: int


class SlotsOnly(In):
    """Slots."""

    slots: Ranges


class SlotsChanged(BaseModel):
    """The slots that were changed."""

    epoch: int
    slots: list[int] = Field(description="Those that changed.")


class SlotsMaybe(In):
    """Slots; all slots if none are named."""

    slots: Ranges | None = Field(default=None, description="All, if left out.")


class GroupServers(BaseModel):
    """A group as it is in the slot table."""

    id: int
    servers: list[str] = Field(description="`host:port`, the master first.")
    datacenters: dict[str, str] = Field(default_factory=dict, description="By server, of those that were given one.")
    nodes: dict[str, str] = Field(default_factory=dict, description="By server, of those that were given one.")


class SlotChanges(BaseModel):
    """The changes from the slot table of ``since`` to that of ``epoch``."""

    since: int | None = Field(description="The epoch that was asked with; null if all slots and groups are given.")
    epoch: int
    slots: list[Slot] = Field(description="Those that changed.")
    groups: list[GroupServers] = Field(description="Those that changed.")
    removed_groups: list[int]
