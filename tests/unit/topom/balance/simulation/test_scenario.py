"""What a file of a simulation may say."""

from typing import Any

import pytest

from topom.balance.simulation.scenario import Crowd, InvalidScenario, Scenario, read


def test_what_is_left_out_has_its_default() -> None:
    assert read({}) == Scenario()
    found = read({"groups": 3, "crowds": [{"at": 1, "hours": 2, "times": 3}], "added": [1.5]})
    assert (found.groups, found.crowds, found.added) == (3, (Crowd(1, 2, 3),), (1.5,))


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "is a JSON object"),
        ({"group": 3}, "has no 'group'; it may have added, bytes_per_second"),
        ({"groups": 0}, "groups is 0; it has to be a whole number from 1 to"),
        ({"groups": True}, "groups is True"),
        ({"groups": "many"}, "groups is 'many'; it has to be a whole number"),
        ({"groups": 2.5}, "groups is 2.5"),
        ({"seed": [1]}, "seed is \\[1\\]"),
        ({"slots": 64.0}, "slots is 64.0"),
        ({"crowds": [{"at": 1, "hours": 1, "times": 2, "slot": 1.5}]}, "slot of a crowd is 1.5"),
        ({"slots": 1000}, "slots is 1000; it has to be a power of two"),
        ({"hours": float("nan")}, "hours is nan"),
        ({"slow": 61}, "slow is 61"),
        ({"crowds": [{"at": 1}]}, "of the wrong form"),
        ({"crowds": [{"at": 1, "hours": 1, "times": 2, "slot": 5000}]}, "slot of a crowd is 5000"),
        ({"added": [-1]}, "added is -1"),
        ({"added": 5}, "of the wrong form"),
    ],
)
def test_what_cannot_be_simulated_is_said(document: Any, says: str) -> None:
    with pytest.raises(InvalidScenario, match=says):
        read(document)
