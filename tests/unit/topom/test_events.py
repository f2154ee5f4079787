"""Events: each change tells of itself, in the write that stores it; how many are kept, and how they are asked for."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from slots.access import ServerAccess
from slots.states import Course, SlotState
from slots.table import Action, Group, Slot, SlotTable
from tests.unit.topom.operators import eventually
from tests.unit.topom.topom_fakes import PRODUCT, Bench, FakeMover, FakeProxy, MemoryStore
from topom import api
from topom import store as stores
from topom.cluster import event_finding as telling
from topom.cluster import event_records, records, topology
from topom.cluster import ledger as ledgers
from topom.cluster.events import MOST_TEXT, MOST_WHO, Event, Said, What, actor, operator
from topom.cluster.ledger import Ledger
from topom.cluster.notes import MOST_NOTES
from topom.cluster.placement_run import Kept, Step
from topom.cluster.speed import PairSpeed
from topom.cluster.state import ClusterState, Fenced, Leaving, Lifting, Marked, PoolServer, Promotion, ProxyRecord
from topom.masters.protection import Protection
from topom.placement import changes
from topom.servers.detector import DetectorSettings
from topom.servers.health import Health
from topom.store import Stored, StoreError
from topom.term.service import Topom
from topom.term.settings import TopomSettings

ROOT = Path(__file__).parents[3]
PROXY = ProxyRecord(3, "1" * 32, "h:1", "host", 5, 2, "0.1.0")
GROUPS = {1: Group(1, ("a:1", "b:1")), 2: Group(2, ("c:1",))}
STATE = ClusterState(
    version=7, writer="w" * 32, product=PRODUCT, table=SlotTable(5, tuple(Slot(i, 1) for i in range(16)), GROUPS)
)


def with_slots(*slots: Slot) -> ClusterState:
    return replace(STATE, table=topology.with_slots(STATE.table, 6, slots))


def acting(state: SlotState, course: Course = Course.FORWARD, group_id: int = 1, target_id: int = 2) -> ClusterState:
    return with_slots(*(Slot(i, group_id, Action(state, target_id, course)) for i in (4, 5, 9)))


def edited(change: Callable[[SlotTable, int], SlotTable]) -> ClusterState:
    return replace(STATE, table=change(STATE.table, 6))


OFFLINE = with_slots(Slot(0, 0), Slot(1, 0))
MOVED = with_slots(*(Slot(i, 2) for i in (4, 5, 9)))
TURNING, BACK = Course.TURNING, Course.BACK
JOINED = replace(STATE, proxies={3: PROXY})
FENCED = replace(STATE, fenced={"1" * 32: Fenced("1" * 32, 3, 1)}, last_fence=1)
DRAINING = replace(STATE, proxies={3: replace(PROXY, draining=True)})
POOLED = replace(STATE, pool={"p:1": PoolServer("p:1")})
LIFTED = replace(STATE, protection_lifted=Lifting("operator ada", 1.0, 3, 4))
STEP = Step(1, 1, "copy", "p", "p:1")
PLACING = changes.begun(STATE, [STEP], "topom", 1.0)
WATCHED = replace(STATE, sentinels=("a:26", "b:26"))


@pytest.mark.parametrize(
    ("old", "new", "what", "text"),
    [
        (None, STATE, What.TOPOM_STARTED, "topom wwwwwwww started"),
        (STATE, replace(STATE, writer="x" * 32), What.TOPOM_STARTED, "topom xxxxxxxx started"),
        (STATE, replace(STATE, writer="x" * 32, term=7), What.TOPOM_LEADS, "topom xxxxxxxx leads in term 7"),
        (
            STATE,
            edited(lambda t, e: topology.add_group(t, e, 3, ["d:1"])),
            What.GROUP_ADDED,
            "group 3 was added, with d:1",
        ),
        (STATE, edited(lambda t, e: topology.remove_group(t, e, 2)), What.GROUP_REMOVED, "group 2 was removed"),
        (
            STATE,
            edited(lambda t, e: topology.add_server(t, e, 2, "d:1")),
            What.SERVER_ADDED,
            "d:1 was added to group 2",
        ),
        (
            STATE,
            edited(lambda t, e: topology.remove_server(t, e, 1, "b:1")),
            What.SERVER_REMOVED,
            "b:1 was removed from",
        ),
        (
            STATE,
            edited(lambda t, e: topology.promote(t, e, 1, "b:1")),
            What.MASTER_CHANGED,
            "group 1 is b:1, and was a:1",
        ),
        (
            STATE,
            edited(lambda t, e: topology.set_datacenter(t, e, 1, "b:1", "rome")),
            What.SERVER_CHANGED,
            "datacenter rome",
        ),
        (
            STATE,
            edited(lambda t, e: topology.set_place(t, e, 1, "b:1", None, "n7")),
            What.SERVER_CHANGED,
            "server b:1 of group 1 is on node n7",
        ),
        (STATE, POOLED, What.POOL_ADDED, "server p:1 was added to the pool, on node p"),
        (STATE, replace(STATE, placement=Kept(auto=True)), What.PLACEMENT_AUTO, "is applied by itself"),
        (STATE, PLACING, What.PLACEMENT_BEGUN, "1 steps is applied: p:1 on node p becomes a replica of group 1"),
        (
            PLACING,
            changes.advanced(PLACING, STEP, "copying"),
            What.PLACEMENT_STEP,
            "begun, and being filled: p:1 on node p",
        ),
        (PLACING, changes.dropped(PLACING, STEP, "it is gone"), What.PLACEMENT_STEP, "(it is gone)"),
        (PLACING, changes.ended(PLACING), What.PLACEMENT_ENDED, "was cancelled, with 1 steps not done"),
        (POOLED, STATE, What.POOL_REMOVED, "server p:1 was removed from the pool"),
        (POOLED, replace(STATE, pool={"p:1": PoolServer("p:1", "n7")}), What.POOL_CHANGED, "it is on node n7"),
        (STATE, OFFLINE, What.SLOTS_OFFLINE, "slots 0-1 are offline; they were in group 1"),
        (
            OFFLINE,
            with_slots(Slot(0, 0, Action(SlotState.PENDING, 2)), Slot(1, 0)),
            What.SLOTS_PENDING,
            "slots 0 wait to move to group 2, having been offline",
        ),
        (OFFLINE, STATE, What.SLOTS_ASSIGNED, "slots 0-1 were assigned to group 1"),
        (STATE, acting(SlotState.PENDING), What.SLOTS_PENDING, "slots 4-5,9 wait to move from group 1 to group 2"),
        (acting(SlotState.PENDING), acting(SlotState.PREPARING), What.SLOTS_PREPARING, "from group 1 to group 2"),
        (acting(SlotState.PREPARING), acting(SlotState.PREPARED), What.SLOTS_LOCKED, "slots 4-5,9 are locked"),
        (acting(SlotState.PREPARED), acting(SlotState.PREPARING), What.SLOTS_UNLOCKED, "unlocked again"),
        (acting(SlotState.PREPARED), acting(SlotState.MIGRATING), What.SLOTS_MOVING, "being moved"),
        (acting(SlotState.MIGRATING), acting(SlotState.FINISHED), What.SLOTS_FINISHED, "all their keys moved"),
        (acting(SlotState.FINISHED), MOVED, What.SLOTS_MOVED, "slots 4-5,9 are at rest, moved from group 1 to group 2"),
        (acting(SlotState.PREPARED), STATE, What.SLOTS_CANCELLED, "stay where they are"),
        (acting(SlotState.MIGRATING), acting(SlotState.MIGRATING, TURNING), What.SLOTS_CANCELLED, "are to go back"),
        (
            acting(SlotState.MIGRATING, TURNING),
            acting(SlotState.PREPARED, BACK, 2, 1),
            What.SLOTS_LOCKED,
            "are locked, to move back from group 2 to group 1",
        ),
        (acting(SlotState.PREPARED, BACK, 2, 1), acting(SlotState.MIGRATING, TURNING), What.SLOTS_UNLOCKED, "unlocked"),
        (acting(SlotState.PREPARED, BACK, 2, 1), acting(SlotState.MIGRATING, BACK, 2, 1), What.SLOTS_MOVING, "back"),
        (acting(SlotState.FINISHED, BACK, 2, 1), STATE, What.SLOTS_MOVED, "moved from group 2 to group 1"),
        (STATE, JOINED, What.PROXY_REGISTERED, "proxy 3 (h:1 on host, process 5) registered"),
        (JOINED, DRAINING, What.PROXY_DRAINS, "proxy 3 (h:1 on host, process 5) lets its clients go"),
        (DRAINING, JOINED, What.PROXY_REGISTERED, "came back changed"),
        (STATE, WATCHED, What.SENTINELS_SET, "the Sentinels from now on: a:26, b:26"),
        (WATCHED, replace(WATCHED, sentinels=("a:26", "b:26", "c:26")), What.SENTINEL_ADDED, "Sentinel c:26 was added"),
        (WATCHED, replace(WATCHED, sentinels=("b:26",)), What.SENTINEL_REMOVED, "Sentinel a:26 was removed"),
        (STATE, LIFTED, What.PROTECTION_LIFTED, "lifted for this loss, of 3 of 4 members"),
        (LIFTED, STATE, What.PROTECTION_RESTORED, "protection holds again for the next loss"),
        (JOINED, STATE, What.PROXY_LEFT, "proxy 3 (h:1 on host) has left"),
        (JOINED, replace(STATE, fenced={"1" * 32: Fenced("1" * 32, 3)}), What.PROXY_FENCED, "proxy 3 (h:1 on host)"),
        (
            FENCED,
            replace(FENCED, marked={"c:1": Marked("process", 1), "a:1": Marked("process", 1)}),
            What.PROXY_CUT_OFF,
            "proxy 3 is cut off a:1, c:1",
        ),
        (STATE, replace(STATE, migration_changes={"paused": True}), What.MIGRATION_SET, "paused = True"),
        (replace(STATE, migration_changes={"paused": True}), STATE, What.MIGRATION_SET, "paused is as configured"),
        (
            acting(SlotState.PENDING),
            replace(acting(SlotState.PENDING), skipped={4: ""}),
            What.SLOTS_SKIPPED,
            "slots 4 ",
        ),
        (
            replace(acting(SlotState.PENDING), skipped={4: ""}),
            acting(SlotState.PENDING),
            What.SLOTS_RETRIED,
            "slots 4 ",
        ),
    ],
)
def test_a_change_tells_what_it_is(old: ClusterState | None, new: ClusterState, what: What, text: str) -> None:
    (said,) = telling.tell(old, new)
    assert said.what is what
    assert text in said.text


def test_nothing_that_changes_goes_untold() -> None:
    other: dict[str, Any] = {
        "writer": "x" * 32,
        "product": replace(PRODUCT, name="other"),
        "table": acting(SlotState.PENDING).table,
        "proxies": {3: PROXY},
        "migration_changes": {"paused": True},
        "skipped": {4: "full"},
        "sentinels": ("a:26",),
        "protection_lifted": Lifting("operator ada", 1.0, 3, 4),
        "leaving": {"group/5": Leaving("group", "5", "too old", 1.0)},
        "pool": {"p:1": PoolServer("p:1")},
        "placement": Kept(auto=True),
    }
    for field in fields(ClusterState):
        if field.name in telling.UNTOLD:
            continue
        value = other.get(field.name, object())
        assert list(telling.tell(STATE, replace(STATE, **{field.name: value}))), f"{field.name} changes in silence"
    quiet = replace(STATE, version=8, next_proxy_id=9, moved={1: 1.0}, speed=PairSpeed(1.0, 2.0))
    quiet = replace(quiet, promotions={1: Promotion("b:1", "a:1")})
    assert list(telling.tell(STATE, quiet)) == []


def test_sentences_and_their_number_have_a_limit() -> None:
    many = SlotTable(5, tuple(Slot(i, 1) for i in range(16384)), {i: Group(i, (f"s{i}:1",)) for i in range(1, 200)})
    old = replace(STATE, table=many)
    scattered = [Slot(i, 0 if i % 2 else 2) for i in range(16384)]
    new = replace(old, table=SlotTable(6, tuple(scattered), {i: Group(i, (f"t{i}:1",)) for i in range(1, 200)}))
    told = telling.recorded(old, new, "w", 1.0, 2048).events
    assert len(told) == telling.MOST_EVENTS
    assert "more things" in told[-1].text
    sent = telling.recorded(old, replace(old, table=SlotTable(6, tuple(scattered), many.groups)), "w", 1.0, 2048).events
    assert all(len(event.text) <= MOST_TEXT for event in sent)
    assert "8192 slots (0,2,4" in "".join(event.text for event in sent)
    assert "..." in sent[0].text


def test_the_oldest_are_dropped_and_documents_stay_small() -> None:
    state, stored = STATE, {k: v for k, v in records.differences(None, STATE).items() if v is not None}
    for number in range(1, 301):
        new = telling.recorded(
            state, replace(state, version=state.version + 1), "w", 1.0, 64, [Said(What.PROXY_LOST, str(number))]
        )
        documents = records.differences(state, new)
        assert len([name for name in documents if name.startswith(event_records.PREFIX)]) <= 2
        stored = {name: value for name, value in {**stored, **documents}.items() if value is not None}
        state = new
    assert [event.id for event in state.events] == list(range(237, 301))
    assert len([name for name in stored if name.startswith(event_records.PREFIX)]) <= 3
    found = records.decode(Stored(state.version, stored))
    assert found is not None
    assert found.events[-64:] == state.events
    assert len(found.events) < 64 + event_records.EVENTS_A_DOCUMENT, "what is left of a document's, at a start"
    fewer = telling.recorded(found, replace(found, version=999), "w", 1.0, 32, [Said(What.PROXY_LOST, "x")])
    stored = {**stored, **records.differences(found, fewer)}  # type: ignore[dict-item]
    again = records.decode(Stored(999, {name: value for name, value in stored.items() if value is not None}))
    assert again is not None
    assert again.events[-32:] == fewer.events
    assert [event.id for event in again.events] == list(range(again.events[0].id, 302))


async def test_an_event_is_in_the_write_of_its_change() -> None:
    bench = Bench()
    await bench.start()
    store, ledger = bench.store, bench.ledger
    before = ledger.state.events
    store.fail_before = 1
    with pytest.raises(StoreError):
        await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1))
    assert ledger.state.events is before
    store.fail_after = 1
    with pytest.raises(StoreError):
        await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1))
    await ledger.confirm()
    (event,) = ledger.state.events[len(before) :]
    assert (event.what, event.epoch_after) == (What.GROUP_ADDED, ledger.table.epoch)
    assert event.epoch_before < event.epoch_after
    stored = records.decode(await store.book(stores.STATE).read())
    assert stored is not None
    assert stored.events == ledger.state.events
    other = Ledger(store, "another")
    await other.start(PRODUCT)
    assert other.state.events[:-1] == ledger.state.events
    assert other.state.events[-1].what == What.TOPOM_STARTED
    await bench.stop()


async def test_a_note_is_topoms_own_and_all_that_wait_are_one_write() -> None:
    bench = Bench()
    await bench.start()
    ledger, version = bench.ledger, bench.ledger.state.version
    actor.set(operator("ada"))
    ledger.note(What.PROXY_LOST, "proxy 1 was not heard of")
    ledger.note(What.PROXY_BACK, "proxy 1 was heard of again")
    await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1))
    whats = {event.what: event.who for event in ledger.state.events[-3:]}
    assert whats[What.GROUP_ADDED] == "operator ada"
    assert whats[What.PROXY_LOST] == whats[What.PROXY_BACK] == f"topom {ledger.state.writer[:8]}"
    assert ledger.state.version == version + 2
    await bench.stop()


async def test_a_note_waits_for_a_write_to_take_it_along() -> None:
    """What is urgent is stored first, and with it what tells why; never by a write that another did."""
    bench = Bench()
    await bench.start()
    ledger, version = bench.ledger, bench.ledger.state.version
    ledger.note(What.SERVER_FAILED, "failed: server a:1", wait=600.0)
    actor.set(operator("ada"))
    await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1))
    assert [event.what for event in ledger.state.events[-1:]] == [What.GROUP_ADDED]
    actor.set("")
    await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 2))
    assert [event.what for event in ledger.state.events[-2:]] == [What.SERVER_FAILED, What.GROUP_ADDED]
    assert ledger.state.version == version + 2
    ledger.note(What.DIGEST_BEGUN, "it began", operator("ada"))
    await eventually(lambda: ledger.state.events[-1].what == What.DIGEST_BEGUN)
    assert ledger.state.events[-1].who == "operator ada"
    await bench.stop()


@pytest.mark.parametrize("failure", ["fail_before", "fail_after"])
async def test_a_note_outlasts_a_store_that_fails(failure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the write that failed is in the store or not: it is told once, with the time when it was."""
    monkeypatch.setattr(ledgers, "FIRST_WAIT_SECONDS", 0.01)
    bench = Bench()
    await bench.start()
    ledger, began = bench.ledger, time.time()
    setattr(bench.store, failure, 1)
    ledger.note(What.SERVER_FAILED, "failed: server a:1")
    await eventually(lambda: ledger.state.events[-1].what == What.SERVER_FAILED)
    assert [event.what for event in ledger.state.events].count(What.SERVER_FAILED) == 1
    assert began - 0.01 <= ledger.state.events[-1].at <= time.time()
    # So does one that the write of a change took along.
    setattr(bench.store, failure, 1)
    ledger.note(What.SERVER_BACK, "answer again: server a:1", wait=600.0)
    with pytest.raises(StoreError):
        await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1))
    await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 2))
    assert [event.what for event in ledger.state.events].count(What.SERVER_BACK) == 1
    await bench.stop()


