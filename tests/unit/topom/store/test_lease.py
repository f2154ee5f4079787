"""The leader's lease, by a clock that the test moves."""

import asyncio
from collections.abc import Callable

import pytest

from topom.store import Leader, StoreError
from topom.store import lease as module
from topom.store.lease import Lease, LeaseGone

LEADER = Leader("1" * 32, "http://a:1", 1)
SECONDS = 0.3
"""How long a lease lasts; there are three renewals in that time."""


class Place:
    """Does what a store would do, and has the lease there."""

    def __init__(self) -> None:
        self.renewals = 0
        self.released = 0
        self.outcome: Callable[[], None] = lambda: None
        self.lease = Lease(LEADER, SECONDS, module.clock(), self._renew, self._release)

    async def _renew(self) -> None:
        self.renewals += 1
        self.outcome()

    async def _release(self) -> None:
        self.released += 1
        self.outcome()

    async def renewed(self, times: int) -> None:
        async with asyncio.timeout(30):
            while self.renewals < times:
                await asyncio.sleep(0.005)


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "clock", clock)
    return clock


def fail(error: Exception) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it


async def test_it_is_renewed_until_the_store_fails(clock: Clock) -> None:
    place = Place()
    for round_ in range(1, 4):
        clock.now += SECONDS * 0.9
        await place.renewed(round_)
        await asyncio.sleep(0)
        assert place.lease.valid()
    place.outcome = fail(StoreError("away"))
    clock.now += SECONDS * 0.9
    await place.renewed(5)
    assert place.lease.valid(), "it holds as long as it was granted for"
    clock.now += SECONDS * 0.2
    async with asyncio.timeout(30):
        await place.lease.lost.wait()
    assert not place.lease.valid()


async def test_whoever_wakes_asks_and_knows_at_once(clock: Clock) -> None:
    place = Place()
    await place.renewed(1)
    clock.now += SECONDS
    # No task has run since then: this is the first thing that a process does after a pause.
    assert not place.lease.valid()
    assert place.lease.lost.is_set()
    clock.now -= SECONDS
    assert not place.lease.valid(), "for good"
    await asyncio.sleep(0.05)
    assert place.released == 1


async def test_a_renewal_counts_from_when_it_was_asked_for(clock: Clock) -> None:
    place = Place()

    def slow() -> None:
        clock.now += SECONDS * 0.8

    place.outcome = slow
    await place.renewed(1)
    place.outcome = fail(StoreError("away"))
    await asyncio.sleep(0)
    assert place.lease.valid()
    clock.now += SECONDS * 0.3
    assert not place.lease.valid()


async def test_a_lease_that_the_store_has_ended_is_lost_at_once() -> None:
    place = Place()
    place.outcome = fail(LeaseGone("gone"))
    async with asyncio.timeout(30):
        await place.lease.lost.wait()
    assert place.renewals == 1


async def test_a_renewal_that_breaks_loses_the_lease() -> None:
    place = Place()
    place.outcome = fail(RuntimeError("unforeseen"))
    async with asyncio.timeout(30):
        await place.lease.lost.wait()


async def test_to_resign_never_fails() -> None:
    place = Place()
    place.outcome = fail(StoreError("away"))
    await place.lease.resign()
    await place.lease.resign()
    assert place.lease.lost.is_set()
    assert place.released == 1
    renewals = place.renewals
    await asyncio.sleep(SECONDS)
    assert place.renewals == renewals
