"""Several topoms over one store in memory: which leads, what the others answer, and what a late leader can do."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from slots.messages.control import Register
from slots.version import program_version
from tests.unit.topom.operators import eventually
from tests.unit.topom.topom_fakes import FakeMover, MemoryStore
from topom import api
from topom.api import event_stream, probes, slots
from topom.api.callers import Callers
from topom.api.topoms import describe
from topom.cluster.events import Event
from topom.cluster.ledger import LostPlace, ProductMismatch
from topom.errors import NotLeading
from topom.proxies.member import Refused
from topom.proxies.oldmarks import OldMarks
from topom.reasons import Kind
from topom.servers.detector import Condition
from topom.store import Leader, Leadership, StoreError
from topom.store.leading import LedStore
from topom.term import announcing, node
from topom.term.announcing import Announcing
from topom.term.node import Node, StuckTerm
from topom.term.service import Topom
from topom.term.settings import TopomSettings
from topom.term.tokens import Role, Token, Tokens

TOKEN = "secret"
NEXT = Token(Role.OPERATOR, "next", b"next")
AUTHORISED = {"Authorization": f"Bearer {TOKEN}"}


class Place:
    """A leadership that ends when the test says so. ``paused``: nobody has noticed that end yet."""

    def __init__(self, leader: Leader, store: "SharedStore") -> None:
        self.leader = leader
        self.lost = asyncio.Event()
        self.paused = False
        self._store = store

    def valid(self) -> bool:
        return self.paused or not self.lost.is_set()

    async def resign(self) -> None:
        self._store.end(self)


class SharedStore(MemoryStore):
    """A store for several topoms; ``cut_off`` while it does not answer."""

    shared = True

    def __init__(self) -> None:
        super().__init__()
        self.place: Place | None = None
        self.terms = 0
        self.cut_off = False

    def end(self, place: Place) -> None:
        place.lost.set()
        if self.place is place:
            self.place = None

    def check(self) -> None:
        if self.cut_off:
            raise StoreError("the store does not answer")

    async def campaign(self, instance: str, url: str, lease_seconds: float) -> Leadership:  # type: ignore[override]
        while self.place is not None or self.cut_off:
            await asyncio.sleep(0.002)
        self.terms += 1
        self.place = Place(Leader(instance, url, self.terms), self)
        return self.place

    async def leader(self) -> Leader | None:
        self.check()
        return self.place.leader if self.place else None

    async def watch(self, version: int, seconds: float) -> int:
        self.check()
        return await super().watch(version, min(seconds, 0.01))


class Network(httpx.AsyncBaseTransport):
    """Requests to a URL reach the topom of that name; ``silent`` ones are reached and do not answer."""

    def __init__(self) -> None:
        self.transports: dict[str, httpx.ASGITransport] = {}
        self.silent: set[str] = set()
        self.unanswered = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.host in self.silent:
            self.unanswered += 1
            await asyncio.Event().wait()
        transport = self.transports.get(request.url.host)
        if transport is None:
            raise httpx.ConnectError("connection refused")
        return await transport.handle_async_request(request)


class Topoms:
    """Topoms a, b and so on over one store."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        self.store = SharedStore()
        self.network = Network()
        self.nodes: dict[str, Node] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.mover = FakeMover()
        self._stack = stack
        self._folder = folder

    def settings(self, **more: Any) -> TopomSettings:
        common = {"data": self._folder, "number_of_slots": 16, "redis_timeout_seconds": 0.2, "leader_lease_seconds": 1}
        common["server_suspect_seconds"] = 1.0
        return TopomSettings.load(None, **(common | more))

    async def start(self, name: str, by_itself: bool = False, **settings: Any) -> Node:
        """``by_itself``: its terms follow the settings, and move keys for real."""
        configured = self.settings(**settings)

        def make(leadership: Leadership) -> Topom:
            store = LedStore(one._store, leadership.valid)
            term = leadership.leader.term
            return Topom(configured, store, self.mover, leads=leadership.valid, term=term, day=one.day)

        one = Node(configured, self.store, f"http://{name}", None if by_itself else make)
        await one.http.aclose()
        one._peers._http = httpx.AsyncClient(transport=self.network)
        self.nodes[name] = one
        app = api.build(one, Callers(Tokens(TOKEN)))
        self.network.transports[name] = httpx.ASGITransport(app, raise_app_exceptions=False)
        task = self.tasks[name] = asyncio.create_task(one.run())

        async def stop() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await one.close()

        self._stack.push_async_callback(stop)
        return one

    async def led_by(self, name: str) -> Topom:
        await eventually(lambda: self.nodes[name].leading is not None)
        await eventually(lambda: all(one.leader is not None for one in self.nodes.values()))
        found = self.nodes[name].leading
        assert found is not None
        return found

    async def ask(self, name: str, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        if (method, path) == ("POST", "/groups") and isinstance(body, dict):
            body = {"offline_ok": True, **body}  # no server runs here
        async with httpx.AsyncClient(transport=self.network, base_url=f"http://{name}/api/v1") as client:
            return await client.request(method, path, json=body, headers={**AUTHORISED, **headers})

    async def readiness(self, name: str) -> tuple[int, str]:
        """The answer to ``/readyz``; the topom lives, whatever it is."""
        async with httpx.AsyncClient(transport=self.network) as client:
            live = await client.get(f"http://{name}/livez")
            assert (live.status_code, live.text) == (200, "ok\n")
            answer = await client.get(f"http://{name}/readyz")
            return answer.status_code, answer.text.removesuffix("\n")


@pytest.fixture
async def topoms(tmp_path: Path) -> AsyncIterator[Topoms]:
    async with AsyncExitStack() as stack:
        yield Topoms(stack, tmp_path)


@pytest.fixture
async def two(topoms: Topoms) -> Topoms:
    """a leads, b follows, and there is a group."""
    await topoms.start("a")
    await eventually(lambda: topoms.nodes["a"].leading is not None)
    await topoms.start("b")
    await topoms.led_by("a")
    answer = await topoms.ask("a", "POST", "/groups", {"id": 1, "servers": ["127.0.0.1:1"]})
    assert answer.status_code == 201
    await follows(topoms, "b")
    return topoms


async def follows(topoms: Topoms, name: str) -> None:
    """Wait until its state is as new as the store."""

    def newest() -> bool:
        try:
            return topoms.nodes[name].view.topom.ledger.state.version == topoms.store.version
        except NotLeading:
            return False

    await eventually(newest)


async def test_one_leads_and_the_other_passes_on_what_is_for_the_leader(two: Topoms) -> None:
    made = await two.ask("b", "POST", "/groups", {"id": 2, "servers": ["127.0.0.1:2"]})
    assert made.status_code == 201, made.text
    assert made.json()["id"] == 2
    refused = await two.ask("b", "POST", "/groups", {"id": 2, "servers": ["127.0.0.1:3"]})
    assert (refused.status_code, refused.json()["error"]) == (409, "GroupExists")
    moved = await two.ask("b", "POST", "/slots/assign", {"slots": "0-15", "group_id": 1})
    assert moved.json()["slots"] == list(range(16))
    status = (await two.ask("b", "GET", "/status")).json()
    assert next((one["url"], one["state"], one.get("term")) for one in status["topoms"]) == ("http://a", "leads", 1)
    assert status["reason"] is None
    assert await two.readiness("a") == await two.readiness("b") == (200, "ok")


async def test_a_follower_hears_a_proxy_before_it_sends_it_to_the_leader(two: Topoms) -> None:
    """A proxy finds its stream closed, and does not listen, if it is closed before the proxy has registered."""
    said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    headers = [(b"authorization", AUTHORISED["Authorization"].encode())]
    scope = {
        "type": "websocket",
        "path": "/api/v1/control",
        "headers": headers,
        "query_string": b"",
        "subprotocols": [],
    }
    stream = asyncio.create_task(two.network.transports["b"].app(scope, said.get, heard.put))  # type: ignore[arg-type]
    said.put_nowait({"type": "websocket.connect"})
    async with asyncio.timeout(20):
        assert (await heard.get())["type"] == "websocket.accept"
        for _ in range(50):
            await asyncio.sleep(0)
        assert heard.empty()
        said.put_nowait({"type": "websocket.receive", "text": '{"type": "register"}'})
        refusal = json.loads((await heard.get())["text"])
        assert (refusal["reason"], refusal["leader"]) == ("follower", "http://a")
        assert (await heard.get())["type"] == "websocket.close"
        await stream


@pytest.mark.parametrize("name", ["a", "b"])
async def test_a_body_that_is_too_large_is_refused_by_whichever_topom(two: Topoms, name: str) -> None:
    """This is also true for a request that does not say beforehand how large it is."""

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b" " * 500_000

    async with httpx.AsyncClient(transport=two.network.transports[name], headers=AUTHORISED) as client:
        refused = await client.post(f"http://{name}/api/v1/groups", content=pieces())
    assert (refused.status_code, refused.json()["error"]) == (413, "BodyTooLarge")


async def test_a_follower_answers_reads_from_the_store_and_says_so(two: Topoms) -> None:
    await two.ask("a", "POST", "/slots/assign", {"slots": "0-3", "group_id": 1})
    await follows(two, "b")
    two.network.silent.add("a")
    answer = await two.ask("b", "GET", "/slots")
    assert [slot["group_id"] for slot in answer.json()["slots"]][:5] == [1, 1, 1, 1, 0]
    assert answer.headers["slotferry-view"] == f"epoch={answer.json()['epoch']}"


async def test_a_follower_tells_whoever_waits_what_changed(two: Topoms) -> None:
    epoch = two.nodes["b"].view.topom.ledger.table.epoch
    waiting = asyncio.create_task(two.ask("b", "GET", f"/slots?epoch={epoch}&wait=20"))
    await eventually(lambda: two.nodes["b"].view.topom.waiters.waiting == 1)
    await two.ask("a", "POST", "/slots/assign", {"slots": "0-3", "group_id": 1})
    news = (await waiting).json()
    assert news["since"] == epoch
    assert [slot["id"] for slot in news["slots"]] == [0, 1, 2, 3]


async def test_a_follower_waits_for_the_table_that_a_client_has_already(
    two: Topoms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "CATCH_UP_SECONDS", 0.1)
    refused = await two.ask("b", "GET", "/slots?epoch=99&wait=60")
    assert (refused.status_code, refused.json()["error"]) == (409, "TableNewer")
    monkeypatch.setattr(slots, "CATCH_UP_SECONDS", 20.0)
    epoch = two.nodes["b"].view.topom.ledger.table.epoch
    waiting = asyncio.create_task(two.ask("b", "GET", f"/slots?epoch={epoch + 1}&wait=20"))
    await eventually(lambda: two.nodes["b"].view.topom.waiters.waiting == 1)
    for span in ("0-3", "4-7"):
        await two.ask("a", "POST", "/slots/assign", {"slots": span, "group_id": 1})
        await follows(two, "b")  # one that reads two changes at once answers with the whole table
    news = (await waiting).json()
    assert (news["since"], [slot["id"] for slot in news["slots"]]) == (epoch + 1, [4, 5, 6, 7])


async def test_events_and_topoms_name_the_leader_alike(topoms: Topoms) -> None:
    """So an operator finds the one of an event in the list, which says what version each is of, the leader too."""
    await topoms.start("a")
    await eventually(lambda: topoms.nodes["a"].leading is not None)
    await stop(topoms, "a")
    for name in ("b", "c"):
        one = await topoms.start(name, by_itself=True)
        if name == "b":
            await eventually(lambda one=one: one.leading is not None)
    topom = await topoms.led_by("b")
    shown = (await topoms.ask("b", "GET", "/topoms")).json()["topoms"][0]
    event = (await topoms.ask("b", "GET", "/events")).json()["events"][-1]
    assert event["who"] == f"topom {shown['instance'][:8]}"
    assert event["text"] == f"{event['who']} at http://b leads in term 2"
    assert shown["version"] == program_version()
    assert topoms.nodes["b"].instance.startswith(topom.instance[:8])
    assert topoms.nodes["b"].instance != topom.instance, "each term is another writer"
    topoms.network.silent.add("b")
    await follows(topoms, "c")
    alone = [one for one in describe(topoms.nodes["c"]) if one.url == "http://c"]
    assert [one.version for one in alone] == [program_version()]


async def test_a_follower_whose_token_is_another_says_so(two: Topoms, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcing, "SECONDS", 0.01)
    monkeypatch.setattr(Announcing, "pause_seconds", 0.01)
    b = two.nodes["b"]
    two.network.transports["b"] = httpx.ASGITransport(api.build(b, Callers(Tokens("another", NEXT))))
    for token in ("another", "next"):
        refused = await two.ask("b", "POST", "/migration/pause", Authorization=f"Bearer {token}")
        assert (refused.status_code, refused.json()["error"]) == (503, "TokensDiffer")
        assert refused.json()["message"].startswith(
            "this topom, at http://b, accepts the token, but the one that leads"
        )
    announced = asyncio.create_task(Announcing(b, Tokens("another")).run())
    try:
        await eventually(lambda: "does not accept this topom's token" in str(b.reason))
        assert b.reason is not None
        assert (b.reason.kind, b.reason.to_do) == (Kind.OPERATOR, "give all topoms the same token and tokens")
        assert await two.readiness("b") == (503, probes.REFUSED)
        announced.cancel()
        # While the token is changed, either is good.
        both = Tokens("another", Token(Role.OPERATOR, "next", TOKEN.encode()))
        announced = asyncio.create_task(Announcing(b, both).run())
        await eventually(
            lambda: b.reason is None and [one.url for one, _ in two.nodes["a"].roster.followers()] == [b.url]
        )
    finally:
        announced.cancel()
        await asyncio.gather(announced, return_exceptions=True)


@pytest.mark.parametrize("wrong", ["a", "b"])
async def test_a_topom_that_gives_anothers_url_says_so(
    two: Topoms, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so as leader and as follower. In both cases the follower says why its leader does not know it."""
    monkeypatch.setattr(announcing, "SECONDS", 0.01)
    monkeypatch.setattr(Announcing, "pause_seconds", 0.01)
    monkeypatch.setattr(announcing, "LOOK_SECONDS", 0.01)
    a, b = two.nodes["a"], two.nodes["b"]
    if wrong == "b":
        b.url = "http://a"
    else:
        a.url = "http://b"
        assert two.store.place is not None
        assert a.leadership is not None
        two.store.place.leader = replace(two.store.place.leader, url="http://b")
        await eventually(lambda: b.leader is not None and b.leader.url == "http://b")
    tasks = [asyncio.create_task(Announcing(one, Tokens(TOKEN)).run()) for one in (a, b)]
    try:
        await eventually(
            lambda: "gives as its own url, another one answers" in str(two.nodes[wrong].unfit.get("misplaced"))
        )
        await eventually(lambda: "give each topom a url of its own" in str(b.unfit.get("refused")))
        assert b.reason == (b.unfit.get("misplaced") or b.unfit.get("refused"))
        assert a.reason is None, "what it is asked for it does"
        assert describe(a)[0].reason == a.unfit.get("misplaced")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Stream:
    """Follows the events of one topom by server-sent events; ``sent`` is what came of the body."""

    path = "/api/v1/events/stream"

    def __init__(self, topoms: Topoms, name: str, query: str = "", **headers: str) -> None:
        self.status = 0
        self.answers = 0
        self.sent = ""
        self.stuck = False
        self._gone = asyncio.Event()
        given = {**AUTHORISED, **headers}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "path": self.path,
            "query_string": query.encode(),
            "headers": [(key.lower().encode(), value.encode()) for key, value in given.items()],
        }
        app = topoms.network.transports[name].app
        self.task = asyncio.create_task(app(scope, self._receive, self._send))  # type: ignore[arg-type]

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        while self.stuck:
            await asyncio.sleep(0.01)
        self.status = message.get("status", self.status)
        self.answers += message["type"] == "http.response.start"
        self.sent += message.get("body", b"").decode()

    async def end(self) -> None:
        self._gone.set()
        await self.task

    def told(self) -> list[tuple[str, str]]:
        """Id and kind of the events that came."""
        found = [dict(line.split(": ", 1) for line in part.splitlines()) for part in self.sent.split("\n\n") if part]
        return [(one["id"], json.loads(one["data"])["what"]) for one in found if "id" in one]


async def test_events_are_streamed_by_whoever_is_asked(two: Topoms, monkeypatch: pytest.MonkeyPatch) -> None:
    """The follower serves them, too, and goes on with the same stream when it leads; it reports quiet times."""
    monkeypatch.setattr(event_stream, "QUIET_SECONDS", 0.05)
    streams = {"a": Stream(two, "a", "since=1"), "b": Stream(two, "b", "since=7", **{"Last-Event-ID": "1"})}
    await two.ask("a", "POST", "/groups", {"id": 2})
    for stream in streams.values():
        await eventually(lambda stream=stream: [*stream.told()] == [("2", "group_added"), ("3", "group_added")])
        assert stream.status == 200
        await eventually(lambda stream=stream: ": nothing new" in stream.sent)
    monkeypatch.setattr(event_stream, "QUIET_SECONDS", 600.0)
    later = Stream(two, "b")
    await eventually(lambda: later.sent != "")
    await stop(two, "a")
    await streams["a"].end()
    await two.led_by("b")
    await two.ask("b", "POST", "/groups", {"id": 3})
    for stream in (streams["b"], later):
        await eventually(lambda stream=stream: [*stream.told()][-2:] == [("4", "topom_leads"), ("5", "group_added")])
    assert len(later.told()) == 2
    two.nodes["b"].release()
    for stream in (streams["b"], later):
        async with asyncio.timeout(20):
            await stream.task


class Sink:
    """A sink of a topom: the ids of the events that it was told of."""

    def __init__(self, node: Node) -> None:
        self.told: list[int] = []
        self.closed = False
        node.events.add(self)

    def stored(self, events: Sequence[Event]) -> None:
        self.told += [event.id for event in events]

    def close(self) -> None:
        self.closed = True


async def test_sinks_of_every_topom_hear_of_each_event_once_whoever_leads(two: Topoms) -> None:
    sinks = {name: Sink(node) for name, node in two.nodes.items()}
    await two.ask("b", "POST", "/groups", {"id": 2})
    for sink in sinks.values():
        await eventually(lambda sink=sink: sink.told == [3])
    # Another term begins, of one or the other.
    assert two.store.place is not None
    two.store.end(two.store.place)
    await eventually(lambda: any(one.leadership and one.leadership.leader.term == 2 for one in two.nodes.values()))
    await two.ask("b", "POST", "/groups", {"id": 3})
    for sink in sinks.values():
        await eventually(lambda sink=sink: sink.told == [3, 4, 5])
    await stop(two, "a")
    await two.led_by("b")
    await two.ask("b", "POST", "/groups", {"id": 4})
    newest = two.nodes["b"].serving.ledger.state.events[-1].id
    await eventually(lambda: sinks["b"].told == list(range(3, newest + 1)))
    two.nodes["b"].release()
    assert sinks["b"].closed


async def test_a_sink_of_a_topom_by_itself_hears_that_it_began(topoms: Topoms) -> None:
    alone = Node(topoms.settings(), MemoryStore(), "http://alone")
    sink = Sink(alone)
    running = asyncio.create_task(alone.run())
    await eventually(lambda: sink.told == [1])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await alone.close()
    assert sink.told == [1]


async def test_streams_are_bounded(two: Topoms, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MOST_STREAMS", 1)
    monkeypatch.setattr(event_stream, "SEND_SECONDS", 0.1)
    first = Stream(two, "b", "since=0")
    await eventually(lambda: len(first.told()) == 2)
    refused = await two.ask("b", "GET", "/events/stream")
    assert (refused.status_code, refused.json()["error"]) == (503, "TooManyStreams")
    # A client that takes nothing is cut off.
    first.stuck = True
    await two.ask("a", "POST", "/groups", {"id": 2})
    async with asyncio.timeout(20):
        await asyncio.gather(first.task, return_exceptions=True)
    second = Stream(two, "b", "since=0")
    await eventually(lambda: len(second.told()) == 3)
    # The stream says that events that were dropped are missing.
    topom = two.nodes["b"].view.topom
    topom.ledger._state = replace(topom.ledger.state, events=topom.ledger.state.events[2:])
    await second.end()
    third = Stream(two, "b", "since=0")
    await eventually(lambda: 'event: missed\ndata: {"since": 0, "oldest": 3}\n\n' in third.sent)
    await third.end()
    assert (await two.ask("b", "GET", "/events/stream", Authorization="Bearer wrong")).status_code == 401


async def test_a_follower_asks_for_the_token_itself(two: Topoms) -> None:
    for method, path in (("GET", "/slots"), ("POST", "/groups"), ("GET", "/status")):
        answer = await two.ask("b", method, path, Authorization="Bearer wrong")
        assert answer.status_code == 401


async def test_a_request_is_passed_on_once(two: Topoms) -> None:
    answer = await two.ask("b", "POST", "/migration/pause", **{"slotferry-forwarded": "0" * 32})
    assert (answer.status_code, answer.json()["error"]) == (503, "NotLeading")


async def test_without_a_leader_reads_are_answered_and_nothing_is_changed(two: Topoms) -> None:
    await stop(two, "a")
    two.store.terms = 0
    two.tasks["b"].cancel()  # b stays, as it is between two elections
    two.nodes["b"].view.leader = None
    await asyncio.gather(two.tasks["b"], return_exceptions=True)
    answer = await two.ask("b", "POST", "/migration/pause")
    assert (answer.status_code, answer.json()["error"]) == (503, "NotLeading")
    status = await two.ask("b", "GET", "/status")
    assert status.status_code == 200
    assert "no topom leads" in status.json()["reason"]["what"]
    assert await two.readiness("b") == (503, probes.NO_LEADER)


async def test_conditions_and_protection_are_known_to_the_leader_only(two: Topoms) -> None:
    # Nobody listens there.
    await eventually(lambda: two.nodes["a"].serving.health.of("127.0.0.1:1").condition is not Condition.UNKNOWN)
    led = (await two.ask("b", "GET", "/groups")).json()
    assert [server["condition"] for server in led["groups"][0]["servers"]] in (["suspected"], ["failed"])
    assert (await two.ask("b", "GET", "/status")).json()["protection"]["active"] is False
    await stop(two, "a")
    two.tasks["b"].cancel()  # b stays, as it is between two elections
    two.nodes["b"].view.leader = None
    await asyncio.gather(two.tasks["b"], return_exceptions=True)
    groups, status = [await two.ask("b", "GET", path) for path in ("/groups", "/status")]
    for answer in (groups, status):
        assert [server["condition"] for server in answer.json()["groups"][0]["servers"]] == ["unknown"]
        assert "slotferry-view" in answer.headers
    assert status.json()["protection"] == {"active": None, "lost": None, "members": None, "since": None, "lifted": None}
    assert (await two.ask("b", "GET", "/protection")).status_code == 503


async def stop(topoms: Topoms, name: str) -> None:
    topoms.tasks[name].cancel()
    await asyncio.gather(topoms.tasks[name], return_exceptions=True)
    del topoms.network.transports[name]
    await topoms.nodes.pop(name).close()


async def test_another_leads_when_one_ends_and_goes_on_with_what_is_stored(two: Topoms) -> None:
    await two.ask("a", "POST", "/groups", {"id": 2, "servers": ["127.0.0.1:2"]})
    await stop(two, "a")
    topom = await two.led_by("b")
    assert sorted(topom.ledger.table.groups) == [1, 2]
    assert (await two.ask("b", "POST", "/groups", {"id": 3, "servers": ["127.0.0.1:3"]})).status_code == 201


async def test_a_leader_that_lost_its_place_follows_and_its_term_is_over(two: Topoms) -> None:
    old = two.nodes["a"].leading
    assert old is not None
    assert two.store.place is not None
    two.store.end(two.store.place)
    await eventually(lambda: two.store.terms == 2 and all(one.leader for one in two.nodes.values()))
    assert old.retired.is_set()
    with pytest.raises(NotLeading):
        await old.edits.edit(lambda table, epoch: table.changed(epoch))
    for name in ("a", "b"):
        answer = await two.ask(name, "POST", "/groups", {"id": 2 if name == "a" else 3, "servers": [f"{name}:1"]})
        assert answer.status_code == 201, answer.text


async def test_a_paused_leader_that_believes_in_its_lease_changes_nothing(two: Topoms) -> None:
    """As after a sleep that its clock has not noticed: the lease seems to hold, but another topom has written."""
    old, place = two.nodes["a"].leading, two.store.place
    assert old is not None
    assert place is not None
    place.paused = True
    two.store.place = None
    new = await two.led_by("b")
    before = dict(two.store.documents)
    with pytest.raises(LostPlace):
        await old.edits.edit(lambda table, epoch: table.changed(epoch))
    assert dict(two.store.documents) == before
    await eventually(lambda: two.nodes["a"].leading is None)
    assert new.leads()
    assert old.retired.is_set()


async def test_a_late_leader_takes_no_proxy_on_and_touches_no_server(two: Topoms) -> None:
    class Link:
        def wake(self) -> None: ...

        def end(self, frame: object) -> None: ...

    old, place = two.nodes["a"].leading, two.store.place
    assert old is not None
    assert place is not None
    frame = Register(instance="a" * 32, address="p:1", hostname="h", pid=1, workers=1, version="0", epoch=0)
    await old.members.register(frame, Link())
    place.lost.set()
    with pytest.raises((NotLeading, Refused)):
        # It is a member already, so nothing would have to be stored.
        await old.members.register(frame, Link())
    assert (await old.servers.fence({"127.0.0.1:1": ["a" * 32]}))["127.0.0.1:1"].refusal == (
        "this topom does not lead any more"
    )


async def test_while_the_store_is_cut_off_topom_says_so_and_changes_nothing(two: Topoms) -> None:
    two.store.cut_off = True
    answer = await two.ask("a", "POST", "/groups", {"id": 2, "servers": ["127.0.0.1:2"]})
    assert (answer.status_code, answer.json()["error"]) == (503, "StoreError")
    assert two.store.place is not None
    two.store.end(two.store.place)  # the lease ends
    for name in ("a", "b"):
        await eventually(lambda name=name: bool(two.nodes[name].view.reason))  # type: ignore[misc]
        answer = await two.ask(name, "POST", "/groups", {"id": 2, "servers": ["127.0.0.1:2"]})
        assert answer.status_code == 503
        assert "the store does not answer" in answer.json()["message"]
        assert await two.readiness(name) == (503, probes.STORE)
        status = await two.ask(name, "GET", "/status")
        assert "the store does not answer" in status.json()["reason"]["what"]
        assert status.json()["groups"][0]["id"] == 1
        assert "stale" in (await two.ask(name, "GET", "/slots")).headers["slotferry-view"]
    two.store.cut_off = False
    await eventually(lambda: all(one.leader is not None and one.reason is None for one in two.nodes.values()))
    assert (await two.ask("b", "POST", "/groups", {"id": 2, "servers": ["127.0.0.1:2"]})).status_code == 201


@pytest.mark.parametrize(("method", "status", "error"), [("GET", 503, "NotLeading"), ("POST", 504, "LeaderSilent")])
async def test_a_leader_that_falls_silent_over_a_request(two: Topoms, method: str, status: int, error: str) -> None:
    two.network.silent.add("a")
    path = "/topoms" if method == "GET" else "/migration/pause"
    asking = asyncio.create_task(two.ask("b", method, path))
    await eventually(lambda: two.network.unanswered > 0)
    place = two.store.place
    assert place is not None
    two.store.place = Place(Leader("c" * 32, "http://c", place.leader.term + 1), two.store)
    answer = await asking
    assert (answer.status_code, answer.json()["error"]) == (status, error)


async def test_a_read_at_a_leader_that_falls_silent_is_answered_by_its_successor(two: Topoms) -> None:
    two.network.silent.add("a")
    asking = asyncio.create_task(two.ask("b", "GET", "/status"))
    await eventually(lambda: two.network.unanswered > 0)
    assert two.store.place is not None
    two.tasks["a"].cancel()
    two.store.end(two.store.place)
    answer = await asking
    assert answer.status_code == 200
    assert [(one["url"], one["state"], one["term"]) for one in answer.json()["topoms"]] == [("http://b", "leads", 2)]


async def test_a_topom_of_another_product_ends(two: Topoms) -> None:
    await two.start("c", product="other")
    with pytest.raises(ExceptionGroup) as caught:
        await two.tasks["c"]
    assert caught.group_contains(ProductMismatch)


@pytest.mark.parametrize(("stuck", "name"), [((Topom, "run"), "term"), ((OldMarks, "run"), "old marks")])
async def test_tasks_of_a_term_that_do_not_end_end_the_process(
    topoms: Topoms, monkeypatch: pytest.MonkeyPatch, stuck: tuple[type, str], name: str
) -> None:
    monkeypatch.setattr(node, "STOP_SECONDS", 0.05)
    released = asyncio.Event()

    async def stubborn(self: object) -> None:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue

    monkeypatch.setattr(*stuck, stubborn)
    await topoms.start("a")
    await topoms.led_by("a")
    assert topoms.store.place is not None
    topoms.store.end(topoms.store.place)
    try:
        with capture_logs() as logs, pytest.raises(ExceptionGroup) as caught:
            await topoms.tasks["a"]
        assert caught.group_contains(StuckTerm, match=name)
        assert [entry["task"] for entry in logs if entry["event"] == "task_does_not_end"] == [name]
    finally:
        released.set()


async def test_news_are_waited_for_at_any_topom(two: Topoms) -> None:
    made = await two.ask("b", "POST", "/groups", {"id": 2}, **{"X-Slotferry-User": "ada"})
    assert made.status_code == 201
    await follows(two, "b")
    events = (await two.ask("b", "GET", "/events")).json()["events"]
    assert [event["who"] for event in events if event["text"].startswith("group 2")] == ["ada (by operator)"]
    view = two.nodes["b"].view.topom

    async def waiting_at_b() -> asyncio.Task[httpx.Response]:
        path = f"/slots?epoch={view.ledger.table.epoch}&wait=60"
        slots = asyncio.create_task(two.ask("b", "GET", path))
        await eventually(lambda: view.waiters.waiting == 1)
        return slots

    asked = await waiting_at_b()
    await two.ask("a", "POST", "/groups", {"id": 3})
    assert [group["id"] for group in (await asked).json()["groups"]] == [3]
    asked = await waiting_at_b()
    assert two.store.place is not None
    two.store.end(two.store.place)
    table = (await asked).json()
    assert table["epoch"] > table["since"]
    events = (await two.ask("b", "GET", "/events")).json()["events"]
    assert events[-1]["what"] == "topom_leads"
    assert events[-1]["text"].endswith(f"leads in term {two.store.terms}")


class Halfway(httpx.AsyncBaseTransport):
    """A leader that has sent the first half of an answer, and sends the rest once ``go_on`` is set."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=self._halves())

    async def _halves(self) -> AsyncIterator[bytes]:
        yield b"one half, "
        await self.go_on.wait()
        yield b"and the other"


class Sizes(Stream):
    """Asks for what only a leader knows."""

    path = "/api/v1/sizes"
    asked = False

    async def _receive(self) -> dict[str, Any]:
        if not self.asked:
            self.asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        return await super()._receive()


async def test_a_client_gets_one_answer_though_another_topom_comes_to_lead_amid_it(two: Topoms) -> None:
    await two.start("c")
    leader = Halfway()
    two.network.transports["a"] = leader  # type: ignore[assignment]
    asked = Sizes(two, "b")
    await eventually(lambda: asked.sent == "one half, ")
    await stop(two, "a")
    await eventually(lambda: any(two.nodes[name].leading is not None for name in "bc"))
    await eventually(lambda: (now := two.nodes["b"].leader) is not None and now.url != "http://a")
    two.nodes["b"].view.changed.set()
    await asyncio.sleep(0.1)
    leader.go_on.set()
    async with asyncio.timeout(20):
        await asked.task
    assert (asked.answers, asked.sent) == (1, "one half, and the other")
