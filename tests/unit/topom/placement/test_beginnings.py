"""When a placement begins by itself: never in circles, and again if nothing could be done."""

import asyncio
from types import SimpleNamespace

import pytest

from tests.unit.topom.placement.test_applying import Case
from topom.placement import applying
from topom.placement.beginnings import KEPT, LONGEST_WAIT_SECONDS, Beginning, Beginnings
from topom.placement.planner import Copies


def beginning(leader: str, *nodes: str) -> Beginning:
    return nodes, ((1, Copies(leader)),)


def test_each_time_it_is_waited_longer_up_to_a_limit() -> None:
    begun, here, now = Beginnings(10.0), beginning("a", "a", "b"), 0.0
    waits = []
    for _ in range(12):
        assert begun.allow(here, now)
        begun.note(here, now)
        wait = next(seconds for seconds in range(1, 4000) if begun.allow(here, now + seconds))
        waits.append(wait)
        now += wait
    assert waits[:4] == [10, 30, 70, 150]
    assert waits[-1] == LONGEST_WAIT_SECONDS
    assert begun.allow(beginning("b", "a", "b"), now - 1.0)


def test_the_newest_beginnings_of_the_same_nodes_are_remembered() -> None:
    begun = Beginnings(10.0)
    for number in range(2 * KEPT):
        begun.note(beginning(f"n{number}", "a"), 0.0)
    known = [number for number in range(2 * KEPT) if not begun.allow(beginning(f"n{number}", "a"), 1.0)]
    assert known == list(range(KEPT, 2 * KEPT))
    begun.note(beginning("n1", "b"), 0.0)
    assert begun.allow(beginning(f"n{2 * KEPT - 1}", "a"), 1.0), "other nodes are there now"


async def test_a_server_of_the_pool_that_was_emptied_is_found_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(settle_seconds=10.0)
    await case.start({1: "a:1"}, "b:7")
    now = asyncio.get_running_loop().time()
    monkeypatch.setattr(applying.asyncio, "get_running_loop", lambda: SimpleNamespace(time=lambda: now))
    case.servers.keys["b:7"] = 3
    await case.placements.set_auto(True)
    await case.look()
    now += 10.0
    await case.look()
    assert "no server is left in the pool" in str(case.placements.reason)
    case.servers.keys.clear()
    now += 9.0
    await case.look()
    assert case.states() == {}, "it is not planned all the time"
    now += 1.0
    await case.look()
    assert case.states() == {"b:7": "waiting"}
