"""What clients are tried against: one group, three groups, and two groups with slots moving between them all the time.

Each is one cluster for all tests of this folder, with a proxy of two workers. Tests use keys of their own.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis

from slotferry.local import LocalCluster
from tests.integration.clients import mover
from tests.integration.cluster.harness import PATIENT, PATIENT_TOPOM

TOPOLOGIES = {"one-group": 1, "three-groups": 3, "moving-slots": 2}
SLOTS = 1024


@contextmanager
def started(groups: int) -> Iterator[LocalCluster]:
    """A cluster, for as long as the block runs."""
    running = LocalCluster(
        groups=groups,
        proxies=1,
        workers=2,
        number_of_slots=SLOTS,
        topom_settings=PATIENT_TOPOM,
        proxy_settings=PATIENT,
    )
    asyncio.run(running.start())
    try:
        yield running
    finally:
        for process in running.processes:
            print(f"--- end of the log of {process.name} (status {process.status})\n{process.tail(20)}")
        asyncio.run(running.stop())


@contextmanager
def moving(cluster: LocalCluster) -> Iterator[None]:
    """Slots move during the block; at its end they have to have moved, with their keys."""
    host, port = address_of(cluster)
    with redis.Redis(host=host, port=port, db=mover.DATABASE) as client:
        client.mset({f"carried:{number}": number for number in range(mover.KEYS)})
        carrier = mover.Mover(cluster, SLOTS)
        carrier.start()
        try:
            yield
        finally:
            carrier.stop()
        assert carrier.rounds, "no slot moved while the tests ran"
        assert carrier.keys_moved >= mover.KEYS // 3, "the slots moved without keys"
        values = client.mget([f"carried:{number}" for number in range(mover.KEYS)])
        assert values == [b"%d" % number for number in range(mover.KEYS)]
    print(f"{carrier.rounds} moves, {carrier.keys_moved} keys moved")


def address_of(cluster: LocalCluster) -> tuple[str, int]:
    host, _, port = cluster.proxy_addresses[0].rpartition(":")
    return host, int(port)


@pytest.fixture(scope="package", params=TOPOLOGIES)
def topology(request: pytest.FixtureRequest) -> str:
    """Name of what the clients are tried against."""
    return str(request.param)


@pytest.fixture(scope="package")
def cluster(topology: str) -> Iterator[LocalCluster]:
    """The cluster; nothing here ends processes of it."""
    with started(TOPOLOGIES[topology]) as running:
        if topology == "moving-slots":
            with moving(running):
                yield running
        else:
            yield running


@pytest.fixture(scope="package")
def at_rest(topology: str) -> bool:
    """Whether no slot moves: only then the cursors of HSCAN, SSCAN and ZSCAN are good for the whole key."""
    return topology != "moving-slots"


@pytest.fixture(scope="package")
def address(cluster: LocalCluster) -> tuple[str, int]:
    """Host and port of the proxy."""
    return address_of(cluster)


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def client(request: pytest.FixtureRequest, address: tuple[str, int]) -> Iterator[redis.Redis]:
    """redis-py by both protocols, in database 1 or 2, so that its keys are its own."""
    host, port = address
    with redis.Redis(
        host=host, port=port, db=request.param - 1, protocol=request.param, client_name="redis-py"
    ) as found:
        yield found
