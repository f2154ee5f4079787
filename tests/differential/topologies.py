"""What is behind the proxy: one group, three groups, or two with slots moving back and forth all the time; and whether
a slot rule makes all keys one slot."""

import asyncio
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slotferry.client import TopomClient
from slotferry.local import LocalCluster
from slotferry.redis_server import RedisServer, start_redis
from slots.keyslots import KeySlots
from slots.rules import SlotRule, rules_to_wire
from tests.differential.runner import ONE_SLOT, Runner
from tests.differential.sides import Control
from tests.differential.users import ALL_IN_ONE, USERS
from tests.integration.cluster.harness import PATIENT, PATIENT_TOPOM

BALLAST = 300
"""Keys that only the migrator moves, in a database of their own, so that slots are on their way for a while."""
BALLAST_DATABASE = b"14"
DEBUG = ("--enable-debug-command", "local")
"""Options of servers that tell what their keys have."""


@dataclass(frozen=True)
class Topology:
    """So many groups, whether slots move between them, and the product's slot rules."""

    groups: int
    moving: bool = False
    rules: tuple[SlotRule, ...] = ()
    users: bool = False
    """Whether clients log in as :data:`tests.differential.users.USERS`."""
    counts: bool = False
    """Whether PUBLISH answers the number of clients."""

    @property
    def one_slot(self) -> bool:
        """Whether all keys have one slot."""
        return self.rules == (ONE_SLOT,)


TOPOLOGIES = {
    "one group": Topology(1),
    "three groups": Topology(3, counts=True),
    "moving slots": Topology(2, moving=True),
    "one slot": Topology(3, rules=(ONE_SLOT,)),
    "one moving slot": Topology(2, moving=True, rules=(ONE_SLOT,)),
    "users": Topology(3, rules=(ALL_IN_ONE,), users=True),
    "users of moving slots": Topology(2, moving=True, rules=(ALL_IN_ONE,), users=True),
}

OF_USERS = [name for name, topology in TOPOLOGIES.items() if topology.users]


def place(address: str) -> tuple[str, int]:
    """Host and port."""
    host, _, port = address.rpartition(":")
    return host, int(port)


class Mover:
    """Moves slots from the first group to the second and back, in a thread, until it is stopped: all but one each."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.moves = 0
        """How often all slots have come to rest at another group."""
        self.failure: BaseException | None = None
        self._cluster = cluster
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin, and come back when the slots have moved for the first time."""
        self._thread.start()
        while not self.moves and self.failure is None:
            self._thread.join(0.02)

    def stop(self) -> None:
        """Come to rest. Raises what went wrong, if anything."""
        self._stopping.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            asyncio.run(self._move())
        except BaseException as error:
            self.failure = error

    async def _move(self) -> None:
        owner, other = 1, 2
        async with self._cluster.client() as topom:
            # Each group keeps a slot: a group without slots is not asked when a command goes to every server.
            await topom.move_slots("1023", other)
            while not self._stopping.is_set():
                self._load(self._cluster.groups[owner][0])
                await topom.move_slots("1-1022", other)
                await self._at_rest(topom)
                owner, other = other, owner
                self.moves += 1

    def _load(self, server: str) -> None:
        control = Control(place(server))
        keys = ((b"SET", b"ballast:%d" % number, b"x") for number in range(BALLAST))
        control.ask((b"SELECT", BALLAST_DATABASE), *keys)
        control.close()

    async def _at_rest(self, topom: TopomClient) -> None:
        limit = time.monotonic() + 120
        while any(slot["action"].get("state") for slot in (await topom.slots())["slots"]):
            if time.monotonic() > limit:
                raise TimeoutError("the slots do not come to rest")
            await asyncio.sleep(0.02)


async def _start(cluster: LocalCluster, rules: tuple[SlotRule, ...]) -> None:
    """Start it, and have the slot rules hold."""
    await cluster.start()
    if not rules:
        return
    async with cluster.client() as topom:
        await topom.change_rules(rules_to_wire(rules))
        async with asyncio.timeout(120):
            while (change := (await topom.rules())["change"])["stage"] not in ("done", "failed"):
                await asyncio.sleep(0.02)
    assert change["stage"] == "done", change


@contextmanager
def cluster_of(topology: Topology) -> Iterator[tuple[LocalCluster, Mover | None]]:
    """A cluster of one of :data:`TOPOLOGIES`, and what moves its slots."""
    moving = topology.moving
    users = [{"name": "default", "no_password": True}, *(user.entry for user in USERS.values())]
    cluster = LocalCluster(
        groups=topology.groups,
        proxies=1,
        workers=2,
        slots_on=[1] if moving else None,
        # Slow enough that commands meet slots in every state, in several batches.
        topom_settings={
            **PATIENT_TOPOM,
            "migration_way": "keys",
            **({"migration_parallel_slots": 256, "migration_keys_per_second": 2000} if moving else {}),
        },
        proxy_settings={
            **PATIENT,
            "publish_counts_clients": topology.counts,
            **({"users": json.dumps(users)} if topology.users else {}),
        },
        redis_arguments=DEBUG,
    )
    mover = Mover(cluster) if moving else None
    try:
        asyncio.run(_start(cluster, topology.rules))
        if mover is not None:
            mover.start()
        yield cluster, mover
    except BaseException:
        show_logs(cluster)
        raise
    finally:
        try:
            if mover is not None:
                mover.stop()
        finally:
            asyncio.run(cluster.stop())


def show_logs(cluster: LocalCluster) -> None:
    """Print what the processes said last."""
    for process in cluster.processes:
        print(f"--- end of the log of {process.name} (status {process.status})\n{process.tail(20)}")


@contextmanager
def runner_of(topology: Topology, cluster: LocalCluster, redis: RedisServer) -> Iterator[Runner]:
    """A runner for many examples, with the cluster's proxy on the one side."""
    servers = [place(server) for group in cluster.groups.values() for server in group]
    key_slots = KeySlots("crc32", 1024, topology.rules)
    control = Control(place(redis.address))
    control.ask(*(user.acl for user in USERS.values()))
    control.close()
    runner = Runner(
        place(cluster.proxy_addresses[0]),
        place(redis.address),
        servers,
        key_slots,
        moving=topology.moving,
        counts=topology.counts,
        beside=(BALLAST_DATABASE,) if topology.moving else (),
    )
    try:
        yield runner
    finally:
        runner.close()


@contextmanager
def plain_redis() -> Iterator[RedisServer]:
    """One Redis server."""
    with tempfile.TemporaryDirectory() as directory:
        server = asyncio.run(start_redis("plain", Path(directory), extra=DEBUG))
        try:
            yield server
        finally:
            asyncio.run(server.stop())
