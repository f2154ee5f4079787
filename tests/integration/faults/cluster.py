"""A cluster whose links and processes can be broken: each server, and topom for each proxy, is behind a relay.

Servers are in their groups by the addresses of their relays, so proxies, topom and the migrator all reach them through
a relay. :mod:`tests.integration.breaking_relay` tells these peers apart. The servers keep what they acknowledge
(``appendfsync always``), so no server loses what it has acknowledged.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from websockets.exceptions import ConnectionClosed

from slotferry.processes import ManagedProcess
from slotferry.redis_server import RedisServer
from slotferry.traffic.content import PREFIX
from slotferry.traffic.driver import Traffic, Verification
from slots.functions import slot
from slots.table import SlotTable
from tests.integration.breaking_relay import BreakingRelay
from tests.integration.cluster.harness import Cluster, Counting, eventually, log_of, plain_client
from tests.integration.topom_process import HandProxy

MOVED = "0-511"
"""The slots that the tests move, from the group that has them to the other one."""
SLOW = 100
"""Keys a second. Well over a thousand keys that no traffic touches have to move."""
LEASE_SECONDS = 3.0
BARRIER_SECONDS = 2.0
DATABASES = (0, 3)


class FaultCluster(Cluster):
    """Two groups of one server, two proxies, and a relay before each server and before topom for each proxy."""

    def __init__(
        self, topom_settings: Mapping[str, Any] | None = None, proxy_settings: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(
            groups=2,
            proxies=2,
            workers=2,
            slots_on=[1],
            patient=False,
            topom_settings={
                "heartbeat_seconds": 0.2,
                "proxy_lease_seconds": LEASE_SECONDS,
                "barrier_seconds": BARRIER_SECONDS,
                **(topom_settings or {}),
            },
            proxy_settings={
                "lock_hold_seconds": 20,
                "backend_reply_seconds": 2,
                "move_seconds": 2,
                **(proxy_settings or {}),
            },
            redis_arguments=("--appendonly", "yes", "--appendfsync", "always"),
        )
        self._stack = AsyncExitStack()
        self.relays: dict[int, BreakingRelay] = {}
        """Before the server of each group."""
        self.topom_relays: list[BreakingRelay] = []
        """Before topom, one for each proxy."""

    async def stop(self) -> None:
        await super().stop()
        await self._stack.aclose()

    async def add_server(self, group_id: int) -> RedisServer:
        server = await super().add_server(group_id)
        relay = await self._stack.enter_async_context(BreakingRelay(server.port))
        self.relays[group_id] = relay
        self.groups[group_id][-1] = relay.address
        return server

    async def _start_topom(self) -> None:
        await super()._start_topom()
        port = int(self.topom_url.rpartition(":")[2])
        for _ in range(2):
            self.topom_relays.append(await self._stack.enter_async_context(BreakingRelay(port)))

    def _start_proxy(self, own_settings: Mapping[str, Any]) -> None:
        relay = self.topom_relays[len(self.proxies)]
        super()._start_proxy({"topom": [f"http://{relay.address}"], **own_settings})

    def mend(self) -> None:
        """End every fault of every link."""
        for relay in (*self.relays.values(), *self.topom_relays):
            relay.mend()

    async def restart(self, process: ManagedProcess) -> None:
        """Start a process again that was killed, with what it had, and wait until it serves."""
        if isinstance(process, RedisServer):
            process.start()
            await process.ready()
        elif process is self.topom:
            await self.restart_topom()
        else:
            process.start()

    async def messages(self) -> list[str]:
        """What the batches under way wait for, as operators see it."""
        return [str(batch["reason"] or "") for batch in (await self.api.migration())["batches"]]

    async def waits_for(self, *texts: str) -> str:
        """Wait until a batch says that it waits, in a sentence that contains one of these texts."""
        found = await eventually(
            self.messages,
            lambda messages: any(text in message for text in texts for message in messages),
            f"a batch to say one of {texts}",
        )
        return found[0]

    async def all_online(self) -> None:
        """Wait until topom hears of every proxy and each is at its epoch.

        One that was killed may still be known: it is lost, and is fenced when slots move next.
        """

        def are(status: dict[str, Any]) -> bool:
            found = [proxy for proxy in status["proxies"] if proxy["state"] == "online"]
            current = all(proxy["epoch"] >= status["epoch"] for proxy in found)
            return current and sorted(proxy["address"] for proxy in found) == sorted(self.proxy_addresses)

        await eventually(self.api.status, are, "every proxy to be online")

    async def instances(self) -> dict[str, str]:
        """The identities of the proxies that topom knows, by address; of two, the one that is online."""
        known = await self.api.proxies()
        return {p["address"]: p["instance"] for p in sorted(known, key=lambda proxy: proxy["state"] == "online")}

    def events(self, process: ManagedProcess, name: str) -> int:
        """How often an event is in a process's log."""
        return sum(entry.get("event") == name for entry in log_of(process))


