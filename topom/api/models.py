"""The objects of the API, as pydantic models: they check what comes in and describe all of it in OpenAPI."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from slots.table import MAXIMUM_SLOTS
from topom.api.cost_models import Cost
from topom.api.topom_models import TopomShown
from topom.hours import LONGEST_TEXT

Address = Annotated[str, Field(max_length=300, examples=["127.0.0.1:6379"], description="`host:port`")]
Datacenter = Annotated[
    str, Field(max_length=64, examples=["paris-1"], description="Proxies read from replicas in their own first.")
]
Node = Annotated[
    str,
    Field(
        max_length=64, examples=["rack3-host7"], description="The host it runs on; if not said, that of its address."
    ),
]
Ranges = Annotated[
    str, Field(max_length=200_000, examples=["0-511,700"], description="Slots and ranges of slots, comma-separated.")
]


class In(BaseModel):
    """What comes in: nothing that is not known."""

    model_config = ConfigDict(extra="forbid")


class Problem(BaseModel):
    """What went wrong, and what to do about it."""

    error: str = Field(description="The type of the error, for programs.")
    message: str = Field(description="What happened and what to do, for people.")


class Server(BaseModel):
    """A Redis server of a group, as topom sees it."""

    address: str
    role: str | None = Field(description="What the server says it is: `master` or `slave`; null when it is not up.")
    up: bool = Field(description="Whether it answered within topom's limit, at most a second ago.")
    keys: int | None = Field(description="Over all databases.")
    used_memory: int | None = Field(description="Bytes.")
    datacenter: str = Field(description="Empty where nobody said.")
    node: str = Field(default="", description="The host it runs on; where nobody said, that of its address.")
    condition: Literal["alive", "suspected", "failed", "unknown"] = Field(
        default="unknown",
        description="What is thought of it: topom and the proxies say how long it has been silent. `unknown` until the "
        "topom that leads has looked at it, and from one that does not lead.",
    )
    silent: int = Field(default=0, description="How many of them have had no answer for `server_fail_seconds`.")
    views: int = Field(default=0, description="How many of them have said something lately.")
    joining: bool = Field(default=False, description="Whether it is a replica that was not seen whole yet.")
    waits_for: str = Field(default="", description="Why it is not whole yet, in words; empty where it is not known.")


class Group(BaseModel):
    """A group: its master first, then its replicas."""

    id: int
    servers: list[Server] = Field(description="The master first.")
    slots: int = Field(description="Slots the group owns.")
    locked: bool = Field(default=False, description="While another of its servers is being made its master.")
    trouble: str = Field(default="", description="Why its failed master was not replaced yet, if topom is to do that.")


class Groups(BaseModel):
    """All groups, as of an epoch of the slot table."""

    epoch: int
    groups: list[Group]


class NewGroup(In):
    """A group to be made."""

    id: int = Field(examples=[1])
    servers: list[Address] = Field(default_factory=list, max_length=64, description="The master first.")
    datacenter: Datacenter = Field(default="", description="Of all these servers.")
    node: Node = Field(default="", description="Of all these servers; if not said, the host of each one's address.")
    wipe: bool = Field(default=False, description="Whether the keys that its replicas hold may be lost.")


class NewServer(In):
    """A server to be added to a group."""

    address: Address
    datacenter: Datacenter = ""
    node: Node = ""
    wipe: bool = Field(
        default=False, description="Whether the keys that it holds may be lost, if it is to be a replica."
    )


class ServerChange(In):
    """What is to be changed of a server; an empty name takes back what was said."""

    datacenter: Datacenter | None = None
    node: Node | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.datacenter is None and self.node is None:
            raise ValueError("it says neither datacenter nor node")
        return self


class NewMaster(In):
    """Which of a group's replicas is to be its master."""

    server: Address
    force: bool = Field(
        default=False, description="Although the master does not answer: what it had not sent to this replica is lost."
    )


class GroupChanged(BaseModel):
    """A group after a change."""

    epoch: int
    id: int
    servers: list[str]


class Changed(BaseModel):
    """The epoch of the slot table after a change."""

    epoch: int


