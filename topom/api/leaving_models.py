"""The objects of what is on its way out, as pydantic models."""

from typing import Literal

from pydantic import BaseModel, Field

from topom.reasons import Reason


class Leaving(BaseModel):
    """Something on its way out."""

    kind: Literal["group", "server", "node"]
    id: str = Field(description="A group's number, a server's address, a node's name.")
    why: str
    reason: Reason | None = Field(default=None, description="What has to happen first.")
    since: float = Field(description="Seconds since 1970, UTC.")


class LeavingList(BaseModel):
    """All that is on its way out."""

    leaving: list[Leaving]
