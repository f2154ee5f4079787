"""The objects of the API, as pydantic models: they check what comes in and describe all of it in OpenAPI."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from slots.table import MAXIMUM_SLOTS

Address = Annotated[str, Field(max_length=300, examples=["127.0.0.1:6379"], description="`host:port`")]
Datacenter = Annotated[
    str, Field(max_length=64, examples=["paris-1"], description="Proxies read from replicas in their own first.")
]
Ranges = Annotated[
    str, Field(max_length=200_000, examples=["0-511,700"], description="Slots and ranges of slots, comma-separated.")
]


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Health(BaseModel):
    ok: bool


class Problem(BaseModel):
    error: str = Field(description="The type of the error, for programs.")
    message: str = Field(description="What happened and what to do, for people.")


class Server(BaseModel):
    address: str
    role: str | None = Field(description="What the server says it is: `master` or `slave`; null when it is not up.")
    up: bool = Field(description="Whether it answered within topom's limit, at most a second ago.")
    keys: int | None = Field(description="Over all databases.")
    used_memory: int | None = Field(description="Bytes.")
    datacenter: str = Field(description="Empty where nobody said.")


class Group(BaseModel):
    id: int
    servers: list[Server] = Field(description="The master first.")
    slots: int = Field(description="Slots the group owns.")


class Groups(BaseModel):
    epoch: int
    groups: list[Group]


class NewGroup(_In):
    id: int = Field(examples=[1])
    servers: list[Address] = Field(default_factory=list, max_length=64, description="The master first.")
    datacenter: Datacenter = Field(default="", description="Of all these servers.")


class NewServer(_In):
    address: Address
    datacenter: Datacenter = ""


class ServerChange(_In):
    datacenter: Datacenter


class GroupChanged(BaseModel):
    epoch: int
    id: int
    servers: list[str]


class Changed(BaseModel):
    epoch: int


class Proxy(BaseModel):
    id: int
    instance: str = Field(description="Made by the process at its start, or when it was fenced.")
    address: str = Field(description="Where clients connect.")
    hostname: str
    pid: int
    workers: int
    version: str
    state: Literal["online", "lost"] = Field(description="`lost`: nothing heard within the lease.")
    epoch: int = Field(description="The newest epoch that all its workers acknowledged to this topom.")
    counters: dict[str, int | float]


class Proxies(BaseModel):
    proxies: list[Proxy]


class ProxyRemoved(BaseModel):
    id: int
    not_fenced: dict[str, str] = Field(description="With `force`: servers where it could not be fenced, and why.")


class SlotAction(BaseModel):
    state: Literal["pending", "preparing", "prepared", "migrating", "finished"] | None = None
    target_id: int | None = None


class Slot(BaseModel):
    id: int
    group_id: int = Field(description="0: offline. The source while an action runs.")
    action: SlotAction = Field(description="`{}` for a slot at rest.")


class Slots(BaseModel):
    epoch: int
    slots: list[Slot]


class SlotsToGroup(_In):
    slots: Ranges
    group_id: int


class SlotsOnly(_In):
    slots: Ranges


class SlotsChanged(BaseModel):
    epoch: int
    slots: list[int] = Field(description="Those that changed.")


class SlotCounts(BaseModel):
    total: int
    assigned: int = Field(description="Owned by a group, moving or not.")
    offline: int
    moving: int = Field(description="In an action, pending or further.")


class Move(BaseModel):
    slot: int
    source: int = Field(alias="from", description="0: was offline.")
    target: int = Field(alias="to")


class Rebalance(BaseModel):
    policy: str
    dry_run: bool
    moves: list[Move]


class MigrationLimits(BaseModel):
    parallel_slots: int = Field(description="Slots of one pair of groups that are moved together.")
    keys_per_second: int = Field(description="All migrations together; 0: no limit.")
    bytes_per_second: int = Field(description="All migrations together; 0: no limit.")
    batch_keys: int = Field(description="Most keys in one MIGRATE.")
    batch_bytes: int = Field(description="Most bytes in one MIGRATE, unless a single key is larger.")
    batch_milliseconds: float = Field(description="How long one MIGRATE should hold up its source.")


class MigrationChange(_In):
    parallel_slots: Annotated[int, Field(ge=1, le=MAXIMUM_SLOTS)] | None = None
    keys_per_second: Annotated[int, Field(ge=0)] | None = None
    bytes_per_second: Annotated[int, Field(ge=0)] | None = None
    batch_keys: Annotated[int, Field(ge=1, le=100_000)] | None = None
    batch_bytes: Annotated[int, Field(ge=1)] | None = None
    batch_milliseconds: Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)] | None = None


class BatchProgress(BaseModel):
    source: int = Field(description="Group id; 0: the slots were offline.")
    target: int
    state: str
    slots: str = Field(examples=["0-3"])
    keys_moved: int
    bytes_moved: int
    remaining_keys: int | None = Field(description="An estimate; null while there is nothing to base it on.")
    passes: int = Field(description="Passes over the source that came to their end.")
    message: str = Field(description="What the batch waits for, if it does.")


class Migration(BaseModel):
    paused: bool
    settings: MigrationLimits
    slots_pending: int
    slots_moving: int
    slots_moved: int = Field(description="Since this topom started; so are keys_moved and bytes_moved.")
    keys_moved: int
    bytes_moved: int
    keys_per_second: float = Field(description="Over the last few seconds.")
    remaining_keys: int | None = Field(description="Of the batches under way, an estimate; null when unknown.")
    batches: list[BatchProgress]


class Status(BaseModel):
    product: str
    epoch: int
    number_of_slots: int
    slot_function: str
    databases: int
    groups: list[Group]
    proxies: list[Proxy]
    slots: SlotCounts
    migration: Migration
