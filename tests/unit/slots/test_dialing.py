"""topom is dialled until it answers: in turn, at the leader, with a rest in between, and each problem is said once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

import pytest
import structlog.testing
from websockets.asyncio.server import Request, Response, ServerConnection, serve

from slots import dialing
from slots.access import ServerTls
from slots.dialing import ControlError, Dialing, SentAway
from slots.tls import Certificates, server_context
from tests.certificates import Authority

PATH = "/stream"
REFUSED = "set another token"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialing, "RETRY_SECONDS_MIN", 0.001)
    monkeypatch.setattr(dialing, "RETRY_SECONDS_MAX", 0.002)


class Tried:
    """What was tried, and what comes of it: by the number of the attempt."""

    def __init__(self, outcome: Callable[[int], Exception | None], most: int, registered: bool = False) -> None:
        self.urls: list[str] = []
        self.ended = 0
        self.registered = registered
        self._outcome = outcome
        self._most = most

    async def attempt(self, url: str) -> bool:
        self.urls.append(url)
        if (error := self._outcome(len(self.urls))) is not None:
            raise error
        return self.registered

    async def run(self, dialled: Dialing) -> None:
        async with asyncio.timeout(60):
            await dialled.run(self.attempt, lambda: self.registered, self._end, lambda: len(self.urls) >= self._most)

    def _end(self) -> None:
        self.ended += 1


def dialling(*names: str) -> Dialing:
    return Dialing([f"http://{name}" for name in names], PATH, "secret", REFUSED, None)


async def test_addresses_are_tried_in_turn() -> None:
    tried = Tried(lambda number: ControlError("it is closed"), 4)
    await tried.run(dialling("a", "b"))
    assert tried.urls == ["ws://a/stream", "ws://b/stream", "ws://a/stream", "ws://b/stream"]
    assert tried.ended == 4


async def test_the_leader_that_a_topom_names_is_next_and_else_the_next_address() -> None:
    leaders = ("http://c", "http://elsewhere")
    tried = Tried(lambda number: SentAway("it does not lead", leaders[number - 1]) if number < 3 else None, 3)
    await tried.run(dialling("a", "b", "c"))
    assert tried.urls == ["ws://a/stream", "ws://c/stream", "ws://a/stream"]


async def test_topoms_that_send_it_to_and_fro_are_not_dialled_without_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    rests = []

    async def rest(seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr(dialing.asyncio, "sleep", rest)
    tried = Tried(lambda number: SentAway("it does not lead", "http://a"), 8)
    await tried.run(dialling("a"))
    assert len(rests) == 4


async def test_after_a_stream_that_stood_for_long_the_first_rest_is_short_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resets = []
    monkeypatch.setattr(dialing.Backoff, "reset", lambda backoff: resets.append(backoff))
    monkeypatch.setattr(dialing, "RETRY_SECONDS_MAX", -1.0)
    tried = Tried(lambda number: ControlError("it is closed"), 2, registered=True)
    monkeypatch.setattr(dialing.Backoff, "next", lambda backoff: 0.0)
    await tried.run(dialling("a"))
    assert len(resets) == 2


async def test_a_problem_is_said_once_until_the_stream_stands() -> None:
    dialled = dialling("a")
    problems = (ControlError("closed"), ControlError("closed"), TimeoutError(), OSError(), TimeoutError())
    with structlog.testing.capture_logs() as logs:
        await Tried(lambda number: problems[number - 1], 5).run(dialled)
        dialled.stands()
        await Tried(lambda number: ControlError("closed"), 1).run(dialled)
        await Tried(lambda number: ControlError("closed"), 1, registered=True).run(dialled)
    late = "topom did not answer in time"
    assert [entry["reason"] for entry in logs] == ["closed", late, "OSError()", late, "closed", "closed"]
    assert [entry["event"] for entry in logs] == ["topom_unreachable"] * 5 + ["topom_lost"]


@asynccontextmanager
async def topom(token: str, said: str = "") -> AsyncIterator[str]:
    """``said`` is what it says when it refuses."""

    async def check(connection: ServerConnection, request: Request) -> Response | None:
        shown = request.headers.get("Authorization")
        good = request.path == PATH and shown == f"Bearer {token}"
        return None if good else connection.respond(HTTPStatus.FORBIDDEN, said)

    async def greet(connection: ServerConnection) -> None:
        await connection.send("hello")

    async with serve(greet, "127.0.0.1", 0, process_request=check) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("token", ["secret", "other", ""])
async def test_the_token_is_shown_and_what_is_wrong_with_it_is_said(token: str) -> None:
    heard: list[str | bytes] = []
    async with topom("secret") as url:
        dialled = Dialing([url], PATH, token, REFUSED, None)
        over = asyncio.Event()

        async def attempt(address: str) -> bool:
            async with dialled.connect(address) as stream:
                heard.append(await stream.recv())
            return False

        with structlog.testing.capture_logs() as logs:
            await dialled.run(attempt, lambda: False, over.set, over.is_set)
    good = token == "secret"
    assert heard == (["hello"] if good else [])
    assert [entry["reason"] for entry in logs] == ([] if good else [REFUSED])


async def reasons(url: str, certificates: Certificates | None = None) -> list[str]:
    """What is logged of an attempt in vain."""
    dialled = Dialing([url], PATH, "another", REFUSED, certificates)
    over = asyncio.Event()

    async def attempt(address: str) -> bool:
        async with dialled.connect(address):
            return False

    with structlog.testing.capture_logs() as logs:
        await dialled.run(attempt, lambda: False, over.set, over.is_set)
    return [entry["reason"] for entry in logs]


async def test_what_topom_says_of_a_refusal_is_said_in_short() -> None:
    async with topom("secret", "topom wants to be shown a certificate" + " x" * 1000) as url:
        (reason,) = await reasons(url)
    assert reason.startswith("topom wants to be shown a certificate x")
    assert reason.endswith("name one as topom_tls_certificate and topom_tls_key")
    assert len(reason) < 300


async def test_a_topom_without_tls_and_one_that_is_not_trusted_are_explained(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    issued = authority.issue("topom")
    trusted = ServerTls(authority.file).certificates()
    async with topom("secret") as url:
        (reason,) = await reasons(url.replace("http", "https"), trusted)
        assert "write http:// in its URL" in reason
    context = server_context(issued.certificate, issued.key, "", "none")
    async with serve(lambda connection: connection.wait_closed(), "127.0.0.1", 0, ssl=context) as server:
        place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert await reasons(f"https://{place}", trusted) == []
        (reason,) = await reasons(f"https://{place}", ServerTls(other.file).certificates())
        assert "as topom_tls_ca" in reason
        (reason,) = await reasons(f"https://{place.replace('127.0.0.1', 'localhost')}", trusted)
        assert "not for the host in its URL" in reason
        (reason,) = await reasons(f"http://{place}")
        assert "write https:// in its URL" in reason
