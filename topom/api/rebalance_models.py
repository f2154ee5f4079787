"""The objects of ``/rebalance``, as pydantic models."""

from pydantic import BaseModel, Field

from topom.api.cost_models import Cost


class Move(BaseModel):
    """The move of a slot from one group to another."""

    slot: int
    source: int = Field(alias="from", description="0: was offline.")
    target: int = Field(alias="to")


class Rebalance(BaseModel):
    """A plan, carried out or not."""

    policy: str
    dry_run: bool
    moves: list[Move]
    cost: Cost = Field(description="What the moves cost, and the groups before and after.")
    reasons: list[str] = Field(description="Why the plan does not do all that was asked for, in sentences.")
    warnings: list[str] = Field(description="What of the known sizes is to be taken with care, in sentences.")