class Proxy(BaseModel):
    """A proxy that is a member."""

    id: int
    instance: str = Field(description="Made by the process at its start, or when it was fenced.")
    address: str = Field(description="Where clients connect.")
    hostname: str
    pid: int
    workers: int
    version: str
    state: Literal["online", "lost", "unknown"] = Field(
        description="`lost`: nothing heard within the lease; `unknown`: no topom leads that could have heard of it."
    )
    draining: bool = Field(description="It lets its clients go, or is to, and then leaves by itself.")
    stand_down_seconds: float | None = Field(
        description="For so long it serves a group after topom and the group's replicas were heard; null: unlimited."
    )
    epoch: int = Field(description="The newest epoch that all its workers acknowledged to this topom.")
    counters: dict[str, int | float]


class Proxies(BaseModel):
    """All proxies that are members."""

    proxies: list[Proxy]


class ProxyRemoved(BaseModel):
    """A proxy that is no member any more."""

    id: int
    not_fenced: dict[str, str] = Field(description="With `force`: servers where it could not be fenced, and why.")


class SlotAction(BaseModel):
    """What is happening to a slot."""

    state: Literal["pending", "preparing", "prepared", "migrating", "finished"] | None = None
    target_id: int | None = None
    course: Literal["turning", "back"] | None = Field(
        default=None, description="For one that was cancelled: `turning`, then `back` with source and target changed."
    )
    carried: bool | None = Field(default=None, description="Whether its keys go through topom.")


class BigKey(In):
    """One of the biggest keys of a slot."""

    key: str = Field(examples=["user:1:inbox"], description="Its name. Bytes that are no UTF-8 are written as `\\xNN`.")
    database: int = Field(ge=0, le=1_000_000)
    type: str = Field(max_length=100, examples=["hash"], description="As TYPE says it.")
    bytes: int = Field(ge=0, lt=2**63, description="Of memory.")


class Slot(BaseModel):
    """A slot: who owns it, and what is happening to it."""

    id: int
    group_id: int = Field(description="0: offline. The source while an action runs.")
    action: SlotAction = Field(description="`{}` for a slot at rest.")
    skipped: bool | None = Field(default=None, description="Whether it steps aside until it is retried.")
    reason: str | None = Field(default=None, description="Why its action does not go on, if it does not.")
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
    """Slots, and the group that they are for."""

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
    """Slots; all, if none are named."""

    slots: Ranges | None = Field(default=None, description="All, if left out.")


class SlotsCancelled(BaseModel):
    """What became of slots that were cancelled."""

    epoch: int
    ended: list[int] = Field(description="Their actions are over; nothing of theirs had moved.")
    returning: list[int] = Field(description="What has moved of them goes back.")
    too_late: list[int] = Field(description="All of them had moved; they stay where they are.")


class SlotCounts(BaseModel):
    """How many slots there are of each sort."""

    total: int
    assigned: int = Field(description="Owned by a group, moving or not.")
    offline: int
    moving: int = Field(description="In an action, pending or further.")


class Move(BaseModel):
    """A slot's way from a group to another one."""

    slot: int
    source: int = Field(alias="from", description="0: was offline.")
    target: int = Field(alias="to")


class Rebalance(BaseModel):
    """A plan, carried out or not."""

    policy: str
    dry_run: bool
    moves: list[Move]
    cost: Cost = Field(description="What the moves cost, and the groups before and after.")
    reasons: list[str] = Field(description="Why the plan does not do all that was wished, in sentences.")
    warnings: list[str] = Field(description="What of the known sizes is to be taken with care, in sentences.")


class MigrationLimits(BaseModel):
    """The migration settings that hold."""

    parallel_slots: int = Field(description="Slots of one pair of groups that are moved together.")
    keys_per_second: int = Field(description="All migrations together; 0: no limit.")
    bytes_per_second: int = Field(description="All migrations together; 0: no limit.")
    batch_keys: int = Field(description="Most keys in one MIGRATE.")
    batch_bytes: int = Field(description="Most bytes in one MIGRATE, unless a single key is larger.")
    batch_milliseconds: float = Field(description="How long one MIGRATE should hold up its source.")
    latency_goal_milliseconds: float = Field(
        description="Within which source and target should answer 99 of 100 requests while keys move; 0: no goal."
    )
    hours: str = Field(examples=["22:00-06:00"], description="Of the day, in which keys move; empty: always.")
    time_zone: str = Field(examples=["Europe/Paris"], description="Of these hours; empty: that of topom's computer.")
    way: Literal["auto", "direct", "carried"] = Field(
        description="How keys get to their target: sent by the source, carried by topom, or carried if need be."
    )
    min_replicas: int = Field(description="Of the target, that have to have a key before it is deleted at its source.")
    replica_seconds: float = Field(description="That these replicas have to confirm keys.")


