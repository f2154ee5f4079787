"""The objects of the API that are about topoms themselves."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from topom.reasons import Reason

Instance = Annotated[str, Field(pattern="^[0-9a-f]{32}$", description="Made by the process at its start.")]


class Health(BaseModel):
    """Whether topom serves."""

    ok: bool
    reason: Reason | None = Field(default=None, description="Why not.")
    leads: bool | None = Field(default=None, description="Of a topom that shares its store: whether it leads.")


class TopomShown(BaseModel):
    """A topom. Of those that follow, the leader knows what they said last."""

    instance: str
    url: str
    state: Literal["leads", "follows", "silent"] = Field(description="`silent`: it followed, and says nothing more.")
    term: int | None = Field(default=None, description="Of the leader; it grows with every election.")
    epoch: int | None = Field(default=None, description="Of the table that it knows.")
    version: str = ""
    reason: Reason | None = Field(default=None, description="Why it is of no use as it is.")


class Topoms(BaseModel):
    """All topoms that are known; none where the store is one topom's own."""

    topoms: list[TopomShown]


class TopomAnnounced(BaseModel):
    """A topom that follows."""

    model_config = ConfigDict(extra="forbid")

    instance: Instance
    url: str = Field(max_length=300)
    version: str = Field(max_length=100)
    epoch: int
