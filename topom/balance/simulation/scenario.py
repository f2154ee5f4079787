"""What is simulated, as a file says it: a JSON object whose members are the fields of :class:`Scenario`."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from slots.slot import MAXIMUM_SLOTS
from topom.cluster.topology import MAXIMUM_GROUP_ID
from topom.errors import Invalid

MOST_HOURS = 24.0 * 60
MOST_CROWDS = 10_000
WHOLE = frozenset({"groups", "slots", "seed", "slow", "slot_bytes", "slot of a crowd"})
"""What has to be a whole number."""


class InvalidScenario(Invalid):
    """A file that says something that cannot be simulated."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """Clients that ask one slot for much more, from the hour ``at`` on, for so many ``hours``.

    Its load is then ``times`` as much. ``slot`` is one by chance if it is -1.
    """

    at: float
    hours: float
    times: float
    slot: int = -1


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fleet, and what happens to it.

    Attributes:
        groups, slots: how many; slots are in ranges of the same length.
        hours: how long.
        seed: of all that is by chance.
        step_seconds: between two decisions.
        exponent: of Zipf's law, by which load differs between slots.
        largest: the most load that a slot has, as a part of a group's share.
        drift: how far a slot's load goes up and down in a day, each slot at its own time of the day: a part of it.
        wander: how far a slot's load wanders off in an hour, by chance: a part of it.
        crowds: flash crowds.
        added: hours at which a group is added.
        slow: a group whose keys move at a tenth of the speed; 0 for none.
        slot_bytes: the mean size of a slot. Sizes are from a fifth to five times that.
        bytes_per_second: how fast a group gives or takes keys.
    """

    groups: int = 60
    slots: int = 1024
    hours: float = 24.0
    seed: int = 1
    step_seconds: float = 60.0
    exponent: float = 0.5
    largest: float = 0.5
    drift: float = 0.3
    wander: float = 0.05
    crowds: tuple[Crowd, ...] = ()
    added: tuple[float, ...] = ()
    slow: int = 0
    slot_bytes: int = 64 << 20
    bytes_per_second: float = 50e6


def read(document: Any) -> Scenario:
    """The scenario of a parsed file.

    Raises:
        InvalidScenario: it is wrong; a sentence says what.
    """
    if not isinstance(document, Mapping):
        raise InvalidScenario("a simulation is a JSON object")
    known = {field.name for field in fields(Scenario)}
    unknown = sorted(set(document) - known)
    if unknown:
        raise InvalidScenario(f"a simulation has no {unknown[0]!r}; it may have {', '.join(sorted(known))}")
    try:
        crowds = tuple(Crowd(**one) for one in document.get("crowds", ()))
        scenario = Scenario(**{**document, "crowds": crowds, "added": tuple(document.get("added", ()))})
        _check(scenario)
    except TypeError as error:
        raise InvalidScenario(f"a simulation of the wrong form: {error}") from None
    return scenario


def _check(one: Scenario) -> None:
    bounds: list[tuple[str, float, float, float]] = [
        ("groups", one.groups, 1, MAXIMUM_GROUP_ID - len(one.added)),
        ("slots", one.slots, 1, MAXIMUM_SLOTS),
        ("hours", one.hours, 0, MOST_HOURS),
        ("seed", one.seed, -(2**63), 2**63),
        ("step_seconds", one.step_seconds, 1, 3600),
        ("exponent", one.exponent, 0, 4),
        ("largest", one.largest, 0.001, 1000),
        ("drift", one.drift, 0, 0.99),
        ("wander", one.wander, 0, 1),
        ("slow", one.slow, 0, one.groups),
        ("slot_bytes", one.slot_bytes, 1, 2**50),
        ("bytes_per_second", one.bytes_per_second, 1, 2**50),
        ("the number of crowds", len(one.crowds), 0, MOST_CROWDS),
    ]
    for crowd in one.crowds:
        bounds += [
            ("at of a crowd", crowd.at, 0, MOST_HOURS),
            ("hours of a crowd", crowd.hours, 0, MOST_HOURS),
            ("times of a crowd", crowd.times, 0, 1e6),
            ("slot of a crowd", crowd.slot, -1, one.slots - 1),
        ]
    bounds += [("added", hour, 0, MOST_HOURS) for hour in one.added]
    for name, value, least, most in bounds:
        whole = name in WHOLE
        if isinstance(value, bool) or (whole and not isinstance(value, int)) or not least <= value <= most:
            kind = " a whole number" if whole else ""
            raise InvalidScenario(f"{name} is {value!r}; it has to be{kind} from {least:g} to {most:g}")
    if one.slots & (one.slots - 1):
        raise InvalidScenario(f"slots is {one.slots}; it has to be a power of two")
