"""The objects of the pool, as pydantic models."""

from pydantic import BaseModel, Field

from topom.api.models import Address, Datacenter, In, Node
from topom.reasons import Reason


class NewPoolServer(In):
    """A server to register that is in no group."""

    address: Address
    datacenter: Datacenter = ""
    node: Node = ""
    wipe: bool = Field(
        default=False, description="What it holds may be lost, as it is when the server becomes a replica."
    )


class PoolServer(BaseModel):
    """A server that is in no group."""

    address: str
    node: str = Field(description="The host it runs on; where nobody said, that of its address.")
    datacenter: str = Field(description="Empty where nobody said.")
    wipe: bool = Field(description="Whether what it holds may be lost.")
    up: bool = Field(description="Whether it answered within topom's limit, at most a second ago.")
    role: str | None = Field(description="What it says it is: `master` or `replica`; null when it is not up.")
    reason: Reason | None = Field(default=None, description="Why nothing is done to it; null if all is well.")
    keys: int | None = Field(description="Over all databases.")
    memory_bytes: int | None = Field(description="Used by it, as INFO says.")


class Pool(BaseModel):
    """All servers that are in no group."""

    servers: list[PoolServer]
