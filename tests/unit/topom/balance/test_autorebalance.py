"""Slots that move by themselves, over fakes: what is begun, what an operator stops, what becomes an event."""

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from migrator.errors import NotEnoughMemory
from slots.slot import Slot
from tests.unit.topom.operators import client_of
from tests.unit.topom.topom_fakes import FakeMover, MemoryStore
from topom.balance import autorebalance, deciding
from topom.balance.autorebalance import NOTE_SECONDS, AutoRebalance
from topom.balance.deciding import RULES, Decision, Rules, Why
from topom.balance.sizes import SlotSize, Taking
from topom.cluster import topology
from topom.cluster.events import What, actor
from topom.cluster.state import LastPlan
from topom.reasons import Kind, Reason
from topom.term.service import Topom
from topom.term.settings import TopomSettings

AT_ONCE = replace(RULES, sustained_seconds=0.0, budget=1.0)
"""Rules by which a first look may begin moves."""


class Loads:
    """Some slots are hot: at first two of group 1."""

    measured_seconds = whole_seconds = 1000.0
    hot = 50.0
    which: Collection[int] = (0, 1)
    others = 10.0

    def __init__(self) -> None:
        self.asked_on: set[threading.Thread] = set()

    def slots(self) -> list[tuple[float, float, float]]:
        return [(self.hot if slot in self.which else self.others, 0.0, 0.0) for slot in range(16)]

    def hot_keys(self) -> list[Any]:
        self.asked_on.add(threading.current_thread())
        return []


class Auto:
    """A topom's loop, with a clock and flags that the test sets."""

    def __init__(self, topom: Topom, mover: FakeMover, rules: Rules = AT_ONCE) -> None:
        self.topom = topom
        self.mover = mover
        self.now = 1e10  # long after what the test itself does as an operator
        self.loads = Loads()
        self.failed: list[str] = []
        self.held: Reason | None = None
        self.loop = AutoRebalance(
            topom.ledger,
            topom.rebalancing,
            self.loads,
            topom.sizes,
            lambda: topom.actions.halt,
            lambda: self.failed,
            topom.actions.steps.check,
            lambda: self.held,
            rules=rules,
            clock=lambda: self.now,
        )
        topom.auto_rebalance = self.loop

    async def look(self) -> Decision:
        await self.loop.look()
        return self.loop.decision

    @property
    def moving(self) -> list[int]:
        return [slot.id for slot in self.topom.ledger.table.slots if slot.action is not None]

    def events(self, what: What) -> list[str]:
        return [event.text for event in self.topom.ledger.state.events if event.what == what]


@pytest.fixture
async def auto(tmp_path: Path) -> AsyncIterator[Auto]:
    """Slots 0 to 7 in group 1, 8 to 15 in group 2. All stay where they are: nobody runs the actions."""
    settings = TopomSettings.load(None, data=tmp_path, number_of_slots=16, redis_timeout_seconds=0.2, rebalance="auto")
    mover = FakeMover()
    one = Topom(settings, MemoryStore(), mover)
    await one.start()
    for group_id in (1, 2):
        await one.edits.edit(
            lambda table, epoch, group_id=group_id: topology.add_group(  # type: ignore[misc]
                table, epoch, group_id, [f"127.0.0.1:{group_id}"]
            )
        )
    await one.edits.edit(lambda table, epoch: topology.assign(table, epoch, range(8), 1))
    await one.edits.edit(lambda table, epoch: topology.assign(table, epoch, range(8, 16), 2))
    yield Auto(one, mover)
    await one.close()


@pytest.fixture
async def client(auto: Auto) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(auto.topom) as one:
        yield one


async def test_what_is_decided_is_begun_and_is_one_event(auto: Auto, client: httpx.AsyncClient) -> None:
    made = await auto.look()
    assert made.why is Why.MOVES
    assert auto.moving == [move.slot for move in made.moves]
    assert auto.moving
    assert auto.events(What.REBALANCE_PLANNED) == [made.text]
    assert auto.topom.ledger.state.last_plan is not None
    assert (auto.topom.ledger.state.last_plan.policy, auto.topom.ledger.state.last_plan.by) == ("load", "topom")
    told = (await client.get("/rebalance/decision")).json()
    assert (told["auto"], told["cause"], told["text"]) == (True, "moves", made.text)
    assert [move["slot"] for move in told["moves"]] == auto.moving
    assert (await auto.look()).why is Why.MOVING
    assert (await auto.loop.look()).about == "moving", "how many are on their way is no news"
    assert threading.main_thread() not in auto.loads.asked_on, "a large fleet's load takes long to read"


async def test_the_setting_says_when_it_looks_and_how_long_it_waits(tmp_path: Path) -> None:
    settings = TopomSettings.load(None, data=tmp_path, number_of_slots=16, rebalance="auto", rebalance_after_seconds=10)
    one = Topom(settings, MemoryStore(), FakeMover())
    await one.start()
    assert one.auto_rebalance.rules == Rules.after(10.0)
    assert one.auto_rebalance.decision.text == "this topom has decided nothing yet"
    assert (await one.auto_rebalance.look()).again == 2.0
    await one.close()
    assert RULES.sustained_seconds / autorebalance.LOOKS == 60.0


