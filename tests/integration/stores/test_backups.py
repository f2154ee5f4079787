"""A backup of each kind of store, taken while topom runs, put back after the store is lost (docs/backup.md).

A current one goes on where the lost store stopped. An older one (**epochs**) is refused to proxies, which keep their
newer table.
"""

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
import redis

from slots.reserved import LEADER
from tests.integration.stores.servers import (
    StoreServer,
    need_etcdctl,
    need_zookeeper,
    restore_etcd,
    start_etcd,
    start_zookeeper,
    stop,
)
from tests.integration.topom_process import HandProxy, TopomProcess, address_of, redis_server, topom_process
from topom.term.stores import STORE_FILE

LIMIT_SECONDS = 60.0
"""Against hanging only."""
LEADING = '"event": "leading"'


class FileBackup:
    """The file of topom's data folder; :meth:`start` gives the settings of a topom over a store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "topom"

    async def start(self) -> dict[str, Any]:
        return {}

    async def save(self) -> None:
        with (
            closing(sqlite3.connect(self.data / STORE_FILE)) as source,
            closing(sqlite3.connect(self.folder / "backup")) as copy,
        ):
            source.backup(copy)

    async def lose(self) -> None:
        shutil.rmtree(self.data)

    async def put_back(self) -> dict[str, Any]:
        self.data.mkdir()
        shutil.copy(self.folder / "backup", self.data / STORE_FILE)
        return {}

    async def stop(self) -> None:
        pass


class ServerBackup:
    """A store of servers: after a loss other ones start, with folders that hold nothing but the backup."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "topom"
        self.servers: list[StoreServer] = []
        self.lives = 0

    @property
    def home(self) -> Path:
        """The folder of the present servers."""
        return self.folder / f"life-{self.lives}"

    async def lose(self) -> None:
        await stop(self.servers)
        shutil.rmtree(self.home)
        shutil.rmtree(self.data)

    async def stop(self) -> None:
        await stop(self.servers)

    def next_home(self) -> Path:
        self.lives += 1
        self.home.mkdir()
        return self.home


class EtcdBackup(ServerBackup):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        need_etcdctl()

    async def start(self) -> dict[str, Any]:
        return await self._over(self.next_home())

    async def save(self) -> None:
        await self.servers[0].save(self.folder / "backup")

    async def put_back(self) -> dict[str, Any]:
        home = self.next_home()
        await restore_etcd(self.folder / "backup", home / "etcd-0")
        return await self._over(home)

    async def _over(self, home: Path) -> dict[str, Any]:
        self.servers = [*await start_etcd(home)]
        return {"store": "etcd", "store_servers": self.servers[0].address}


class ZooKeeperBackup(ServerBackup):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        need_zookeeper()

    async def start(self) -> dict[str, Any]:
        return await self._over(self.next_home())

    async def save(self) -> None:
        shutil.rmtree(self.folder / "backup", ignore_errors=True)
        await self.servers[0].save(self.folder / "backup")

    async def put_back(self) -> dict[str, Any]:
        home = self.next_home()
        shutil.copytree(self.folder / "backup", home / "zookeeper-0" / "version-2")
        return await self._over(home)

    async def _over(self, home: Path) -> dict[str, Any]:
        self.servers = [*await start_zookeeper(home)]
        return {"store": "zookeeper", "store_servers": self.servers[0].address}


@pytest.fixture(params=[FileBackup, EtcdBackup, ZooKeeperBackup])
async def backup(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FileBackup | ServerBackup]:
    made = request.param(tmp_path)
    yield made
    await made.stop()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[redis.Redis]]:
    with redis_server(tmp_path / "redis-1") as first, redis_server(tmp_path / "redis-2") as second:
        yield [first, second]


async def assign(topom: TopomProcess, proxy: HandProxy, slots: str, group: int) -> None:
    """Assign slots that are offline, and wait until the proxy has that."""
    await topom.call("POST", "/slots/assign", {"slots": slots, "group_id": group})
    epoch = (await topom.call("GET", "/status"))["epoch"]
    async with asyncio.timeout(LIMIT_SECONDS):
        while proxy.table is None or proxy.table.epoch < epoch:
            await asyncio.sleep(0.02)


async def leads(topom: TopomProcess, times: int = 1) -> TopomProcess:
    """Wait until topoms with this log have led so many times. A backup may have the lease of a former leader."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while topom.log().count(LEADING) < times:
            await asyncio.sleep(0.02)
    return topom


@asynccontextmanager
async def again(backup: FileBackup | ServerBackup, topom: TopomProcess) -> AsyncIterator[TopomProcess]:
    """A topom at the same address over the backup, after the store has been lost."""
    led = topom.log().count(LEADING)
    topom.kill()
    await backup.lose()
    settings = await backup.put_back()
    async with topom_process(backup.data, listen=topom.url.removeprefix("http://"), **settings) as restored:
        yield await leads(restored, led + 1)


def back_at(topom: TopomProcess, proxy: HandProxy) -> HandProxy:
    """The same member, with its table, that dials this topom."""
    same = HandProxy(topom)
    same.instance, same.table, same.known, same.was_registered = proxy.instance, proxy.table, proxy.known, True
    return same


@pytest.mark.long
async def test_a_current_backup_goes_on_and_an_older_one_is_refused_to_proxies(
    backup: FileBackup | ServerBackup, servers: list[redis.Redis]
) -> None:
    settings = await backup.start()
    async with AsyncExitStack() as stack:
        # given a backup that was taken while topom ran and a proxy had its table
        topom = await stack.enter_async_context(topom_process(backup.data, **settings))
        await leads(topom)
        for number, server in enumerate(servers, 1):
            await topom.call("POST", "/groups", {"id": number, "servers": [address_of(server)]})
        proxy = HandProxy(topom)
        async with proxy:
            await assign(topom, proxy, "0-7", 1)
            assert proxy.table is not None
            kept, owners = proxy.table.epoch, [slot.group_id for slot in proxy.table.slots]
            await backup.save()

        # when the store is lost, and the backup is put back
        restored = await stack.enter_async_context(again(backup, topom))
        proxy = back_at(restored, proxy)
        async with proxy:
            # then the proxy gets the next table, and it is the same
            async with asyncio.timeout(LIMIT_SECONDS):
                while proxy.table is None or proxy.table.epoch <= kept:
                    await asyncio.sleep(0.02)
            assert not proxy.refusals
            assert [slot.group_id for slot in proxy.table.slots] == owners

            # when changes come after it, and the same backup, which is older now, is put back again
            for slot in range(8, 12):
                await assign(restored, proxy, str(slot), 2)
        newest = proxy.table
        for server in servers:
            # The servers could tell, too, and before the proxy does.
            server.hdel(LEADER, "by")
        older = await stack.enter_async_context(again(backup, restored))
        proxy = back_at(older, proxy)
        async with proxy:
            # then the proxy is refused, and has still its own table
            assert "made after what the store holds, so the store is an older one" in proxy.refusals[0]["message"]
            assert not proxy.registered
            assert proxy.table == newest
        # and that topom ends, as does each that starts after it, though no proxy says it again
        await older.ends()
        led = older.log().count(LEADING)
        for times in (2, 3):
            await older.ends_at_start()
            assert older.log().count('"event": "topom_failed"') == times
        assert older.log().count(LEADING) == led