async def test_notes_are_bounded_and_end_with_the_lead() -> None:
    bench = Bench()
    await bench.start()
    ledger, version = bench.ledger, bench.ledger.state.version
    for number in range(MOST_NOTES + 5):
        ledger.note(What.SERVER_FAILED, str(number), wait=600.0)
    await ledger.close()
    ledger.note(What.SERVER_FAILED, "too late")
    assert ledger.state.version == version


async def test_servers_that_fail_and_come_back_are_told(bench: Callable[..., Awaitable[Bench]]) -> None:
    one = await bench()
    health = Health(one.ledger, ServerAccess(), DetectorSettings(), 60.0, 0.5)
    await one.edit(lambda table, epoch: topology.add_group(table, epoch, 7, ["a:1", "b:1", "c:1"]))
    detector = health._detector
    now = asyncio.get_running_loop().time()

    def look(a: float, b: float, c: float) -> None:
        detector.report("1", {"a:1": a, "b:1": b, "c:1": c}, now)
        health._probing.silences = lambda unanswered_from: {"a:1": a, "b:1": b, "c:1": c}  # type: ignore[method-assign]
        health._look()

    look(0.1, 0.1, 0.1)
    look(3.0, 3.0, 0.1)
    look(9.0, 9.0, 0.1)
    look(9.1, 9.1, 0.1)
    look(9.9, 0.0, 0.1)
    await one.edit(lambda table, epoch: topology.add_group(table, epoch, 8, []))
    told = [(event.what, event.text) for event in one.ledger.state.events if event.what.startswith("server_")][-2:]
    assert told == [
        (What.SERVER_FAILED, "failed: 2 servers: a:1 (silent to 2 of 2 views), b:1 (silent to 2 of 2 views)"),
        (What.SERVER_BACK, "answer again: server b:1 (silent to 0 of 2 views)"),
    ]


