"""Each change of the state has its events, in few and short sentences."""

from dataclasses import fields, replace
from typing import Any

import pytest

from slots.group import Group
from slots.slot import Action, Slot
from slots.states import Course, SlotState
from slots.table import SlotTable
from tests.unit.topom.cluster.changes_told import PROXY, STATE, acting, edited, with_slots
from tests.unit.topom.topom_fakes import PRODUCT
from topom.cluster import event_finding as telling
from topom.cluster import topology
from topom.cluster.events import MOST_TEXT, What
from topom.cluster.placement_run import Kept, Step
from topom.cluster.speed import PairSpeed
from topom.cluster.state import ClusterState, Fenced, Leaving, Lifting, Marked, Pause, PoolServer, Promotion
from topom.placement import changes
from topom.reasons import Kind, Reason

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
        (PLACING, changes.dropped(PLACING, STEP, Reason(Kind.BUSY, "it is gone")), What.PLACEMENT_STEP, "(it is gone)"),
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
        (STATE, replace(STATE, migration_changes={"paused": True}), What.MIGRATION_SET, "moving is paused"),
        (replace(STATE, migration_changes={"paused": True}), STATE, What.MIGRATION_SET, "paused is as configured"),
        (
            acting(SlotState.PENDING),
            replace(acting(SlotState.PENDING), skipped={4: Reason(Kind.PAUSED, "wanted")}),
            What.SLOTS_SKIPPED,
            "slots 4 ",
        ),
        (
            replace(acting(SlotState.PENDING), skipped={4: Reason(Kind.PAUSED, "wanted")}),
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


@pytest.mark.parametrize(("kind", "id"), [("group", "1"), ("server", "a:1"), ("node", "a"), ("node", "rack")])
def test_what_has_left_is_told_apart_from_what_stays(kind: Any, id: str) -> None:
    other, one = Group(2, ("c:1",)), Group(1, ("b:1", "a:1"), nodes={"b:1": "rack"})
    gone = replace(STATE, table=SlotTable.empty(16).changed(9, groups=[other]))
    there = replace(STATE, table=SlotTable.empty(16).changed(9, groups=[one, other]))
    on_the_way = {"leaving": {f"{kind}/{id}": Leaving(kind, id, "too old", 1.0)}}
    (said,) = telling.tell(replace(gone, **on_the_way), gone)
    assert (said.what, said.text) == (What.LEFT, f"{kind} {id} has left")
    (said,) = telling.tell(replace(there, **on_the_way), there)
    assert (said.what, said.text) == (What.STAYING, f"{kind} {id} stays; it is not on its way out any more")


def test_nothing_that_changes_goes_untold() -> None:
    other: dict[str, Any] = {
        "writer": "x" * 32,
        "product": PRODUCT.model_copy(update={"name": "other"}),
        "table": acting(SlotState.PENDING).table,
        "proxies": {3: PROXY},
        "migration_changes": {"paused": True},
        "skipped": {4: "full"},
        "sentinels": ("a:26",),
        "protection_lifted": Lifting("operator ada", 1.0, 3, 4),
        "pause": Pause("operator ada", 1.0, "the network is being rebuilt"),
        "leaving": {"group/5": Leaving("group", "5", "too old", 1.0)},
        "pool": {"p:1": PoolServer("p:1")},
        "placement": Kept(auto=True),
        "users": {"ada": {"name": "ada", "no_password": True}},
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
