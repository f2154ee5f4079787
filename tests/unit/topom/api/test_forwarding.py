"""The live picture over a follower: the leader's stream, until another topom leads."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import httpx
import pytest

from tests.unit.topom.operators import eventually
from topom.api import forwarding
from topom.api.forwarding import LIVE, OWN, Forwarding
from topom.store import Leader

HEADERS = {"content-type": "text/event-stream", "cache-control": "no-store", "x-accel-buffering": "no"}


class Follower:
    """A follower of one leader, whose answers never end, and one client of it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.target = path
        """The path as it comes."""
        self.headers: list[tuple[bytes, bytes]] = []
        self.sent: list[Any] = []
        self.ended = False
        self.more = asyncio.Event()
        self.taken = asyncio.Event()
        """Set while the client takes what comes."""
        self.taken.set()
        self.http = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))
        self.node: Any = SimpleNamespace(
            leading=None,
            leader=Leader("a" * 32, "http://a", 1),
            view=SimpleNamespace(changed=asyncio.Event()),
            http=self.http,
            url="http://b",
            instance="b" * 32,
        )

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked = request
        self.answer = httpx.Response(200, content=self._parts(), headers=HEADERS)
        return self.answer

    async def _parts(self) -> AsyncIterator[bytes]:
        yield b"event: picture\n\n"
        try:
            await self.more.wait()
            yield b"event: changes\n\n"
            await asyncio.Event().wait()
        finally:
            self.ended = True

    async def ask(self) -> None:
        async def app(*_: Any) -> None:
            raise AssertionError("the leader is asked")

        async def send(message: Any) -> None:
            await self.taken.wait()
            self.sent.append(message)

        bodies = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def receive() -> Any:
            for body in bodies:
                return body
            return await asyncio.Event().wait()

        scope = {
            "type": "http",
            "method": "GET",
            "path": self.path,
            "raw_path": self.target.encode(),
            "query_string": b"",
            "headers": self.headers,
        }
        await Forwarding(app, self.node)(scope, receive, send)

    def elect(self) -> None:
        self.node.leader = Leader("c" * 32, "http://c", 2)
        self.node.view.changed.set()


@pytest.fixture(params=[LIVE, "/api/v1/groups"])
async def follower(request: pytest.FixtureRequest) -> AsyncIterator[Follower]:
    one = Follower(request.param)
    yield one
    await one.http.aclose()


async def test_the_live_picture_ends_when_another_topom_leads_and_other_answers_go_on(follower: Follower) -> None:
    asking = asyncio.create_task(follower.ask())
    await eventually(lambda: len(follower.sent) == 2)
    assert {name.decode(): value.decode() for name, value in follower.sent[0]["headers"]} == HEADERS
    assert follower.sent[1]["body"] == b"event: picture\n\n"
    follower.elect()
    if follower.path == LIVE:
        async with asyncio.timeout(60):
            await asking
        assert follower.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
        assert follower.ended
    else:
        # Whoever tells of the change is heard within a second.
        await asyncio.sleep(0.2)
        assert not asking.done()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


@pytest.mark.parametrize("elects", [False, True])
async def test_a_client_that_takes_nothing_is_cut_off(
    follower: Follower, monkeypatch: pytest.MonkeyPatch, elects: bool
) -> None:
    """Else it would hold a connection to the leader for as long as it likes."""
    monkeypatch.setattr(forwarding, "TAKE_SECONDS", 0.1)
    asking = asyncio.create_task(follower.ask())
    await eventually(lambda: len(follower.sent) == 2)
    follower.taken.clear()
    follower.more.set()
    if elects:
        follower.elect()
    async with asyncio.timeout(60):
        await asking
    assert follower.answer.is_closed
    assert len(follower.sent) == 2


@pytest.mark.parametrize(
    "target",
    [
        *("%2Fapi%2Fv1@evil:80/groups", "%2Fapi%2Fv1:80/groups", "/api/v1/a%2Fb%3Fc%23d"),
        *("/api/v1/users/..%2Fgroups%2F1", "/api/v1/users/%2E", "/api/v1/users/a%2F..", "/api/v1/users/...%2F..a"),
    ],
)
async def test_whatever_the_path_the_leader_is_asked_and_nobody_else(target: str) -> None:
    """A path that does not begin with a slash would be taken for another host, which would get the client's token. A
    name with dots would be taken for another thing of topom's."""
    follower = Follower(unquote(target))
    follower.target = target
    asking = asyncio.create_task(follower.ask())
    await eventually(lambda: len(follower.sent) == 2)
    assert (follower.asked.url.host, follower.asked.url.port) == ("a", None)
    assert unquote(follower.asked.url.raw_path.decode()) == follower.path
    asking.cancel()
    await asyncio.gather(asking, follower.http.aclose(), return_exceptions=True)


async def test_headers_go_on_as_they_came() -> None:
    follower = Follower("/api/v1/groups")
    follower.headers = [(b"x-slotferry-user", "Zoë".encode("latin-1")), (b"host", b"follower")]
    asking = asyncio.create_task(follower.ask())
    await eventually(lambda: len(follower.sent) == 2)
    passed = dict(follower.asked.headers.raw)
    assert passed[b"x-slotferry-user"] == "Zoë".encode("latin-1")
    assert passed[b"Host"] == b"a"
    asking.cancel()
    await asyncio.gather(asking, follower.http.aclose(), return_exceptions=True)


@pytest.mark.parametrize("path", sorted(OWN))
async def test_a_follower_answers_for_its_own_settings(path: str) -> None:
    asked: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["path"])

    follower = Follower(path)
    scope = {"type": "http", "method": "POST", "path": path, "headers": []}
    await Forwarding(app, follower.node)(scope, app, app)  # type: ignore[arg-type]
    assert asked == [path]