async def test_protection_is_told_when_it_begins_and_ends() -> None:
    bench = Bench()
    await bench.start()
    protection = Protection(0.5, bench.ledger)
    for lost in (1, 3, 4, 1):
        protection.look(lost, 4)
    await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1))
    *_, begun, ended, _ = bench.ledger.state.events
    assert (begun.what, ended.what) == (What.PROTECTION_ON, What.PROTECTION_OVER)
    assert begun.text == "3 of 4 members are lost at a time, so topom does nothing about it by itself"
    await bench.stop()


async def test_a_move_is_told_state_by_state(bench: Callable[..., Awaitable[Bench]]) -> None:
    one = await bench()
    await FakeProxy(one, 1).register()
    one.run()
    last = one.ledger.state.events[-1].id
    await one.edit(lambda table, epoch: topology.move(table, epoch, [3, 4], 2))
    await one.at_rest(30)
    told = [event for event in one.ledger.state.events if event.id > last]
    assert [event.what for event in told] == [
        What.SLOTS_PENDING,
        What.SLOTS_PREPARING,
        What.SLOTS_LOCKED,
        What.SLOTS_MOVING,
        What.SLOTS_FINISHED,
        What.SLOTS_MOVED,
    ]
    assert all(before.epoch_after == after.epoch_before for before, after in itertools.pairwise(told))
    assert all("slots 3-4" in event.text for event in told)


