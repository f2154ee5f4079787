"""TLS of the API: who says nothing is cut off and counts, a renewed certificate is served, and nothing is dropped."""

import asyncio
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import uvicorn
import uvloop

from slots import tls
from slots.tls import Certificates, server_context
from tests.certificates import Authority, Issued
from tests.unit.topom.operators import eventually
from topom.api import entrance, handshake
from topom.api.callers import Callers
from topom.api.entrance import Entrance
from topom.api.handshake import TlsListener
from topom.api.serving import Serving
from topom.term.tokens import Role, Token, Tokens

TOKEN = "the-token-of-the-operator"
HEAD = f"GET / HTTP/1.1\r\nHost: topom\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
VIEWER = Token(Role.VIEWER, "dashboard", b"the-token-of-a-dashboard")
FILES = 16
"""Beyond the reserve. Half of them may be without a token."""


@pytest.fixture
def event_loop_policy() -> uvloop.EventLoopPolicy:
    return uvloop.EventLoopPolicy()  # topom's own: loops differ in TLS


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    headers = [(b"content-length", b"%d" % len(scope["scheme"]))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": scope["scheme"].encode()})


class Topom:
    """A server by TLS."""

    def __init__(self, authority: Authority, issued: Issued) -> None:
        self.entrance = Entrance(entrance.OTHER_FILES + FILES, Callers(Tokens(TOKEN)))
        self.context = ssl.create_default_context(cafile=authority.file)
        config = uvicorn.Config(
            _answer, log_config=None, access_log=False, lifespan="off", http=self.entrance.protocol()
        )
        files = issued.certificate, issued.key
        certificates = Certificates(files, lambda: server_context(*files, "", "none"))
        self.server = Serving(config, TlsListener(self.entrance, certificates))
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]

    @property
    def admitted(self) -> int:
        return len(self.entrance._all)

    def silent(self) -> socket.socket:
        """A connection that says nothing."""
        return socket.create_connection(("127.0.0.1", self.port))

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.context)

    async def ask(self) -> tuple[bytes, int]:
        """What it answers, and the serial number of its certificate."""
        reader, writer = await self.connect()
        serial = int(writer.get_extra_info("peercert")["serialNumber"], 16)
        try:
            writer.write(HEAD)
            async with asyncio.timeout(20):
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split()[0])
                return await reader.readexactly(length), serial
        finally:
            writer.close()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def issued(authority: Authority) -> Issued:
    return authority.issue("topom")


@pytest.fixture
async def topom(authority: Authority, issued: Issued) -> AsyncIterator[Topom]:
    one = Topom(authority, issued)
    serving = asyncio.create_task(one.server.serve(sockets=[one.listening]))
    await eventually(lambda: one.server.started)
    try:
        yield one
    finally:
        one.server.should_exit = True
        async with asyncio.timeout(20):
            await serving


async def _ended(connection: socket.socket) -> None:
    connection.setblocking(False)
    async with asyncio.timeout(20):
        assert not await asyncio.get_running_loop().sock_recv(connection, 1)


async def test_requests_come_by_tls(topom: Topom) -> None:
    said, _ = await topom.ask()
    assert said == b"https"
    await eventually(lambda: topom.admitted == 0)


