"""The objects of a plan's cost, as pydantic models; null for unknown values."""

from typing import Literal

from pydantic import BaseModel, Field


class Amount(BaseModel):
    """Slots, and what is in them."""

    slots: int
    bytes: int | None = Field(description="Memory of their keys; null where no sizes are known.")
    keys: int | None


class Held(Amount):
    """What a group has."""

    percent_off: float | None = Field(description="How far from its share, above 0 for more; null without one.")
    load_percent_off: float | None = Field(
        default=None, description="Likewise of all load; null unless load is known, and the plan is by load."
    )


class WayCost(BaseModel):
    """How slots of one group go to another, and what that costs; null for what is not known."""

    way: Literal["keys", "stream"]
    because: str = Field(description="Why that way, in a sentence.")
    seconds: float | None = Field(description="Forecast, while nothing halts it.")
    keys: int | None = Field(description="That move.")
    bytes: int | None = Field(description="Their memory at the source.")
    twice_bytes: int | None = Field(
        description="Memory that source and target hold at once, of one batch. Those of one stream do so together."
    )
    twice_seconds: float | None = Field(description="For how long.")
    lock_seconds: float | None = Field(description="For which requests for these slots wait, once a batch.")
    disk_bytes: int | None = Field(description="Disk of the migrator's machine that one batch takes at most.")
    rounds: int | None = Field(description="So many batches go one after the other.")


class PairCost(Amount):
    """What goes from one group to another."""

    source: int = Field(alias="from", description="0: was offline, and brings no bytes or keys.")
    target: int = Field(alias="to")
    way: WayCost | None = Field(
        default=None, description="How its slots would move; null for offline slots, and unless it is a dry run."
    )


class GroupOutlook(BaseModel):
    """A group before and after a plan; slots that are moving already count for the group to which they go."""

    id: int
    share_bytes: int | None = Field(description="What it should have; null if it is drained, or sizes are not known.")
    before: Held
    after: Held


class Cost(BaseModel):
    """What a plan costs, and what it is for."""

    pairs: list[PairCost]
    groups: list[GroupOutlook]
    total: Amount
    seconds: float | None = Field(description="Forecast, while moving is neither paused nor out of hours.")
    keys_per_second: float | None = Field(
        description="Of all moves together, from which the time is told: as measured in the last moves, or the limit "
        "that is set."
    )
    bytes_per_second: float | None = Field(description="Likewise. The slower of the two tells the time.")