async def test_by_hand_nothing_is_decided(auto: Auto, client: httpx.AsyncClient) -> None:
    loop = AutoRebalance(
        auto.topom.ledger,
        auto.topom.rebalancing,
        auto.loads,
        auto.topom.sizes,
        lambda: None,
        list,
        auto.topom.actions.steps.check,
        on=False,
    )
    assert (await loop.look()).over
    auto.topom.auto_rebalance = loop
    told = (await client.get("/rebalance/decision")).json()
    assert (told["cause"], told["at"], told["moves"]) == ("manual", None, [])


@pytest.mark.parametrize("stop", ["pause", "cancel", "move"])
async def test_an_operator_who_acts_while_it_is_decided_is_heeded(
    auto: Auto, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    # Given: the operator acts after the picture was drawn, and before the moves are stored.
    real = deciding.decide
    loop = asyncio.get_running_loop()

    async def act() -> None:
        actor.set("ada (by operator)")
        if stop == "pause":
            await auto.topom.orders.set({"paused": True})
        elif stop == "cancel":
            await auto.topom.edits.edit(lambda table, epoch: topology.move(table, epoch, [15], 1))
            await auto.topom.orders.cancel(None)
        else:
            await auto.topom.edits.edit(lambda table, epoch: topology.move(table, epoch, [15], 1))

    def decide(*arguments: Any) -> Decision:
        made = real(*arguments)
        asyncio.run_coroutine_threadsafe(act(), loop).result(10)
        auto.now = auto.topom.ledger.state.events[-1].at
        return made

    monkeypatch.setattr(deciding, "decide", decide)
    monkeypatch.setattr(autorebalance, "MOST_AGE_SECONDS", math.inf)  # the clock of this test leaps
    auto.now = 1e10
    # When
    made = await auto.look()
    # Then
    assert made.why is Why.CHANGED
    assert [slot for slot in auto.moving if slot != 15] == []
    # And it stays quiet for an hour, also once nothing moves and nothing is paused.
    monkeypatch.setattr(deciding, "decide", real)
    actor.set("ada (by operator)")
    await auto.topom.orders.set({"paused": False})
    await auto.topom.orders.cancel(None)
    acted = auto.topom.ledger.state.events[-1].at
    actor.set("")
    auto.now = acted + RULES.quiet_seconds - 1
    assert (await auto.look()).why is Why.OPERATOR
    auto.now = acted + RULES.quiet_seconds + 1
    assert (await auto.look()).why is Why.MOVES


@pytest.mark.parametrize("stop", ["paused", "a proxy is silent"])
async def test_a_decision_by_figures_that_hold_no_more_begins_nothing(
    auto: Auto, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    # Given: topom's process is paused for minutes once it has decided, or a proxy tells nothing any more.
    real = deciding.decide

    def decide(*arguments: Any) -> Decision:
        made = real(*arguments)
        if stop == "paused":
            auto.now += autorebalance.MOST_AGE_SECONDS + 1
        else:
            auto.loads.whole_seconds = 0.0
        return made

    monkeypatch.setattr(deciding, "decide", decide)
    auto.loop.rules = replace(AT_ONCE, sustained_seconds=0.001)
    auto.now -= 1.0
    assert (await auto.look()).why is Why.NOT_SUSTAINED
    auto.loads.whole_seconds = 1000.0
    auto.now += 1.0
    # When
    made = await auto.look()
    # Then
    assert made.why is Why.CHANGED
    assert auto.moving == []


@pytest.mark.parametrize(
    ("said", "days", "others"),
    [
        ({}, 0.0, 10.0),  # the fleet was empty when it was measured
        ({}, 0.0, 0.0),
        ({8: 1 << 40}, 0.0, 10.0),  # so were the slots that clients ask for now
        ({slot: 1 << (40 if slot > 7 else 0) for slot in range(16)}, 8.0, 10.0),  # it is more than a week ago
    ],
)
async def test_sizes_that_cannot_be_true_any_more_do_not_pass_the_budget(
    auto: Auto, said: dict[int, int], days: float, others: float
) -> None:
    # Given: by these sizes, the hot slots weigh nothing; a fifth of all may move in an hour: three slots.
    auto.topom.sizes.clock = lambda: auto.now
    taken = auto.now - days * 86_400
    sizes = {slot: SlotSize(size, 1, (), taken) for slot, size in said.items()}
    await auto.topom.sizes.record(Taking(taken, 1.0, True), sizes)
    auto.loads.which = range(8)
    auto.loads.hot, auto.loads.others = 1000.0, others
    auto.loop.rules = replace(AT_ONCE, budget=0.2)
    # When
    made = await auto.look()
    # Then
    assert made.why is Why.MOVES
    assert len(made.moves) <= 3


async def test_what_an_operator_has_weighed_differently_stays_so(auto: Auto) -> None:
    # Given: group 1 has five eighths of all requests, and twice the weight of group 2 by the operator's plan.
    auto.loads.which, auto.loads.hot = range(8), 17.0
    assert (await auto.look()).why is Why.MOVES
    await auto.topom.orders.cancel(None)
    plan = LastPlan("load", "ada", 5.0, {1: 2.0, 2: 1.0, 9: 7.0})
    await auto.topom.ledger.change(lambda state, epoch: replace(state, last_plan=plan))
    # Then
    made = await auto.look()
    assert (made.why, made.greatest) == (Why.EVEN, 1.1111)


async def test_slots_go_only_to_groups_that_can_take_them(auto: Auto) -> None:
    # Given: a third group, of whose slots clients ask for least, is at its maxmemory.
    await auto.topom.edits.edit(lambda table, epoch: topology.add_group(table, epoch, 3, ["127.0.0.1:3"]))
    slots = [Slot(slot, 1 + min(slot // 6, 2)) for slot in range(16)]
    await auto.topom.ledger.change(
        lambda state, epoch: replace(state, table=topology.with_slots(state.table, epoch, slots))
    )
    auto.loads.which, auto.loads.hot = range(6), 30.0
    auto.mover.refusing["127.0.0.1:3"] = NotEnoughMemory("target 127.0.0.1:3 has too little memory", "free some")
    # When
    made = await auto.look()
    # Then
    assert made.why is Why.MOVES
    assert {move.target for move in made.moves} == {2}
    checked = [entry for entry in auto.mover.checked if entry[1] == "127.0.0.1:3"]
    assert len(checked) == 1, "it was the first choice"
    # And if no group can take any, that is said, and nothing waits for ever.
    await auto.topom.orders.cancel(None)
    auto.mover.refusing["127.0.0.1:2"] = NotEnoughMemory("target 127.0.0.1:2 has too little memory", "free some")
    made = await auto.look()
    assert (made.why, made.moves, made.expected) == (Why.NO_PLAN, (), None)
    assert made.text.endswith("; group 2 can take no slots: target 127.0.0.1:2 has too little memory; free some")
    assert auto.moving == []


async def test_what_holds_it(auto: Auto) -> None:
    auto.held = Reason(Kind.PAUSED, "ada has paused topom")
    assert (await auto.look()).why is Why.HELD
    auto.held, auto.failed = None, ["127.0.0.1:2"]
    assert (await auto.look()).why is Why.FAILED
    assert auto.moving == []


async def test_a_topom_that_has_just_come_to_lead_waits_and_undoes_nothing(
    auto: Auto, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[deciding.Picture] = []
    real = deciding.decide

    def decide(picture: deciding.Picture, *others: Any) -> Decision:
        seen.append(picture)
        return real(picture, *others)

    monkeypatch.setattr(deciding, "decide", decide)
    # Given: the former leader has moved slots, which have come to rest just now.
    await auto.look()
    moved = auto.moving
    came_from = {slot: auto.topom.ledger.table.slots[slot].group_id for slot in moved}
    await auto.topom.ledger.change(
        lambda state, epoch: replace(
            state,
            table=topology.with_slots(
                state.table, epoch, [replace(state.table.slots[slot], group_id=2, action=None) for slot in moved]
            ),
            moved=dict.fromkeys(moved, auto.now),
            departures={group_id: dict.fromkeys(moved, auto.now) for group_id in set(came_from.values())},
        )
    )
    # When: another one leads, and all load is in these slots, so that group 2 has too much.
    second = Auto(auto.topom, auto.mover, replace(RULES, budget=1.0))
    second.loads.which = moved
    second.loads.whole_seconds = 10.0
    assert (await second.look()).why is Why.NOT_MEASURED
    second.loads.whole_seconds = RULES.sustained_seconds
    assert (await second.look()).why is Why.NOT_SUSTAINED
    second.now += RULES.sustained_seconds
    made = await second.look()
    # Then
    assert not {move.slot for move in made.moves} & set(moved)
    assert seen[-1].departures == {group_id: dict.fromkeys(moved, auto.now) for group_id in set(came_from.values())}


async def test_reasons_to_do_nothing_are_events_only_when_they_change(
    auto: Auto, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[str] = []
    monkeypatch.setattr(auto.topom.ledger, "note", lambda what, text, **more: noted.append(f"{what}: {text}"))
    auto.failed = ["127.0.0.1:2"]
    for _ in range(5):
        auto.now += 60.0
        await auto.look()
    assert noted == ["rebalance_waits: no slot moves by itself: 1 server does not answer everybody: 127.0.0.1:2"]
    # They come and go: still one event an hour for each.
    for _ in range(20):
        auto.now += 60.0
        auto.failed, auto.held = [], Reason(Kind.PAUSED, "ada has paused topom")
        await auto.look()
        auto.failed, auto.held = ["127.0.0.1:2"], None
        await auto.look()
    assert len(noted) == 2
    auto.now += NOTE_SECONDS
    await auto.look()
    assert len(noted) == 3
    auto.failed, auto.loads.hot = [], 10.0
    await auto.look()
    assert len(noted) == 3, "that groups are even is no event"
