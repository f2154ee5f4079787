"""Proxies and groups that leave under load: every request is answered once or has not run, and the rest serve on."""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any, ClassVar

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tests.integration.cluster.commands import slotferry
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Cluster, eventually, log_of, plain_client

LIMIT = 60.0


class Wire:
    """A client that counts each answer, goes to whichever proxy lets it in, and sends again what was not answered."""

    def __init__(self, addresses: list[str], key: str, pipelined: int) -> None:
        self.addresses = addresses
        self.request = f"INCR {key}\r\n".encode()
        self.key = key
        self.pipelined = pipelined
        self.acknowledged = 0
        self.closed = 0
        """How often its connection was ended."""
        self.stopping = False

    async def run(self) -> None:
        turn = 0
        while not self.stopping:
            host, _, port = self.addresses[turn % len(self.addresses)].rpartition(":")
            turn += 1
            try:
                reader, writer = await asyncio.open_connection(host, int(port))
            except ConnectionRefusedError:
                await asyncio.sleep(0.01)
                continue
            try:
                while not self.stopping:
                    writer.write(self.request * self.pipelined)
                    for _ in range(self.pipelined):
                        line = await reader.readline()
                        if not line:
                            raise ConnectionResetError
                        # One that had run without an answer would show here.
                        assert line == b":%d\r\n" % (self.acknowledged + 1), (line, self.acknowledged)
                        self.acknowledged += 1
                    await asyncio.sleep(0.002)
            except ConnectionResetError:
                self.closed += 1
            finally:
                writer.close()


class Everywhere(redis.asyncio.Connection):
    """A connection of redis-py that goes to the first proxy that lets it in."""

    addresses: ClassVar[list[str]] = []

    async def _connect(self) -> None:
        for address in self.addresses:
            self.host, _, port = address.rpartition(":")
            self.port = int(port)
            try:
                return await super()._connect()
            except ConnectionRefusedError:
                continue
        raise ConnectionRefusedError("no proxy lets us in")


class Load:
    """Clients of several kinds, until :meth:`check`."""

    def __init__(self, addresses: list[str]) -> None:
        self.wires = [Wire(addresses, f"wire:{number}", 1 + 15 * (number % 2)) for number in range(8)]
        Everywhere.addresses = addresses
        pool: Any = redis.asyncio.ConnectionPool(
            connection_class=Everywhere, retry=Retry(NoBackoff(), 10), socket_timeout=LIMIT
        )
        self.client = redis.asyncio.Redis(connection_pool=pool)
        self.counted = 0
        self.stopping = False
        self.tasks = [asyncio.create_task(wire.run()) for wire in self.wires]
        self.tasks.append(asyncio.create_task(self._count()))

    async def _count(self) -> None:
        while not self.stopping:
            self.counted += 1
            assert await self.client.incr("redis-py") == self.counted

    async def go_on(self) -> None:
        """Every client has another answer."""
        before = [wire.acknowledged for wire in self.wires]
        counted = self.counted

        async def look() -> bool:
            for task in self.tasks:
                if task.done():
                    task.result()
            return self.counted > counted + 1 and all(
                wire.acknowledged > acknowledged for wire, acknowledged in zip(self.wires, before, strict=True)
            )

        await eventually(look, bool, "every client to go on")

    async def check(self) -> None:
        """Stop; each increment was counted exactly once."""
        self.stopping = True
        for wire in self.wires:
            wire.stopping = True
        async with asyncio.timeout(LIMIT):
            await asyncio.gather(*self.tasks)
        async with self.client:
            assert [int(await self.client.get(wire.key)) for wire in self.wires] == [
                wire.acknowledged for wire in self.wires
            ]
            assert int(await self.client.get("redis-py")) == self.counted


class Talk:
    """A bare connection, spoken to by lines."""

    def __init__(self, address: str) -> None:
        self.address = address

    async def __aenter__(self) -> "Talk":
        host, _, port = self.address.rpartition(":")
        self.reader, self.writer = await asyncio.open_connection(host, int(port))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def ask(self, line: str) -> bytes:
        self.writer.write(line.encode() + b"\r\n")
        async with asyncio.timeout(LIMIT):
            return await self.reader.readline()

    async def ended(self) -> bytes:
        async with asyncio.timeout(LIMIT):
            return await self.reader.read()


