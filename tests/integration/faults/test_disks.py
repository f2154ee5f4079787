"""Disks that fail under topom's store during a migration, at each of its steps.

The action stops with an error that names the reason; proxies are told nothing that the store does not have; once the
disk is well it goes on by itself.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from slots.functions import slot
from slots.table import SlotTable
from tests.certificates import UNENCRYPTED
from tests.integration.faults.disks import Disk, full_disk, journalled_disk, refused_writes, run
from tests.integration.faults.ways import usually
from tests.integration.topom_process import HandProxy, TopomProcess, address_of, redis_server
from topom.api.probes import UNSTORED
from topom.cluster import records
from topom.store import Stored

KEYS = 400
MOVED = range(8)
"""Of 16 slots."""


class Auditor(HandProxy):
    """A proxy that looks into the store whenever it is told something.

    ``hold`` is the state that it does not acknowledge.
    """

    def __init__(self, topom: TopomProcess, hold: str = "") -> None:
        super().__init__(topom, self._withhold)
        self._process = topom
        self.hold = hold
        self.untrue: list[str] = []
        """What it was told, and the store did not have."""
        self.looked_at = 0
        """The epoch of the latest table that it compared with the store."""

    def _withhold(self, table: SlotTable) -> bool:
        action = table.slots[0].action
        return action is not None and str(action.state) == self.hold

    async def _take(self, frame: dict[str, Any]) -> bool:
        going_on = await super()._take(frame)
        if frame["type"] == "table":
            assert self.table is not None
            stored = in_store(self._process)
            # epochs: what a proxy was told, the store has; it may have more by now.
            if stored.epoch < self.table.epoch or (stored.epoch == self.table.epoch and stored != self.table):
                self.untrue.append(f"told epoch {self.table.epoch}, and the store has {stored.epoch}")
            self.looked_at = self.table.epoch
        return going_on

    async def has_heard(self) -> None:
        """Wait until it has looked at the newest table."""
        epoch = (await self._process.call("GET", "/status"))["epoch"]
        async with asyncio.timeout(30):
            while self.looked_at < epoch:
                await asyncio.sleep(0.02)

    async def let_go(self) -> None:
        """Acknowledge what was withheld."""
        self.hold = ""
        await self.acknowledge()


def in_store(topom: TopomProcess) -> SlotTable:
    """The table that is on the disk, read by somebody who cannot write there."""
    with closing(sqlite3.connect(f"file:{topom.data / 'store.sqlite'}?mode=ro", uri=True)) as connection:
        connection.execute("BEGIN")
        (version,) = connection.execute("SELECT version FROM version").fetchone()
        state = records.decode(Stored(version, dict(connection.execute("SELECT name, value FROM documents"))))
    assert state is not None
    return state.table


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[redis.Redis, redis.Redis]]:
    folder = tmp_path_factory.mktemp("redis")
    with redis_server(folder / "1") as first, redis_server(folder / "2") as second:
        yield first, second


@pytest.fixture
def pair(servers: tuple[redis.Redis, redis.Redis]) -> tuple[redis.Redis, redis.Redis]:
    """Two servers; the first has :data:`KEYS` keys."""
    for server in servers:
        server.flushall()
    servers[0].mset({f"key:{number}": f"value {number}" for number in range(KEYS)})
    return servers


@asynccontextmanager
async def topom_on(disk: Path, tmp_path: Path, pair: tuple[redis.Redis, redis.Redis]) -> AsyncIterator[TopomProcess]:
    """A topom whose folder is on that disk, and its log elsewhere; all slots are in group 1."""
    topom = TopomProcess(disk / "data", heartbeat_seconds=0.1, proxy_lease_seconds=10.0, barrier_seconds=60)
    topom.log_file = tmp_path / "topom.log"
    await topom.start()
    try:
        for group_id, server in enumerate(pair, 1):
            await topom.call("POST", "/groups", {"id": group_id, "servers": [address_of(server)]})
        await topom.call("POST", "/slots/assign", {"slots": "0-15", "group_id": 1})
        yield topom
    finally:
        topom.kill()


def check_all_moved(pair: tuple[redis.Redis, redis.Redis]) -> None:
    """Every key is where it belongs, once, with its value."""
    for number in range(KEYS):
        key = f"key:{number}"
        at = 1 if slot("crc32", key.encode(), 16) in MOVED else 0
        assert pair[at].get(key) == f"value {number}".encode(), key
        assert pair[1 - at].get(key) is None, key


async def begin(topom: TopomProcess, auditor: Auditor, state: str) -> None:
    """Slots are on their way, and in this state until the auditor lets go (``migrating``: for a while)."""
    if state == "migrating":
        await topom.call("PATCH", "/migration", {"keys_per_second": 100})
    else:
        auditor.hold = state
    await topom.call("POST", "/slots/move", {"slots": "0-7", "group_id": 2})
    await topom.until(lambda status: state in auditor.states)
    if state == "migrating":
        await topom.until(lambda status: status["migration"]["keys_moved"] >= 10)


def stopped_by(words: str) -> Callable[[dict[str, Any]], bool]:
    """Whether a batch says that the store failed, and in these words why."""

    def look(status: dict[str, Any]) -> bool:
        reasons = [str(batch["reason"]) for batch in status["migration"]["batches"]]
        return any("store" in reason and words in reason for reason in reasons)

    return look


@pytest.mark.parametrize("state", usually(["prepared", "migrating"], ["preparing", "finished"]))
@pytest.mark.parametrize("kind", [full_disk, refused_writes])
async def test_a_disk_that_takes_no_more_stops_the_action_until_it_does(
    tmp_path: Path,
    pair: tuple[redis.Redis, redis.Redis],
    kind: Callable[[Path], AbstractContextManager[Disk]],
    state: str,
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    with kind(folder) as disk:
        async with AsyncExitStack() as stack:
            topom = await stack.enter_async_context(topom_on(folder, tmp_path, pair))
            auditor, other = [await stack.enter_async_context(Auditor(topom)) for _ in range(2)]
            await begin(topom, auditor, state)
            disk.fail(topom)
            await auditor.let_go()
            await topom.until(stopped_by(disk.words))
            # A new proxy gets no answer before it is stored as a member, because topom has to wait for it from then on.
            newcomer = Auditor(topom)
            joining = asyncio.create_task(newcomer.__aenter__())
            stack.push_async_exit(newcomer)
            # An operator's change is refused with the same reason, and changes nothing.
            refused = await topom.call("POST", "/slots/move", {"slots": "15", "group_id": 2}, status=503)
            assert refused["error"] == "StoreError"
            assert disk.words in refused["message"]
            stored = in_store(topom)
            assert stored.slots[15].action is None
            action = stored.slots[0].action
            assert action is not None
            assert action.state == state, "it got no further"
            shown = await topom.call("GET", "/slots")
            assert shown["epoch"] == stored.epoch
            without_reason = [{**one, "reason": ""} for one in shown["slots"]]
            assert without_reason == [{**one.to_wire(), "reason": ""} for one in stored.slots]
            for one in (auditor, other):
                assert one.table == stored
            await topom.until(lambda status: newcomer.attempts > 1)
            assert newcomer.frames == []
            disk.mend(topom)
            await topom.at_rest(8)
            await joining
            check_all_moved(pair)
            assert auditor.untrue == other.untrue == newcomer.untrue == []
            assert auditor.frames[-1]["type"] == "table"


@pytest.mark.parametrize("kind", [full_disk, refused_writes])
async def test_a_topom_whose_disk_takes_no_more_is_not_ready_until_it_does(
    tmp_path: Path, pair: tuple[redis.Redis, redis.Redis], kind: Callable[[Path], AbstractContextManager[Disk]]
) -> None:
    """It finds out by itself, for nobody has to order anything at a topom that is not ready."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with kind(folder) as disk:
        async with topom_on(folder, tmp_path, pair) as topom:
            await readiness(topom, (200, "ok\n"))
            disk.fail(topom)
            refused = await topom.call("POST", "/slots/move", {"slots": "15", "group_id": 2}, status=503)
            assert disk.words in refused["message"]
            await readiness(topom, (503, UNSTORED + "\n"))
            assert (await topom.call("GET", "/status"))["reason"]["what"] == refused["message"]
            disk.mend(topom)
            await readiness(topom, (200, "ok\n"))
            assert (await topom.call("GET", "/status"))["reason"] is None


