"""topom leads and serves whatever the members of its cluster answer: each is a server that cannot be used."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.integration.topom_process import address_of, redis_server, topom_process

ODDITIES: dict[str, bytes] = {
    "integer": b":1\r\n",
    "nested": b"*2\r\n*1\r\n:1\r\n*1\r\n$1\r\nx\r\n",
    "garbage": b"$8\r\n\xff\x00\x01:\r\n::\r\n",
    "numbers": b"$54\r\n# Keyspace\r\nrole:master\r\nrun_id:x\r\ndb0:keys=nan,x=-1\r\n\r\n",
}
CLOSED = "half a reply, then the end"
SLOW = "nothing"


class OddServer:
    """Answers every command with the same, until told otherwise."""

    def __init__(self) -> None:
        self.kind = "integer"
        self.asked = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.CancelledError):
            while data := await reader.read(65536):
                self.asked += 1
                if self.kind == SLOW:
                    continue
                if self.kind == CLOSED:
                    writer.write(b"$100\r\nrole:mas")
                    break
                writer.write(ODDITIES[self.kind] * max(1, data.count(b"*")))
                await writer.drain()
        writer.close()


@asynccontextmanager
async def everywhere(server: OddServer, *addresses: str) -> AsyncIterator[None]:
    listening = [await asyncio.start_server(server.serve, *address.rsplit(":", 1)) for address in addresses]
    try:
        yield
    finally:
        for one in listening:
            one.close()


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.05)


@pytest.mark.long
async def test_topom_leads_whatever_its_servers_answer(tmp_path: Path) -> None:
    settings = {"heartbeat_seconds": 0.1, "redis_timeout_seconds": 0.3}
    settings |= {"server_suspect_seconds": 1.0, "server_fail_seconds": 1.0}
    with redis_server(tmp_path / "1") as master:
        with ExitStack() as stack:
            names = ("replica", "other", "spare", "sentinel")
            members = [stack.enter_context(redis_server(tmp_path / name)) for name in names]
            replica, other, spare, sentinel = map(address_of, members)
            async with topom_process(tmp_path / "data", **settings) as topom:
                await topom.call("POST", "/groups", {"id": 1, "servers": [address_of(master), replica]})
                await topom.call("POST", "/groups", {"id": 2, "servers": [other]})
                await topom.call("POST", "/pool", {"address": spare})
        # Another program listens there now, and topom starts again.
        server = OddServer()
        stranger = replica.replace("127.0.0.1", "localhost")
        odd = {"ha": "sentinel", "sentinels": sentinel, "product": "slotferry", **settings}
        async with everywhere(server, replica, other, spare, sentinel):
            async with topom_process(tmp_path / "data", **odd) as topom:
                for kind in (*ODDITIES, CLOSED, SLOW):
                    server.kind, server.asked = kind, 0
                    await eventually(lambda: server.asked > 20)
                    status = await topom.call("GET", "/status")
                    up = {one["address"]: one["up"] for group in status["groups"] for one in group["servers"]}
                    assert up == {address_of(master): True, replica: False, other: False}, kind
                    assert (status["reason"], status["failing"]) == (None, {}), kind
                    assert [one["up"] for one in (await topom.call("GET", "/pool"))["servers"]] == [False]
                    assert [one["up"] for one in (await topom.call("GET", "/sentinels"))["sentinels"]] == [False], kind
                    # A request that needs such a server is refused, with a sentence.
                    refusal = await topom.call("POST", "/pool", {"address": stranger}, 409)
                    assert "localhost" in refusal["message"]
                    await topom.call("POST", "/groups", {"id": 100})
                    await topom.call("DELETE", "/groups/100")
                for word in ("server_not_understood", "loop_failed", "Traceback", "_not_understood"):
                    assert word not in topom.log(), topom.log()
            assert '"event": "topom_stopped"' in topom.log()
