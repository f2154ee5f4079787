"""Rebalancing over the API: by bytes, with limits and groups to drain, from a table that changes meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from migrator.facts import Facts
from migrator.followable import Followable
from slots.group import Group
from slots.slot import Action, Slot
from slots.states import SlotState
from slots.table import SlotTable
from tests.unit.topom.operators import client_of
from tests.unit.topom.topom_fakes import MIGRATION, FakeMover, MemoryStore
from topom.balance import planners, rebalancing
from topom.balance.measured import LEAST_MEASURED_SECONDS
from topom.balance.rebalancing import TRIES, Rate, Rebalancing, rate_of, still_fits
from topom.cluster import topology
from topom.cluster.speed import PairSpeed
from topom.cluster.topology import Move
from topom.migration.ways import ASSUMED
from topom.term.service import Topom
from topom.term.settings import TopomSettings

NOW = 1_000_000.0
MB = 1024 * 1024
ADDRESSES = tuple(f"127.0.0.1:{number}" for number in range(1, 6))


@pytest.fixture
async def topom(tmp_path: Path) -> AsyncIterator[Topom]:
    """Slots 0 to 7 in group 1, 8 to 15 in group 2. All stay where they are: nobody runs the actions."""
    settings = TopomSettings.load(None, data=tmp_path, number_of_slots=16, redis_timeout_seconds=0.2)
    mover = FakeMover()
    mover.facts = {address: Facts(address, dataset_bytes=80 * MB, keys={0: 838_860}) for address in ADDRESSES}
    one = Topom(settings, MemoryStore(), mover)
    one.sizes.clock = lambda: NOW
    await one.start()
    for group_id in (1, 2):
        await one.edits.edit(
            lambda table, epoch, group_id=group_id: topology.add_group(  # type: ignore[misc]
                table, epoch, group_id, [f"127.0.0.1:{group_id}"]
            )
        )
    await one.edits.edit(lambda table, epoch: topology.assign(table, epoch, range(8), 1))
    await one.edits.edit(lambda table, epoch: topology.assign(table, epoch, range(8, 16), 2))
    yield one
    await one.close()


@pytest.fixture
async def client(topom: Topom) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(topom) as one:
        yield one


async def post_sizes(client: httpx.AsyncClient, sizes: dict[int, int], **more: Any) -> None:
    slots = [{"slot": slot, "bytes": count, "keys": count // 100} for slot, count in sizes.items()]
    body = {"taken_at": NOW - 60, "seconds": 1.0, "complete": True, "slots": slots, **more}
    answer = await client.post("/sizes", json=body)
    assert answer.status_code == 200, answer.text


async def rebalance(client: httpx.AsyncClient, **query: Any) -> dict[str, Any]:
    answer = await client.post("/rebalance", params={"policy": "bytes", **query})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def moves(found: dict[str, Any]) -> list[tuple[int, int, int]]:
    return [(move["slot"], move["from"], move["to"]) for move in found["moves"]]


UNEVEN = {**dict.fromkeys(range(8), 10 * MB), **dict.fromkeys(range(8, 16), 2 * MB)}
"""80 MB in group 1, 16 MB in group 2: three slots of group 1 make them even."""


async def test_by_bytes_and_begun(client: httpx.AsyncClient, topom: Topom) -> None:
    await post_sizes(client, UNEVEN)
    planned = await rebalance(client, dry_run=True, tolerance=0.1)
    assert [move[1:] for move in moves(planned)] == [(1, 2)] * 3
    assert (planned["reasons"], planned["warnings"]) == ([], [])
    assert all(slot.action is None for slot in topom.ledger.table.slots)
    begun = await rebalance(client, tolerance=0.1)
    assert moves(begun) == moves(planned)
    for move in begun["moves"]:
        assert topom.ledger.table.slots[move["slot"]].action == Action(SlotState.PENDING, 2)
    assert moves(await rebalance(client, tolerance=0.1)) == [], "slots in motion count at their target"


async def test_without_sizes_it_is_said_how_to_get_them(client: httpx.AsyncClient) -> None:
    answer = await client.post("/rebalance?policy=bytes&dry_run=true")
    assert answer.status_code == 409
    assert answer.json()["error"] == "NoSizes"
    assert "slotferry sizing run --into DIR" in answer.json()["message"]
    assert (await client.post("/rebalance?dry_run=true")).json()["warnings"] == [], "codis needs none"


async def test_stale_sizes_are_used_and_said(client: httpx.AsyncClient, topom: Topom) -> None:
    await post_sizes(client, UNEVEN, taken_at=NOW - 8 * 86_400)
    planned = await rebalance(client, dry_run=True)
    assert len(planned["moves"]) == 3
    assert "are stale: the oldest was taken 8 days ago" in planned["warnings"][0]


async def test_what_was_not_measured_counts_as_the_mean(client: httpx.AsyncClient) -> None:
    missing = [{"server": "127.0.0.1:2", "reason": "it did not answer"}]
    await post_sizes(client, dict.fromkeys(range(8), 10 * MB), complete=False, missing=missing)
    planned = await rebalance(client, dry_run=True)
    assert moves(planned) == [], "else everything would go to the server that did not answer"
    assert any("it did not answer" in warning for warning in planned["warnings"])
    assert any("8-15" in warning for warning in planned["warnings"])


async def test_limits_draining_and_capacity(client: httpx.AsyncClient) -> None:
    await post_sizes(client, UNEVEN)
    assert len(moves(await rebalance(client, dry_run=True, most_slots=2))) == 2
    limited = await rebalance(client, dry_run=True, most_bytes=10 * MB)
    assert len(moves(limited)) == 1
    assert "limit" in limited["reasons"][0]
    for policy in ("bytes", "codis"):
        drained = await rebalance(client, dry_run=True, drain=2, policy=policy)
        assert moves(drained) == [(slot, 2, 1) for slot in range(8, 16)]
    third = await rebalance(client, dry_run=True, capacity=["1=80", "2=16"])
    assert moves(third) == [], "80 to 16 is what they have"


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ("drain=1&drain=2", 409, "no group is left"),
        ("drain=9", 422, "group 9"),
        ("capacity=9=1", 422, "group 9"),
        ("capacity=1=0", 422, "above 0"),
        ("capacity=1=nan", 422, "above 0"),
        ("capacity=1", 422, "GROUP=WEIGHT"),
        ("tolerance=2", 422, "tolerance"),
        ("most_slots=-1", 422, "most_slots"),
        ("drain=x", 422, "drain"),
    ],
)
async def test_requests_that_cannot_be_meant(client: httpx.AsyncClient, query: str, status: int, says: str) -> None:
    await post_sizes(client, UNEVEN)
    answer = await client.post(f"/rebalance?policy=bytes&{query}")
    assert answer.status_code == status, answer.text
    assert says in answer.json()["message"]


async def test_what_a_plan_costs(client: httpx.AsyncClient, topom: Topom) -> None:
    await topom.orders.set({"way": "keys"})
    await post_sizes(client, UNEVEN)
    cost = (await rebalance(client, dry_run=True, tolerance=0.1))["cost"]
    moved = {"slots": 3, "bytes": 30 * MB, "keys": 3 * (10 * MB // 100)}
    [pair] = cost["pairs"]
    way = pair.pop("way")
    assert pair == {"from": 1, "to": 2, **moved}
    assert (way["way"], way["because"], way["rounds"]) == ("keys", 'migration_way is "keys"', 1)
    assert way["keys"] == pytest.approx(moved["keys"], abs=1)
    assert (way["bytes"], way["lock_seconds"]) == (moved["bytes"], 0.005)
    assert cost["total"] == moved
    assert [group["before"]["bytes"] for group in cost["groups"]] == [80 * MB, 16 * MB]
    assert [group["after"]["bytes"] for group in cost["groups"]] == [50 * MB, 46 * MB]
    assert [group["share_bytes"] for group in cost["groups"]] == [48 * MB] * 2
    assert cost["keys_per_second"] is None, "nothing was ever moved"
    assert cost["seconds"] == pytest.approx(way["seconds"], abs=0.1)

    await topom.orders.set({"keys_per_second": 1000})
    cost = (await rebalance(client, dry_run=True, tolerance=0.1))["cost"]
    assert cost["keys_per_second"] == 1000
    assert cost["seconds"] == pytest.approx(moved["keys"] / 1000 + 838_860 / ASSUMED.scanned_keys, abs=0.1)


async def test_each_pair_is_told_its_way_and_what_was_not_looked_at_is_said(
    client: httpx.AsyncClient, topom: Topom
) -> None:
    mover = topom.actions._mover
    assert isinstance(mover, FakeMover)
    mover.followable = Followable(permitted=True, delay_seconds=0.0)
    mover.facts[ADDRESSES[0]] = Facts(ADDRESSES[0], dataset_bytes=1000 * MB, keys={0: 8_000_000})
    planned = await rebalance(client, policy="codis", drain=[1], dry_run=True)
    [pair] = planned["cost"]["pairs"]
    assert (pair["way"]["way"], pair["way"]["keys"]) == ("stream", 8_000_000)
    assert pair["way"]["twice_bytes"] == pair["way"]["disk_bytes"] == 1000 * MB
    assert "8,000,000 keys (1000 MiB) take 4" in pair["way"]["because"]
    assert planned["cost"]["seconds"] == pytest.approx(pair["way"]["seconds"], abs=0.1)
    # Sizes count before the number of slots.
    await post_sizes(client, {**dict.fromkeys(range(8), 10 * MB), 0: 9 * 10 * MB})
    planned = await rebalance(client, policy="codis", drain=[1], most_slots=1, dry_run=True)
    [pair] = planned["cost"]["pairs"]
    assert pair["way"]["keys"] == pytest.approx(
        8_000_000 * (9 if planned["moves"][0]["slot"] == 0 else 1) / 16, rel=1e-4
    )
    # In as many batches as slots go together.
    await topom.orders.set({"parallel_slots": 4})
    [pair] = (await rebalance(client, policy="codis", drain=[1], dry_run=True))["cost"]["pairs"]
    assert (pair["way"]["rounds"], pair["way"]["keys"], pair["way"]["twice_bytes"]) == (2, 8_000_000, 500 * MB)
    # A server that is evicting is no target; one that does not answer is named.
    mover.facts[ADDRESSES[1]] = Facts(ADDRESSES[1], maximum_bytes=9000 * MB, policy="allkeys-lru")
    [pair] = (await rebalance(client, policy="codis", drain=[1], dry_run=True))["cost"]["pairs"]
    assert pair["way"]["way"] == "keys"
    assert "127.0.0.1:2 evicts keys (allkeys-lru)" in pair["way"]["because"]
    del mover.facts[ADDRESSES[1]]
    planned = await rebalance(client, policy="codis", drain=[1], dry_run=True)
    assert planned["warnings"][-1].startswith("127.0.0.1:2 was not looked at for the way and its forecast: 127.0.0.1:2")
    looked = len(mover.looked)
    begun = await rebalance(client, policy="codis", drain=[1], confirm=True)
    assert [pair["way"] for pair in begun["cost"]["pairs"]] == [None]
    assert len(mover.looked) == looked, "who begins a plan waits for no forecast"


@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_plan_tells_which_moves_wait_for_a_master_that_has_failed(
    client: httpx.AsyncClient, topom: Topom, dry_run: bool
) -> None:
    for group_id in (3, 4):
        await topom.edits.edit(
            lambda table, epoch, group_id=group_id: topology.add_group(  # type: ignore[misc]
                table, epoch, group_id, [f"127.0.0.1:{group_id}"]
            )
        )
    failed = {ADDRESSES[3]}
    topom.rebalancing._has_failed = failed.__contains__
    drained = await rebalance(client, policy="codis", drain=[4], dry_run=True)
    assert not [said for said in drained["warnings"] if "has failed" in said], "nothing goes to or from that group"
    planned = await rebalance(client, policy="codis", dry_run=dry_run)
    assert [said for said in planned["warnings"] if "has failed" in said] == [
        "the master of group 4, 127.0.0.1:4, has failed: slots from and to this group wait until it answers again, or "
        "a replica has taken its place"
    ]


async def test_without_sizes_a_cost_is_in_slots(client: httpx.AsyncClient, topom: Topom) -> None:
    await topom.edits.edit(lambda table, epoch: topology.add_group(table, epoch, 3, ["127.0.0.1:3"]))
    cost = (await rebalance(client, policy="codis", dry_run=True))["cost"]
    assert cost["total"] == {"slots": 5, "bytes": None, "keys": None}
    assert [group["after"]["slots"] for group in cost["groups"]] == [6, 5, 5]


async def test_a_plan_by_number_that_undoes_the_last_plan_asks(client: httpx.AsyncClient, topom: Topom) -> None:
    # Given: by bytes, three slots went to group 2, and have come to rest.
    await post_sizes(client, UNEVEN)
    moved = [move[0] for move in moves(await rebalance(client))]
    rested = [Slot(slot, 2) for slot in moved]
    await topom.edits.edit(lambda table, epoch: topology.with_slots(table, epoch, rested))
    # When, then
    refused = await client.post("/rebalance")
    assert (refused.status_code, refused.json()["error"]) == (409, "UndoesPlan")
    assert "the last plan was by bytes" in refused.json()["message"]
    assert "--policy bytes" in refused.json()["message"]
    assert [slot for slot in topom.ledger.table.slots if slot.action] == []
    assert len(moves(await rebalance(client, policy="codis", dry_run=True))) == 3, "it shows what it would do"
    assert moves(await rebalance(client)) == [], "another plan by bytes is no such thing"
    assert len(moves(await rebalance(client, policy="codis", confirm=True))) == 3
    assert topom.ledger.state.last_plan is not None
    assert topom.ledger.state.last_plan.policy == "codis"
    assert (await client.post("/rebalance")).status_code == 200, "now the last plan is by number"


async def test_the_weights_of_groups_are_those_of_the_last_plan_that_knows_any(
    client: httpx.AsyncClient, topom: Topom
) -> None:
    def weights() -> dict[int, float] | None:
        last = topom.ledger.state.last_plan
        return None if last is None else dict(last.capacity)

    # Given
    await post_sizes(client, UNEVEN)
    await rebalance(client, capacity=["1=2", "2=2"], dry_run=True)
    assert weights() is None
    moved = [move[0] for move in moves(await rebalance(client, capacity=["1=2", "2=2"]))]
    assert weights() == {1: 2.0, 2: 2.0}
    rested = [Slot(slot, 2) for slot in moved]
    await topom.edits.edit(lambda table, epoch: topology.with_slots(table, epoch, rested))
    # When: a plan by number has none.
    assert moves(await rebalance(client, policy="codis", confirm=True))
    assert weights() == {1: 2.0, 2: 2.0}
    # When: others hold from then on, though nothing has to move for them.
    before = topom.ledger.table
    assert moves(await rebalance(client, tolerance=1.0)) == []
    assert weights() == {}
    assert topom.ledger.table is before


class Loads:
    """Slot 0 has half of all requests; all of them go to group 1."""

    measured_seconds = whole_seconds = LEAST_MEASURED_SECONDS

    def slots(self) -> list[tuple[float, float, float]]:
        return [(80.0, 0.0, 0.0), *[(10.0, 0.0, 0.0)] * 8, *[(0.0, 0.0, 0.0)] * 7]

    def hot_keys(self) -> list[Any]:
        return []


async def test_by_load(client: httpx.AsyncClient, topom: Topom) -> None:
    refused = await client.post("/rebalance?policy=load&dry_run=true")
    assert (refused.status_code, refused.json()["error"]) == (409, "NotMeasured")
    loads = Loads()
    topom.rebalancing = Rebalancing(topom.ledger, topom.sizes, topom.actions, loads, lambda server: False)
    assert (await rebalance(client, policy="load", dry_run=True))["warnings"] == []
    loads.whole_seconds = 0.0
    planned = await rebalance(client, policy="load", most_slots=9)
    assert "of some clients only" in planned["warnings"][0]
    assert [move[1:] for move in moves(planned)] == [(1, 2)] * len(planned["moves"])
    assert topom.ledger.table.slots[moves(planned)[0][0]].action == Action(SlotState.PENDING, 2)
    [before, after] = [[group[part]["load_percent_off"] for group in planned["cost"]["groups"]] for part in PARTS]
    assert before[0] > 80
    assert max(after) <= 5
    assert moves(await rebalance(client, policy="load")) == []
    refused = await client.post("/rebalance?policy=load&most_bytes=5")
    assert (refused.status_code, refused.json()["error"]) == (409, "NoSizes")


PARTS = ("before", "after")
SPEED = PairSpeed(100.0, 5000.0)


@pytest.mark.parametrize(
    ("pairs", "speed", "limits", "rate"),
    [
        ([(1, 2)], SPEED, {}, Rate(100.0, 5000.0)),
        ([(1, 2), (3, 4)], SPEED, {}, Rate(200.0, 10_000.0)),
        ([(1, 2), (1, 3)], SPEED, {}, Rate(100.0, 5000.0)),
        ([(1, 4), (2, 4), (3, 5)], SPEED, {}, Rate(150.0, 7500.0)),
        ([(1, 2), (0, 2)], SPEED, {}, Rate(100.0, 5000.0)),
        ([(0, 2)], SPEED, {}, Rate(100.0, 5000.0)),
        ([(1, 2), (3, 4)], SPEED, {"keys_per_second": 120}, Rate(120.0, 10_000.0)),
        ([(1, 2)], None, {"bytes_per_second": 120}, Rate(None, 120.0)),
        ([(1, 2)], None, {}, Rate(None, None)),
        ([], SPEED, {}, Rate(100.0, 5000.0)),
    ],
)
def test_moves_of_other_groups_go_side_by_side(
    pairs: list[tuple[int, int]], speed: PairSpeed | None, limits: dict[str, int], rate: Rate
) -> None:
    plan = [Move(slot, source, target) for slot, (source, target) in enumerate(pairs)]
    settings = replace(MIGRATION, **limits)  # type: ignore[arg-type]
    assert rate_of(plan, dict.fromkeys(range(len(plan)), 10), speed, settings) == rate


def while_planning(
    monkeypatch: pytest.MonkeyPatch, topom: Topom, make: Callable[[int], Callable[[SlotTable, int], SlotTable]]
) -> list[int]:
    """During each plan, change the table by what ``make`` gives for the plan's number; gives the plans' numbers.

    The plan runs on a thread, and the change on the event loop meanwhile: that works only if the loop is free.
    """
    loop = asyncio.get_running_loop()
    real = planners.plan
    made: list[int] = []

    def plan(*arguments: Any) -> Any:
        made.append(len(made))
        asyncio.run_coroutine_threadsafe(topom.edits.edit(make(made[-1])), loop).result(10)
        return real(*arguments)

    monkeypatch.setattr(rebalancing.planners, "plan", plan)
    return made


async def test_epochs_a_plan_that_does_not_fit_any_more_is_made_anew(
    client: httpx.AsyncClient, topom: Topom, monkeypatch: pytest.MonkeyPatch
) -> None:
    await post_sizes(client, UNEVEN)

    def first_time_only(number: int) -> Callable[[SlotTable, int], SlotTable]:
        return lambda table, epoch: topology.move(table, epoch, range(8) if number == 0 else [], 2)

    made = while_planning(monkeypatch, topom, first_time_only)
    begun = await rebalance(client)
    assert made == [0, 1]
    # The change meanwhile keeps all eight slots of group 1. From the earlier table, three would have moved.
    assert {source for _, source, _ in moves(begun)} <= {2}


async def test_a_table_that_never_rests_is_not_planned_for_ever(
    client: httpx.AsyncClient, topom: Topom, monkeypatch: pytest.MonkeyPatch
) -> None:
    await post_sizes(client, UNEVEN)
    made = while_planning(
        monkeypatch, topom, lambda number: lambda table, epoch: topology.move(table, epoch, [15], 1 + number % 2)
    )
    answer = await client.post("/rebalance?policy=bytes")
    assert (answer.status_code, answer.json()["error"]) == (409, "TableChanging")
    assert len(made) == TRIES
    assert all(slot.action is None for slot in topom.ledger.table.slots[:15]), "nothing was begun"
    assert (await client.post("/rebalance?policy=bytes&dry_run=true")).status_code == 200


def test_which_plans_still_fit() -> None:
    groups = {1: Group(1, ("a:1",)), 2: Group(2, ("b:1",)), 3: Group(3)}
    pending = Action(SlotState.PENDING, 2)
    before = SlotTable(1, (Slot(0, 1), Slot(1, 1, pending), Slot(2, 2), Slot(3, 0)), groups)
    plan = [Move(0, 1, 2)]
    assert still_fits(plan, before, before)
    assert still_fits(plan, before, before.changed(2, [Slot(1, 1, Action(SlotState.MIGRATING, 2))])), "it only went on"
    assert still_fits(plan, before, before.changed(2, [Slot(1, 2)])), "it arrived"
    assert still_fits(plan, before, before.changed(2, groups=[Group(1, ("a:1", "a:2")), Group(4)]))
    assert not still_fits(plan, before, before.changed(2, [Slot(1, 1)])), "it was called off"
    assert not still_fits(plan, before, before.changed(2, [Slot(2, 2, Action(SlotState.PENDING, 1))]))
    assert not still_fits(plan, before, before.changed(2, [Slot(0, 1, pending)])), "it moves already"
    assert not still_fits(plan, before, before.changed(2, groups=[Group(3, ("c:1",))])), (
        "there is one more to take part"
    )
    assert not still_fits(plan, before, before.changed(2, groups=[Group(2)]))
