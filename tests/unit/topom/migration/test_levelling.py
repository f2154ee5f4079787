"""A copy whose lag does not sink is said, with what to do about it, until it sinks or is gone."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from slots.states import SlotState
from slots.table import SlotTable
from tests.unit.topom.topom_fakes import Bench
from topom.cluster import topology
from topom.migration.batches import Batch
from topom.migration.levelling import SINKING_SECONDS, Levelling

MakeBench = Callable[..., Awaitable[Bench]]
MIB = 2**20
BATCH = Batch(1, 2, (0,), SlotState.COPYING)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_lag_that_does_not_sink_is_said_until_it_does() -> None:
    clock = Clock()
    levels = Levelling(clock)
    for lag in (None, 9 * MIB, 12 * MIB, 9 * MIB):
        levels.look({BATCH: lag})
        clock.now += SINKING_SECONDS / 3
    assert levels.stuck == {}, "a minute since it was lowest is not over"
    levels.look({BATCH: 20 * MIB})
    reason = levels.stuck[BATCH]
    assert "slots of group 1 in group 2 does not get level: 20 MiB of what was written" in reason.what
    assert "--way keys" in reason.to_do
    levels.look({BATCH: 30 * MIB})
    assert levels.stuck[BATCH].since == reason.since
    assert "30 MiB" in levels.stuck[BATCH].what
    levels.look({BATCH: 9 * MIB - 1})
    assert levels.stuck == {}, "it sinks"
    clock.now += SINKING_SECONDS
    levels.look({BATCH: 9 * MIB})
    assert levels.stuck
    levels.look({})
    assert levels.stuck == {}, "the copy is gone"


@pytest.mark.parametrize("lag", [None, 0, 200_000])
def test_a_copy_that_is_nearly_level_or_does_not_follow_yet_is_left_alone(lag: int | None) -> None:
    clock = Clock()
    levels = Levelling(clock)
    for clock.now in (0.0, 100.0, 1000.0):
        levels.look({BATCH: lag})
        assert levels.stuck == {}


async def test_an_operator_sees_it_and_it_goes_when_the_lag_sinks(bench: MakeBench) -> None:
    one = await bench(way="stream")
    clock, gate = Clock(), asyncio.Event()
    one.actions.levelling = Levelling(clock)
    one.mover.copying = gate.wait

    def send(table: SlotTable, epoch: int) -> SlotTable:
        return topology.move(table, epoch, range(4), 2)

    def look(lag: int, at: float) -> None:
        one.mover.copies[0].lag, clock.now = lag, at
        one.actions.follow_clock()

    one.run()
    await one.edit(send)
    await one.until(lambda table: bool(one.mover.copies))
    look(5 * MIB, 0.0)
    [batch] = one.actions.batches
    assert one.actions.reason(batch) is None
    look(6 * MIB, SINKING_SECONDS)
    reason = one.actions.reason(batch)
    assert reason is not None
    assert "does not get level: 6 MiB" in reason.what
    assert one.actions.lags() == {batch: 6 * MIB}
    look(MIB, SINKING_SECONDS + 1)
    assert one.actions.reason(batch) is None
    look(2 * MIB, 3 * SINKING_SECONDS)
    assert one.actions.reason(batch) is not None
    gate.set()
    await one.at_rest()
    one.actions.follow_clock()
    assert (one.actions.lags(), one.actions.levelling.stuck) == ({}, {})
