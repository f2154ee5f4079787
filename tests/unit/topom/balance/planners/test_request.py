"""What may be asked of a plan, at the bounds of what makes sense."""

import math
from typing import Any

import pytest

from topom.balance.planners.request import (
    MOST,
    REQUEST_BYTES,
    InvalidPlanRequest,
    PlanRequest,
    SlotLoad,
    load_of,
    loads_of,
)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tolerance": 0.0},
        {"tolerance": 1.0},
        {"most_slots": 0, "most_bytes": 0},
        {"capacity": {1: 1e-9, 2: 2.0**62}},
        {"bytes": {0: 0, 1: MOST}, "keys": {0: MOST}},
        {"drain": frozenset({1, 2})},
    ],
)
def test_what_can_be_meant(options: dict[str, Any]) -> None:
    PlanRequest(**options).check([1, 2])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tolerance": -0.01}, "the tolerance is -0.01"),
        ({"tolerance": 1.01}, "the tolerance is 1.01"),
        ({"tolerance": math.nan}, "the tolerance is nan"),
        ({"loads": {3: SlotLoad(1.0, -1.0)}}, "slot 3 has a load of"),
        ({"loads": {3: SlotLoad(math.nan)}}, "slot 3 has a load of"),
        ({"most_slots": -1}, "the limit of slots is -1"),
        ({"most_bytes": -1}, "the limit of bytes is -1"),
        ({"capacity": {1: 1.0, 2: 0.0}}, "the capacity of group 2 is 0.0"),
        ({"capacity": {1: math.inf}}, "the capacity of group 1 is inf"),
        ({"capacity": {1: math.nan}}, "the capacity of group 1 is nan"),
        ({"bytes": {3: -1, 2: MOST + 1}}, f"slot 2 has {MOST + 1} bytes"),
        ({"keys": {3: -1}}, "slot 3 has -1 keys"),
        ({"drain": frozenset({1, 7})}, "group 7 is to be drained, but there is no such group; there are 1-2"),
        ({"capacity": {7: 1.0}}, "group 7 is to have a capacity"),
    ],
)
def test_what_cannot_be_meant(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidPlanRequest) as raised:
        PlanRequest(**options).check([1, 2])
    assert str(raised.value).startswith(says)


def test_requests_and_bytes_are_one_load() -> None:
    assert load_of(None) == 0
    assert load_of(SlotLoad(2.0)) == 2 * REQUEST_BYTES
    assert load_of(SlotLoad(1.0, 300.0, 41.6)) == REQUEST_BYTES + 342
    assert loads_of(PlanRequest(loads={1: SlotLoad(0.0), 2: SlotLoad(0.0, 5.0)})) == {2: 5}