async def leave(cluster: Cluster, load: Load, leaving: int, begin: Callable[[int], Any]) -> None:
    """Have a proxy leave by ``begin``, which is given its id."""
    process, address = cluster.proxies[leaving], cluster.proxy_addresses[leaving]
    (proxy_id,) = [proxy["id"] for proxy in await cluster.api.proxies() if proxy["address"] == address]
    closed = sum(wire.closed for wire in load.wires)
    async with Talk(address) as multi, Talk(address) as blocked, Talk(address) as part:
        assert await multi.ask("MULTI") == b"+OK\r\n"
        assert await multi.ask("INCR multi") == b"+QUEUED\r\n"
        assert await blocked.ask("CLIENT SETNAME blocked") == b"+OK\r\n"
        blocked.writer.write(b"BLPOP nothing 0\r\n")
        part.writer.write(b"*2\r\n$3\r\nGET\r\n$1\r\n")
        await begin(proxy_id)
        assert await blocked.ended() == b""
        assert process.running

        async def shown() -> list[dict[str, Any]]:
            return [proxy for proxy in await cluster.api.proxies() if proxy["id"] == proxy_id]

        # Nobody is left but those that are amid something.
        found = await eventually(
            shown, lambda found: found[0]["draining"] and found[0]["counters"]["clients"] == 2, "the rest to leave"
        )
        assert found[0]["state"] == "online"
        await load.go_on()
        part.writer.write(b"k\r\n")
        assert await part.ended() == b"$-1\r\n"
        assert await multi.ask("EXEC") == b"*1\r\n"
        assert (await multi.ended()).startswith(b":")
    assert await process.wait(LIMIT) == 0
    assert address not in [proxy["address"] for proxy in await cluster.api.proxies()], "it has left by itself"
    assert sum(wire.closed for wire in load.wires) > closed
    await load.go_on()
    (worker,) = [entry for entry in log_of(process) if entry.get("event") == "worker_drained"]
    assert worker["cut"] == worker["unanswered"] == 0


async def drain_group(cluster: Cluster, load: Load, leaving: int) -> None:
    """Have a group leave, and wait until it is gone with its keys somewhere else."""
    said = await run(cluster, "group", "drain", str(leaving), "--why", "it is old")
    assert "leaves" in said

    async def left() -> list[int]:
        return [group["id"] for group in await cluster.api.groups()]

    await eventually(left, lambda found: leaving not in found, "the group to be gone")
    await load.go_on()
    async with plain_client(cluster.groups[leaving][0]) as server:
        assert await server.dbsize() == 0
    assert "leaves" not in await run(cluster, "status")


async def run(cluster: Cluster, *arguments: str) -> str:
    """What a verb prints, when it succeeds."""
    environment = {"SLOTFERRY_TOPOM": cluster.topom_url, "SLOTFERRY_TOKEN": cluster.token}
    outcome = await slotferry(*arguments, **environment)
    assert outcome.status == 0, outcome
    return outcome.out


async def test_proxies_and_a_group_that_leave_lose_nothing(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(groups=2, proxies=2, proxy_settings={"drain_seconds": 2, "drain_last_seconds": 30})
    load = Load(cluster.proxy_addresses)
    await load.go_on()

    async def drain(proxy_id: int) -> None:
        assert f"proxy {proxy_id} at " in await run(cluster, "proxy", "drain", str(proxy_id))

    async def terminate(_: int) -> None:
        os.kill(cluster.proxies[1].pid, signal.SIGTERM)

    await leave(cluster, load, 0, drain)
    cluster.proxies[0].start()
    await cluster.ready()
    await leave(cluster, load, 1, terminate)
    await drain_group(cluster, load, 1)
    await load.check()
    assert "proxy_lost" not in [entry.get("event") for entry in log_of(cluster.topom)]