async def test_many_at_once_are_all_answered(topom: Topom) -> None:
    """What is said right behind a handshake is not lost."""
    for _ in range(10):
        answers = await asyncio.gather(*(topom.ask() for _ in range(FILES // 4)))
        assert {said for said, _ in answers} == {b"https"}


async def test_a_connection_has_one_place_before_and_after_its_handshake(topom: Topom) -> None:
    with ExitStack() as stack:
        for _ in range(FILES // 2 - 1):
            stack.enter_context(topom.silent())
        await eventually(lambda: topom.admitted == FILES // 2 - 1)
        said, _ = await topom.ask()
        assert said == b"https"
        _, writer = await topom.connect()
        await eventually(lambda: topom.admitted == FILES // 2)
        writer.close()
        await eventually(lambda: topom.admitted == FILES // 2 - 1)
    await eventually(lambda: topom.admitted == 0)


async def test_a_handshake_has_a_limit_in_time(topom: Topom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "HANDSHAKE_SECONDS", 0.3)
    with topom.silent() as silent:
        await eventually(lambda: topom.admitted == 1)
        await _ended(silent)
        await eventually(lambda: topom.admitted == 0)


async def test_silent_ones_make_room_for_each_other_and_for_who_has_the_token(topom: Topom) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(topom.silent()) for _ in range(3 * FILES)]
        for connection in silent[: 3 * FILES - FILES // 2]:
            await _ended(connection)
        assert topom.admitted == FILES // 2
        said, _ = await topom.ask()
        assert said == b"https"


async def test_what_has_no_tls_yet_is_closed_at_the_end(authority: Authority, issued: Issued) -> None:
    topom = Topom(authority, issued)
    serving = asyncio.create_task(topom.server.serve(sockets=[topom.listening]))
    await eventually(lambda: topom.server.started)
    with topom.silent() as silent:
        await eventually(lambda: topom.admitted == 1)
        topom.server.should_exit = True
        async with asyncio.timeout(handshake.HANDSHAKE_SECONDS / 2):
            await serving
            await _ended(silent)
        assert topom.admitted == 0


async def test_a_renewed_certificate_is_served_without_a_restart(
    topom: Topom, authority: Authority, issued: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "LOOK_SECONDS", 0.0)
    reader, writer = await topom.connect()
    _, before = await topom.ask()
    renewed = authority.issue("renewed")
    shutil.copy(renewed.certificate, issued.certificate)
    _, between = await topom.ask()
    assert between == before, "the certificate without its key is no pair, and the former one is kept"
    shutil.copy(renewed.key, issued.key)
    _, after = await topom.ask()
    assert after != before
    writer.write(HEAD)
    assert (await reader.readline()).startswith(b"HTTP/1.1 200"), "what was open goes on"
    writer.close()


async def test_one_more_handshake_takes_the_place_of_the_oldest(topom: Topom, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many connections there may be, only so many can go on with a handshake in the same moment."""
    monkeypatch.setattr(entrance, "MOST_HANDSHAKES", 2)
    reader, writer = await topom.connect()
    await eventually(lambda: topom.admitted == 1 and not topom.entrance._handshakes)
    with topom.silent() as first, topom.silent() as second:
        await eventually(lambda: topom.admitted == 3)
        with topom.silent() as third:
            await _ended(first)
            await eventually(lambda: topom.admitted == 3)
            assert (await topom.ask())[0] == b"https"
            await _ended(second)
            third.setblocking(False)
            with pytest.raises(BlockingIOError):
                third.recv(1)
    writer.write(HEAD)
    assert (await reader.readline()).startswith(b"HTTP/1.1 200"), "one that is over does not count"
    writer.close()


async def test_who_speaks_no_tls_is_logged_once_a_second(topom: Topom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "LOG_SECONDS", 3600.0)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            with topom.silent() as plain:
                plain.sendall(HEAD)
                await _ended(plain)
    failed = [entry for entry in logs if entry["event"] == "handshake_failed"]
    assert len(failed) == 1
    assert failed[0]["client"] == "127.0.0.1"
    assert failed[0]["reason"].startswith("it speaks HTTP without TLS; use https://")
    assert TOKEN not in str(logs)


async def test_no_file_left_is_a_rest_and_no_end(topom: Topom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "ACCEPT_RETRY_SECONDS", 0.01)
    listener = topom.server._listener
    assert listener is not None
    failures = 2

    class Full:
        """A listening socket; the first connections find no file."""

        def accept(self) -> Any:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise OSError(24, "Too many open files")
            return topom.listening.accept()

        def fileno(self) -> int:
            return topom.listening.fileno()

    listener._listening = Full()  # type: ignore[assignment]
    said, _ = await topom.ask()
    assert (said, failures < 0) == (b"https", True)


async def test_tokens_change_while_a_handshake_is_under_way(topom: Topom) -> None:
    with topom.silent():
        await eventually(lambda: topom.admitted == 1)
        topom.entrance._callers.tokens.replace(Tokens(TOKEN, VIEWER))
        said, _ = await topom.ask()
        assert said == b"https"
