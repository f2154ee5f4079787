"""The objects of ``/groups``, as pydantic models."""

from typing import Literal, Self

from pydantic import BaseModel, Field, model_validator

from topom.api.models import Address, Datacenter, In, Node
from topom.reasons import Reason


class Server(BaseModel):
    """A Redis server of a group, as topom sees it."""

    address: str
    role: str | None = Field(description="What the server says it is: `master` or `replica`; null when it is not up.")
    up: bool = Field(description="Whether it answered within topom's limit, at most a second ago.")
    keys: int | None = Field(description="Over all databases.")
    memory_bytes: int | None = Field(description="Used by it, as INFO says.")
    datacenter: str = Field(description="Empty where nobody said.")
    node: str = Field(default="", description="The host it runs on; where nobody said, that of its address.")
    condition: Literal["alive", "suspected", "failed", "unknown"] = Field(
        default="unknown",
        description="What is thought of it: topom and the proxies say how long it has been silent. `unknown` until the "
        "topom that leads has looked at it, and from one that does not lead.",
    )
    silent: int = Field(default=0, description="How many of them have had no answer for `server_fail_seconds`.")
    views: int = Field(default=0, description="How many of them have said something lately.")
    silent_since: float | None = Field(
        default=None,
        description="Since when one that is suspected or has failed is silent, in seconds since 1970, UTC.",
    )
    lag_bytes: int | None = Field(
        default=None,
        description="Of its master's stream of writes that a replica has not run yet; null where not known.",
    )
    joining: bool = Field(
        default=False, description="Whether it is a replica that was not seen whole yet, or not since it strayed."
    )
    not_used: Reason | None = Field(
        default=None,
        description="Why it is not promoted or read, why nothing is done to it, or how Sentinels know it otherwise.",
    )
    not_swept: Reason | None = Field(
        default=None, description="Of a master that is not swept of keys of slots that other groups own: why it is not."
    )
    not_whole: Reason | None = Field(
        default=None, description="Why it is not whole yet, or no replica any more; null where not known."
    )


class Group(BaseModel):
    """A group: its master first, then its replicas."""

    id: int
    servers: list[Server] = Field(description="The master first.")
    slots: int = Field(description="Slots the group owns.")
    locked: bool = Field(default=False, description="While another of its servers is being made its master.")
    reason: Reason | None = Field(
        default=None, description="Why its failed master was not replaced yet, unless `ha` is off."
    )


class Groups(BaseModel):
    """All groups, as of an epoch of the slot table."""

    epoch: int
    groups: list[Group]


class NewGroup(In):
    """A group to make."""

    id: int = Field(examples=[1])
    servers: list[Address] = Field(default_factory=list, max_length=64, description="The master first.")
    datacenter: Datacenter = Field(default="", description="Of all these servers.")
    node: Node = Field(default="", description="Of all these servers; if not said, the host of each one's address.")
    wipe: bool = Field(default=False, description="Whether the keys that its replicas hold may be lost.")
    offline_ok: bool = Field(default=False, description="Whether it is made although servers of it do not answer now.")


class NewServer(In):
    """A server to add to a group."""

    address: Address
    datacenter: Datacenter = ""
    node: Node = ""
    wipe: bool = Field(
        default=False, description="Whether the keys that it holds may be lost, if it is to be a replica."
    )
    offline_ok: bool = Field(default=False, description="Whether it is added although it does not answer now.")


class ServerChange(In):
    """What to change of a server; an empty name takes back what was said."""

    datacenter: Datacenter | None = None
    node: Node | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.datacenter is None and self.node is None:
            raise ValueError("it says neither datacenter nor node")
        return self


class NewMaster(In):
    """Which of a group's replicas becomes its master."""

    server: Address
    force: bool = Field(
        default=False, description="Although the master does not answer: what it had not sent to this replica is lost."
    )


class GroupChanged(BaseModel):
    """A group after a change."""

    epoch: int
    id: int
    servers: list[str]
    silent: list[str] = Field(
        default_factory=list, description="Of the servers that were added, those that do not answer now."
    )
    strangers: list[str] = Field(
        default_factory=list,
        description="Keys of the master that was added which stand under names of Slotferry's own and are not: no "
        "client reaches them any more. Of another type they are renamed to `__slotferry:aside:...`.",
    )
    keys_held: int = Field(
        default=0,
        description="How many keys the master that was added holds, if other groups own slots: no client sees those of "
        "such slots. 0 if no other group owns any.",
    )


class ServerSwept(BaseModel):
    """A server that was swept of keys of slots that it does not own."""

    id: int
    server: str
    removed: int | None = Field(description="How many keys; null if they are still being removed.")


class Changed(BaseModel):
    """The epoch of the slot table after a change."""

    epoch: int