class MigrationChange(In):
    """Migration settings to be changed; what is left out stays."""

    parallel_slots: Annotated[int, Field(ge=1, le=MAXIMUM_SLOTS)] | None = None
    keys_per_second: Annotated[int, Field(ge=0)] | None = None
    bytes_per_second: Annotated[int, Field(ge=0)] | None = None
    batch_keys: Annotated[int, Field(ge=1, le=5_000)] | None = None
    batch_bytes: Annotated[int, Field(ge=1)] | None = None
    batch_milliseconds: Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)] | None = None
    latency_goal_milliseconds: Annotated[float, Field(ge=0, le=60_000, allow_inf_nan=False)] | None = None
    hours: Annotated[str, Field(max_length=LONGEST_TEXT, examples=["22:00-06:00"])] | None = None
    time_zone: Annotated[str, Field(max_length=100, examples=["Europe/Paris"])] | None = None
    way: Literal["auto", "direct", "carried"] | None = None
    min_replicas: Annotated[int, Field(ge=0, le=100)] | None = None
    replica_seconds: Annotated[float, Field(gt=0, le=60, allow_inf_nan=False)] | None = None


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

    speed: float = Field(description="A share of the full speed, up to 1.")
    batch_milliseconds: float = Field(description="How long one MIGRATE is to hold up its source now.")
    at_work: float = Field(description="Share of the time in which keys move; they rest in between.")
    source: ServerLatency
    target: ServerLatency
    reason: str = Field(description="Why it is held back; empty when it is not.")


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
    message: str = Field(description="What the batch waits for, if it does.")
    notes: list[str] = Field(default_factory=list, description="What the operator should know of its servers.")


class SkippedSlots(BaseModel):
    """Slots that step aside, and why."""

    slots: str = Field(examples=["0-3"])
    reason: str = Field(description="Why they did not go on when they were skipped; empty if that was not known.")


class Migration(BaseModel):
    """How the moving of keys stands."""

    paused: bool = Field(description="By an operator.")
    halted: str = Field(description="Why only keys move that clients ask for: paused, or not the hours; else empty.")
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
        description="Those under way; and, `pending` with a message, slots whose target cannot take them now."
    )
    skipped: list[SkippedSlots] = Field(default_factory=list, description="Slots that step aside until retried.")


class Leaving(BaseModel):
    """Something on its way out."""

    kind: Literal["group", "server", "node"]
    id: str = Field(description="A group's number, a server's address, a node's name.")
    why: str
    waits_for: str = Field(default="", description="What has to happen first, in words.")
    since: float = Field(description="Seconds since 1970, UTC.")


class LeavingList(BaseModel):
    """All that is on its way out."""

    leaving: list[Leaving]


class Lifted(BaseModel):
    """That an operator has lifted protection mode, until the members lost then are back."""

    by: str = Field(description="Who did, as events name them.")
    at: float = Field(description="When, in seconds since 1970, UTC.")


class Protection(BaseModel):
    """Whether so many members are lost that nothing is done by itself."""

    active: bool | None = Field(description="Null, like the others, where no topom leads: only a leader knows.")
    lost: int | None = Field(description="Servers that have failed, and proxies that are lost.")
    members: int | None = Field(description="All servers and proxies.")
    lifted: Lifted | None = Field(description="Null unless it was lifted for the present loss.")


class Status(BaseModel):
    """The whole cluster at a glance."""

    product: str
    epoch: int
    number_of_slots: int
    slot_function: str
    databases: int
    groups: list[Group]
    proxies: list[Proxy]
    slots: SlotCounts
    leaving: list[Leaving]
    migration: Migration
    protection: Protection
    topoms: list[TopomShown] = Field(default_factory=list, description="Where several share a store: the leader first.")
    problem: str = Field(default="", description="Why nothing can be changed now.")
