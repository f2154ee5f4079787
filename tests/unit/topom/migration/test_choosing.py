"""Batches go the way that suits them, by what their servers say; operators see which, and why."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from migrator.facts import Facts
from migrator.followable import Followable
from slots.states import SlotState
from slots.table import SlotTable
from tests.unit.topom.topom_fakes import Bench
from topom.cluster import differing, topology
from topom.migration.batches import Batch
from topom.migration.choosing import GIVEN_UP_SECONDS, Choosing
from topom.migration.ways import Choice, Sized, Way

MakeBench = Callable[..., Awaitable[Bench]]
SOURCE, TARGET = "s1:6379", "s2:6379"


def send(table: SlotTable, epoch: int) -> SlotTable:
    return topology.move(table, epoch, range(8), 2)


async def began(
    bench: MakeBench, way: str = "auto", keys: int = 8_000_000, evicts: bool = False, **options: Any
) -> Bench:
    one = await bench(way=way, **options)
    one.mover.followable = Followable(permitted=True, delay_seconds=0.0)
    one.mover.facts = {
        SOURCE: Facts(SOURCE, dataset_bytes=keys * 100, keys={0: keys}),
        TARGET: Facts(TARGET, maximum_bytes=10 * keys * 100, policy="allkeys-lru" if evicts else "noeviction"),
    }
    return one


@pytest.mark.parametrize(
    ("changes", "copies", "note"),
    [
        ({}, 1, "by the stream: 4,000,000 keys (381 MiB) take 2"),
        ({"keys": 1000}, 0, "by keys: 500 keys (49 KiB) move in 0.0 s, and by the stream in 1.0 s"),
        ({"evicts": True}, 0, "by keys: s2:6379 evicts keys (allkeys-lru)"),
        ({"way": "keys"}, 0, 'by keys: migration_way is "keys"'),
        ({"way": "stream", "evicts": True}, 1, 'by the stream: migration_way is "stream"'),
    ],
)
async def test_a_batch_goes_the_way_that_suits_it(
    bench: MakeBench, changes: dict[str, Any], copies: int, note: str
) -> None:
    notes: list[str] = []

    async def look(step: str) -> None:
        notes.extend(note for batch in one.actions.batches for note in batch.notes)

    one = await began(bench, on_step=look, **changes)
    one.run()
    await one.edit(send)
    await one.at_rest()
    assert len(one.mover.copies) == copies
    assert len(one.mover.moved) == 1 - copies
    assert any(said.startswith(note) for said in notes), notes


async def test_a_replica_may_be_followed_where_the_master_may_not(bench: MakeBench) -> None:
    one = await began(bench)
    one.mover.facts[SOURCE] = replace(one.mover.facts[SOURCE], counts_replicas=True)

    async def way() -> Way:
        return (await one.actions.choosing.of_pairs({(1, 2): range(8)})).choices[1, 2].way

    assert await way() is Way.KEYS
    await one.edit(lambda table, epoch: topology.add_server(table, epoch, 1, "s9:6379"))
    assert await way() is Way.STREAM
    differs = differing.found("s9:6379", 1, 10, {}, 0.0)
    await one.ledger.change(lambda state, epoch: differing.marked(state, differs))
    assert await way() is Way.KEYS


async def test_what_a_master_says_of_being_followed_is_not_said_of_its_replicas(bench: MakeBench) -> None:
    one = await began(bench)
    one.mover.followable = Followable(permitted=False, delay_seconds=300.0)

    async def chosen() -> Choice:
        return (await one.actions.choosing.of_pairs({(1, 2): range(8)})).choices[1, 2]

    assert "does not let our user run PSYNC" in (await chosen()).reason
    await one.edit(lambda table, epoch: topology.add_server(table, epoch, 1, "s9:6379"))
    assert (await chosen()).way is Way.STREAM
    assert "(assumed: " in (await chosen()).reason
    assert "5 s until a snapshot begins, that our user may PSYNC)" in (await chosen()).reason
    one.mover.followable = Followable(permitted=True)
    assert "PSYNC" not in (await chosen()).reason, "the master is followed if its replicas refuse"


async def test_sizes_and_speeds_and_limits_are_those_that_hold(bench: MakeBench) -> None:
    one = await began(bench)
    choosing = one.actions.choosing
    choosing.sizes = lambda group_id, slots: Sized(1.0, 1.0, 100.0, 100.0) if group_id == 1 else None
    ways = await choosing.of_pairs({(1, 2): range(8), (0, 2): [9]})
    assert ways.choices.keys() == {(1, 2)}, "offline slots have no keys to move"
    forecast = ways.choices[1, 2].forecast
    assert forecast is not None
    assert forecast.keys == 80_000
    assert ways.choices[1, 2].way is Way.KEYS
    assert sorted(one.mover.looked) == [SOURCE, TARGET]
    assert await one.actions.choosing.of_pairs({}) == type(ways)()


async def test_what_is_not_told_in_time_is_not_known_and_a_fault_is_no_silence(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topom.migration.choosing.LOOKS_SECONDS", 0.05)
    one = await began(bench)
    assert isinstance(one.actions.choosing, Choosing)

    async def never(server: str) -> tuple[Facts, Followable]:
        await asyncio.Event().wait()
        raise AssertionError

    async def broken(server: str) -> tuple[Facts, Followable]:
        raise ZeroDivisionError

    monkeypatch.setattr(one.mover, "look", never)
    ways = await one.actions.choosing.of_pairs({(1, 2): range(8)})
    assert ways.warnings == ("2 servers did not say within 0.05 s what they have",)
    assert ways.choices[1, 2].reason == "it is not known how much moves"
    monkeypatch.setattr(one.mover, "look", broken)
    with pytest.raises(ZeroDivisionError):
        await one.actions.choosing.of_pairs({(1, 2): range(8)})


async def test_what_one_batch_could_not_copy_the_next_one_does_not_try(bench: MakeBench) -> None:
    one = await began(bench)
    choosing, now = one.actions.choosing, [0.0]
    choosing._clock = lambda: now[0]
    found = await one.mover.check(SOURCE, TARGET, 0.5)
    failed, later = Batch(1, 2, tuple(range(8)), SlotState.PENDING), Batch(1, 2, tuple(range(8)), SlotState.PENDING)
    assert choosing.of_batch(failed, found).way is Way.STREAM
    failed.by_keys = "the source runs EVAL"
    assert str(choosing.of_batch(failed, found)) == "by keys: the source runs EVAL"
    assert str(choosing.of_batch(later, found)) == "by keys: the source runs EVAL (as an earlier batch found)"
    assert (await choosing.of_pairs({(1, 2): range(8)})).choices[1, 2].way is Way.KEYS
    assert choosing.of_batch(Batch(1, 3, tuple(range(8)), SlotState.PENDING), found).way is Way.STREAM
    now[0] = GIVEN_UP_SECONDS
    assert choosing.of_batch(later, found).way is Way.STREAM
    now[0] = 0.0
    one.actions._configured = replace(one.actions._configured, way="stream")
    assert choosing.of_batch(later, found).way is Way.STREAM, "an operator's word counts"
    older = replace(found, reads_payloads=False)
    assert choosing.of_batch(later, older).way is Way.KEYS, "its copy is the only way, and would be tried for ever"
    now[0] = GIVEN_UP_SECONDS
    assert choosing.of_batch(later, older).way is Way.STREAM


@pytest.mark.parametrize(
    ("changes", "way", "warned"),
    [
        ({}, Way.STREAM, ""),
        ({"evicts": True}, Way.KEYS, "the slots for it will wait: s2:6379 evicts keys (allkeys-lru)"),
        ({"way": "keys"}, Way.KEYS, 'the slots for it will wait: migration_way is "keys"'),
    ],
)
async def test_a_plan_says_that_an_older_target_takes_keys_only_by_the_stream(
    bench: MakeBench, changes: dict[str, Any], way: Way, warned: str
) -> None:
    one = await began(bench, keys=1000, **changes)
    one.mover.facts[SOURCE] = replace(one.mover.facts[SOURCE], payloads=10)
    one.mover.facts[TARGET] = replace(one.mover.facts[TARGET], payloads=9)
    ways = await one.actions.choosing.of_pairs({(1, 2): range(8)})
    assert ways.choices[1, 2].way is way
    assert warned in "".join(ways.warnings)
    assert len(ways.warnings) == bool(warned)
