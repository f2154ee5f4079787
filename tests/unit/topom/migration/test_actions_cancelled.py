"""Batches whose slots are cancelled while they run, over fakes: what has moved goes back."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from migrator.errors import TargetUnavailable
from slots.states import AS_AT_REST, Course, SlotState
from slots.table import SlotTable
from tests.unit.topom.operators import (
    Gate,
    cancel,
    eventually,
    groups_of,
    history_of,
    in_state,
    retry,
    send,
    skip,
    whats,
)
from tests.unit.topom.topom_fakes import Bench, FakeMover, FakeProxy, MemoryStore
from topom.cluster.cancelling import Cancelled
from topom.cluster.events import What
from topom.errors import SlotsInAction

MakeBench = Callable[..., Awaitable[Bench]]

FORWARD_STEPS = [
    "checked",
    "preparing stored",
    "preparing acknowledged",
    "prepared stored",
    "prepared acknowledged",
    "migrating stored",
]
BACK_STEPS = [
    "turning acknowledged",
    "turn stored",
    "prepared acknowledged",
    "turn withdrawn",
    "migrating stored",
    "complete",
    "finished stored",
    "finished acknowledged",
    "at rest",
]


async def test_keys_wait_for_replicas_on_their_way_back_too(bench: MakeBench) -> None:
    gate = Gate()
    mover = FakeMover(gate)
    mover.min_replicas = 2
    one = await bench(mover=mover, barrier_seconds=5.0)
    await FakeProxy(one, 1).register()
    await asyncio.sleep(0)
    one.run()
    tables = history_of(one)
    await send(one, range(4))
    await eventually(lambda: gate.entered == 1)
    await cancel(one)
    gate.open.set()
    table = await one.at_rest()
    assert set(groups_of(table)) == {1}
    actions = [table.slots[0].action for table in tables]
    assert {(str(action.state), action.min_replicas) for action in actions if action} == {
        ("pending", 0),
        *((str(state), 2) for state in SlotState if state not in AS_AT_REST),
    }
    assert {str(action.course) for action in actions if action} == {"forward", "turning", "back"}


async def test_a_migrating_slot_is_turned_round(bench: MakeBench) -> None:
    gate = Gate()
    steps: list[str] = []

    async def note(step: str) -> None:
        steps.append(step)

    one = await bench(mover=FakeMover(gate), on_step=note, barrier_seconds=5.0)
    await FakeProxy(one, 1).register()
    await asyncio.sleep(0)
    one.run()
    await send(one, range(4))
    await eventually(lambda: gate.entered == 1)
    steps.clear()
    tables = history_of(one)
    outcome = await cancel(one)
    assert outcome == Cancelled(returning=[0, 1, 2, 3])
    gate.open.set()
    table = await one.at_rest()
    await eventually(lambda: steps[-1:] == ["at rest"])
    assert set(groups_of(table)) == {1}
    assert steps == BACK_STEPS
    assert one.mover.broken_off == 1
    assert one.mover.moved == [("s2:6379", "s1:6379", (0, 1, 2, 3))]
    assert one.mover.back == [True]
    assert one.mover.withdrawn == [("s1:6379", "s2:6379"), ("s2:6379", "s1:6379")]
    assert one.actions.slots_moved == 0
    ways = [(table.slots[0].group_id, table.slots[0].action, table.slots[0].owner_id) for table in tables]
    assert [(group, str(action.state), str(action.course), owner) for group, action, owner in ways if action] == [
        (1, "migrating", "turning", 2),
        (2, "prepared", "back", 2),
        (2, "migrating", "back", 1),
        (2, "finished", "back", 1),
    ]


@pytest.mark.parametrize("state", [SlotState.PREPARING, SlotState.PREPARED])
async def test_before_anything_moved_the_action_just_ends(bench: MakeBench, state: SlotState) -> None:
    one = await bench(barrier_seconds=5.0)

    def silent_in_that_state(table: SlotTable) -> bool | None:
        action = table.slots[0].action
        return None if action and action.state == state else True

    await FakeProxy(one, 1, silent_in_that_state).register()
    one.run()
    await send(one, range(4))
    await one.until(in_state(state, 0, 1, 2, 3))
    outcome = await cancel(one, range(2))
    assert outcome.ended == [0, 1]
    assert [slot.action is None for slot in one.ledger.table.slots[:4]] == [True, True, False, False]
    # The others go on.
    table = await one.at_rest()
    assert groups_of(table)[:4] == [1, 1, 2, 2]
    assert one.mover.moved == [("s1:6379", "s2:6379", (2, 3))]


async def test_drained_slots_are_turned_only_once_everybody_has_locked_them(bench: MakeBench) -> None:
    gate = Gate()
    one = await bench(mover=FakeMover(gate), barrier_seconds=5.0)

    def silent_when_turning(table: SlotTable) -> bool | None:
        action = table.slots[0].action
        return None if action and (action.state, action.course) == (SlotState.PREPARED, Course.BACK) else True

    slow = await FakeProxy(one, 1, silent_when_turning).register()
    one.run()
    await send(one, range(4))
    await eventually(lambda: gate.entered == 1)
    await cancel(one)
    await one.until(in_state(SlotState.PREPARED, 0, course=Course.BACK))
    await asyncio.sleep(0.05)
    assert one.ledger.table.slots[0].owner_id == 2
    assert one.mover.withdrawn == [], "somebody may still move keys"
    gate.open.set()
    assert slow.member is not None
    one.members.acknowledge(slow.member, one.ledger.table.epoch)
    await one.at_rest()


@pytest.mark.parametrize("answer", [False, None])
async def test_a_turn_that_is_refused_goes_on_as_before_and_is_tried_again(
    bench: MakeBench, answer: bool | None
) -> None:
    gate = Gate()
    one = await bench(mover=FakeMover(gate), barrier_seconds=0.3)
    tries = 2

    def twice_not(table: SlotTable) -> bool | None:
        nonlocal tries
        action = table.slots[0].action
        if action and (action.state, action.course) == (SlotState.PREPARED, Course.BACK) and tries:
            tries -= 1
            return answer
        return True

    await FakeProxy(one, 1, twice_not).register()
    one.run()
    await send(one, range(4))
    await eventually(lambda: gate.entered == 1)
    tables = history_of(one)
    await cancel(one)
    gate.open.set()
    assert set(groups_of(await one.at_rest())) == {1}
    seen = [(str(a.state), str(a.course)) for a in (table.slots[0].action for table in tables) if a]
    in_order = [kind for number, kind in enumerate(seen) if number == 0 or seen[number - 1] != kind]
    assert in_order == [
        *[("migrating", "turning"), ("prepared", "back")] * 3,
        ("migrating", "back"),
        ("finished", "back"),
    ]


async def test_what_cannot_be_withdrawn_is_not_turned(bench: MakeBench) -> None:
    gate = Gate()
    one = await bench(mover=FakeMover(gate))
    one.mover.withdraw_errors = [TargetUnavailable("s2:6379 is down")]
    one.run()
    await send(one, range(4))
    await eventually(lambda: gate.entered == 1)
    tables = history_of(one)
    await cancel(one)
    gate.open.set()
    await one.at_rest()
    actions = [table.slots[0].action for table in tables]
    courses = [(str(action.state), str(action.course)) for action in actions if action]
    locked, unlocked = ("prepared", "back"), ("migrating", "turning")
    assert courses[:4] == [unlocked, locked, unlocked, locked]


@pytest.mark.parametrize("server", ["s1:6379", "s2:6379"])
async def test_nothing_is_locked_for_servers_that_are_down(bench: MakeBench, server: str) -> None:
    gate = Gate()
    one = await bench(mover=FakeMover(gate))
    one.run()
    await send(one, range(4))
    await eventually(lambda: gate.entered == 1)
    one.mover.refusing[server] = TargetUnavailable(f"{server} is down")
    tables = history_of(one)
    await cancel(one)
    await eventually(lambda: whats(one.actions.reasons()) == dict.fromkeys(range(4), f"{server} is down"))
    assert {str(table.slots[0].action.state) for table in tables if table.slots[0].action} == {"migrating"}
    one.mover.refusing.clear()
    one.actions.retry()
    gate.open.set()
    assert set(groups_of(await one.at_rest())) == {1}


async def test_of_a_batch_some_slots_are_cancelled(bench: MakeBench) -> None:
    gate = Gate()
    one = await bench(mover=FakeMover(gate))
    one.run()
    await send(one, range(4))
    await eventually(lambda: gate.entered == 1)
    await cancel(one, [0, 1])
    await eventually(lambda: gate.entered == 2)
    assert one.mover.broken_off == 1
    gate.open.set()
    table = await one.at_rest()
    assert groups_of(table)[:4] == [1, 1, 2, 2]
    # Never both ways at once.
    assert one.mover.moved == [("s1:6379", "s2:6379", (2, 3)), ("s2:6379", "s1:6379", (0, 1))]
    assert one.mover.back == [False, True]


async def test_a_slot_that_was_cancelled_can_be_sent_again(bench: MakeBench) -> None:
    gate = Gate()
    one = await bench(mover=FakeMover(gate))
    one.run()
    await send(one, range(4))
    await eventually(lambda: gate.entered == 1)
    await cancel(one)
    with pytest.raises(SlotsInAction):
        await send(one, range(4))
    gate.open.set()
    await one.at_rest()
    await send(one, range(4))
    table = await one.at_rest()
    assert groups_of(table)[:4] == [2] * 4
    assert one.mover.back == [True, False]


async def test_slots_that_are_sent_again_at_once_begin_from_the_beginning(bench: MakeBench) -> None:
    one = await bench(barrier_seconds=5.0)
    silent = await FakeProxy(one, 1, lambda table: None).register()
    one.run()
    await send(one, range(4))
    await one.until(in_state(SlotState.PREPARING, 0, 1, 2, 3))
    # This is before the batch has seen that they were cancelled.
    await asyncio.gather(cancel(one), send(one, range(4)))
    silent.answer = lambda table: True
    silent.wake()
    table = await one.at_rest()
    assert groups_of(table)[:4] == [2] * 4
    assert len(one.mover.checked) == 2


@pytest.mark.parametrize(("server", "other"), [("s1:6379", 2), ("s2:6379", 1)])
async def test_on_the_way_back_a_restart_of_either_server_is_told(bench: MakeBench, server: str, other: int) -> None:
    """Keys have left both, so either may have some again that were deleted at the other one."""
    gate = Gate()
    one = await bench(mover=FakeMover(gate))
    one.run()
    await send(one, range(4))
    await eventually(lambda: gate.entered == 1)
    one.mover.run_ids[server] = "restarted"
    await cancel(one)
    await eventually(lambda: gate.entered == 2)
    said = (
        f"{server} was restarted while keys moved; if its data are older, keys that clients have deleted at group "
        f"{other} may be alive again"
    )
    assert list(one.actions.batches[0].restarted.values()) == [said]
    gate.open.set()
    await one.at_rest()

    def told() -> list[str]:
        return [event.text for event in one.ledger.state.events if event.what is What.SOURCE_RESTARTED]

    await eventually(lambda: bool(told()))
    assert told() == [f"{said}; slots 0-3"]


async def test_a_batch_whose_turn_is_not_stored_tries_again_with_growing_waits(bench: MakeBench) -> None:
    gate = Gate()
    tries: list[object] = []

    async def fail_first(step: str) -> None:
        if step == "turning acknowledged":
            tries.extend(one.actions.batches)
            one.store.fail_before = int(len(tries) <= 3)

    one = await bench(mover=FakeMover(gate), on_step=fail_first)
    one.run()
    await send(one, range(4))
    await eventually(lambda: gate.entered == 1)
    await cancel(one)
    gate.open.set()
    await one.at_rest()
    assert len(tries) == 4
    assert len(set(map(id, tries))) == 1, "another batch would begin with short waits, and know of no reason"


@pytest.mark.parametrize("step", BACK_STEPS)
async def test_a_restart_at_any_step_of_the_way_back_is_gone_on_from(bench: MakeBench, step: str) -> None:
    gate = Gate()
    reached = asyncio.Event()
    cancelled = False

    async def stand_still(name: str) -> None:
        if cancelled and name == step:
            reached.set()
            await asyncio.Event().wait()

    one = await bench(mover=FakeMover(gate), on_step=stand_still)
    await FakeProxy(one, 1).register()
    one.run()
    await send(one, range(4))
    await eventually(lambda: gate.entered == 1)
    cancelled = True
    await cancel(one)
    gate.open.set()
    async with asyncio.timeout(60):
        await reached.wait()
    await one.stop()

    again = await Bench(one.store).start()
    try:
        await FakeProxy(again, 1).register()
        again.run()
        table = await again.at_rest()
        assert set(groups_of(table)) == {1}
        assert set(again.mover.back) <= {True}
        # complete: unless the store has `finished`, the scan begins anew.
        assert (again.mover.moved == []) == (BACK_STEPS.index(step) >= BACK_STEPS.index("finished stored"))
    finally:
        await again.stop()


@pytest.mark.parametrize("step", [*FORWARD_STEPS, "complete"])
async def test_cancelling_at_any_step_of_the_way_there(bench: MakeBench, step: str) -> None:
    reached = asyncio.Event()

    async def stand_still(name: str) -> None:
        if name == step and not reached.is_set():
            reached.set()
            await asyncio.Event().wait()

    one = await bench(on_step=stand_still)
    await FakeProxy(one, 1).register()
    one.run()
    await send(one, range(4))
    async with asyncio.timeout(60):
        await reached.wait()
    outcome = await cancel(one)
    back = FORWARD_STEPS.index("migrating stored") <= [*FORWARD_STEPS, "complete"].index(step)
    assert outcome == (Cancelled(returning=[0, 1, 2, 3]) if back else Cancelled(ended=[0, 1, 2, 3]))
    assert set(groups_of(await one.at_rest())) == {1}
    await eventually(lambda: not one.actions.batches)
    # Nothing is left that would hold up another move.
    await send(one, range(4), 3)
    assert set(groups_of(await one.at_rest())[:4]) == {3}


@pytest.mark.parametrize("step", ["finished stored", "finished acknowledged", "at rest"])
async def test_a_finished_slot_stays_moved(bench: MakeBench, step: str) -> None:
    found: list[Cancelled] = []

    async def cancel_then(name: str) -> None:
        if name == step:
            found.append(await cancel(one))

    one = await bench(on_step=cancel_then)
    one.run()
    await send(one, range(4))
    table = await one.at_rest()
    assert set(groups_of(table)[:4]) == {2}
    await eventually(lambda: bool(found))
    assert found == [Cancelled() if step == "at rest" else Cancelled(too_late=[0, 1, 2, 3])]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", range(4))
async def test_a_store_that_fails_on_the_way_back_is_overcome(bench: MakeBench, write: int, after: bool) -> None:
    gate = Gate()
    store = MemoryStore()
    at = ["turning acknowledged", "turn withdrawn", "complete", "finished acknowledged"][write]
    failed = False

    async def fail_next(step: str) -> None:
        nonlocal failed
        if cancelled and step == at and not failed:
            failed = True
            if after:
                store.fail_after = 1
            else:
                store.fail_before = 1

    cancelled = False
    one = await bench(mover=FakeMover(gate), store=store, on_step=fail_next, barrier_seconds=1.0)
    await FakeProxy(one, 1).register()
    one.run()
    await send(one, range(4))
    await eventually(lambda: gate.entered == 1)
    cancelled = True
    await cancel(one)
    gate.open.set()
    assert set(groups_of(await one.at_rest())) == {1}
    assert failed
    assert store.fail_before == store.fail_after == 0


async def test_random_interventions_come_to_rest(bench: MakeBench) -> None:
    """Operators send, cancel, skip and retry; proxies are moody. At rest every slot's keys are at its owner."""
    rng = random.Random(11)

    async def a_while() -> None:
        await asyncio.sleep(rng.random() * 0.01)

    one = await bench(mover=FakeMover(a_while), barrier_seconds=0.05, lease=60.0)

    def legal(old: SlotTable, new: SlotTable) -> None:
        for before, after in zip(old.slots, new.slots, strict=True):
            if before is after or before.action is None or before.action.state != SlotState.MIGRATING:
                continue
            # absent-first: a slot leaves `migrating` only by finishing, or by the lock of a turn.
            assert after.action is not None, (before, after)
            assert after.action.state in (SlotState.MIGRATING, SlotState.FINISHED, SlotState.PREPARED)
            if after.action.state == SlotState.PREPARED:
                assert before.action.course is Course.TURNING
                assert after.action.course is Course.BACK

    one.ledger.listen(lambda old, new: legal(old.table, new.table))

    def moody(table: SlotTable) -> bool | None:
        return rng.choices([True, False, None], [30, 1, 1])[0]

    proxies = [await FakeProxy(one, number, moody).register() for number in (1, 2)]
    one.run()
    for number in range(5000):
        if number >= 150 and {True, False} <= {*one.mover.back}:
            # Keys have moved both ways; how soon depends on the machine.
            break
        await asyncio.sleep(rng.random() * 0.01)
        some = sorted(rng.sample(range(16), rng.randrange(1, 8)))
        match rng.randrange(6):
            case 0:
                await cancel(one, some)
            case 1:
                await skip(one, some)
            case 2:
                await retry(one, some)
            case _:
                with suppress(SlotsInAction):
                    await send(one, some, rng.randrange(1, 4))
    for proxy in proxies:
        proxy.answer = lambda table: True
        proxy.wake()
    await retry(one)
    await one.at_rest(30)
    assert one.ledger.state.skipped == {}
    assert True in one.mover.back
    assert False in one.mover.back
