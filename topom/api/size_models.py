"""The objects of ``/sizes``, as pydantic models."""

from typing import Annotated, Any

from pydantic import BaseModel, Field, WithJsonSchema

from slots.slot import MAXIMUM_SLOTS
from topom.api.models import In
from topom.api.slot_models import BigKey
from topom.balance.sizes import LONGEST_PREFIX, MOST_BIGGEST, MOST_PREFIXES, GroupSize, Prefix

LONGEST_SENTENCE = 2000
MOST_SERVERS = 10_000
LONGEST_NAME = 4096
"""Characters of a prefix's name, as it may be sent."""
MOST_SEPARATORS = 8

Count = Annotated[int, Field(ge=0, lt=2**63)]
Moment = Annotated[float, Field(ge=0, lt=2**40, allow_inf_nan=False)]


class MissingServer(In):
    """A server, or a file, that could not be read."""

    server: str = Field(
        min_length=1, max_length=4096, examples=["127.0.0.1:6379"], description="`host:port`, or the file's path."
    )
    reason: str = Field(max_length=LONGEST_SENTENCE, description="Why, in a sentence.")


class MeasuredSlot(In):
    """The size of one slot's keys, over all databases."""

    slot: int = Field(ge=0, lt=MAXIMUM_SLOTS)
    bytes: Count = Field(description="Memory of its keys; of a sample, what that says of all of them.")
    keys: Count = Field(description="Their number; of a sample, what that says of all of them.")
    biggest: list[BigKey] = Field(default_factory=list, max_length=MOST_BIGGEST, description="Of them, in any order.")


class MeasuredPrefix(In):
    """The size of all keys whose names begin in the same way."""

    depth: int = Field(
        ge=0,
        le=MOST_SEPARATORS,
        description="How many separators the prefix has. 0: all keys without a separator, under the empty prefix.",
    )
    prefix: str = Field(
        max_length=LONGEST_NAME,
        examples=["user:"],
        description="With its last separator. Bytes that are no printable text are escaped, as `\\xNN`; of a longer "
        f"one the first {LONGEST_PREFIX - 1} characters are kept, with `…` at the end.",
    )
    keys: Count = Field(description="Their number; of a sample, what that says of all of them.")
    bytes: Count = Field(description="Their memory; of a sample, what that says of all of them.")


_LIST_OF_SLOTS = {
    "type": "array",
    "items": {
        name: value
        for name, value in MeasuredSlot.model_json_schema(ref_template="#/components/schemas/{model}").items()
        if name != "$defs"  # BigKey is in the components already, because slots have it
    },
}


class Measurement(In):
    """Sizes of slots, as they were measured."""

    taken_at: Moment = Field(examples=[1772316000.0], description="When measuring began, in seconds since 1970, UTC.")
    seconds: Moment = Field(description="How long it took.")
    complete: bool = Field(
        description="Whether every server was read to its end. Then a slot that is not named has no keys; else it "
        "keeps the size that was known."
    )
    missing: list[MissingServer] = Field(
        default_factory=list, max_length=MOST_SERVERS, description="What could not be read; nothing if complete."
    )
    sampled: float = Field(
        default=1.0, gt=0, le=1, allow_inf_nan=False, description="Share of the keys that was measured; 1: all."
    )
    slots: Annotated[list[Any], WithJsonSchema(_LIST_OF_SLOTS)] = Field(
        max_length=MAXIMUM_SLOTS, description="Each at most once. One of which not all was read is left out."
    )
    """Each is a :class:`MeasuredSlot`; they are checked one by one when the body is read (:mod:`topom.api.sizes`)."""
    prefixes: list[MeasuredPrefix] = Field(
        default_factory=list,
        max_length=MOST_PREFIXES,
        description="The biggest of all depths, in any order. A shorter one counts what a longer one within it has.",
    )


class TakenSizes(BaseModel):
    """How sizes were last taken."""

    taken_at: float = Field(description="When measuring began, in seconds since 1970, UTC.")
    age_seconds: float = Field(description="Since then.")
    seconds: float = Field(description="How long it took.")
    complete: bool = Field(description="Whether every server was read to its end.")
    missing: list[MissingServer] = Field(description="Servers that could not be read.")
    sampled: float = Field(description="Share of the keys that was measured; 1: all.")
    bytes: int = Field(description="Memory of the keys of all slots that were measured then.")
    keys: int = Field(description="Their number.")


class Sizes(BaseModel):
    """What is known of the sizes of slots; `/slots` has each slot's."""

    last: TakenSizes | None = Field(description="Null before sizes were ever taken.")
    stale_seconds: float = Field(description="Age from which sizes are stale, a setting.")
    bytes: int = Field(description="Memory of the keys of all slots, as far as it is known.")
    keys: int
    groups: list[GroupSize]
    stale: str = Field(examples=["0-511,700"], description="Slots whose sizes are stale.")
    moved: str = Field(examples=["3-5"], description="Slots that moved since; their bytes moved along.")
    unknown: str = Field(examples=["9"], description="Slots of groups, of which no size is known.")
    warnings: list[str] = Field(description="All of this that a person should know, in sentences.")
    prefixes: tuple[Prefix, ...] = Field(
        description="The biggest prefixes of names, by descending bytes, as the last measurement told them."
    )
