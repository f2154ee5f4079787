"""The objects of ``/migration``, as pydantic models."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from topom.api.models import In
from topom.cluster.hours import LONGEST_TEXT
from topom.reasons import Reason
from topom.term import settings


class SlotsCancelled(BaseModel):
    """What became of slots that were cancelled."""

    epoch: int
    ended: list[int] = Field(description="Their actions are over; nothing of theirs had moved.")
    returning: list[int] = Field(description="What has moved of them goes back.")
    too_late: list[int] = Field(description="All of them had moved; they stay where they are.")


class MigrationLimits(BaseModel):
    """The migration settings that hold."""

    parallel_slots: int = Field(description="Slots of one pair of groups that are moved together.")
    keys_per_second: int = Field(description="All migrations together; 0: no limit.")
    bytes_per_second: int = Field(description="All migrations together; 0: no limit.")
    latency_goal_milliseconds: float = Field(
        description="Within which source and target should answer 99 of 100 requests while keys move; 0: no goal."
    )
    hours: str = Field(examples=["22:00-06:00"], description="Of the day, in which keys move; empty: always.")
    time_zone: str = Field(examples=["Europe/Paris"], description="Of these hours; empty: that of topom's computer.")
    min_replicas: int = Field(description="Of the target, that have to have a key before it is deleted at its source.")
    way: str = Field(description="How slots move that begin now.", examples=["keys", "stream", "auto"])


class MigrationChange(In):
    """Migration settings to change; the others stay as they are."""

    parallel_slots: settings.ParallelSlots | None = None
    keys_per_second: settings.Rate | None = None
    bytes_per_second: settings.Rate | None = None
    latency_goal_milliseconds: settings.GoalMilliseconds | None = None
    hours: Annotated[str, Field(max_length=LONGEST_TEXT, examples=["22:00-06:00"])] | None = None
    time_zone: Annotated[str, Field(max_length=100, examples=["Europe/Paris"])] | None = None
    min_replicas: settings.MinReplicas | None = None
    way: Literal["keys", "stream", "auto"] | None = None


class ServerLatency(BaseModel):
    """How fast a server answers while keys move."""

    address: str
    p99_milliseconds: float | None = Field(description="Over the last seconds; null while it is unknown.")
    quiet_p99_milliseconds: float | None = Field(description="While nothing is moved; null while it is unknown.")
    allowed_milliseconds: float = Field(
        description="What is held: the goal, or more where the server is slower than it without any migration."
    )


class Pacing(BaseModel):
    """How far a batch is held back, and why."""

    speed: float = Field(description="Share of the time in which keys move, up to 1; they rest in between.")
    source: ServerLatency
    target: ServerLatency
    reason: Reason | None = Field(description="Why it is held back; null when it is not.")


class BatchProgress(BaseModel):
    """Slots that move together, and how far they are."""

    source: int = Field(description="Group id; 0: the slots were offline.")
    target: int
    state: str
    slots: str = Field(examples=["0-3"])
    keys_moved: int
    bytes_moved: int
    remaining_keys: int | None = Field(description="An estimate; null while there is nothing to base it on.")
    passes: int = Field(description="Passes over the source that came to their end.")
    pacing: Pacing | None = Field(description="How it keeps to the latency goal; null without one.")
    course: Literal["forward", "turning", "back"] = Field(
        default="forward", description="`turning` and `back`: it was cancelled and returns."
    )
    reason: Reason | None = Field(description="What the batch waits for; null if it does not.")
    way: Literal["keys", "stream"] | None = Field(
        default=None,
        description="How its slots move; null before that is chosen, and once they are at rest. `notes` say why.",
    )
    notes: list[str] = Field(
        default_factory=list,
        description="What the operator should know of its servers, and by which way its slots move and why.",
    )


class SkippedSlots(BaseModel):
    """Slots that step aside, and why."""

    slots: str = Field(examples=["0-3"])
    reason: Reason = Field(description="Why they did not go on when they were skipped.")


class Migration(BaseModel):
    """How the migration goes."""

    epoch: int = Field(description="That of the slot table.")
    paused: bool = Field(description="By an operator.")
    halted: Reason | None = Field(
        description="Why only keys move that clients ask for: paused, or not the hours; else null."
    )
    halted_until: str | None = Field(
        examples=["2026-03-01T22:00:00+01:00"], description="When the hours begin; null if that is not the reason."
    )
    settings: MigrationLimits
    slots_pending: int
    slots_moving: int
    slots_moved: int = Field(description="Since this topom started; so are keys_moved and bytes_moved.")
    keys_moved: int
    bytes_moved: int
    keys_per_second: float = Field(description="Over the last few seconds.")
    remaining_keys: int | None = Field(description="Of the batches under way, an estimate; null when unknown.")
    batches: list[BatchProgress] = Field(
        description="Those under way; and, `pending` with a reason, slots whose target cannot take them now."
    )
    skipped: list[SkippedSlots] = Field(default_factory=list, description="Slots that step aside until retried.")
