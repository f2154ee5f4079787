"""A client without a token costs topom next to nothing, and keeps no operator waiting."""

import asyncio
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from slots.openfiles import raise_limit
from tests.integration.topom_process import topom_process
from topom.api.entrance import MOST_UNPROVEN

EACH = 1000
BODY = b" " * 100_000
ADDED_BYTES = 50 * 1024 * 1024


@pytest.fixture(autouse=True)
def files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert raise_limit(3 * EACH) == 3 * EACH, f"this needs {3 * EACH} open files, and the system allows {before[1]}"
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def memory_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))


def files_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


async def held(address: tuple[str, int], head: bytes, body: bytes = b"") -> socket.socket:
    """A connection that never ends its request."""
    connection = socket.socket()
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, address)
    # A refused client may be cut off while it still sends.
    with suppress(ConnectionError, BlockingIOError):
        connection.send(head + body)
    return connection


@pytest.mark.long
async def test_half_sent_heads_and_bodies_cost_little_and_keep_nobody_waiting(tmp_path: Path) -> None:
    async with topom_process(tmp_path / "data") as topom:
        host, _, port = topom.url.removeprefix("http://").rpartition(":")
        address = host, int(port)
        await topom.call("GET", "/status")
        memory, files = memory_of(topom.pid), files_of(topom.pid)
        head = b"POST /api/v1/groups HTTP/1.1\r\nHost: topom\r\nContent-Type: application/json\r\n"
        bodies = head + b"Content-Length: 1000000\r\n\r\n"
        connections = []
        try:
            for _ in range(EACH):
                connections.append(await held(address, head + b"X-Long: " + b"x" * 8000))
                connections.append(await held(address, bodies, BODY))
            # They are all there by now: they were accepted in their turn, and this comes after them.
            await topom.call("GET", "/status")
            assert files_of(topom.pid) > files + EACH
            await topom.call("POST", "/groups", {"id": 1})
            assert memory_of(topom.pid) < memory + ADDED_BYTES
            # Nobody holds a descriptor for longer than a head may take.
            async with asyncio.timeout(60):
                while files_of(topom.pid) > files + 10:
                    await asyncio.sleep(0.1)
            assert [group["id"] for group in (await topom.call("GET", "/groups"))["groups"]] == [1]
        finally:
            for connection in connections:
                connection.close()


@pytest.mark.long
async def test_more_connections_than_there_may_be_make_room_for_each_other(tmp_path: Path) -> None:
    async with topom_process(tmp_path / "data") as topom:
        assert resource.prlimit(topom.pid, resource.RLIMIT_NOFILE)[0] > 2 * MOST_UNPROVEN
        host, _, port = topom.url.removeprefix("http://").rpartition(":")
        connections = [await held((host, int(port)), b"GET /api") for _ in range(MOST_UNPROVEN + 200)]
        try:
            await topom.call("GET", "/status")
            assert files_of(topom.pid) < MOST_UNPROVEN + 100
        finally:
            for connection in connections:
                connection.close()


HEADS = {
    "one that is good": b"",
    "one with a body": b"Content-Length: 5\r\n",
    "one with too many lines": b"".join(b"X-%d: x\r\n" % number for number in range(150)),
    "one with too long a line": b"X-Long: " + b"x" * 10_000 + b"\r\n",
}


@pytest.mark.parametrize("head", HEADS)
async def test_a_websocket_without_the_token_is_closed_at_once(tmp_path: Path, head: str) -> None:
    """Whatever its head is: two parsers look at it, and they do not take the same ones."""
    upgrade = (
        b"GET /api/v1/control HTTP/1.1\r\nHost: topom\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    )
    async with topom_process(tmp_path / "data") as topom:
        host, _, port = topom.url.removeprefix("http://").rpartition(":")
        for token, answers in ((b"", b"HTTP/1.1 403"), (f"Authorization: Bearer {topom.token}\r\n".encode(), b"")):
            if token and head == "one that is good":
                continue
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(upgrade + token + HEADS[head] + b"\r\n")
            async with asyncio.timeout(5):
                assert (await reader.read()).startswith(answers)
            writer.close()
