"""The objects of ``/rebalance``, as pydantic models."""

from pydantic import BaseModel, Field

from topom.api.cost_models import Cost
from topom.balance.deciding import Why


class Move(BaseModel):
    """The move of a slot from one group to another."""

    slot: int
    source: int = Field(alias="from", description="0: was offline.")
    target: int = Field(alias="to")


class Rebalance(BaseModel):
    """A plan, carried out or not."""

    policy: str
    dry_run: bool
    epoch: int = Field(description="Of the slot table, with the moves if they have begun.")
    moves: list[Move]
    cost: Cost = Field(description="What the moves cost, and the groups before and after.")
    reasons: list[str] = Field(description="Why the plan does not do all that was asked for, in sentences.")
    warnings: list[str] = Field(
        description="In sentences: what of the known sizes and load is to be taken with care, and which moves wait."
    )


class Above(BaseModel):
    """A group that has too much load."""

    group: int
    since: float = Field(description="Since when, in seconds since 1970, UTC.")


class Decision(BaseModel):
    """What topom decided last about moving slots by itself."""

    auto: bool = Field(description='Whether it may: the setting rebalance is "auto".')
    at: float | None = Field(description="When, in seconds since 1970, UTC; null before the first decision.")
    cause: Why = Field(description="The kind of reason; `moves` if slots were sent on their way.")
    text: str = Field(description="The reason in a sentence.")
    moves: list[Move]
    greatest: float | None = Field(
        description="The greatest load of a group, as a multiple of its share; null while load is not known."
    )
    expected: float | None = Field(description="Likewise after the moves.")
    enter: float = Field(description="A group above that multiple of its share gives slots away.")
    leave: float = Field(description="A group has too much above that; a plan brings it to that or less.")
    above: list[Above]
