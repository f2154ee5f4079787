"""What the tests of whole clusters share: waiting on conditions, holding slots in a state, looking at the servers.

Nothing here waits for time to pass: every wait is for something that topom, a log or a server says. The limits
are only there so that a test that will never pass ends.
"""

import asyncio
import json
import os
import signal
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from typing import Any, Self, TypeVar

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from migrator.sweep import look
from slotferry.calls import TopomUnreachable
from slotferry.client import TopomClient
from slotferry.local import LocalCluster
from slotferry.processes import ManagedProcess
from slotferry.traffic.driver import Traffic
from slotferry.traffic.placement import Layout
from slots.functions import slot
from slots.keyslots import KeySlots
from slots.reserved import LEADER, RESERVED
from topom.term.stores import STORE_FILE

LIMIT = 150.0
"""Seconds after which a condition counts as one that is never met."""
POLL_SECONDS = 0.02
WAITING = {"socket_timeout": LIMIT, "socket_connect_timeout": LIMIT}
"""How long a client waits, unless a test says so."""
BALLAST = 3000
"""Keys that no traffic touches, so that only the migrator moves them and a slow pace keeps slots on their way."""

Found = TypeVar("Found")


async def eventually(look: Callable[[], Awaitable[Found]], met: Callable[[Found], bool], what: str) -> Found:
    """Look again and again until the result meets the condition; give the result."""
    found: Found | None = None
    try:
        async with asyncio.timeout(LIMIT):
            while True:
                try:
                    found = await look()
                    if met(found):
                        return found
                except (OSError, RedisError, TopomUnreachable) as error:  # what is looked at is just being restarted
                    found = None
                    last = error
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        seen = repr(found)[:2000] if found is not None else repr(last)
        raise AssertionError(f"gave up waiting for {what}; last seen: {seen}") from None


