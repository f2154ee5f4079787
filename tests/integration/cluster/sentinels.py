"""A cluster whose groups are watched by real Sentinels, and what tests ask of those."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from slotferry.processes import ManagedProcess, ProcessError, free_ports, until
from slotferry.redis_server import HOST, RedisServer, ask, find_binary
from tests.integration.cluster.harness import Cluster, eventually, plain_client
from tests.integration.worker.replicated import Gate

DOWN_AFTER_MILLISECONDS = 1500
START_SECONDS = 20.0
WATCHED = "watched"
"""Name of the product, and so the beginning of what Sentinels call its groups."""


class Sentinel(ManagedProcess):
    """One Sentinel: redis-server in that mode."""

    def __init__(self, name: str, directory: Path) -> None:
        self.port = free_ports(1)[0]
        config = directory / f"{name}.conf"
        config.write_text(f"port {self.port}\nbind {HOST}\ndir {directory}\nprotected-mode no\n")
        super().__init__(name, [str(find_binary()), str(config), "--sentinel"], directory / f"{name}.log")

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"{HOST}:{self.port}"

    async def ready(self) -> None:
        """Wait until it answers."""

        async def answers() -> bool:
            return (await ask(self.address, "PING")).startswith("+PONG")

        await until(answers, self.name, START_SECONDS, [self])

    async def call(self, *command: str | int) -> Any:
        """One command of the SENTINEL family."""
        async with plain_client(self.address, decode_responses=True) as client:
            return await client.execute_command("SENTINEL", *command)

    async def hurry(self) -> None:
        """Have it look at servers and tell other Sentinels more often, if it is of a version that can."""
        with contextlib.suppress(ResponseError):
            await self.call("DEBUG", "INFO-PERIOD", 1000, "PUBLISH-PERIOD", 500)

    async def names(self, group_id: int) -> str | None:
        """The master that it names for a group."""
        found = await self.call("GET-MASTER-ADDR-BY-NAME", f"{WATCHED}-{group_id}")
        return f"{found[0]}:{found[1]}" if found else None

    async def fields(self, group_id: int) -> dict[str, str]:
        """What it says of a group's master."""
        flat = await self.call("MASTER", f"{WATCHED}-{group_id}")
        return dict(zip(flat[::2], flat[1::2], strict=True)) if isinstance(flat, list) else dict(flat)

    async def replicas(self, group_id: int) -> dict[str, str]:
        """The replicas of a group that it knows, and their priorities."""
        listed = await self.call("REPLICAS", f"{WATCHED}-{group_id}")
        found = [dict(zip(flat[::2], flat[1::2], strict=True)) if isinstance(flat, list) else flat for flat in listed]
        return {f"{one['ip']}:{one['port']}": one["slave-priority"] for one in found}


async def add_replica(cluster: Cluster, group_id: int, gate: Gate) -> RedisServer:
    """Start a replica of a group, wait until it follows through a gate, and tell topom."""
    server = await cluster.add_server(group_id)
    async with plain_client(server.address) as client:
        await client.replicaof(HOST, str(gate.port))
        await eventually(
            lambda: client.info("replication"), lambda said: said["master_link_status"] == "up", "a replica to follow"
        )
    await cluster.api.add_server(group_id, server.address)
    return server


@asynccontextmanager
async def watched_cluster() -> AsyncIterator[tuple[Cluster, list[Sentinel], list[Gate]]]:
    """Two groups, the first of a master and two replicas behind gates, two proxies, and three Sentinels.

    Nobody knows the Sentinels yet. All keys of the ballast are in the first group.
    """
    cluster = Cluster(
        groups=2,
        proxies=2,
        slots_on=[1],
        topom_settings={
            "product": WATCHED,
            "ha": "sentinel",
            "sentinel_down_after_milliseconds": DOWN_AFTER_MILLISECONDS,
            # After this time Sentinels have a replica follow its master directly, not through its gate.
            "sentinel_failover_timeout_milliseconds": 20_000,
        },
        redis_arguments=("--repl-diskless-sync-delay", "0"),
    )
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(cluster)
        await stack.enter_async_context(cluster.visit())
        sentinels = await start_three(cluster, stack)
        await cluster.load_ballast()
        gates = []
        for _ in range(2):
            gate = await Gate.before(cluster.servers[1][0])
            stack.push_async_callback(gate.close)
            gates.append(gate)
            await add_replica(cluster, 1, gate)
        yield cluster, sentinels, gates


async def start_three(cluster: Cluster, stack: AsyncExitStack) -> list[Sentinel]:
    """Start Sentinels, which end with ``stack``, and wait until they answer."""
    sentinels = [Sentinel(f"sentinel-{number}", cluster.directory) for number in range(3)]
    stack.push_async_callback(end, sentinels)
    for sentinel in sentinels:
        sentinel.start()
    for sentinel in sentinels:
        await sentinel.ready()
        await sentinel.hurry()
    return sentinels


async def end(sentinels: list[Sentinel]) -> None:
    """End Sentinels in any state."""
    for sentinel in sentinels:
        with contextlib.suppress(ProcessError):
            await sentinel.kill()


async def all_know(sentinels: list[Sentinel], replicas: int) -> None:
    """Wait until these Sentinels know each other and so many replicas of group 1: before that, none can fail over."""

    async def look() -> list[tuple[int, int]]:
        found = [await sentinel.fields(1) for sentinel in sentinels]
        return [(int(one["num-slaves"]), int(one["num-other-sentinels"])) for one in found]

    await eventually(
        look, lambda found: set(found) == {(replicas, len(sentinels) - 1)}, "Sentinels to know all there is to know"
    )


async def master_of(cluster: Cluster, group_id: int = 1) -> str:
    """A group's master in the slot table."""
    groups = await cluster.api.groups()
    return str(next(group for group in groups if group["id"] == group_id)["servers"][0]["address"])


async def switched_at(sentinel: Sentinel, seen: "asyncio.Queue[float]") -> None:
    """Put the time at which a Sentinel announces a switch, by the event loop's clock, into ``seen``."""
    async with Redis(host=HOST, port=sentinel.port).pubsub(ignore_subscribe_messages=True) as subscription:
        await subscription.subscribe("+switch-master")
        async for _ in subscription.listen():
            seen.put_nowait(asyncio.get_running_loop().time())