class Move:
    """The slots that the tests move, on their way from the group that has them to the other."""

    def __init__(self, cluster: FaultCluster, source: int) -> None:
        self.cluster = cluster
        self.source = source
        self.target = 3 - source

    @classmethod
    async def ready(cls, cluster: FaultCluster) -> "Move":
        """Nothing is under way yet; ballast is where the slots are."""
        await cluster.load_ballast()
        source = (await cluster.api.slots())["slots"][0]["group_id"]
        return cls(cluster, source)

    @property
    def source_relay(self) -> BreakingRelay:
        return self.cluster.relays[self.source]

    @property
    def target_relay(self) -> BreakingRelay:
        return self.cluster.relays[self.target]

    @property
    def source_server(self) -> RedisServer:
        return self.cluster.servers[self.source][0]

    @property
    def target_server(self) -> RedisServer:
        return self.cluster.servers[self.target][0]

    async def begin(self) -> None:
        """Put the slots on their way, slowly."""
        await self.cluster.api.set_migration(keys_per_second=SLOW)
        await self.cluster.api.move_slots(MOVED, self.target)

    async def under_way(self) -> None:
        """Put the slots on their way, and wait until some of their keys have moved and some have not."""
        await self.begin()
        await self.cluster.moving(10)

    async def hurry(self) -> None:
        """Move on as fast as it goes."""
        await self.cluster.api.set_migration(keys_per_second=0)

    async def arrived(self) -> None:
        """Wait until the slots are at rest at the target."""
        await self.cluster.at_rest()
        slots = (await self.cluster.api.slots())["slots"]
        assert {slot["group_id"] for slot in slots[:512]} == {self.target}
        assert {slot["group_id"] for slot in slots[512:]} == {1}


class Witness:
    """Checked traffic and counting clients at both proxies: what they were told has to hold in the end."""

    def __init__(self, cluster: FaultCluster, traffic: Traffic, counting: Sequence[Counting]) -> None:
        self.cluster = cluster
        self.traffic = traffic
        self.counting = counting

    async def check(self) -> None:
        """Stop. No answer was wrong, nothing acknowledged is lost, and every key is where it has to be, once."""
        for counting in self.counting:
            await counting.progress()
            await counting.stop()
        report = await self.traffic.stop()
        assert report.requests > 0
        assert not report.differences, report.to_wire()
        # A worker does not try a lost server again for a while; meanwhile it answers with an error that says so. So all
        # keys are read again until there is no such error. A wrong value counts at once.
        for counting in self.counting:
            await eventually(partial(done, counting.check), bool, "an answer for every key that was counted up")
        await eventually(partial(done, self.cluster.check_ballast), bool, "an answer for every key of the ballast")
        layout = await self.cluster.layout()

        async def compare() -> Verification:
            found = await self.traffic.verify(layout)
            assert not found.compared.differences, found.compared.to_wire()
            return found

        verdict = await eventually(
            compare, lambda found: found.compared.clean, "an answer for every key of the traffic"
        )
        assert not verdict.misplaced, verdict.misplaced_texts
        assert verdict.placed > 0
        assert await self.cluster.misplaced(DATABASES) == []


@dataclass
class _Reached:
    url: str
    token: str


async def done(work: Callable[[], Awaitable[None]]) -> bool:
    """Whether it has come to its end; it has if nothing was raised."""
    await work()
    return True


class Holder(HandProxy):
    """A proxy without clients that does not acknowledge one state, so that slots stay in it."""

    def __init__(self, cluster: FaultCluster, state: str) -> None:
        super().__init__(_Reached(cluster.topom_url, cluster.token), self._withhold)
        self._state = state

    def _withhold(self, table: SlotTable) -> bool:
        action = table.slots[0].action
        return action is not None and str(action.state) == self._state

    async def let_go(self) -> None:
        """Leave topom, which then no longer waits for it."""
        self._state = ""

        async def leave() -> bool:
            with suppress(ConnectionClosed, AssertionError):  # topom is just being restarted
                await self.send(type="leave")
            # It may be about to acknowledge a table when topom ends its stream, and hear only as it comes back.
            return self.left.is_set() or any(one["reason"] == "fenced" for one in self.refusals)

        await eventually(leave, bool, "topom to let the holder go")


_numbers = iter(range(1_000_000))


@asynccontextmanager
async def witnessed(cluster: FaultCluster, traffic: Traffic) -> AsyncIterator[Witness]:
    """Let traffic run for the time of the block; the caller asks the witness in the end."""
    await traffic.start()
    try:
        async with AsyncExitStack() as stack:
            counting = [
                await stack.enter_async_context(Counting(address, 10, f"count:{next(_numbers)}"))
                for address in cluster.proxy_addresses
            ]
            yield Witness(cluster, traffic, counting)
    finally:
        cluster.mend()
        cluster.resume_all()
        await traffic.stop()


def pause(pid: int) -> None:
    """Stop a process until :func:`go_on`."""
    os.kill(pid, signal.SIGSTOP)


def go_on(pid: int) -> None:
    """Let a process run on."""
    os.kill(pid, signal.SIGCONT)


@asynccontextmanager
async def asked(move: Move) -> AsyncIterator[list[str]]:
    """What the source is asked about keys of the slots that move, from the beginning of the block on."""
    found: list[str] = []

    def look_at(command: str) -> None:
        words = command.split(" ")
        key = words[1] if len(words) > 1 else ""
        if key.startswith(("count:", PREFIX.decode())) and slot("crc32", key.encode(), 1024) < 512:
            found.append(command)

    async with plain_client(move.source_server.address, socket_timeout=None) as client, client.monitor() as monitor:

        async def listen() -> None:
            while True:
                look_at((await monitor.next_command())["command"])

        listening = asyncio.create_task(listen())
        try:
            yield found
            assert not listening.done(), "the source was watched to the end"
        finally:
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening
