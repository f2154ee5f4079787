"""Leaving Codis: what is read from a dump, what is taken and what is not, and when nothing is done."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from slotferry.codis.dump import CodisServer, DumpInvalid, load, read
from slotferry.codis.plan import Plan, plan_import
from slotferry.main import app
from slotferry.operator import importing
from tests.unit.slotferry.played_topom import play_topom

REAL = Path(__file__).parents[3] / "integration" / "codis" / "config-dump.json"
HALVES = {slot: 1 if slot < 512 else 2 for slot in range(1024)}
ADDRESSES = {1: ["127.0.0.1:6501"], 2: ["127.0.0.1:6502"]}


def document(
    groups: Sequence[Mapping[str, Any]] = (), actions: Mapping[int, Any] = {}, **others: Any
) -> dict[str, Any]:
    """The real dump, with other groups, and slots in action."""
    found: dict[str, Any] = json.loads(REAL.read_text())
    if groups:
        found["group"] = list(groups)
    for slot, action in actions.items():
        found["slots"][slot]["action"] = action
    return {**found, **others}


def group(group_id: int, *servers: str, promoting: str = "", **server: Any) -> dict[str, Any]:
    listed = [
        {"server": address, "datacenter": "", "action": {}, "replica_group": False, **server} for address in servers
    ]
    return {
        "id": group_id,
        "servers": listed,
        "promoting": {"state": promoting} if promoting else {},
        "out_of_sync": False,
    }


class Topom:
    """What a topom would say, and what it says after a plan is carried out."""

    def __init__(self, **product: Any) -> None:
        self.product = {"product": "p", "slot_function": "crc32", "number_of_slots": 1024, "slot_rules": [], **product}
        self.groups: dict[int, dict[str, str]] = {}
        self.slots: dict[int, int] = {}
        self.actions: dict[int, dict[str, Any]] = {}

    def plan(self, raw: Mapping[str, Any]) -> Plan:
        groups = [
            {"id": one, "servers": [{"address": a, "datacenter": d} for a, d in servers.items()]}
            for one, servers in self.groups.items()
        ]
        slots = [
            {"id": slot, "group_id": self.slots.get(slot, 0), "action": self.actions.get(slot, {})}
            for slot in range(self.product["number_of_slots"])
        ]
        return plan_import(read(raw), {**self.product, "groups": groups}, slots)

    def steps(self, plan: Plan) -> Iterator[None]:
        """Carry a plan out, one request after the other."""
        assert not plan.conflicts
        for group_id in plan.groups:
            assert group_id not in self.groups
            self.groups[group_id] = {}
            yield
        for group_id, address, datacenter in plan.servers + plan.datacenters:
            self.groups[group_id][address] = datacenter
            yield
        for group_id, slots in plan.slots.items():
            assert self.groups[group_id], "a group without servers is assigned nothing"
            assert not any(slot in self.slots for slot in slots)
            self.slots |= dict.fromkeys(slots, group_id)
            yield

    def carry_out(self, plan: Plan) -> None:
        for _ in self.steps(plan):
            pass


def reasons(plan: Plan) -> dict[str, str]:
    return {one.what: one.why for one in plan.not_taken}


def test_the_real_dump_is_taken_and_a_second_time_there_is_nothing_to_do() -> None:
    topom = Topom()
    plan = topom.plan(json.loads(REAL.read_text()))
    topom.carry_out(plan)
    assert topom.groups == {1: {"127.0.0.1:6501": ""}, 2: {"127.0.0.1:6502": ""}, 7: {}}
    assert topom.slots == HALVES
    assert plan.left == []
    assert list(reasons(plan)) == ["proxy 127.0.0.1:19000 (administered at 127.0.0.1:11080)"]
    assert "stop it before slots move" in plan.not_taken[0].why
    assert [text[:40] for text in plan.notes] == [
        "group 1 is marked out_of_sync in Codis; ",
        "group 2 is marked out_of_sync in Codis; ",
        "the product is codis-demo in Codis and p",
    ]
    again = topom.plan(json.loads(REAL.read_text()))
    assert (again.groups, again.servers, again.slots, again.conflicts) == ([], [], {}, [])
    assert again.there == list(range(1024))


def test_what_was_broken_off_goes_on_where_it_was() -> None:
    for done in range(8):
        topom = Topom()
        for _ in islice(topom.steps(topom.plan(document())), done):
            pass
        topom.carry_out(topom.plan(document()))
        assert topom.slots == HALVES
        assert {one: list(servers) for one, servers in topom.groups.items() if servers} == ADDRESSES


@pytest.mark.parametrize(("state", "owner"), [("pending", 1), ("finished", 2)])
def test_slots_whose_keys_are_in_one_group_are_taken_there(state: str, owner: int) -> None:
    plan = Topom().plan(document(actions={3: {"index": 1, "state": state, "target_id": 2}}))
    assert 3 in plan.slots[owner]
    assert plan.left == []
    assert ("move of slots 3 to group 2" in reasons(plan)) is (state == "pending")


@pytest.mark.parametrize("state", ["preparing", "prepared", "migrating"])
def test_slots_that_codis_is_moving_are_left(state: str) -> None:
    action = {"index": 1, "state": state, "target_id": 2}
    plan = Topom().plan(document(actions={3: action, 4: action}))
    assert plan.left == [3, 4]
    assert not {3, 4} & set(plan.slots[1] + plan.slots[2])
    assert state in reasons(plan)["slots 3-4"]
    topom = Topom()
    topom.carry_out(plan)
    later = topom.plan(
        document(actions={3: {"state": "finished", "target_id": 2}, 4: {"state": "finished", "target_id": 2}})
    )
    assert later.slots == {2: [3, 4]}


def test_a_group_that_is_being_promoted_is_left_with_its_slots() -> None:
    plan = Topom().plan(document([group(1, "a:1", "b:1", promoting="prepared"), group(2, "c:1")]))
    assert (plan.groups, plan.servers) == ([2], [(2, "c:1", "")])
    assert plan.left == list(range(512))
    assert "another server its master" in reasons(plan)["group 1"]
    assert "group 1 is not taken" in reasons(plan)["slots 0-511"]


def test_slots_without_group_or_server_are_said() -> None:
    raw = document([group(1), group(2, "c:1")])
    raw["slots"] = raw["slots"][:1000]
    raw["slots"][600]["group_id"] = 0
    plan = Topom().plan(raw)
    assert reasons(plan)["slots 0-511"] == "their group 1 has no server"
    assert reasons(plan)["slots 600,1000-1023"] == "they have no group in Codis"
    assert plan.left == list(range(512))


def test_replicas_and_datacenters_come_along() -> None:
    topom = Topom()
    raw = document([group(1, "a:1", "b:1", datacenter="paris"), group(2, "c:1", datacenter="no name")])
    raw["group"][0]["servers"][1] |= {"replica_group": True, "action": {"index": 1, "state": "syncing"}}
    plan = topom.plan(raw)
    assert plan.servers == [(1, "a:1", "paris"), (1, "b:1", "paris"), (2, "c:1", "")]
    assert "replica_reads" in reasons(plan)["replica_group of b:1"]
    assert "datacenter 'no name' of c:1" in reasons(plan)
    assert any("b:1 of group 1: Codis was making it a replica (syncing)" in text for text in plan.notes)
    topom.groups = {1: {"a:1": "", "z:1": ""}, 2: {"c:1": "rome"}}
    again = topom.plan(raw)
    assert again.servers == [(1, "b:1", "paris")]
    assert again.datacenters == [(1, "a:1", "paris")]
    assert any("c:1 is in datacenter rome in topom" in text for text in again.notes)
    assert any("more servers in group 1 than Codis: z:1" in text for text in again.notes)


def test_nothing_is_done_where_topom_disagrees() -> None:
    for product in ({"slot_function": "crc16"}, {"number_of_slots": 16}):
        (text,) = Topom(**product).plan(document()).conflicts
        assert "other slots" in text
    (text,) = Topom(slot_rules=[{"pattern": "bull:(*):*"}]).plan(document()).conflicts
    assert "slot rules" in text
    topom = Topom()
    topom.carry_out(topom.plan(document()))
    topom.slots |= {3: 2, 4: 2}
    topom.actions[700] = {"state": "pending", "target_id": 1}
    assert topom.plan(document()).conflicts == [
        "slots 3-4 are in group 1 in Codis, and in group 2 in topom",
        "slots 700 are in group 2 in Codis, and moving, from group 2 in topom",
    ]
    topom.slots |= HALVES
    topom.actions.clear()
    (text,) = topom.plan(document(actions={9: {"state": "migrating", "target_id": 2}})).conflicts
    assert text == "slots 9 are being moved by Codis (migrating) in Codis, and in group 1 in topom"
    raw = document([group(1, "x:1"), group(2, "127.0.0.1:6501")])
    assert sorted(topom.plan(raw).conflicts) == [
        "server 127.0.0.1:6501 is in group 2 in Codis and in group 1 in topom",
        "the master of group 1 is x:1 in Codis and 127.0.0.1:6501 in topom",
        "the master of group 2 is 127.0.0.1:6501 in Codis and 127.0.0.1:6502 in topom",
    ]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ([], "no dump of Codis 3"),
        ({"servers": {}, "slots": {}}, "--config-convert"),
        ({"group": [{"servers": []}]}, "KeyError"),
        ({"group": [group(1, "a:1"), group(2, "a:1")]}, "server a:1 twice"),
        ({"group": [group(1), group(1)]}, "group 1 twice"),
        ({"group": [{"id": "1", "servers": []}]}, "not a whole number"),
        ({"group": [{"id": 1, "servers": [{"addr": "a:1"}]}]}, "KeyError"),
        ({"group": [], "slots": [{"id": 1024, "group_id": 0}]}, "slot 1024"),
        ({"group": [], "slots": [{"id": 1, "group_id": 0}, {"id": 1, "group_id": 0}]}, "slot 1 twice"),
        ({"group": [], "slots": [{"id": 1, "group_id": 1, "action": {"state": "new", "target_id": 1}}]}, "'new'"),
        ({"group": [], "slots": [{"id": 1, "group_id": 1, "action": {"state": "pending"}}]}, "target_id"),
    ],
)
def test_what_is_no_dump_is_said(raw: Any, reason: str) -> None:
    with pytest.raises(DumpInvalid, match=reason):
        read(raw)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(DumpInvalid, match="cannot be read: No such file"):
        load(tmp_path / "missing")
    (tmp_path / "text").write_text("[2026] dump follows {}")
    with pytest.raises(DumpInvalid, match="is not JSON"):
        load(tmp_path / "text")


def test_servers_that_are_not_as_they_should_be_are_named() -> None:
    dump = read(document([group(1, "a:1", "b:1")]))
    assert dump.groups[0].servers[0] == CodisServer("a:1", "", "", False)
    servers = [{"address": "a:1", "up": True, "role": "replica"}, {"address": "b:1", "up": False, "role": None}]
    assert importing.checks(dump, [{"id": 1, "servers": servers}, {"id": 9, "servers": servers}]) == [
        "a:1 of group 1 says that it is a replica, and should be a master",
        "b:1 of group 1 does not answer topom; see that it runs, and topom's redis_password",
    ]


def test_a_dry_run_changes_nothing_and_says_all(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        slots = [{"id": slot, "group_id": 0, "action": {}} for slot in range(1024)]
        status = {"product": "p", "slot_function": "crc32", "number_of_slots": 1024, "slot_rules": [], "groups": []}
        return httpx.Response(200, json={"slots": slots} if request.url.path.endswith("/slots") else status)

    play_topom(monkeypatch, handler)
    text = CliRunner().invoke(app, ["import", "codis", str(REAL), "--dry-run"])
    assert text.exit_code == 0, text.output
    for expected in (
        "would take",
        "127.0.0.1:6501 to group 1",
        "0-511 to group 1 (512)",
        "127.0.0.1:19000",
        "look at: ",
    ):
        assert expected in text.stdout
    as_json = json.loads(CliRunner().invoke(app, ["import", "codis", str(REAL), "--dry-run", "-o", "json"]).stdout)
    assert as_json["slots"] == {"1": "0-511", "2": "512-1023"}
    assert set(asked) == {"GET"}
    assert CliRunner().invoke(app, ["import", "codis", "/nowhere", "--dry-run"]).exit_code == 1