@asynccontextmanager
async def meanwhile(*rounds: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Do each of these again and again, side by side, while the block runs. What one of them raises fails the block.

    They end between two rounds, for a client of Redis may swallow its cancellation.
    """
    over = asyncio.Event()

    async def go_on(once: Callable[[], Awaitable[None]]) -> None:
        while not over.is_set():
            await once()

    tasks = [asyncio.create_task(go_on(once)) for once in rounds]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        over.set()
        await asyncio.gather(*tasks, return_exceptions=True)


def plain_client(address: str, **options: Any) -> redis.asyncio.Redis:
    """A client of a proxy or a server that tries nothing twice."""
    host, _, port = address.rpartition(":")
    return redis.asyncio.Redis(
        **{"host": host, "port": int(port), "retry": Retry(NoBackoff(), 0), **WAITING, **options}
    )


PATIENT = {
    "lock_drain_seconds": 20,
    "lock_hold_seconds": 60,
    "backend_connect_seconds": 10,
    "backend_reply_seconds": 60,
    "move_seconds": 60,
}
"""Settings of proxies, unless a test is about one of them: nothing may depend on how fast others are."""
PATIENT_TOPOM = {"barrier_seconds": 30, "promotion_seconds": 10, "proxy_lease_seconds": 20}
"""The same for topom: on a machine that is also busy with other tests, a slow process does not count as lost."""
BY_KEYS = {"migration_way": "keys"}
"""Unless a test says so, slots do not go by a forecast: a slow pace is to keep them ``migrating``."""


class Cluster(LocalCluster):
    """A local cluster with the questions and interventions that tests need.

    Args:
        patient: whether time limits are those of :data:`PATIENT` and :data:`PATIENT_TOPOM`, unless a test says
            otherwise; if not, they are the defaults of proxies and topom.
        topom_settings: those of a local cluster, after :data:`BY_KEYS`.
        arguments, proxy_settings, options: those of a local cluster.
    """

    api: TopomClient
    """A client of topom, inside :meth:`visit` only."""

    def __init__(
        self,
        *arguments: Any,
        patient: bool = True,
        topom_settings: Mapping[str, Any] | None = None,
        proxy_settings: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            *arguments,
            topom_settings={**BY_KEYS, **(PATIENT_TOPOM if patient else {}), **(topom_settings or {})},
            proxy_settings={**(PATIENT if patient else {}), **(proxy_settings or {})},
            **options,
        )

    @asynccontextmanager
    async def visit(self) -> AsyncIterator[Self]:
        """Use a cluster that was started, in one test."""
        async with self.client() as self.api:
            try:
                yield self
            finally:
                self.resume_all()
                # Shown by pytest when the test failed; the logs themselves go away with the cluster.
                for process in self.processes:
                    print(f"--- end of the log of {process.name} (status {process.status})\n{process.tail(40)}")

    # What topom says

    async def states(self) -> dict[str, list[int]]:
        """Slots by the state of their action; those at rest are under ``""``."""
        found: dict[str, list[int]] = {}
        for entry in (await self.api.slots())["slots"]:
            found.setdefault(entry["action"].get("state", ""), []).append(entry["id"])
        return found

    async def in_state(self, state: str) -> None:
        """Wait until some slot is in this state."""
        await eventually(self.states, lambda found: state in found, f"a slot to be {state}")

    async def moving(self, keys: int) -> None:
        """Wait until a batch is migrating and the migrator has moved so many of its keys."""

        def under_way(found: dict[str, Any]) -> bool:
            return any(batch["state"] == "migrating" and batch["keys_moved"] >= keys for batch in found["batches"])

        await eventually(self.api.migration, under_way, f"{keys} keys to have moved")

    async def at_rest(self, slots: dict[int, int] | None = None) -> None:
        """Wait until no slot has an action, and each group has so many slots.

        A topom that follows may not have read yet what the leader has answered. So rest alone tells of no change that
        was ordered just now.
        """

        async def look() -> tuple[list[str], dict[int, int] | None]:
            states = list(await self.states())
            if slots is None:
                return states, None
            return states, {group["id"]: group["slots"] for group in await self.api.groups()}

        await eventually(look, lambda found: found == ([""], slots), f"all slots to come to rest, {slots}")

    async def online(self, proxies: int) -> list[dict[str, Any]]:
        """Wait until topom knows exactly so many proxies, all heard of lately and at its epoch."""

        def all_current(status: dict[str, Any]) -> bool:
            found = status["proxies"]
            return len(found) == proxies and all(
                proxy["state"] == "online" and proxy["epoch"] >= status["epoch"] for proxy in found
            )

        status = await eventually(self.api.status, all_current, f"{proxies} proxies to be online")
        return list(status["proxies"])

    async def offset_noted(self, group: int, past: int = -1) -> None:
        """Wait until topom has stored that a group's master was beyond ``past`` in its stream of writes.

        Before that, topom does not know what its replicas would lack if it failed.
        """
        store = f"file:{self.directory / 'topom' / STORE_FILE}?mode=ro"

        async def stored() -> tuple[str, int]:
            with closing(sqlite3.connect(store, uri=True)) as connection:
                rows = connection.execute("SELECT value FROM documents WHERE name LIKE 'offsets/%'").fetchall()
            found = [noted for (value,) in rows for noted in json.loads(value) if noted["group"] == group]
            return (found[0]["server"], found[0]["offset"]) if found else ("", -1)

        (master, *_) = next(entry["servers"] for entry in await self.api.groups() if entry["id"] == group)
        await eventually(
            stored, lambda found: found[0] == master["address"] and found[1] > past, "the offset to be stored"
        )

    async def layout(self) -> Layout:
        """Which server has to have which slot; the servers of groups that were removed are looked at too."""
        found = Layout.from_api(await self.api.status(), await self.api.slots())
        everywhere = sorted(server for servers in self.groups.values() for server in servers)
        return Layout(found.function, found.owners, everywhere, rules=found.rules)

    # What the servers say

    async def misplaced(self, databases: Iterable[int] = (0,)) -> list[str]:
        """Keys that are on another server than their slot's owner."""
        layout = await self.layout()
        wrong = []
        for server in layout.servers:
            for database in databases:
                async with plain_client(server, db=database) as client:
                    found = [name async for name in client.scan_iter(count=1000)]
                names = [name for name in found if not name.startswith(RESERVED)]
                for name, place in zip(
                    names, KeySlots(layout.function, len(layout.owners)).slots_of(0, names), strict=True
                ):
                    if layout.owners[place] != server:
                        wrong.append(f"{name!r} of slot {place} is on {server} instead of {layout.owners[place]}")
        return wrong

    async def swept(self, group: int) -> None:
        """Wait until a group's master is marked as swept, as it is now.

        If a test writes keys of other slots straight to it before that, the server keeps them as foreign keys for ever.
        """
        address = await self.master_of(group)

        async def is_swept() -> bool:
            async with plain_client(address) as server:
                record = await look(server)
            return bool(record.life) and record.swept_in == record.life

        await eventually(is_swept, bool, f"{address} to be swept")

    async def forget_marks(self) -> None:
        """Have no master tell any more which topom has changed the owner of slots there."""
        for group in self.groups:
            async with plain_client(await self.master_of(group)) as client:
                await client.hdel(LEADER, "by")

    async def fence_users(self, server: str) -> list[str]:
        """ACL users at a server that fence a proxy off it."""
        async with plain_client(server) as client:
            users = await client.execute_command("ACL", "USERS")
        return [name.decode() for name in users if name.startswith(b"slotferry-fenced-")]

    async def flush(self) -> None:
        """Empty every server."""
        for servers in self.groups.values():
            for server in servers:
                async with plain_client(server) as client:
                    await client.flushall()

    # Ballast

    async def load_ballast(self) -> None:
        """Write the keys that no other client touches."""
        async with plain_client(self.proxy_addresses[0]) as client:
            for start in range(0, BALLAST, 500):
                await client.mset({f"ballast:{n}": f"value {n}" for n in range(start, min(start + 500, BALLAST))})

    async def check_ballast(self) -> None:
        """Read them again through every running proxy."""
        for process, address in zip(self.proxies, self.proxy_addresses, strict=True):
            if process.running:
                async with plain_client(address) as client:
                    values = await client.mget([f"ballast:{n}" for n in range(BALLAST)])
                assert values == [f"value {n}".encode() for n in range(BALLAST)]

    # Interventions

    async def restart_topom(self) -> None:
        """Start topom again on the same data."""
        self.topom.start()
        await self.topom_ready()

    def worker_pids(self, proxy: int) -> dict[int, int]:
        """Process ids of a proxy's workers by index, from its log."""
        found = {}
        for entry in log_of(self.proxies[proxy]):
            if entry.get("event") == "worker_started":
                found[int(entry["worker"])] = int(entry["pid"])
        return found

    def signal_proxy(self, proxy: int, number: signal.Signals) -> None:
        """Send a signal to a proxy's supervisor and to all of its workers."""
        for pid in (self.proxies[proxy].pid, *self.worker_pids(proxy).values()):
            _send(pid, number)

    @asynccontextmanager
    async def held_locked(self, begin: Callable[[], Awaitable[object]], source: int, slots: int) -> AsyncIterator[None]:
        """Inside the block, slots that ``begin`` sends away from group ``source`` stay ``prepared``.

        Their source is stalled and owes a reply for one of the slots below ``slots``. The source is checked before
        slots are locked, so it has to take writes until then. Before that, a worker of the second proxy holds the slots
        up.
        """
        worker = self.worker_pids(1)[0]
        names = (f"locked:{number}" for number in range(10_000))
        key = next(name for name in names if slot("crc32", name.encode(), self._number_of_slots) < slots)
        proxy = self.proxy_addresses[0]
        async with plain_client(proxy, client_name="waits") as waiting, plain_client(proxy) as other:
            os.kill(worker, signal.SIGSTOP)
            await begin()
            await self.in_state("preparing")
            async with self.stalled(source):
                reply = asyncio.create_task(waiting.persist(key))
                await in_flight(other, "waits")
                os.kill(worker, signal.SIGCONT)
                await self.in_state("prepared")
                yield
            assert not await reply

    @asynccontextmanager
    async def stalled(self, group: int) -> AsyncIterator[None]:
        """Inside the block, the master of a group answers no writing command, but all others."""
        async with plain_client(await self.master_of(group)) as client:
            await client.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
            try:
                yield
            finally:
                # A proxy that was killed meanwhile delays nothing.
                with suppress(RedisError):
                    await client.execute_command("CLIENT", "UNPAUSE")

    async def master_of(self, group: int) -> str:
        """Its address."""
        return self.servers[group][0].address

    def resume_all(self) -> None:
        """Let every process that was stopped run on, so that it can end."""
        for process in self.processes:
            if process.running:
                _send(process.pid, signal.SIGCONT)
        for proxy, process in enumerate(self.proxies):
            if process.running:
                self.signal_proxy(proxy, signal.SIGCONT)


async def in_flight(proxy: redis.asyncio.Redis, name: str) -> None:
    """Wait until the proxy owes a client of this name a reply. ``proxy`` is another client of the same proxy.

    A server's count of blocked clients does not tell that: Slotferry's own writes wait in a pause as well.
    """
    await eventually(
        proxy.client_list,
        lambda clients: any(client["name"] == name and client["owed"] == "1" for client in clients),
        "a command to be in flight",
    )


def log_of(process: ManagedProcess) -> list[dict[str, Any]]:
    """The events in a process's log; lines that are something else, or not yet whole, are left out."""
    found = []
    for line in process.log.read_text(errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            found.append(entry)
    return found


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


@asynccontextmanager
async def traffic_on(
    proxies: Sequence[str], keys: int = 4000, databases: Sequence[int] = (0, 3), rate: float = 1500.0
) -> AsyncIterator[Traffic]:
    """Checked traffic that runs inside the block; the caller stops it and looks at the report."""
    async with Traffic(proxies, keys, connections=16, rate=rate, databases=databases) as traffic:
        loaded = await traffic.load()
        assert loaded.clean, loaded.to_wire()
        await traffic.start()
        yield traffic


async def check_clean(traffic: Traffic, layout: Layout) -> None:
    """Stop traffic; there was no error, and every key is as it was last written and where it has to be."""
    report = await traffic.stop()
    assert report.requests > 0
    assert report.clean, report.to_wire()
    await check_every_key(traffic, layout)


async def check_every_key(traffic: Traffic, layout: Layout) -> None:
    """Every key is as it was last written, and on exactly the right server."""
    verdict = await traffic.verify(layout)
    assert verdict.compared.clean, verdict.compared.to_wire()
    assert not verdict.misplaced, verdict.misplaced_texts
    assert verdict.placed > 0


def running(cluster: Cluster) -> Iterator[Cluster]:
    """For a fixture: the cluster, from its start to its end."""
    asyncio.run(cluster.start())
    yield cluster
    asyncio.run(cluster.stop())


class Counting:
    """Clients that each count up a key of their own, and know what was acknowledged.

    They go on whatever errors they get, so they suit a proxy or a server that is about to be ended.
    """

    def __init__(self, address: str, count: int = 20, name: str = "count", **options: Any) -> None:
        """``address``: of the proxy; ``count``: clients; ``name``: what their keys' names begin with.

        ``options`` are those of redis-py's clients.
        """
        self.address = address
        self.options = options
        self.keys = [f"{name}:{number}" for number in range(count)]
        self.acknowledged = dict.fromkeys(self.keys, 0)
        self.failed = dict.fromkeys(self.keys, 0)
        self.errors: list[str] = []
        """Texts of the errors, as they came."""
        self.problems: list[str] = []
        """What must not be: an answer that shows a lost or a doubled increment."""
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    async def __aenter__(self) -> Self:
        self._stopping = False
        self._tasks = [asyncio.create_task(self._count(key)) for key in self.keys]
        await self.progress()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Send no more. Requests under way are waited for: a cancelled one could have run, or not."""
        self._stopping = True
        for ended in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended
        self._tasks = []

    async def progress(self) -> None:
        """Wait until every client has had one more answer that is not an error."""
        before = dict(self.acknowledged)

        async def look() -> list[str]:
            return [key for key in self.keys if self.acknowledged[key] == before[key]]

        await eventually(look, lambda left: not left, f"answers to {self.keys[0]} and its like ({self.errors[-3:]})")

    async def check(self, address: str = "") -> None:
        """Everything that was acknowledged is stored, and besides that at most writes that failed. After
        :meth:`stop`."""
        async with plain_client(address or self.address, **self.options) as client:
            for key in self.keys:
                stored = int(await client.get(key) or 0)
                least = self.acknowledged[key]
                if not least <= stored <= least + self.failed[key]:
                    self.problems.append(f"{key} is {stored}, acknowledged {least}, failed {self.failed[key]}")
        assert not self.problems, self.problems

    async def _count(self, key: str) -> None:
        async with plain_client(self.address, **self.options) as client:
            while not self._stopping:
                # It counts as failed until it is known to have succeeded.
                self.failed[key] += 1
                try:
                    value = int(await client.incr(key))
                except (RedisError, OSError) as error:
                    self.errors.append(str(error) or type(error).__name__)
                    await asyncio.sleep(POLL_SECONDS)
                    continue
                self.failed[key] -= 1
                self.acknowledged[key] += 1
                if not self.acknowledged[key] <= value <= self.acknowledged[key] + self.failed[key]:
                    self.problems.append(f"{key} was answered {value} at {self.acknowledged[key]} acknowledged")
                await asyncio.sleep(POLL_SECONDS)
