"""The objects of ``/status`` and ``/protection``, as pydantic models."""

from pydantic import BaseModel, ConfigDict, Field

from topom.api.group_models import Group
from topom.api.leaving_models import Leaving
from topom.api.migration_models import Migration
from topom.api.migrator_models import Migrator
from topom.api.proxy_models import Proxy
from topom.api.rule_models import SlotRule
from topom.api.settings import SettingsShown
from topom.api.topom_models import TopomShown
from topom.cluster.hands_off import MOST_WHY
from topom.reasons import Reason


class SlotCounts(BaseModel):
    """How many slots there are of each kind."""

    total: int
    assigned: int = Field(description="Owned by a group, moving or not.")
    offline: int
    offline_since: float | None = Field(
        default=None,
        description="Since when some are, in seconds since 1970, UTC; null if none is, or if that is not known.",
    )
    moving: int = Field(description="In an action, pending or further.")


class Lifted(BaseModel):
    """An operator has lifted protection mode, until the members that were lost then are back."""

    by: str = Field(description="Who did, as events name them.")
    at: float = Field(description="When, in seconds since 1970, UTC.")


class Protection(BaseModel):
    """Whether so many members are lost that topom does nothing about it by itself."""

    active: bool | None = Field(description="Null, like the others, where no topom leads: only a leader knows.")
    lost: int | None = Field(description="Servers that have failed, and proxies that are lost.")
    members: int | None = Field(description="All servers and proxies.")
    since: float | None = Field(
        default=None, description="Since when it is active, in seconds since 1970, UTC; null if it is not."
    )
    lifted: Lifted | None = Field(description="Null unless it was lifted for the present loss.")


class Pause(BaseModel):
    """An operator has paused topom, so that it does nothing by itself."""

    by: str = Field(description="Who did, as events name them.")
    at: float = Field(description="When, in seconds since 1970, UTC.")
    why: str = Field(description="As the operator said; empty if nothing was said.")


class PauseRequest(BaseModel):
    """The body of ``/pause``."""

    model_config = ConfigDict(extra="forbid")

    why: str = Field(
        default="", max_length=MOST_WHY, description="Shown to others, for instance 'switches are changed'."
    )


class PauseShown(BaseModel):
    """Whether topom is paused."""

    pause: Pause | None = Field(description="Null if it is not.")


class LoopShown(BaseModel):
    """A loop that topom runs by itself, and what the loop says."""

    name: str
    says: str = Field(description="One sentence.")
    since: float = Field(description="Since when it says that, in seconds since 1970, UTC.")


class Status(BaseModel):
    """The whole cluster at a glance."""

    product: str
    epoch: int
    number_of_slots: int
    slot_function: str
    slot_rules: list[SlotRule] = Field(
        default_factory=list, description="The first that matches a key says what of it is hashed."
    )
    databases: int
    groups: list[Group]
    proxies: list[Proxy]
    migrators: list[Migrator] = Field(
        default_factory=list, description="Processes that make copies by the replication stream, if this topom leads."
    )
    slots: SlotCounts
    leaving: list[Leaving]
    migration: Migration
    protection: Protection
    pause: Pause | None = Field(description="Null unless an operator has paused topom.")
    topoms: list[TopomShown] = Field(default_factory=list, description="Where several share a store: the leader first.")
    sentinels: Reason | None = Field(
        default=None, description="Why Sentinels could replace no master that fails, if they are to."
    )
    failing: dict[str, Reason] = Field(
        default_factory=dict,
        description="What goes on by itself, failed lately and was started again, by name: why. topom's log has more.",
    )
    loops: list[LoopShown] = Field(
        default_factory=list,
        description="What topom does by itself, where there is something to say of it and nothing holds it.",
    )
    reason: Reason | None = Field(default=None, description="Why nothing can be changed now.")
    settings: SettingsShown | None = Field(
        default=None, description="Which settings are in force in the topom that answers."
    )
