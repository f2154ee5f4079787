"""Slots move by the stream through the process that topom starts, and through one of another machine: it is lost in the
middle of a copy and within the lock, or stands still and goes on when another has its copy. No error, no lost write.
"""

import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from slotferry.local import environment_of
from slotferry.processes import ManagedProcess
from tests.integration.cluster.harness import (
    Cluster,
    check_clean,
    eventually,
    log_of,
    running,
    traffic_on,
)

MOVED = 256
"""Slots that go from group 1 to group 2, from 0 up."""
SLOW = 60
"""Keys a second: several hundred that no traffic touches have to move, which takes ten seconds or more."""
SECRET = secrets.token_hex(16)


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[Cluster]:
    """One cluster for all tests here: each leaves it as it began, all slots at rest in group 1."""
    yield from running(
        Cluster(
            groups=2,
            proxies=2,
            workers=1,
            slots_on=[1],
            topom_settings={"migration_way": "stream", "tokens": [f"migrator:away:{SECRET}"]},
            redis_arguments=("--repl-diskless-sync-delay", "0"),
        )
    )


@pytest.fixture
async def cluster(shared_cluster: Cluster) -> AsyncIterator[Cluster]:
    """The cluster at rest, without keys but the ballast."""
    async with shared_cluster.visit():
        await shared_cluster.flush()
        await shared_cluster.at_rest({1: 1024, 2: 0})
        await shared_cluster.load_ballast()
        yield shared_cluster
        await shared_cluster.api.set_migration(keys_per_second=0)
        await shared_cluster.at_rest()
        await shared_cluster.api.move_slots("0-1023", 1)
        await shared_cluster.at_rest({1: 1024, 2: 0})


@asynccontextmanager
async def migrator_away(cluster: Cluster) -> AsyncIterator[ManagedProcess]:
    """A migrator that topom has not started itself, registered."""
    name = f"migrator-{secrets.token_hex(4)}"
    folder = cluster.directory / name
    folder.mkdir()
    settings = {"topom": cluster.topom_url, "token": SECRET, "spool": str(folder / "spool"), "node": name}
    process = ManagedProcess(
        name,
        [sys.executable, "-m", "slotferry", "migrator"],
        folder / "log",
        environment_of("SLOTFERRY_MIGRATOR_", settings),
    )
    process.start()
    try:
        await registered(cluster, process.pid)
        yield process
        assert "Traceback" not in process.tail(500)
    finally:
        os.kill(process.pid, signal.SIGCONT)
        await process.stop()


async def migrators(cluster: Cluster) -> dict[int, dict[str, Any]]:
    """Those that are registered, by their process ids."""
    return {one["pid"]: one for one in (await cluster.api.migrators())["migrators"]}


async def registered(cluster: Cluster, pid: int) -> None:
    await eventually(lambda: migrators(cluster), lambda found: pid in found, f"migrator {pid} to be registered")


async def copying(cluster: Cluster, keys: int = 20, but: int = 0) -> int:
    """Wait until a migrator, but not this one, has written so many keys of a copy; give its process id."""

    def under_way(found: dict[int, dict[str, Any]]) -> bool:
        return any(pid != but and copy["keys_moved"] >= keys for pid, one in found.items() for copy in one["copies"])

    found = await eventually(lambda: migrators(cluster), under_way, f"{keys} keys to be copied")
    [pid] = [pid for pid, one in found.items() if one["copies"] and pid != but]
    return pid


async def begun_anew(cluster: Cluster) -> int:
    """How often slots have begun anew."""
    return sum(entry.get("event") == "slots_begin_anew" for entry in log_of(cluster.topom))


async def send(cluster: Cluster) -> None:
    await cluster.api.move_slots(f"0-{MOVED - 1}", 2)


async def arrived(cluster: Cluster) -> None:
    await cluster.api.set_migration(keys_per_second=0)
    await cluster.at_rest({1: 1024 - MOVED, 2: MOVED})
    await cluster.check_ballast()
    await eventually(lambda: cluster.misplaced((0, 3)), lambda found: not found, "the source to be cleaned")


@pytest.mark.long
async def test_topom_starts_a_migrator_by_which_slots_move_and_another_when_that_is_killed(cluster: Cluster) -> None:
    async with traffic_on(cluster.proxy_addresses) as traffic:
        await cluster.api.set_migration(keys_per_second=SLOW)
        await send(cluster)
        first = await copying(cluster)
        assert (await migrators(cluster))[first]["own"]
        os.kill(first, signal.SIGKILL)
        second = await copying(cluster, but=first)
        assert (await migrators(cluster))[second]["own"]
        await arrived(cluster)
        await check_clean(traffic, await cluster.layout())
    assert "keys move one by one" not in str(log_of(cluster.topom))


@pytest.mark.long
async def test_a_migrator_of_another_machine_takes_the_copy_and_is_killed_within_the_lock(cluster: Cluster) -> None:
    async with (
        traffic_on(cluster.proxy_addresses) as traffic,
        migrator_away(cluster) as first,
        migrator_away(cluster) as second,
    ):
        await cluster.api.set_migration(keys_per_second=SLOW)
        await send(cluster)
        pid = await copying(cluster)
        assert pid in (first.pid, second.pid)
        worker = cluster.worker_pids(1)[0]
        os.kill(worker, signal.SIGSTOP)
        await cluster.api.set_migration(keys_per_second=0)
        await cluster.in_state("preparing")
        # Once more it has to be nearly level, for which the migrator is waited for. The worker is stopped meanwhile.
        os.kill(pid, signal.SIGSTOP)
        os.kill(worker, signal.SIGCONT)
        await cluster.online(2)
        os.kill(worker, signal.SIGSTOP)
        os.kill(pid, signal.SIGCONT)
        await cluster.in_state("prepared")
        had = await begun_anew(cluster)
        os.kill(pid, signal.SIGKILL)
        os.kill(worker, signal.SIGCONT)
        await eventually(lambda: begun_anew(cluster), lambda found: found > had, "the slots to begin anew")
        await arrived(cluster)
        await check_clean(traffic, await cluster.layout())


@pytest.mark.long
async def test_applied_once_a_migrator_that_stood_still_writes_nothing_when_another_has_its_copy(
    cluster: Cluster,
) -> None:
    async with (
        traffic_on(cluster.proxy_addresses) as traffic,
        migrator_away(cluster) as one,
        migrator_away(cluster) as other,
    ):
        await cluster.api.set_migration(keys_per_second=SLOW)
        await send(cluster)
        stopped = await copying(cluster)
        os.kill(stopped, signal.SIGSTOP)
        goes_on = await copying(cluster, but=stopped)
        # The copy is to last until the other one is back.
        await cluster.api.set_migration(keys_per_second=SLOW // 6)
        assert {stopped, goes_on} == {one.pid, other.pid}
        os.kill(stopped, signal.SIGCONT)
        await registered(cluster, stopped)
        assert (await migrators(cluster))[goes_on]["copies"], "it has lost its copy to a process that is late"
        await cluster.api.set_migration(keys_per_second=SLOW)
        await arrived(cluster)
        await check_clean(traffic, await cluster.layout())


@pytest.mark.long
async def test_the_migrator_that_topom_started_ends_with_it(cluster: Cluster) -> None:
    await send(cluster)
    await arrived(cluster)
    found = await migrators(cluster)
    [pid] = [pid for pid, one in found.items() if one["own"]]
    await cluster.topom.kill()

    async def is_there() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True

    await eventually(is_there, lambda found: not found, "the child to end with topom")
    await cluster.restart_topom()
