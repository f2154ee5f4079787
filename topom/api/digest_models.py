"""The objects of a group's digest check, as pydantic models."""

from pydantic import BaseModel, Field

from topom.api.models import Address, In


class NewDigest(In):
    """What is to be checked, and how fast."""

    server: Address | None = Field(default=None, description="One of the group's replicas; all of them if left out.")
    keys_per_second: int = Field(default=20_000, ge=0, le=10_000_000, description="0: as fast as small steps go.")


class Resync(In):
    """Which replica is to be filled anew."""

    server: Address | None = Field(default=None, description="All that are known to differ, if left out.")


class Resyncing(BaseModel):
    """Replicas that are filled anew, one after the other."""

    servers: list[str]


class NamedKey(BaseModel):
    """A key of which something is told."""

    slot: int
    database: int
    key: str = Field(description="Its first 256 bytes as text; bytes that are no UTF-8 are written as `\\xNN`.")
    what: str = Field(description="Of a difference: missing (at the replica), extra, type, value or deadline.")


class SlotDigest(BaseModel):
    """Both servers' digests of a slot, over its keys in all databases, in any order."""

    slot: int
    keys: int
    master: str
    replica: str


class Digest(BaseModel):
    """The check of one replica."""

    server: str
    master: str
    stage: str = Field(description="running, same, different, cancelled or failed.")
    reason: str
    began_at: float
    seconds: float
    keys: int = Field(description="Compared so far.")
    keys_total: int = Field(description="That the master had at the beginning.")
    differences: int
    named: list[NamedKey] = Field(description="Of the differences, at most 100.")
    uncompared: int = Field(description="Keys of which it cannot be told.")
    uncompared_named: list[NamedKey] = Field(description="Of those, at most 100.")
    promotable: bool = Field(description="Whether nothing is known against this replica.")
    resyncing: bool = Field(description="Whether it is being filled anew, or is to be.")
    slots: list[SlotDigest]


class Known(BaseModel):
    """What is stored against a replica, whichever topom found it."""

    server: str
    keys: int = Field(description="That differ.")
    slots: int = Field(description="In which they are.")
    named_slots: str = Field(description="The first of these slots.")
    at: float = Field(description="When that was found, in seconds since 1970, UTC.")
    resyncing: bool = Field(description="Whether it is being filled anew, or is to be.")
    problem: str = Field(description="Why it is not promoted, in words.")


class Digests(BaseModel):
    """The last checks of a group, a replica each, by the topom that leads; and what is known of its replicas."""

    group_id: int
    replicas: list[Digest]
    known: list[Known] = Field(default_factory=list)
