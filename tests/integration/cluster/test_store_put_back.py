"""newest-store: the store is put back to an older state under topoms that run, and they remember a newer one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from slotferry.processes import ManagedProcess
from slots.functions import slot
from tests.integration.cluster.harness import log_of, plain_client
from tests.integration.cluster.several import SeveralTopoms
from tests.integration.stores.servers import need_etcdctl, need_zookeeper

NAMES = [name for name in (f"key-{number}" for number in range(400)) if slot("crc32", name.encode(), 1024) < 512]
OLDER = "the store holds an older state (version "
KINDS: dict[str, Callable[[], None]] = {"etcd": need_etcdctl, "zookeeper": need_zookeeper}


@asynccontextmanager
async def over(kind: str) -> AsyncIterator[SeveralTopoms]:
    """Two topoms over one server of a store, two groups, no proxy yet."""
    KINDS[kind]()
    async with (
        SeveralTopoms(
            2, store=kind, groups=2, proxies=1, topom_settings={"proxy_lease_seconds": 2, "barrier_seconds": 30}
        ) as cluster,
        cluster.visit(),
    ):
        for group in cluster.groups:
            await cluster.swept(group)
        yield cluster


def reasons(topom: ManagedProcess) -> list[str]:
    """Why it has ended."""
    return [str(entry["reason"]) for entry in log_of(topom) if entry.get("event") == "topom_failed"]


async def ended(topom: ManagedProcess) -> None:
    """It ends, and says that the store is an older one."""
    assert await topom.wait(60) == 1
    assert OLDER in reasons(topom)[-1]


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
async def test_topoms_that_run_remember_what_they_stored(kind: str, tmp_path: Path) -> None:
    """Though no proxy is left that could say it."""
    async with over(kind) as cluster:
        # given a backup, and slots that have moved since, with writes to their new owner
        await cluster.stores[0].save(tmp_path / "saved")
        async with plain_client(cluster.proxy_addresses[0]) as client:
            await client.mset(dict.fromkeys(NAMES, "1"))
            await cluster.api.move_slots("0-511", 2)
            await cluster.at_rest({1: 0, 2: 1024})
            await client.mset(dict.fromkeys(NAMES, "2"))
        await cluster.proxies[0].kill()

        # when the backup is put back under the topoms, then both end
        await cluster.stores[0].put_back(tmp_path / "saved")
        await asyncio.gather(*map(ended, cluster.topoms))

        # and no topom begins over that store again, though it remembers nothing
        cluster.topoms[0].start()
        await ended(cluster.topoms[0])
        async with plain_client(cluster.groups[2][0]) as server:
            assert await server.mget(NAMES) == [b"2"] * len(NAMES)


@pytest.mark.long
async def test_a_topom_that_follows_ends_one_that_remembers_nothing(tmp_path: Path) -> None:
    async with over("etcd") as cluster:
        # given a topom that leads over an older store, which was put back while it was down
        await cluster.stores[0].save(tmp_path / "saved")
        await cluster.api.move_slots("0-511", 2)
        await cluster.at_rest({1: 0, 2: 1024})
        await cluster.proxies[0].kill()
        former = await cluster.all_well()
        follower = 1 - former
        cluster.pause_topom(follower)
        await cluster.topoms[former].kill()
        await cluster.forget_marks()
        await cluster.stores[0].put_back(tmp_path / "saved")
        cluster.topoms[former].start()
        assert (await cluster.taken_over(follower))[0] == former
        assert not reasons(cluster.topoms[former])

        # when one that has seen the newer store goes on, then none is left
        cluster.resume_topom(follower)
        await asyncio.gather(*map(ended, cluster.topoms))
