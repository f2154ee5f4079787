"""Minutes of the load as one topom tells them to another: written by the one that leads, checked by the one that asks.

Of each kind of things, a minute has the names, unless they are those of the minute before it in the same answer, and
the base64 of its values, little-endian floats of 4 bytes.

**bounded**: an answer ends with the minute by which it has :data:`ANSWER_BYTES`. The next answer goes on from there.
"""

import sys
from array import array
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slots.messages.load import UserName
from slots.messages.message import Server
from slots.slot import MAXIMUM_SLOTS
from topom.cluster.rules import MOST_SERVERS
from topom.cluster.topology import MAXIMUM_GROUP_ID
from topom.load.day import KINDS, DayMinute, Kind
from topom.load.measured import DAY_MINUTES, KEPT_COLUMNS, Kept

ANSWER_BYTES = 512 * 1024
"""Without the last minute of the answer, which has less than three times as many in the largest cluster."""
CLOCKS_SECONDS = 300.0
"""How far the leader's clock may be ahead of this one's. Minutes that are further ahead are not taken."""
LARGEST = 1e18
"""Requests or bytes a second that are believed."""
MOST_NAMES = 2 * MOST_SERVERS
"""Of one kind. There are most of servers; in a minute in which some come and go, there may be more."""

Name = TypeVar("Name")
Id = Annotated[int, Field(ge=0, le=2**63 - 1)]


class NoMinutes(ValueError):
    """An answer has no minutes that can be used. The message says why."""


class ToldKind(BaseModel, Generic[Name]):
    """What is kept of one kind of things in one minute."""

    model_config = ConfigDict(strict=True)

    names: list[Name] | None = Field(max_length=MOST_NAMES, description="null: those of the minute before.")
    values: str = Field(
        max_length=4 * (4 * KEPT_COLUMNS * MOST_NAMES // 3 + 1),
        description="Base64 of little-endian floats of 4 bytes: of each name its requests, bytes of requests and bytes "
        "of replies, a second.",
    )


class ToldMinute(BaseModel):
    """A minute."""

    model_config = ConfigDict(strict=True)

    began_at: float = Field(ge=0, allow_inf_nan=False, description="Seconds since 1970, UTC.")
    groups: ToldKind[Annotated[int, Field(ge=1, le=MAXIMUM_GROUP_ID)]]
    servers: ToldKind[Server]
    proxies: ToldKind[Id]
    users: ToldKind[UserName]
    slots: ToldKind[Annotated[int, Field(ge=0, lt=MAXIMUM_SLOTS)]]


class Told(BaseModel):
    """Minutes of the load."""

    model_config = ConfigDict(strict=True)

    minutes: list[ToldMinute] = Field(max_length=DAY_MINUTES, description="The oldest first.")
    more: bool = Field(description="Whether later ones had no room.")


def told(minutes: Sequence[DayMinute], most_bytes: int = ANSWER_BYTES) -> Mapping[str, Any]:
    """The object of :class:`Told` for the first of these minutes, at least one."""
    written: list[Mapping[str, Any]] = []
    before: Mapping[Kind, Kept[Any]] = {}
    size = 0
    for minute in minutes:
        if size >= most_bytes:
            break
        said: dict[str, Any] = {"began_at": minute.began_at}
        for kind, kept in minute.kept.items():
            known = kind in before and before[kind].names == kept.names
            values = b64encode(_swapped(kept.values)).decode()
            said[kind] = {"names": None if known else list(kept.names), "values": values}
            # Some characters a number, and a name's own.
            size += 40 + len(values) + (0 if known else sum(len(str(name)) + 4 for name in kept.names))
        written.append(said)
        before = minute.kept
    return {"minutes": written, "more": len(written) < len(minutes)}


def heard(answer: bytes, now: float, latest: DayMinute | None = None) -> tuple[list[DayMinute], bool]:
    """The minutes of an answer, and whether there are more.

    Args:
        now: seconds since 1970.
        latest: the newest one that is known. Names that did not change since are kept once.

    Raises:
        NoMinutes: the answer is none, or says what cannot be.
    """
    try:
        said = Told.model_validate_json(answer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise NoMinutes(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    found: list[DayMinute] = []
    names: dict[Kind, tuple[Any, ...]] = {}
    if latest is not None:
        names = {kind: tuple(kept.names) for kind, kept in latest.kept.items()}
    for place, minute in enumerate(said.minutes):
        if minute.began_at > now + CLOCKS_SECONDS:
            if found:
                return found, False
            ahead = minute.began_at - now
            raise NoMinutes(f"its clock, or that of a topom that led before, is {ahead:.0f} s ahead of the one here")
        if found and minute.began_at <= found[-1].began_at:
            raise NoMinutes(f"a minute that began at {minute.began_at:.0f} cannot be at its place")
        kept: dict[Kind, Kept[Any]] = {}
        for kind in KINDS:
            one: ToldKind[Any] = getattr(minute, kind)
            if one.names is None:
                if not place:
                    raise NoMinutes(f"the first minute does not name its {kind}")
            elif names.get(kind) != (other := tuple(one.names)):
                names[kind] = other
            kept[kind] = Kept(names[kind], _values(one.values, len(names[kind])))
        found.append(DayMinute(minute.began_at, kept))
    return found, said.more


def _values(text: str, names: int) -> "array[float]":
    try:
        values = array("f", b64decode(text, validate=True))
    except ValueError as error:
        raise NoMinutes(f"values are not written as they should be: {error}") from error
    if sys.byteorder == "big":
        values.byteswap()
    if len(values) != KEPT_COLUMNS * names:
        raise NoMinutes(f"{names} names have {len(values)} values, and not {KEPT_COLUMNS} each")
    if not all(0.0 <= value <= LARGEST for value in values):  # which holds of no NaN
        raise NoMinutes("a value is none that can be measured")
    return values


def _swapped(values: "array[float]") -> bytes:
    if sys.byteorder == "big":
        values = array("f", values)
        values.byteswap()
    return values.tobytes()
