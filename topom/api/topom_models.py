"""The objects of topoms themselves, as pydantic models."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from topom.reasons import Reason

Instance = Annotated[str, Field(pattern="^[0-9a-f]{32}$", description="Made by the process at its start.")]


class TopomShown(BaseModel):
    """A topom. The leader shows followers as they last told of themselves."""

    instance: str
    url: str
    state: Literal["leads", "follows", "silent"] = Field(description="`silent`: it followed, and says nothing more.")
    silent_since: float | None = Field(
        default=None, description="When the leader last heard it, in seconds since 1970, UTC; null unless it is silent."
    )
    term: int | None = Field(default=None, description="Of the leader; it grows with every election.")
    epoch: int | None = Field(default=None, description="Of the table that it knows.")
    version: str = ""
    reason: Reason | None = Field(default=None, description="Why it is of no use as it is.")


class Topoms(BaseModel):
    """All known topoms; none if topom does not share its store."""

    topoms: list[TopomShown]


class TopomAnnounced(BaseModel):
    """A follower."""

    model_config = ConfigDict(extra="forbid")

    instance: Instance
    url: str = Field(max_length=300)
    version: str = Field(max_length=100)
    epoch: int
