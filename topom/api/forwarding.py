"""What a follower does with requests: it passes them on to the leader.

- Paths in :data:`OWN` are about this process, and answered here.
- Paths in :data:`FROM_STORE` are answered here, from the store's newest state. The header :data:`VIEW` says so, and
  gives the epoch.
- All other requests go to the leader: method, path, query, token or session, and body, with a header that keeps the
  leader from passing them on again. The leader checks who asks, in which role, for itself: all topoms have the same
  tokens. Its answer comes back as it is.
- While no topom leads, or the store is cut off, paths in :data:`WITHOUT_LEADER` are answered here after all, without
  what only a leader knows. All other requests are answered 503, with the reason: nothing was changed.

**bounded**: a body is at most as large as this topom would take itself. A connection to the leader may take
:data:`topom.term.peers.CONNECT_SECONDS`, and each part of its answer :data:`topom.term.peers.ANSWER_SECONDS`. If the
leader falls silent in between, or another topom leads meanwhile, a read is tried once more at the new leader; a change
is answered 504, for its outcome is not known. A client that takes nothing of the answer for :data:`TAKE_SECONDS` is cut
off.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import httpx
import structlog
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slots.urlpaths import literal
from topom.api.callers import REQUEST_HEADER, session_cookie
from topom.api.roles import ME
from topom.api.routers import PREFIX
from topom.api.sessions import COOKIE
from topom.errors import LeaderSilent, NotLeading, TokensDiffer, TopomError
from topom.reasons import Kind, Reason
from topom.store import Leader
from topom.term.certificates import REMEDIES
from topom.term.node import Node
from topom.term.peers import FAILURES

log = structlog.get_logger(__name__)

OWN = frozenset({ME, f"{PREFIX}/settings", f"{PREFIX}/settings/reload"})
"""What each topom answers for itself."""
FROM_STORE = frozenset({f"{PREFIX}/slots", f"{PREFIX}/events", f"{PREFIX}/events/stream"})
"""Reads for which the store's state is enough."""
WITHOUT_LEADER = (
    FROM_STORE
    | {f"{PREFIX}{path}" for path in ("/status", "/live", "/groups", "/pool", "/proxies", "/migration", "/sizes")}
    | {f"{PREFIX}/load/history"}
)
"""Reads that are of use without a leader."""
LIVE = f"{PREFIX}/live"
"""A stream that the leader makes. It ends when another topom leads, so that the client asks again."""
VIEW = b"slotferry-view"
"""Header of an answer from the store's state: ``epoch=N`` of the table, and ``stale`` while the store is cut off."""
FORWARDED = b"slotferry-forwarded"
"""Header of a request that was passed on: the id of the topom that passed it on."""
TAKE_SECONDS = 30.0
"""How long a client may take nothing of an answer that comes from the leader."""
_PASSED_ON = (b"authorization", b"content-type", b"accept", b"x-slotferry-user", REQUEST_HEADER.lower().encode())
_GIVEN_BACK = (b"content-type", b"www-authenticate", b"cache-control", b"x-accel-buffering", VIEW)


