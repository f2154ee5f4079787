"""The objects of what leaves, as pydantic models."""

from typing import Literal

from pydantic import BaseModel, Field

from topom.reasons import Reason


class Leaving(BaseModel):
    """Something that leaves."""

    kind: Literal["group", "server", "node"]
    id: str = Field(description="A group's number, a server's address, a node's name.")
    why: str
    reason: Reason | None = Field(default=None, description="What has to happen first.")
    since: float = Field(description="Seconds since 1970, UTC.")


class LeavingList(BaseModel):
    """All that leaves."""

    leaving: list[Leaving]