@pytest.mark.parametrize(
    ("name", "shown"),
    [(None, "operator"), ("", "operator"), (" ada@host ", "operator ada@host"), ("a\r\nb\x1b[1m", "operator a??b?[1m")],
)
def test_who_is_one_visible_line(name: str | None, shown: str) -> None:
    assert operator(name) == shown
    assert len(operator("x" * 1000)) == MOST_WHO


def test_every_kind_is_described_to_operators() -> None:
    text = (ROOT / "docs" / "events.md").read_text()
    assert [what for what in What if f"`{what}`" not in text] == []


@pytest.fixture
async def topom(tmp_path: Path) -> AsyncIterator[Topom]:
    settings = TopomSettings.load(None, data=tmp_path, number_of_slots=16, redis_timeout_seconds=0.2, waiters=2)
    one = Topom(settings, MemoryStore(), FakeMover())
    await one.start()
    yield one
    await one.close()


@pytest.fixture
async def client(topom: Topom) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(api.build(topom, "secret"), raise_app_exceptions=False)
    headers = {"Authorization": "Bearer secret", "X-Slotferry-User": "ada@host"}
    async with httpx.AsyncClient(transport=transport, base_url="http://topom/api/v1", headers=headers) as one:
        yield one


async def ask(client: httpx.AsyncClient, **query: Any) -> Any:
    answer = await client.get("/events", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_api_gives_events(client: httpx.AsyncClient) -> None:
    for group_id in range(1, 5):
        assert (await client.post("/groups", json={"id": group_id})).status_code == 201
    found = await ask(client)
    assert (found["oldest"], found["newest"]) == (1, 5)
    assert [event["what"] for event in found["events"]] == ["topom_started"] + 4 * ["group_added"]
    assert found["events"][0]["who"].startswith("topom ")
    assert {event["who"] for event in found["events"][1:]} == {"operator ada@host"}
    assert [event["id"] for event in (await ask(client, limit=2))["events"]] == [4, 5]
    assert [event["id"] for event in (await ask(client, since=1, limit=2))["events"]] == [2, 3]
    assert (await ask(client, since=5))["events"] == []
    assert (await ask(client, since=99))["newest"] == 5


def test_an_event_of_another_version_can_be_read() -> None:
    event = Event(1, 2.5, "topom x", "something_new", "It happened.", 3, 4)
    documents = event_records.differences((), (event,))
    ((name, value),) = documents.items()
    assert value is not None
    stored = {**records.differences(None, STATE), name: value}
    found = records.decode(Stored(7, {key: value for key, value in stored.items() if value is not None}))
    assert found is not None
    assert found.events == (event,)
