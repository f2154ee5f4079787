"""What Sentinels are told, which of them count, and what a failover changes in the slot table."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from slots.group import Group
from slots.settings import SettingsError
from slots.slot import Action, Slot
from slots.table import SlotTable
from tests.unit.topom.operators import eventually
from tests.unit.topom.topom_fakes import FakeMover, MemoryStore
from topom import api
from topom.api.callers import Callers
from topom.cluster import changed_records, topology
from topom.cluster.events import What, actor, asker
from topom.cluster.records import decode
from topom.masters.sentinels import addresses, monitoring
from topom.masters.sentinels.ability import nobody_replaces
from topom.masters.sentinels.addresses import Resolver
from topom.masters.sentinels.following import ASTRAY_SECONDS, Astray, View
from topom.masters.sentinels.monitoring import SentinelSettings
from topom.masters.sentinels.votes import elected, majority_of
from topom.store import STATE
from topom.term import features
from topom.term.service import Topom
from topom.term.settings import TopomSettings
from topom.term.tokens import Tokens

A, B, C = "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"


@pytest.mark.parametrize(
    ("named", "known", "expected"),
    [
        ([], 0, None),
        ([A], 1, A),
        ([A, A], 3, A),
        ([A, B, None], 3, None),
        ([A], 3, None),
        ([A, A], 4, None),
        ([A, A, A, B], 5, A),
        ([None, None, A], 3, None),
    ],
)
def test_a_majority_of_all_known_elects(named: list[str | None], known: int, expected: str | None) -> None:
    assert elected(named, known) == expected


def test_two_disjoint_sets_of_sentinels_never_both_elect() -> None:
    for known in range(1, 100):
        assert 2 * majority_of(known) > known


def test_names_are_this_products_own() -> None:
    assert monitoring.group_id_of("a", monitoring.name_of("a", 12)) == 12
    assert monitoring.group_id_of("a", "a-1-2") is None
    assert monitoring.group_id_of("a", "b-1") is None
    assert monitoring.superfluous("a", ["a-1", "a-2", "a-1-3", "mymaster"], [2]) == ["a-1"]


def test_only_groups_with_a_replica_are_watched_and_none_that_is_to_get_another_master() -> None:
    groups = {1: Group(1, (A, B)), 2: Group(2, (C,)), 3: Group(3), 4: Group(4, (A, C), locked=True)}
    table = SlotTable(1, (Slot(0),), groups)
    assert monitoring.watched(table) == {1: A}


def test_what_differs_is_set_and_nothing_else() -> None:
    options = SentinelSettings(down_after_milliseconds=700).options(known=5)
    assert options["quorum"] == 3
    found = {option: str(value) for option, value in options.items()}
    assert monitoring.adjust("a-1", found, options, ()) == []
    assert monitoring.adjust("a-1", {**found, "quorum": "2"}, options, ("auth-pass", "x")) == [
        ("SET", "a-1", "quorum", 3, "auth-pass", "x")
    ]
    assert SentinelSettings(quorum=2).options(known=5)["quorum"] == 2


async def test_a_server_is_recognised_by_where_it_is() -> None:
    resolver = Resolver()
    assert await resolver.same("127.0.0.1:7001", ["localhost:7000", "localhost:7001"]) == "localhost:7001"
    assert await resolver.same("[::1]:7001", ["[0:0:0:0:0:0:0:1]:7001"]) == "[0:0:0:0:0:0:0:1]:7001"
    assert await resolver.same("10.9.9.9:7001", ["localhost:7001", "no-such-host.invalid:7001"]) is None
    assert addresses.first(frozenset({("::1", 1), ("127.0.0.1", 1)})) == ("127.0.0.1", 1)


def test_one_astray_is_told_in_time_and_only_while_the_others_name_the_master() -> None:
    def view(named: Mapping[str, str | None]) -> View:
        return View(1, A, (A, B), named)

    astray = Astray()
    one = {"s1": A, "s2": A, "s3": B}
    assert astray.note(view(one), 3, 0.0) == []
    assert astray.note(view(one), 3, ASTRAY_SECONDS - 1) == []
    assert astray.note(view(one), 3, ASTRAY_SECONDS) == ["s3"]
    # It may be the first to know of a switch.
    assert astray.note(view({"s1": A, "s2": B, "s3": B}), 3, ASTRAY_SECONDS + 1) == []
    assert astray.note(view(one), 3, ASTRAY_SECONDS + 2) == []


def table_of(action: Action | None, source: int = 1) -> SlotTable:
    return SlotTable(1, (Slot(0, source, action),), {1: Group(1, (A, B)), 2: Group(2, (C,))})


def test_a_table_without_motion_changes_its_group_only() -> None:
    table = table_of(None)
    assert topology.promote(table, 2, 1, B).slots == table.slots
    assert topology.promote(table, 2, 1, A) is table


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"ha": "sentinel", "product": "a b"}, "product"),
        ({"sentinels": "h:1,nonsense"}, "nonsense"),
        ({"sentinels": "h:1, h:1"}, "twice"),
        ({"sentinel_user": "me"}, "sentinel_password"),
    ],
)
def test_settings_that_cannot_be(settings: Mapping[str, str], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        TopomSettings.load(None, **settings)


def test_sentinels_are_given_the_login_of_the_servers() -> None:
    settings = TopomSettings.load(None, redis_user="me", redis_password="secret", sentinels="h:1, h:2")
    assert features.sentinels(settings).login == ("auth-pass", "secret", "auth-user", "me")
    assert settings.sentinels == ["h:1", "h:2"]


@pytest.mark.parametrize(
    ("quorum", "known", "silent", "says"),
    [
        (0, 3, [], ""),
        (0, 3, ["h:1"], ""),
        (2, 3, ["h:1"], ""),
        (3, 3, [], ""),
        (0, 0, [], "no Sentinel is known"),
        (5, 3, [], "sentinel_quorum is 5, and there are 3 Sentinels"),
        (0, 3, ["h:2", "h:1"], "of 3 Sentinels 2 have to agree, and 2 do not answer topom (h:1, h:2)"),
        (1, 3, ["h:2", "h:1"], "2 have to agree"),
        (3, 3, ["h:1"], "3 have to agree, and 1 do not"),
    ],
)
def test_it_is_said_that_no_master_could_be_replaced(quorum: int, known: int, silent: list[str], says: str) -> None:
    found = nobody_replaces(quorum, known, silent)
    assert says in str(found or "")
    assert bool(found) is bool(says)


async def test_a_quorum_above_the_number_of_sentinels_is_told_before_and_after_a_master_fails(tmp_path: Path) -> None:
    given = {"ha": "sentinel", "sentinels": "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "sentinel_quorum": "5"}
    topom = Topom(TopomSettings.load(None, data=tmp_path, number_of_slots=16, **given), MemoryStore(), FakeMover())
    await topom.start()
    await topom.edits.edit(lambda table, epoch: topology.add_group(table, epoch, 1, ["127.0.0.1:4", "127.0.0.1:5"]))
    transport = httpx.ASGITransport(api.build(topom, Callers(Tokens("t"))))
    headers = {"Authorization": "Bearer t"}
    async with httpx.AsyncClient(transport=transport, base_url="http://topom/api/v1", headers=headers) as client:
        reason = (await client.get("/sentinels")).json()["reason"]
        assert "sentinel_quorum is 5" in reason["what"]
        assert (reason["kind"], reason["to_do"][:8]) == ("sentinel", "set it t")
        status = (await client.get("/status")).json()
        assert "sentinel_quorum is 5" in status["sentinels"]["what"]
        assert status["groups"][0]["reason"] is None
        topom.health.has_failed = lambda server: server == "127.0.0.1:4"  # type: ignore[method-assign]
        assert "sentinel_quorum is 5" in (await client.get("/status")).json()["groups"][0]["reason"]["what"]
    await topom.close()


@pytest.fixture
async def idle(tmp_path: Path) -> AsyncIterator[tuple[Topom, MemoryStore]]:
    """A topom with ``ha = "off"`` that does nothing by itself."""
    store = MemoryStore()
    topom = Topom(TopomSettings.load(None, data=tmp_path, number_of_slots=16), store, FakeMover())
    await topom.start()
    yield topom, store
    await topom.close()


async def test_nothing_is_left_to_sentinels_unless_it_is_said(idle: tuple[Topom, MemoryStore]) -> None:
    topom, _ = idle
    transport = httpx.ASGITransport(api.build(topom, Callers(Tokens("t"))))
    headers = {"Authorization": "Bearer t"}
    async with httpx.AsyncClient(transport=transport, base_url="http://topom/api/v1", headers=headers) as client:
        nothing = {"ha": "off", "majority": 1, "sentinels": [], "groups": [], "reason": None}
        assert (await client.get("/sentinels")).json() == nothing
        for answer in (
            await client.post("/sentinels", json={"address": "h:1"}),
            await client.delete("/sentinels/h:1"),
            await client.post("/sentinels/resync"),
        ):
            assert answer.status_code == 409
            assert answer.json()["error"] == "SentinelsOff"


async def test_that_sentinels_began_anew_is_told(idle: tuple[Topom, MemoryStore]) -> None:
    topom, _ = idle
    topom.sentinels.mode = "sentinel"
    actor.set(asker("operator", "ada"))
    assert await topom.sentinels.resync() == {}
    await eventually(lambda: topom.ledger.state.events[-1].what == What.SENTINELS_RESYNCED)
    assert topom.ledger.state.events[-1].who == "ada (by operator)"


async def test_sentinels_are_stored_once_an_operator_changed_them(idle: tuple[Topom, MemoryStore]) -> None:
    topom, store = idle
    assert "sentinels" not in (await store.book(STATE).read()).documents
    state = await topom.ledger.change(lambda state, epoch: replace(state, sentinels=("h:1",)))
    assert changed_records.differences(state, replace(state, sentinels=()))["sentinels"] == b"[]"
    stored = decode(await store.book(STATE).read())
    assert stored is not None
    assert stored.sentinels == ("h:1",)
