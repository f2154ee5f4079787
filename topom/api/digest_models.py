"""The objects of a group's digest check, as pydantic models."""

from pydantic import BaseModel, Field

from topom.api.models import Address, In
from topom.copies.digests.sums import Named
from topom.reasons import Reason


class NewDigest(In):
    """Which replicas to check, and how fast."""

    server: Address | None = Field(default=None, description="One of the group's replicas; all of them if left out.")
    keys_per_second: int = Field(default=20_000, ge=0, le=10_000_000, description="0: as fast as small steps go.")


class Resync(In):
    """Which replica to fill anew."""

    server: Address | None = Field(default=None, description="All that are known to differ, if left out.")


class Resyncing(BaseModel):
    """Replicas that are filled anew, one after the other."""

    servers: list[str]


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
    reason: Reason | None = Field(description="Why it failed or was cancelled, or what was found is not stored yet.")
    began_at: float
    seconds: float
    keys: int = Field(description="Compared so far.")
    keys_total: int = Field(description="That the master had at the beginning.")
    differences: int
    named: list[Named] = Field(
        description="Of the differences, at most 100, each with the first 256 bytes of its key and what it is: "
        "missing (at the replica), extra, type, value or deadline."
    )
    uncompared: int = Field(description="Keys of which it cannot be told.")
    uncompared_named: list[Named] = Field(description="Of those, at most 100, and why.")
    promotable: bool = Field(description="Whether nothing is known against this replica.")
    resyncing: bool = Field(description="Whether it is being filled anew, or is to be.")
    slots: list[SlotDigest]


class Known(BaseModel):
    """What is stored against a replica, no matter which topom found it."""

    server: str
    keys: int = Field(description="That differ.")
    slots: int = Field(description="In which they are.")
    named_slots: str = Field(description="The first of these slots.")
    at: float = Field(description="When that was found, in seconds since 1970, UTC.")
    resyncing: bool = Field(description="Whether it is being filled anew, or is to be.")
    reason: Reason | None = Field(description="Why it is not promoted.")


class Digests(BaseModel):
    """The last checks of a group by the leader, one for each replica; and what is known of its replicas."""

    group_id: int
    replicas: list[Digest]
    known: list[Known] = Field(default_factory=list)