async def readiness(topom: TopomProcess, expected: tuple[int, str]) -> None:
    """Wait for this answer to ``/readyz``."""
    async with asyncio.timeout(60), httpx.AsyncClient(trust_env=False, verify=UNENCRYPTED) as client:
        while True:
            answer = await client.get(f"{topom.url}/readyz", timeout=30)
            if (answer.status_code, answer.text) == expected:
                return
            await asyncio.sleep(0.05)


async def test_a_disk_that_goes_read_only_stops_the_action_until_topom_is_started_on_it_again(
    tmp_path: Path, pair: tuple[redis.Redis, redis.Redis]
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    with journalled_disk(tmp_path / "image", folder) as disk:
        async with topom_on(folder, tmp_path, pair) as topom, Auditor(topom) as auditor:
            await begin(topom, auditor, "prepared")
            disk.fail(topom)
            await auditor.let_go()
            await topom.until(stopped_by(disk.words))
            assert auditor.states[-1] == "prepared"
            topom.kill()
            disk.repair()
            await topom.start()
            await topom.at_rest(8)
            check_all_moved(pair)
            assert auditor.untrue == []
            assert "migrating" in auditor.states


async def test_a_disk_that_hangs_keeps_nobody_waiting_and_all_goes_on_when_it_is_back(
    tmp_path: Path, pair: tuple[redis.Redis, redis.Redis]
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    with journalled_disk(tmp_path / "image", folder) as disk:
        async with topom_on(folder, tmp_path, pair) as topom, Auditor(topom) as auditor:
            # The auditor looks at the disk when it is told a table, and would hang itself.
            await auditor.has_heard()
            with disk.frozen():
                # The first request that hangs gets its error after a while, later ones get it at once, and reads are
                # answered.
                for group_id in (7, 8):
                    refusal = await topom.call("POST", "/groups", {"id": group_id}, 503)
                    assert "hangs" in refusal["message"]
                assert "an earlier call has not come back" in refusal["message"]
                assert (await topom.call("GET", "/status"))["failing"] == {}

            async def added() -> bool:
                async with httpx.AsyncClient(headers={"Authorization": f"Bearer {topom.token}"}) as client:
                    return (await client.post(f"{topom.url}/api/v1/groups", json={"id": 9})).is_success

            async with asyncio.timeout(30):
                while not await added():
                    await asyncio.sleep(0.05)
            assert auditor.untrue == []


async def test_a_topom_that_starts_on_a_disk_it_cannot_write_to_ends_with_the_reason(
    tmp_path: Path, pair: tuple[redis.Redis, redis.Redis]
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    with full_disk(folder) as disk:
        async with topom_on(folder, tmp_path, pair) as topom, Auditor(topom) as auditor:
            await begin(topom, auditor, "preparing")
            told = list(auditor.states)
            topom.kill()
            run("mount", "-o", "remount,ro", str(folder))
            topom.log_file.unlink()
            await topom.ends_at_start()
            assert "Read-only file system" in topom.log()
            run("mount", "-o", "remount,rw", str(folder))

            disk.fail(topom)
            topom.log_file.unlink()
            await topom.ends_at_start()
            assert "database or disk is full" in topom.log()
            assert auditor.states == told
            disk.mend(topom)

            auditor.hold = ""
            await topom.start()
            await topom.at_rest(8)
            check_all_moved(pair)
            assert auditor.untrue == []