class Forwarding:
    """Stands before the application, which answers what this topom can."""

    def __init__(self, app: ASGIApp, node: Node) -> None:
        self._app = app
        self._node = node

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX) or self._node.leading is not None:
            await self._app(scope, receive, send)
            return
        try:
            await self._follow(scope, receive, send, dict(scope["headers"]))
        except TopomError as error:
            answer = {"error": type(error).__name__, "message": str(error)}
            await JSONResponse(answer, error.status)(scope, receive, send)

    async def _follow(self, scope: Scope, receive: Receive, send: Send, headers: dict[bytes, bytes]) -> None:
        reads = scope["method"] in ("GET", "HEAD")
        path = scope["path"]
        if path in OWN:
            await self._app(scope, receive, send)
            return
        if reads and path in FROM_STORE:
            await self._answer(scope, receive, send)
            return
        leader = self._node.leader
        try:
            if leader is None or FORWARDED in headers:
                reason = self._node.reason or Reason(
                    Kind.STORE, "the topom that this was passed on to does not lead any more"
                )
                raise reason.to(NotLeading)
            await self._pass_on(leader, scope, receive, send, headers)
        except NotLeading:
            if not reads:
                raise
            await self._read_elsewhere(leader, scope, receive, send, headers)

    async def _read_elsewhere(
        self, former: Leader | None, scope: Scope, receive: Receive, send: Send, headers: dict[bytes, bytes]
    ) -> None:
        """Try a failed read once more at a new leader; else answer what can be answered here."""
        if self._node.leading is not None:
            await self._app(scope, receive, send)
            return
        leader = self._node.leader
        silent = Reason(Kind.STORE, "the topom that leads does not answer; try again")
        in_vain = (self._node.reason or silent).to(NotLeading)
        if leader is not None and former is not None and leader.term != former.term:
            try:
                await self._pass_on(leader, scope, _nothing(receive), send, headers)
            except NotLeading as error:
                in_vain = error
            else:
                return
        if scope["path"] not in WITHOUT_LEADER:
            raise in_vain
        await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer from the view."""
        view = self._node.view
        topom = await view.sized()

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                said = f"epoch={topom.ledger.table.epoch}" + ("; stale" if view.reason is not None else "")
                message["headers"] = [*message["headers"], (VIEW, said.encode())]
            await send(message)

        await self._app(scope, receive, marked)

    async def _pass_on(
        self, leader: Leader, scope: Scope, receive: Receive, send: Send, headers: dict[bytes, bytes]
    ) -> None:
        """Let the leader answer. Raises NotLeading if the leader did not get the request, LeaderSilent later."""
        body = await _whole(receive)
        if body is None:
            return
        query = scope.get("query_string", b"").decode("latin-1")
        # Of the path as it was judged here: as it came, it may begin with another host.
        url = leader.url + literal(scope["path"])
        passed = {name: headers[name] for name in _PASSED_ON if name in headers}
        cookie = session_cookie(scope["headers"])
        if b"authorization" not in headers and cookie is not None:
            passed[b"cookie"] = COOKIE.encode() + b"=" + cookie  # of all cookies of the host only ours
        request = self._node.http.build_request(
            scope["method"],
            url + (f"?{query}" if query else ""),
            content=body,
            headers={**passed, FORWARDED: self._node.instance.encode()},
        )

        async def limited(message: Message) -> None:
            async with asyncio.timeout(TAKE_SECONDS):
                await send(message)

        started = asyncio.Event()
        gone = asyncio.create_task(_gone(receive))
        passing = asyncio.create_task(
            self._relay(request, leader, scope["method"] in ("GET", "HEAD"), limited, started)
        )
        other = asyncio.create_task(self._other_leader(leader))
        try:
            await asyncio.wait((gone, passing, other), return_when=asyncio.FIRST_COMPLETED)
            if not passing.done() and other.done():
                if not started.is_set():
                    raise self._silent(leader, scope["method"] in ("GET", "HEAD"), "another leads now")
                # A client gets one answer: the rest of this one, or the end of its connection. The live picture has no
                # end of its own while the former leader cannot be reached.
                if not _is_live(scope):
                    await asyncio.wait((gone, passing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (gone, passing, other):
                if not task.done():
                    task.cancel()
            await asyncio.gather(gone, other, passing, return_exceptions=True)
        with suppress(TimeoutError):  # the connection ends with it
            if not passing.cancelled():
                passing.result()
            elif _is_live(scope):
                await limited({"type": "http.response.body", "body": b"", "more_body": False})

    async def _relay(
        self, request: httpx.Request, leader: Leader, reads: bool, send: Send, started: asyncio.Event
    ) -> None:
        try:
            response = await self._node.http.send(request, stream=True)
            try:
                if response.status_code == httpx.codes.UNAUTHORIZED:
                    raise TokensDiffer(
                        f"this topom, at {self._node.url}, accepts the token, but the one that leads, at {leader.url}, "
                        "does not, so nothing was changed; give all topoms the same token and tokens"
                    )
                parts = _parts(response)
                given = [(name.lower(), value) for name, value in response.headers.raw]
                started.set()
                await send(
                    {
                        "type": "http.response.start",
                        "status": response.status_code,
                        "headers": [entry for entry in given if entry[0] in _GIVEN_BACK],
                    }
                )
                async for part in parts:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            finally:
                await response.aclose()
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise NotLeading(
                f"the topom that leads, at {leader.url}, cannot be reached "
                f"({REMEDIES.why(error) or error or type(error).__name__}); "
                "nothing was changed. Try again in a while"
            ) from error
        except FAILURES as error:
            if started.is_set():
                raise  # the connection to the client ends with it
            raise self._silent(leader, reads, str(error) or type(error).__name__) from error

    def _silent(self, leader: Leader, reads: bool, reason: str) -> TopomError:
        if reads:
            return NotLeading(f"the topom that leads, at {leader.url}, does not answer ({reason}); try again")
        return LeaderSilent(
            f"the topom at {leader.url} was asked, and does not answer ({reason}): whether it was done is not known. "
            "Look before you try again"
        )

    async def _other_leader(self, leader: Leader) -> None:
        """Return once another topom leads."""
        view = self._node.view
        while True:
            current = self._node.leader
            if current is not None and current.term != leader.term:
                return
            view.changed.clear()
            with_limit = asyncio.timeout(1.0)
            try:
                async with with_limit:
                    await view.changed.wait()
            except TimeoutError:
                continue


def _is_live(scope: Scope) -> bool:
    return bool(scope["path"] == LIVE)


async def _whole(receive: Receive) -> bytes | None:
    """The body, whose size is limited before it comes here; None if the client has gone."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _nothing(receive: Receive) -> Receive:
    """An empty body, for a request whose body was read before."""
    told = False

    async def first() -> Message:
        nonlocal told
        if not told:
            told = True
            return {"type": "http.request", "body": b"", "more_body": False}
        return await receive()

    return first


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _parts(response: httpx.Response) -> AsyncIterator[bytes]:
    async for part in response.aiter_bytes():
        yield part
