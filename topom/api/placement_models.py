"""The objects of placement, as pydantic models."""

from typing import Literal

from pydantic import BaseModel, Field

from topom.api.models import In
from topom.reasons import Reason


class PlacedNode(BaseModel):
    """A node, and what it holds: the reverse index of the table over groups."""

    name: str
    datacenter: str = Field(description="Empty where nobody said.")
    reason: Reason | None = Field(description="Why it counts as not there; null if it is.")
    leads: list[int] = Field(description="Groups whose master is on it.")
    follows: list[int] = Field(description="Groups of which it has a replica.")
    pool: list[str] = Field(description="Servers of the pool on it that may be taken.")


class PlacedGroup(BaseModel):
    """A group: on which node its master is, and on which its replicas."""

    id: int
    leader: str = Field(description="Empty if it has no server.")
    followers: list[str] = Field(description="One for each replica, in the order in which the group has them.")
    reason: Reason | None = Field(description="Why it is left out of plans; null if it is not.")


class PlacementStep(BaseModel):
    """One change of one group."""

    round: int = Field(description="From 1; what a round has is over before the next one begins.")
    group: int
    kind: Literal["copy", "promote", "retire"]
    node: str
    server: str
    text: str = Field(description="What it does, in words.")
    state: Literal["waiting", "copying", "joined", "done", "dropped"]
    reason: Reason | None = Field(description="What it waits for, or why it was dropped.")


class PlacementPlan(BaseModel):
    """What would be changed."""

    rounds: int
    steps: list[PlacementStep]
    missing: list[Reason] = Field(description="What cannot be done, and what it takes.")


class PlacementRun(BaseModel):
    """A placement that is being applied."""

    since: float = Field(description="Seconds since 1970, UTC.")
    who: str
    steps: list[PlacementStep]


class Placement(BaseModel):
    """How groups are placed on nodes, as of an epoch of the slot table."""

    epoch: int
    replicas: int = Field(description="Copies of each group that are wanted, the master's too.")
    auto: bool = Field(description="Whether topom places by itself.")
    reason: Reason | None = Field(
        description="Why what is under way, or due by itself, is not being done; null if it is."
    )
    nodes: list[PlacedNode]
    groups: list[PlacedGroup]
    plan: PlacementPlan = Field(description="What a plan made now would change.")
    run: PlacementRun | None = Field(description="What is being applied; null if nothing is.")


class Auto(In):
    """Whether topom places by itself."""

    on: bool
