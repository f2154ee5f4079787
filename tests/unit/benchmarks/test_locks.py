"""What a lock is for a client, put together from topom's steps and the requests of a probe. Nothing is timed here."""

import pytest

from benchmarks.locks import PARTS, Found, note
from benchmarks.probe import Kind, Request

DONE = {
    "prepared stored": 10.0,
    "prepared acknowledged": 10.01,
    "level": 10.03,
    "finished stored": 10.04,
    "finished acknowledged": 10.05,
}


def test_a_lock_is_the_longest_request_that_was_under_way_meanwhile() -> None:
    requests = [
        # In the order of their ends, as a probe writes them.
        Request(9.0, 0.3, Kind.ANSWERED),
        Request(9.86, 0.002, Kind.ANSWERED),
        Request(10.001, 0.041, Kind.ANSWERED),
        Request(9.999, 0.045, Kind.ANSWERED),
        Request(10.2, 0.5, Kind.ANSWERED),
    ]
    found = Found()
    note(found, [DONE], requests)
    assert found.seen == pytest.approx([45.0])
    assert found.quiet == pytest.approx([2.0])
    assert [found.parts[part][0] for part in PARTS] == pytest.approx([10, 20, 10, 10])


def test_the_goal_of_many_proxies_is_beside_their_barriers() -> None:
    found = Found(seen=[5.0, 41.0], barriers=[30.0, 18.0])
    assert found.verdicts(100) == [("p99 of the lock, to a barrier's + 20", 41.0, 50.0)]
    assert [bound for _, _, bound in found.verdicts(2)] == [15.0, 40.0]
