"""The objects of what changed in the slot table, as pydantic models."""

from pydantic import BaseModel, Field

from topom.api.models import Slot


class GroupServers(BaseModel):
    """A group as it is in the slot table."""

    id: int
    servers: list[str] = Field(description="`host:port`, the master first.")
    datacenters: dict[str, str] = Field(default_factory=dict, description="By server, of those that were given one.")
    nodes: dict[str, str] = Field(default_factory=dict, description="By server, of those that were given one.")


class SlotChanges(BaseModel):
    """What makes the slot table of ``epoch`` of the one of ``since``."""

    since: int | None = Field(description="The epoch that was asked with; null if all slots and groups are given.")
    epoch: int
    slots: list[Slot] = Field(description="Those that changed.")
    groups: list[GroupServers] = Field(description="Those that changed.")
    removed_groups: list[int]
