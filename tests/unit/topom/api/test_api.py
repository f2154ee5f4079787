"""The HTTP API, without a network: what it asks for, answers and refuses."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY

import httpx
import pytest

from migrator.errors import NotEnoughMemory
from migrator.progress import Pacing, ServerLatency
from slots.messages.control import Register
from slots.states import SlotState
from slots.version import program_version
from tests.unit.topom.migrators.fakes import FakeLink, copy_of, registration
from tests.unit.topom.topom_fakes import FakeMover, MemoryStore
from topom import api
from topom.api import migration
from topom.api.callers import Callers
from topom.cluster import differing, topology
from topom.cluster.state import Differs
from topom.migration.actions import Actions
from topom.migration.batches import Batch
from topom.migration.streamed import StreamedCopies
from topom.migrators.members import MigratorLost
from topom.placement import applying
from topom.proxies.member import Member
from topom.reasons import Kind
from topom.servers.readings import Reading
from topom.term.service import Topom
from topom.term.settings import TopomSettings
from topom.term.tokens import Role, Token, Tokens

TOKEN = "secret"


class SilentLink:
    def wake(self) -> None: ...

    def say(self, frame: object) -> None: ...

    def end(self, frame: object) -> None: ...


@pytest.fixture
async def topom(tmp_path: Path) -> AsyncIterator[Topom]:
    settings = TopomSettings.load(None, data=tmp_path, number_of_slots=16, redis_timeout_seconds=0.2)
    one = Topom(settings, MemoryStore(), FakeMover())
    await one.start()
    running = asyncio.create_task(one.run())
    yield one
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await one.close()


@pytest.fixture
async def client(topom: Topom) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(api.build(topom, Callers(Tokens(TOKEN))), raise_app_exceptions=False)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://topom/api/v1", headers={"Authorization": f"Bearer {TOKEN}"}
    ) as one:
        yield one


async def post(client: httpx.AsyncClient, path: str, body: Any = None, status: int = 200) -> Any:
    if path.startswith("/groups") and isinstance(body, dict) and body.keys() & {"servers", "address"}:
        body = {"offline_ok": True, **body}  # no server runs here
    answer = await client.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


@pytest.fixture
async def filled(client: httpx.AsyncClient) -> httpx.AsyncClient:
    await post(client, "/groups", {"id": 1, "servers": ["127.0.0.1:1"]}, 201)
    await post(client, "/groups", {"id": 2, "servers": ["127.0.0.1:2"]}, 201)
    await post(client, "/slots/assign", {"slots": "0-15", "group_id": 1})
    return client


async def silent_proxy(topom: Topom) -> Member:
    frame = Register(instance="a" * 32, address="p:1", hostname="h", pid=1, workers=1, version="0", epoch=0)
    return await topom.members.register(frame, SilentLink())


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Bearer ", "Basic secret", "secret", "Bearer secrét"])
async def test_the_token_is_asked_for(client: httpx.AsyncClient, header: str | None) -> None:
    del client.headers["Authorization"]
    headers = {b"Authorization": header.encode()} if header is not None else {}
    for method, path in (("GET", "/status"), ("POST", "/groups"), ("DELETE", "/proxies/1"), ("PATCH", "/migration")):
        answer = await client.request(method, path, headers=headers)
        assert answer.status_code == 401
        assert answer.json()["error"] == "Unauthorised"


@pytest.mark.parametrize(("method", "path"), [("GET", "/status/"), ("POST", "/groups/"), ("PATCH", "/migration/")])
async def test_a_slash_at_the_end_of_a_path_is_refused_and_sends_nobody_elsewhere(
    client: httpx.AsyncClient, method: str, path: str
) -> None:
    answer = await client.request(method, path, json={"id": 1}, headers={"Host": "elsewhere"})
    assert answer.status_code == 404
    assert "location" not in answer.headers
    said = f"{method} /api/v1{path}: Not Found; leave out the slash at its end"
    assert answer.json() == {"error": "HttpError", "message": said}


@pytest.mark.parametrize(
    ("method", "path", "said"),
    [
        ("GET", "/events?since=0&sice=1", "sice is not known; did you mean since?"),
        ("GET", "/status?shown=all", "shown is not known"),
        ("POST", "/rebalance?policy=codis&dryrun=true", "dryrun is not known; did you mean dry_run?"),
        ("DELETE", "/groups/1?later=x&other=y", "later is not known; other is not known"),
    ],
)
async def test_what_a_caller_of_a_later_version_asks_for_is_not_left_out_in_silence(
    client: httpx.AsyncClient, topom: Topom, method: str, path: str, said: str
) -> None:
    version = topom.ledger.state.version
    answer = await client.request(method, path)
    assert (answer.status_code, answer.json()) == (422, {"error": "InvalidRequest", "message": said})
    answer = await client.request(method, "/of/a/later/version")
    assert answer.status_code == 404
    assert answer.json()["message"].endswith(
        f"topom {program_version()} has nothing there: is the caller of another version?"
    )
    assert topom.ledger.state.version == version


async def test_both_tokens_are_taken_wherever_one_is_asked_for(topom: Topom) -> None:
    large = "x" * (1024 * 1024 + 1)
    tokens = Tokens("old", Token(Role.OPERATOR, "next", b"new"))
    transport = httpx.ASGITransport(api.build(topom, Callers(tokens)), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://topom") as one:
        for token, expected in (("old", (200, 422)), ("new", (200, 422)), ("other", (401, 401)), ("", (401, 401))):
            headers = {"Authorization": f"Bearer {token}"}
            assert (await one.get("/api/v1/status", headers=headers)).status_code == expected[0]
            assert (await one.get("/metrics", headers=headers)).status_code == expected[0]
            answer = await one.post("/api/v1/sizes", headers=headers, content=large)
            assert answer.status_code == expected[1]


async def test_what_needs_no_token(client: httpx.AsyncClient) -> None:
    del client.headers["Authorization"]
    for path in ("/livez", "/readyz"):
        answer = await client.get(f"http://topom{path}")
        assert (answer.status_code, answer.text) == (200, "ok\n")
    for path in ("/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json", "/metrics"):
        assert (await client.get(f"http://topom{path}")).status_code == 401


async def test_the_api_describes_itself(client: httpx.AsyncClient) -> None:
    page = await client.get("http://topom/docs")
    assert "POST /api/v1/slots/move" in page.text
    assert "Role: operator." in page.text
    assert "script-src 'self'" in page.headers["content-security-policy"]
    description = (await client.get("http://topom/openapi.json")).json()
    assert "/api/v1/slots/move" in description["paths"]
    assert description["components"]["securitySchemes"]


async def test_status_of_a_new_product(client: httpx.AsyncClient) -> None:
    status = (await client.get("/status")).json()
    assert status["product"] == "slotferry"
    assert status["slots"] == {"total": 16, "assigned": 0, "offline": 16, "offline_since": ANY, "moving": 0}
    assert time.time() - 600 < status["slots"]["offline_since"] <= time.time()
    assert status["groups"] == status["proxies"] == []
    assert status["migration"]["settings"]["latency_goal_milliseconds"] == 10.0


async def test_groups_and_servers(client: httpx.AsyncClient) -> None:
    made = await post(client, "/groups", {"id": 1, "servers": ["127.0.0.1:1"]}, 201)
    servers = {"servers": ["127.0.0.1:1"], "silent": ["127.0.0.1:1"], "strangers": [], "keys_held": 0}
    assert made == {"epoch": 2, "id": 1, **servers}
    await post(client, "/groups/1/servers", {"address": "[::1]:2"}, 201)
    groups = (await client.get("/groups")).json()["groups"]
    assert [server["address"] for server in groups[0]["servers"]] == ["127.0.0.1:1", "[::1]:2"]
    assert not groups[0]["servers"][0]["up"]
    assert (await client.delete("/groups/1/servers/[::1]:2")).json()["servers"] == ["127.0.0.1:1"]
    assert (await client.delete("/groups/1")).status_code == 200
    assert (await client.get("/groups")).json()["groups"] == []


async def test_a_server_that_does_not_answer_is_refused_unless_that_is_said(client: httpx.AsyncClient) -> None:
    await post(client, "/groups", {"id": 1, "servers": ["127.0.0.1:1"]}, 201)
    for path, body in (
        ("/groups", {"id": 2, "servers": ["127.0.0.1:2", "127.0.0.1:3"]}),
        ("/groups/1/servers", {"address": "127.0.0.1:2"}),
    ):
        refused = await client.post(path, json=body)
        assert (refused.status_code, refused.json()["error"]) == (409, "ServersUnreachable")
        message = refused.json()["message"]
        assert message.startswith("127.0.0.1:2 does not answer topom's INFO (")
        assert ("127.0.0.1:3" in message) == (path == "/groups")
        assert message.endswith("start it, or look at the address; or say that it may be added as it is (--offline-ok)")
    groups = (await client.get("/groups")).json()["groups"]
    assert [[server["address"] for server in group["servers"]] for group in groups] == [["127.0.0.1:1"]]
    # What the table alone refuses is said first.
    taken = await client.post("/groups", json={"id": 1, "servers": ["127.0.0.1:2"]})
    assert taken.json()["error"] == "GroupExists"
    await post(client, "/groups/1/servers", {"address": "127.0.0.1:2"}, 201)
    assert (await client.post("/groups", json={"id": 2})).status_code == 201


async def test_a_group_that_is_removed_while_its_servers_are_asked_is_shown_as_it_was(
    topom: Topom, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await post(client, "/groups", {"id": 7, "servers": ["127.0.0.1:7"]}, 201)
    status = topom.servers.status

    async def remove_meanwhile(addresses: Iterable[str]) -> Mapping[str, Reading | None]:
        found = await status(addresses)
        await topom.edits.edit(lambda table, epoch: topology.remove_group(table, epoch, 7))
        return found

    monkeypatch.setattr(topom.servers, "status", remove_meanwhile)
    assert [group["id"] for group in (await client.get("/groups")).json()["groups"]] == [7]


async def test_datacenters(client: httpx.AsyncClient) -> None:
    async def shown() -> list[str]:
        return [server["datacenter"] for server in (await client.get("/groups")).json()["groups"][0]["servers"]]

    await post(client, "/groups", {"id": 1, "servers": ["127.0.0.1:1", "127.0.0.1:2"], "datacenter": "paris"}, 201)
    await post(client, "/groups/1/servers", {"address": "127.0.0.1:3", "datacenter": "rome"}, 201)
    await post(client, "/groups/1/servers", {"address": "127.0.0.1:4"}, 201)
    assert await shown() == ["paris", "paris", "rome", ""]
    changed = await client.patch("/groups/1/servers/127.0.0.1:2", json={"datacenter": "oslo"})
    assert changed.status_code == 200
    assert await shown() == ["paris", "oslo", "rome", ""]
    await client.patch("/groups/1/servers/127.0.0.1:2", json={"datacenter": ""})
    assert await shown() == ["paris", "", "rome", ""]


async def test_nodes_and_the_pool(client: httpx.AsyncClient) -> None:
    async def shown() -> list[str]:
        return [server["node"] for server in (await client.get("/groups")).json()["groups"][0]["servers"]]

    await post(client, "/groups", {"id": 1, "servers": ["127.0.0.1:1"], "node": "n1"}, 201)
    await post(client, "/groups/1/servers", {"address": "127.0.0.1:3"}, 201)
    assert await shown() == ["n1", "127.0.0.1"]
    await client.patch("/groups/1/servers/127.0.0.1:3", json={"node": "n3", "datacenter": "rome"})
    assert await shown() == ["n1", "n3"]
    # A server that cannot be asked is not registered, and a server of a group is not either.
    assert (await client.post("/pool", json={"address": "127.0.0.1:9"})).json()["error"] == "ServersUnreachable"
    assert (await client.post("/pool", json={"address": "127.0.0.1:3"})).json()["error"] == "ServerInUse"
    assert (await client.post("/pool", json={"address": "h:3", "node": "a b"})).json()["error"] == "InvalidNode"
    assert (await client.delete("/pool/127.0.0.1:9")).json()["error"] == "NotInPool"
    assert (await client.get("/pool")).json() == {"servers": []}


async def test_placement(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applying, "KNOWN_SECONDS", 0.01)  # nobody looks at servers here
    await post(client, "/groups", {"id": 1, "servers": ["127.0.0.1:1", "127.0.0.2:1"]}, 201)
    await post(client, "/groups", {"id": 2, "servers": ["127.0.0.2:2"]}, 201)
    found = (await client.get("/placement")).json()
    assert [(one["id"], one["leader"], one["followers"]) for one in found["groups"]] == [
        (1, "127.0.0.1", ["127.0.0.2"]),
        (2, "127.0.0.2", []),
    ]
    nodes = {node["name"]: (node["leads"], node["follows"]) for node in found["nodes"]}
    assert nodes == {"127.0.0.1": ([1], []), "127.0.0.2": ([2], [1])}
    assert found["plan"]["steps"] == []
    missing = found["plan"]["missing"][0]
    assert "no server is left in the pool" in missing["what"]
    assert (missing["kind"], missing["to_do"]) == (
        "operator",
        "add one: slotferry pool add HOST:PORT --node 127.0.0.1",
    )
    assert found["run"] is None
    refused = await client.post("/placement/apply", json={})
    assert (refused.status_code, refused.json()["error"]) == (409, "NothingToPlace")
    assert (await client.post("/placement/cancel", json={})).json()["error"] == "NothingToPlace"
    # It is not an error that there is nothing to do, unless something is missing.
    await post(client, "/groups/2/servers", {"address": "127.0.0.1:2"}, 201)
    placed = await client.post("/placement/apply", json={})
    assert (placed.status_code, placed.json()["run"], placed.json()["plan"]["missing"]) == (202, None, [])
    assert (await client.post("/placement/auto", json={"on": True})).json()["auto"]
    assert not (await client.post("/placement/auto", json={"on": False})).json()["auto"]


@pytest.mark.parametrize(
    ("method", "path", "body", "message"),
    [
        ("POST", "/groups", {"id": 3, "serves": []}, "serves is not known; did you mean servers?"),
        ("POST", "/groups", {"name": 3}, "id has to be given; name is not known"),
        ("POST", "/groups", {"id": "three"}, "id has to be a whole number"),
        ("POST", "/groups", [], "the body has to be an object with fields"),
        ("PATCH", "/migration", {"parallel_slots": 0}, "parallel_slots has to be at least 1"),
        ("POST", "/rebalance?dry_run=perhaps", None, "dry_run has to be true or false"),
        (
            "PATCH",
            "/groups/1/servers/127.0.0.1:1",
            {"datacenter": "x" * 65},
            "datacenter may have 64 characters at most",
        ),
    ],
)
async def test_what_is_wrong_is_said_in_words(
    filled: httpx.AsyncClient, method: str, path: str, body: Any, message: str
) -> None:
    answer = await filled.request(method, path, json=body)
    assert (answer.status_code, answer.json()["message"]) == (422, message)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "error"),
    [
        ("POST", "/groups", {"id": 1}, 409, "GroupExists"),
        ("POST", "/groups", {"id": 0}, 422, "InvalidGroup"),
        ("POST", "/groups", {"id": 3, "servers": ["x"]}, 422, "InvalidAddress"),
        ("POST", "/groups", {"id": 3, "servers": ["127.0.0.1:1"]}, 409, "ServerInUse"),
        ("POST", "/groups", {"name": 3}, 422, "InvalidRequest"),
        ("POST", "/groups/9/servers", {"address": "h:1"}, 404, "GroupNotFound"),
        ("DELETE", "/groups/1", None, 409, "GroupInUse"),
        ("DELETE", "/groups/9", None, 404, "GroupNotFound"),
        ("DELETE", "/groups/1/servers/127.0.0.1:1", None, 409, "ServerInUse"),
        ("DELETE", "/groups/1/servers/h:1", None, 404, "ServerNotFound"),
        ("POST", "/groups", {"id": 3, "servers": ["h:1"], "datacenter": "a b"}, 422, "InvalidDatacenter"),
        ("POST", "/groups/1/servers", {"address": "h:1", "datacenter": "a/b"}, 422, "InvalidDatacenter"),
        ("PATCH", "/groups/1/servers/127.0.0.1:1", {"datacenter": "x" * 65}, 422, "InvalidRequest"),
        ("PATCH", "/groups/1/servers/127.0.0.1:1", {}, 422, "InvalidRequest"),
        ("PATCH", "/groups/1/servers/h:1", {"datacenter": "x"}, 404, "ServerNotFound"),
        ("PATCH", "/groups/9/servers/h:1", {"datacenter": "x"}, 404, "GroupNotFound"),
        ("DELETE", "/proxies/1", None, 404, "ProxyNotFound"),
        ("POST", "/proxies/1/drain", None, 404, "ProxyNotFound"),
        ("POST", "/slots/assign", {"slots": "0", "group_id": 2}, 409, "SlotsOwned"),
        ("POST", "/slots/assign", {"slots": "16", "group_id": 2}, 422, "InvalidSlots"),
        ("POST", "/slots/move", {"slots": "0-x", "group_id": 2}, 422, "InvalidSlots"),
        ("POST", "/slots/move", {"slots": "0", "group_id": 7}, 404, "GroupNotFound"),
        ("POST", "/rebalance?policy=odd", None, 422, "UnknownPolicy"),
        ("POST", "/rebalance?dry_run=perhaps", None, 422, "InvalidRequest"),
        ("PATCH", "/migration", {"parallel_slots": 0}, 422, "InvalidRequest"),
        ("PATCH", "/migration", {"paused": True}, 422, "InvalidRequest"),
        ("GET", "/nothing", None, 404, "HttpError"),
        ("PUT", "/slots", None, 405, "HttpError"),
    ],
)
async def test_refusals(filled: httpx.AsyncClient, method: str, path: str, body: Any, status: int, error: str) -> None:
    answer = await filled.request(method, path, json=body)
    assert (answer.status_code, answer.json()["error"]) == (status, error)
    assert answer.json()["message"]


async def test_slots_are_assigned_moved_and_taken_offline(filled: httpx.AsyncClient, topom: Topom) -> None:
    assert (await filled.get("/slots")).json()["slots"][3] == {"id": 3, "group_id": 1, "action": {}}
    await post(filled, "/migration/pause")
    moved = await post(filled, "/slots/move", {"slots": "2-3", "group_id": 2})
    assert moved == {"epoch": topom.ledger.table.epoch, "slots": [2, 3]}
    slot = (await filled.get("/slots")).json()["slots"][3]
    assert slot == {"id": 3, "group_id": 1, "action": {"state": "pending", "target_id": 2}}
    assert (await post(filled, "/slots/move", {"slots": "2-3", "group_id": 2}))["slots"] == []
    assert (await post(filled, "/slots/offline", {"slots": "3,5"}))["slots"] == [3, 5]
    status = (await filled.get("/status")).json()
    assert status["slots"] == {"total": 16, "assigned": 14, "offline": 2, "offline_since": ANY, "moving": 1}
    assert [group["slots"] for group in status["groups"]] == [14, 0]


async def test_rebalance(filled: httpx.AsyncClient, topom: Topom) -> None:
    await post(filled, "/migration/pause")
    epoch = topom.ledger.table.epoch
    planned = await post(filled, "/rebalance?dry_run=true")
    assert planned["moves"][0] == {"slot": 8, "from": 1, "to": 2}
    assert len(planned["moves"]) == 8
    assert topom.ledger.table.epoch == epoch
    begun = await post(filled, "/rebalance?policy=codis")
    [forecast], [pair] = planned["cost"]["pairs"], begun["cost"]["pairs"]
    assert (forecast.pop("way")["way"], pair.pop("way")) == ("keys", None), "only a dry run looks at the servers"
    assert [text[:26] for text in planned.pop("warnings")] == [f"127.0.0.1:{one} was not looked" for one in (1, 2)]
    assert begun.pop("warnings") == []
    assert planned["epoch"] == epoch
    assert begun == {**planned, "dry_run": False, "epoch": topom.ledger.table.epoch}
    moving = (await filled.get("/migration")).json()
    # What waits for a move goes by this epoch.
    assert (moving["slots_pending"], moving["epoch"]) == (8, topom.ledger.table.epoch)
    assert (await post(filled, "/rebalance"))["moves"] == []
    await post(filled, "/migration/resume")
    async with asyncio.timeout(60):
        while (await filled.get("/migration")).json()["slots_moved"] < 8:
            await asyncio.sleep(0.01)
    assert len(topom.ledger.table.by_group[2]) == 8


async def test_migration_settings_are_remembered(filled: httpx.AsyncClient, topom: Topom) -> None:
    answer = await filled.patch("/migration", json={"keys_per_second": 1000, "parallel_slots": 4})
    assert answer.json()["settings"]["keys_per_second"] == 1000
    assert answer.json()["settings"]["latency_goal_milliseconds"] == 10.0
    await post(filled, "/migration/pause")
    again = Topom(topom.settings, topom.ledger._store, FakeMover())
    await again.start()
    assert again.actions.settings.keys_per_second == 1000
    assert again.actions.settings.parallel_slots == 4
    assert again.actions.settings.paused


async def test_hours_and_latency_goal_are_set_and_shown(
    filled: httpx.AsyncClient, topom: Topom, monkeypatch: pytest.MonkeyPatch
) -> None:
    noon = datetime(2026, 2, 10, 12, tzinfo=UTC).timestamp()
    monkeypatch.setattr("topom.cluster.hours.time", SimpleNamespace(time=lambda: noon))
    before = (await filled.get("/migration")).json()
    assert (before["halted"], before["halted_until"]) == (None, None)
    assert before["settings"]["latency_goal_milliseconds"] == topom.settings.migration_latency_goal_milliseconds
    change = {"latency_goal_milliseconds": 2.5, "hours": "22:00-06:00", "time_zone": "Europe/Paris"}
    answer = (await filled.patch("/migration", json=change)).json()
    assert {name: answer["settings"][name] for name in change} == change
    assert answer["halted"]["kind"] == "hours"
    assert (
        answer["halted"]["what"] == "migration is outside its hours, 22:00-06:00; it goes on at 2026-02-10 22:00+01:00"
    )
    assert answer["halted_until"] == "2026-02-10T22:00:00+01:00"
    assert not answer["paused"]
    assert (await filled.get("/status")).json()["migration"]["halted"] == answer["halted"]
    assert (await filled.patch("/migration", json={"hours": ""})).json()["halted"] is None
    await filled.patch("/migration", json={"hours": "22:00-06:00"})
    again = Topom(topom.settings, topom.ledger._store, FakeMover())
    await again.start()
    assert again.actions.settings.hours == "22:00-06:00"
    assert again.actions.settings.latency_goal_milliseconds == 2.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hours": "22-06"}, "'22' is not a time of the day such as 22:00"),
        ({"hours": "6:00-6:00"}, "leave the hours empty for always"),
        ({"time_zone": "Europe/Atlantis"}, "this computer knows no time zone 'Europe/Atlantis'"),
    ],
)
async def test_hours_that_cannot_be_read_are_refused(
    filled: httpx.AsyncClient, topom: Topom, change: dict[str, str], message: str
) -> None:
    answer = await filled.patch("/migration", json=change)
    assert (answer.status_code, answer.json()["error"]) == (422, "InvalidHours")
    assert message in answer.json()["message"]
    assert topom.ledger.state.migration_changes == {}
    assert (await filled.patch("/migration", json={"latency_goal_milliseconds": -1})).status_code == 422


async def test_a_topom_halts_by_the_clock(
    filled: httpx.AsyncClient, topom: Topom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topom.migration.clock.LOOK_SECONDS", 0.01)
    now = {"seconds": datetime(2026, 2, 10, 12, tzinfo=UTC).timestamp()}
    monkeypatch.setattr("topom.cluster.hours.time", SimpleNamespace(time=lambda: now["seconds"]))
    await filled.patch("/migration", json={"hours": "22:00-06:00", "time_zone": "UTC"})
    await post(filled, "/slots/move", {"slots": "2-3", "group_id": 2})
    await asyncio.sleep(0.05)
    shown = (await filled.get("/migration")).json()
    assert (shown["slots_pending"], shown["slots_moving"]) == (2, 0)
    now["seconds"] += 10 * 3600
    async with asyncio.timeout(60):
        while (await filled.get("/migration")).json()["slots_moved"] < 2:
            await asyncio.sleep(0.01)


async def test_a_paused_topom_moves_nothing_until_it_is_resumed(filled: httpx.AsyncClient, topom: Topom) -> None:
    assert (await filled.get("/status")).json()["pause"] is None
    assert (await filled.post("/pause", json={"reason": "misspelt"})).status_code == 422
    shown = (await filled.post("/pause", json={"why": "switches are changed"})).json()["pause"]
    assert (shown["by"], shown["why"]) == ("operator", "switches are changed")
    await post(filled, "/slots/move", {"slots": "2-3", "group_id": 2})
    await asyncio.sleep(0.05)
    found = (await filled.get("/migration")).json()
    assert (found["slots_pending"], found["slots_moving"]) == (2, 0)
    assert "has paused topom (switches are changed)" in found["halted"]["what"]
    assert (await filled.get("/status")).json()["pause"] == shown
    # The next topom knows it, too.
    again = Topom(topom.settings, topom.ledger._store, FakeMover())
    await again.start()
    paused = again.hands_off.paused()
    assert paused is not None
    assert (paused.kind, paused.since) == (Kind.PAUSED, shown["at"])
    assert "has paused topom (switches are changed)" in paused.what
    assert again.hands_off.reason() == again.hands_off.paused()


async def test_a_resumed_topom_moves_what_has_waited(filled: httpx.AsyncClient) -> None:
    await filled.post("/pause", json={})
    await post(filled, "/slots/move", {"slots": "2-3", "group_id": 2})
    assert (await filled.post("/resume")).json() == {"pause": None}
    async with asyncio.timeout(60):
        while (await filled.get("/migration")).json()["slots_moved"] < 2:
            await asyncio.sleep(0.01)


async def test_a_batch_says_which_migrator_copies_it_and_which_server_that_follows(
    topom: Topom, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = Batch(1, 2, (3,), SlotState.COPYING, notes=("by the stream",), replicas=("a:2",))
    migrator = topom.migrators.register(registration(), True, FakeLink())
    copy = copy_of(topom.migrators, batch.progress)
    monkeypatch.setattr(Actions, "batches", property(lambda actions: [batch]))
    monkeypatch.setattr(StreamedCopies, "of", lambda copies, found: copy if found is batch else None)
    assert migration.describe(topom).batches[0].notes == ["by the stream"]
    level = asyncio.create_task(copy.nearly_level())
    while not copy.made_by:
        await asyncio.sleep(0)
    batch.progress.followed = "a:2"
    says = ["by the stream", f"copied by {migrator.named}", "follows replica a:2"]
    assert migration.describe(topom).batches[0].notes == says
    topom.migrators.disconnected(migrator)
    with pytest.raises(MigratorLost):
        await level


async def test_how_a_batch_keeps_to_the_latency_goal_is_shown(topom: Topom, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch(1, 2, (3,), SlotState.MIGRATING)
    monkeypatch.setattr(Actions, "batches", property(lambda actions: [batch]))
    assert migration.describe(topom).batches[0].pacing is None
    assert migration.describe(topom).batches[0].way is None, "the slot has no action"
    source, target = ServerLatency("s:1", 12.34567, 1.0, 5.0), ServerLatency("t:1", None, None, 5.0)
    batch.progress.pacing = lambda: Pacing(0.31234, source, target, "held back to 31%", 12.5)
    assert migration.describe(topom).model_dump()["batches"][0]["pacing"] == {
        "speed": 0.312,
        "source": {
            "address": "s:1",
            "p99_milliseconds": 12.346,
            "quiet_p99_milliseconds": 1.0,
            "allowed_milliseconds": 5.0,
        },
        "target": {
            "address": "t:1",
            "p99_milliseconds": None,
            "quiet_p99_milliseconds": None,
            "allowed_milliseconds": 5.0,
        },
        "reason": {"kind": "pace", "what": "held back to 31%", "since": 12.5, "to_do": ""},
    }


async def test_one_owner_assignment_waits_for_proxies(
    filled: httpx.AsyncClient, topom: Topom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topom.migration.assigning.ASSIGN_SECONDS", 0.1)
    member = await silent_proxy(topom)
    await post(filled, "/slots/offline", {"slots": "0"})
    refused = await post(filled, "/slots/assign", {"slots": "0", "group_id": 2}, 409)
    assert refused["error"] == "ProxiesNotReady"
    assert "proxy 1" in refused["message"]
    assert topom.ledger.table.slots[0].group_id == 0
    monkeypatch.setattr("topom.migration.assigning.ASSIGN_SECONDS", 5.0)
    waiting = asyncio.create_task(post(filled, "/slots/assign", {"slots": "0", "group_id": 2}))
    await asyncio.sleep(0.02)
    # Meanwhile the table changes: the acknowledgement of the older epoch is not enough.
    older = topom.ledger.table.epoch
    await post(filled, "/slots/offline", {"slots": "1"})
    topom.members.acknowledge(member, older)
    await asyncio.sleep(0.02)
    assert not waiting.done()
    topom.members.acknowledge(member, topom.ledger.table.epoch)
    assert (await waiting)["slots"] == [0]


async def test_a_proxy_is_removed_only_if_it_can_be_fenced(filled: httpx.AsyncClient, topom: Topom) -> None:
    await silent_proxy(topom)
    listed = (await filled.get("/proxies")).json()["proxies"]
    assert listed[0]["state"] == "online"
    refused = await filled.delete("/proxies/1")
    assert refused.status_code == 409
    assert refused.json()["error"] == "ServersUnreachable"
    assert len(topom.members.all()) == 1, "nothing was done"
    forced = await filled.delete("/proxies/1?force=true")
    assert forced.status_code == 200
    assert set(forced.json()["not_fenced"]) == {"127.0.0.1:1", "127.0.0.1:2"}
    assert (await filled.get("/proxies")).json()["proxies"] == []


async def test_loops_that_say_something_are_shown(filled: httpx.AsyncClient, topom: Topom) -> None:
    assert (await filled.get("/status")).json()["loops"] == []
    topom.placements.says, topom.placements.since = "2 of 3 steps are done", 1.5
    shown = (await filled.get("/status")).json()["loops"]
    assert shown == [{"name": "placement", "says": "2 of 3 steps are done", "since": 1.5}]


async def test_a_failing_store_is_said(filled: httpx.AsyncClient, topom: Topom) -> None:
    store = topom.ledger._store
    assert isinstance(store, MemoryStore)
    store.fail_before = 1
    answer = await post(filled, "/groups", {"id": 5}, 503)
    assert answer == {"error": "StoreError", "message": "the disk is full"}


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_has_a_limit(client: httpx.AsyncClient, announced: bool) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b" " * 65536

    answer = await client.post("/groups", content=b" " * 40 * 65536 if announced else pieces())
    assert answer.status_code == 413
    assert answer.json()["message"]


async def test_a_target_that_is_refused_is_said_by_slot_and_by_batch(filled: httpx.AsyncClient, topom: Topom) -> None:
    mover = topom.actions.steps._mover
    assert isinstance(mover, FakeMover)
    mover.refusing["127.0.0.1:2"] = NotEnoughMemory("target 127.0.0.1:2 has too little memory", "free it")
    await post(filled, "/slots/move", {"slots": "2-3", "group_id": 2})
    async with asyncio.timeout(60):
        while not (batches := (await filled.get("/migration")).json()["batches"]) or not batches[0]["reason"]:
            await asyncio.sleep(0.01)
    reason = batches[0]["reason"]
    assert time.time() - 10 < reason["since"] <= time.time()
    assert reason == {
        "kind": "server",
        "what": "target 127.0.0.1:2 has too little memory",
        "since": reason["since"],
        "to_do": "free it",
    }
    assert batches[0] == {
        "source": 1,
        "target": 2,
        "state": "pending",
        "course": "forward",
        "slots": "2-3",
        "keys_moved": 0,
        "bytes_moved": 0,
        "remaining_keys": None,
        "passes": 0,
        "pacing": None,
        "reason": reason,
        "way": None,
        "notes": [],
    }
    assert (await filled.get("/status")).json()["migration"]["batches"] == batches
    slots = (await filled.get("/slots")).json()["slots"]
    assert slots[3] == {
        "id": 3,
        "group_id": 1,
        "action": {"state": "pending", "target_id": 2},
        "reason": reason,
    }
    assert (await post(filled, "/migration/skip", {"slots": "0-3"}))["slots"] == [2, 3]
    slots = (await filled.get("/slots")).json()["slots"]
    assert slots[3]["skipped"] is True
    assert slots[3]["reason"] == reason
    migration = (await filled.get("/migration")).json()
    assert migration["skipped"] == [{"slots": "2-3", "reason": reason}]
    assert migration["batches"] == []
    mover.refusing.clear()
    assert (await post(filled, "/migration/retry", {"slots": "3"}))["slots"] == [3]
    async with asyncio.timeout(60):
        while (await filled.get("/migration")).json()["slots_moved"] < 1:
            await asyncio.sleep(0.01)
    assert (await post(filled, "/migration/retry", {}))["slots"] == [2]
    async with asyncio.timeout(60):
        while (await filled.get("/migration")).json()["slots_moved"] < 2:
            await asyncio.sleep(0.01)
    assert (await filled.get("/migration")).json()["skipped"] == []


async def test_moves_are_cancelled(filled: httpx.AsyncClient, topom: Topom) -> None:
    await post(filled, "/migration/pause")
    await post(filled, "/slots/move", {"slots": "2-5", "group_id": 2})
    cancelled = await post(filled, "/migration/cancel", {"slots": "0-3"})
    assert cancelled == {"epoch": topom.ledger.table.epoch, "ended": [2, 3], "returning": [], "too_late": []}
    assert (await post(filled, "/migration/cancel", {}))["ended"] == [4, 5]
    epoch = topom.ledger.table.epoch
    assert (await post(filled, "/migration/cancel", {}))["ended"] == []
    assert topom.ledger.table.epoch == epoch
    for path, body in (
        ("/migration/cancel", {"slots": "16"}),
        ("/migration/skip", {}),
        ("/migration/skip", {"slots": "x"}),
        ("/migration/retry", {"slots": "5-3"}),
    ):
        await post(filled, path, body, 422)


async def test_lifting_protection_is_an_event_of_the_operator_who_did(topom: Topom, client: httpx.AsyncClient) -> None:
    before = len(topom.ledger.state.events)
    assert (await post(client, "/protection/lift"))["active"] is False
    assert len(topom.ledger.state.events) == before, "there was nothing to lift"
    topom.protection.look(3, 4)
    shown = (await client.get("/protection")).json()
    assert shown["since"] == topom.protection.since == pytest.approx(time.time(), abs=60)
    assert topom.protection.reason is not None
    assert topom.protection.reason.since == topom.protection.since
    answer = await client.post("/protection/lift", headers={"X-Slotferry-User": "ada"})
    lifted = answer.json().pop("lifted")
    assert answer.json() == {"active": False, "lost": 3, "members": 4, "since": None, "lifted": lifted}
    assert lifted["by"] == "ada (by operator)"
    assert 0 <= time.time() - lifted["at"] < 60
    await post(client, "/protection/lift")
    (event,) = topom.ledger.state.events[before:]
    assert (event.what, event.who) == ("protection_lifted", "ada (by operator)")
    assert "3 of 4" in event.text


async def test_a_replica_that_differs_is_shown_with_why_it_is_not_used(client: httpx.AsyncClient, topom: Topom) -> None:
    await post(client, "/groups", {"id": 1, "servers": ["127.0.0.1:1", "127.0.0.1:2"]}, 201)
    known = Differs("127.0.0.1:2", 1, 3, 1, "7", 12.5)
    await topom.ledger.change(lambda state, epoch: differing.marked(state, known))
    master, replica = (await client.get("/groups")).json()["groups"][0]["servers"]
    assert master["not_used"] is None
    reason = replica["not_used"]
    assert (reason["kind"], reason["since"]) == ("data", 12.5)
    assert "differs from its master in 3 keys" in reason["what"]
    assert "slotferry digest resync 1" in reason["to_do"]
