"""A copy by the stream of a replica: what is followed, what becomes of it when the replica changes, and that the target
is level with the master."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from migrator import forking
from migrator.errors import MigrationError
from migrator.forking import NoMemoryForSnapshot
from migrator.pair import copying_prefix
from migrator.stream import choosing, followed, handshake, link, running
from migrator.stream.choosing import Choice
from migrator.stream.errors import CountsFollowers, ReplicaLost
from migrator.stream.running import RunningCopy
from migrator.stream.sourceconnection import SourceConnection
from slotferry.redis_server import RedisServer, start_redis
from slots.access import ServerAccess
from slots.reserved import FOLLOWER
from tests.integration.migrator.pairs import INSTANCE, Pair, client_of, slot_of
from tests.integration.migrator.stream.test_running import MOVING, assert_level, copy_between
from tests.integration.migrator.stream.traffic import Writer, filled

SECONDS = 90.0
KEYS = [key for key in (b"string:%d" % number for number in range(200)) if slot_of(key) in MOVING]
EXTRA = ("--repl-diskless-sync-delay", "0", "--repl-backlog-size", "16384", "--repl-ping-replica-period", "1")


class Group:
    """A source with two replicas, and a target. One replica has a user of its own at the source."""

    def __init__(self, pair: Pair, one: RedisServer, other: RedisServer, folder: Path) -> None:
        self.pair = pair
        self.one = one
        self.other = other
        self.folder = folder
        self.replicas = (one.address, other.address)
        self.master = client_of(pair.source)
        self.copies: list[RunningCopy] = []

    def copy(self, *replicas: RedisServer) -> RunningCopy:
        self.copies.append(copy_between(self.pair, self.folder, [server.address for server in replicas]))
        return self.copies[-1]

    async def level(self, copy: RunningCopy, followed: RedisServer) -> None:
        """The copy is level, and has followed this server."""
        async with asyncio.timeout(SECONDS):
            await copy.nearly_level()
            assert self.pair.progress.followed == followed.address
            await copy.settle(MOVING)
        await copy.close()
        assert await assert_level(self.pair) > 0

    async def let_one(self, follow: bool) -> None:
        """Let the one replica follow the source, or cut its link."""
        rules = ("SETUSER", "one", "on", ">one", "+psync", "+replconf", "+ping") if follow else ("DELUSER", "one")
        await self.master.execute_command("ACL", *rules)

    async def follow(self, server: RedisServer, address: str) -> None:
        async with client_of(server) as redis:
            await redis.replicaof(*address.split(":"))
            await until(lambda: is_up(redis))


async def is_up(replica: Redis) -> bool:
    return bool((await replica.info("replication")).get("master_link_status") == "up")


async def links_at(server: RedisServer) -> int:
    """How many links follow the server's stream."""
    async with client_of(server) as redis:
        found = await redis.info("replication")
    return sum(isinstance(one, dict) and one.get("ip") == FOLLOWER for one in found.values())


async def until(ready: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(SECONDS):
        while not await ready():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def stopped(server: RedisServer) -> AsyncIterator[None]:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    async def started(name: str) -> RedisServer:
        return await start_redis(name, tmp_path, extra=EXTRA)

    servers = source, target, one, other = await asyncio.gather(*map(started, ("source", "target", "one", "other")))
    group = Group(Pair(source, target), one, other, tmp_path / "spool")
    await group.master.mset(dict.fromkeys(KEYS, b"value"))
    await group.let_one(follow=True)
    async with client_of(one) as replica:
        await replica.config_set("masteruser", "one")
        await replica.config_set("masterauth", "one")
    for replica_server in (one, other):
        await group.follow(replica_server, source.address)
        # Redis 7 sends a replica nothing before its first acknowledgement, and keeps its backlog for it until then.
        await group.master.set(KEYS[0], b"value")
        async with client_of(replica_server) as replica:
            await until(lambda: _is_level(group.master, replica))
    yield group
    for copy in group.copies:
        await copy.close()
    await group.master.aclose()
    await asyncio.gather(*(server.stop() for server in servers))


@pytest.mark.long
async def test_level_by_way_of_a_replica_while_clients_write_every_type_to_its_master(group: Group) -> None:
    # However much is written while the link is lost, the replica goes on where it was.
    await group.master.config_set("repl-backlog-size", 64 << 20)
    await filled(group.pair.source, 5, 3000)
    forks = (await group.master.info("stats"))["sync_full"]
    copy = group.copy(group.one)
    writers = [Writer(group.pair.source, number) for number in (1, 2)]
    tasks = [asyncio.create_task(writer.run()) for writer in writers]
    try:
        async with asyncio.timeout(SECONDS):
            await copy.nearly_level()
        await asyncio.sleep(1.5)  # deadlines come within it
        # The replica's link to its master is lost for a moment: the stream goes on.
        await group.let_one(follow=False)
        await group.let_one(follow=True)
        async with client_of(group.one) as replica:
            await until(lambda: is_up(replica))
        assert await links_at(group.one) == 1
    finally:
        for writer in writers:
            writer.stop()
        await asyncio.gather(*tasks)
    await group.level(copy, group.one)
    assert (await group.master.info("stats"))["sync_full"] == forks, "the master makes no snapshot"
    assert await links_at(group.pair.source) == 0
    assert sum(writer.written for writer in writers) > 300


@pytest.mark.long
async def test_a_replica_that_is_not_whole_or_not_there_is_passed_over(group: Group) -> None:
    await group.let_one(follow=False)
    async with client_of(group.one) as replica:
        await until(lambda: _not(is_up(replica)))
    await group.level(group.copy(group.one, group.pair.target, group.other), group.other)
    await _emptied(group.pair.target)
    async with stopped(group.other):
        await group.level(group.copy(group.other, group.one), group.pair.source)


@pytest.mark.long
async def test_a_process_that_stands_still_with_its_link_to_a_replica_holds_up_no_later_stream(group: Group) -> None:
    """It has asked for a snapshot, and reads nothing of it. The replica would drop it after its ``repl-timeout``."""
    await group.master.mset({f"large {number}": os.urandom(1 << 20) for number in range(64)})
    async with client_of(group.one) as replica:
        await replica.config_set("repl-timeout", 3600)
        await until(lambda: _is_level(group.master, replica))
    earlier = SourceConnection(group.one.address, ServerAccess())
    try:
        history = (await group.master.info("replication"))["master_replid"]
        name = f"{copying_prefix('facade')}{INSTANCE}.follow"
        await asyncio.to_thread(handshake.introduce, earlier, ServerAccess(), name, "", history)
        await asyncio.to_thread(handshake.ask_for_snapshot, earlier, "", history)
        await group.level(group.copy(group.one), group.one)
    finally:
        earlier.close()


async def test_a_topom_that_was_paused_ends_no_link_of_a_later_one(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was about to look for the links of earlier streams at the replicas."""
    end_at_replicas = running.end_at_replicas
    later = SourceConnection(group.one.address, ServerAccess())

    async def ready(id: str, instance: str, term: int) -> None:
        source, target = group.pair.source.address, group.pair.target.address
        await running.make_ready(
            source,
            target,
            id,
            stream=id,
            replicas=[group.one.address],
            access=ServerAccess(),
            instance=instance,
            term=term,
        )

    async def paused(*arguments: Any) -> None:
        monkeypatch.setattr(running, "end_at_replicas", end_at_replicas)
        await ready("facade", "2" * 32, 2)
        history = (await group.master.info("replication"))["master_replid"]
        name = f"{copying_prefix('facade')}{'2' * 32}.follow"
        await asyncio.to_thread(handshake.introduce, later, ServerAccess(), name, "", history)
        await end_at_replicas(*arguments)

    monkeypatch.setattr(running, "end_at_replicas", paused)
    try:
        with pytest.raises(MigrationError):
            await ready("c0ffee", "1" * 32, 1)
        async with client_of(group.one) as replica:
            names = [one["name"] for one in await replica.client_list()]
        assert [name for name in names if name.startswith(copying_prefix("facade"))]
    finally:
        later.close()


async def test_a_replica_that_takes_writes_itself_is_passed_over(group: Group) -> None:
    async with client_of(group.one) as replica:
        await replica.config_set("replica-read-only", "no")
        # This is in its snapshot, and not at its master.
        await replica.set(KEYS[0], b"of the replica alone")
        await group.level(group.copy(group.one), group.pair.source)
        await _emptied(group.pair.target)
        copy = group.copy(group.other)
        async with asyncio.timeout(SECONDS):
            await copy.nearly_level()
        async with client_of(group.other) as followed:
            await followed.config_set("replica-read-only", "no")
        with pytest.raises(ReplicaLost, match="takes writes itself"):
            await copy.nearly_level()


async def _behind_one_that_was_writable(group: Group) -> None:
    """The other replica is filled by the one, and has what was written at that alone."""
    async with client_of(group.one) as replica, client_of(group.other) as other:
        await replica.config_set("replica-read-only", "no")
        await replica.set(KEYS[0], b"of the replica alone")
        await replica.config_set("replica-read-only", "yes")
        await group.follow(group.other, group.one.address)
        await until(lambda: is_up(other))
        if await other.get(KEYS[0]) != b"of the replica alone":  # it went on where it was
            await other.replicaof("NO", "ONE")
            await group.follow(group.other, group.one.address)
        assert await other.get(KEYS[0]) == b"of the replica alone"
        told = [(await one.info("replication"))["master_replid"] for one in (group.master, other)]
        assert told[0] == told[1], "it names the master's stream"


async def test_level_a_replica_behind_one_that_was_writable_is_passed_over(group: Group) -> None:
    await _behind_one_that_was_writable(group)
    await group.level(group.copy(group.other), group.pair.source)


async def test_level_a_replica_that_another_one_fills_before_its_snapshot_begins_is_passed_over(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def choose_before_a_change(*about: Any) -> Choice:
        choice = await choosing.choose(*about)
        assert [one.address for one in choice.replicas] == [group.other.address]
        await _behind_one_that_was_writable(group)
        return choice

    monkeypatch.setattr(followed, "choose", choose_before_a_change)
    await group.level(group.copy(group.other), group.pair.source)


async def test_a_replica_that_is_given_another_way_to_its_master_behind_its_snapshot_is_followed_on(
    group: Group,
) -> None:
    """What the other replica in between has written itself is in no stream."""
    copy = group.copy(group.other)
    async with asyncio.timeout(SECONDS):
        await copy.nearly_level()
    async with client_of(group.one) as replica, client_of(group.other) as other:
        await replica.config_set("replica-read-only", "no")
        await group.follow(group.other, group.one.address)
        await until(lambda: is_up(other))
        await replica.set(KEYS[0], b"of the replica alone")
        await group.master.set(KEYS[1], b"later")
    await group.level(copy, group.other)


@pytest.mark.parametrize("policy", ["allkeys-random", "noeviction"])
async def test_a_replica_that_its_maxmemory_has_made_another_is_passed_over(group: Group, policy: str) -> None:
    """It has evicted keys, or refused its master's writes."""
    async with client_of(group.one) as replica:
        await replica.config_set("replica-ignore-maxmemory", "no")
        await replica.config_set("maxmemory-policy", policy)
        await replica.config_set("maxmemory", 1)
        await group.master.mset({b"more " + key: b"value" for key in KEYS})
        await until(lambda: _is_level(group.master, replica))
        assert await replica.dbsize() < await group.master.dbsize()
    await group.level(group.copy(group.one), group.pair.source)


async def _is_level(master: Redis, replica: Redis) -> bool:
    offset = (await master.info("replication"))["master_repl_offset"]
    return bool((await replica.info("replication"))["slave_repl_offset"] >= offset)


async def _not(answer: Awaitable[bool]) -> bool:
    return not await answer


async def _emptied(target: RedisServer) -> None:
    async with client_of(target) as redis:
        await redis.flushall()


async def _promoted(group: Group) -> None:
    async with client_of(group.one) as replica:
        await replica.replicaof("NO", "ONE")
        await replica.set(KEYS[0], b"of another history")


async def _filled_anew(group: Group) -> None:
    await group.let_one(follow=False)
    for number in range(20):
        await group.master.set(b"large", b"%d" % number * 4000)
    await group.let_one(follow=True)


async def _given_another_master(group: Group) -> None:
    async with client_of(group.one) as replica:
        await replica.config_set("masteruser", "")
        await replica.config_set("masterauth", "")
        await replica.replicaof("127.0.0.1", group.pair.target.port)


async def _restarted(group: Group) -> None:
    assert group.one.pid is not None
    os.kill(group.one.pid, signal.SIGKILL)  # told to shut down, it would wait for the link
    await group.one.stop()
    again = await start_redis("again", group.folder.parent, extra=EXTRA, port=group.one.port)
    group.one = again


@pytest.mark.long
@pytest.mark.parametrize("change", [_promoted, _filled_anew, _given_another_master, _restarted])
async def test_level_a_replica_that_is_another_one_by_then_ends_the_copy_and_another_is_followed(
    group: Group, change: Callable[[Group], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "GO_ON_SECONDS", 5.0)
    copy = group.copy(group.one)
    async with asyncio.timeout(SECONDS):
        await copy.nearly_level()
    before = group.one
    await change(group)
    await group.master.set(KEYS[1], b"later")
    with pytest.raises(ReplicaLost, match=before.address) as lost:
        async with asyncio.timeout(SECONDS):
            await copy.settle(MOVING)
    assert lost.value.passing
    await copy.close()
    await _emptied(group.pair.target)
    await group.level(group.copy(group.other), group.other)
    if group.one is not before:
        await group.one.stop()


@pytest.mark.long
async def test_a_replica_that_stands_still_at_the_lock_holds_it_no_longer_than_its_limit(group: Group) -> None:
    copy = group.copy(group.one)
    async with asyncio.timeout(SECONDS):
        await copy.nearly_level()
    async with stopped(group.one):
        await group.master.set(KEYS[0], b"later")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await copy.settle(MOVING)
        await copy.close()
        await _emptied(group.pair.target)
        await group.level(group.copy(group.other), group.other)


@pytest.mark.long
async def test_a_replica_that_refuses_is_passed_over(group: Group) -> None:
    async with client_of(group.one) as replica:
        await replica.execute_command("ACL", "SETUSER", "default", "-psync")
    async with client_of(group.other) as other:
        await other.execute_command("ACL", "SETUSER", "default", "-info")
    await group.level(group.copy(group.one, group.other), group.pair.source)


@pytest.mark.long
async def test_level_no_replica_is_followed_if_its_master_does_not_say_who_follows_it(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migrator may have another user than topom."""

    async def not_told(*about: Any) -> Choice:
        await group.master.execute_command("ACL", "SETUSER", "default", "-client|list")
        try:
            return await choosing.choose(*about)
        finally:
            await group.master.execute_command("ACL", "SETUSER", "default", "+client|list")

    monkeypatch.setattr(followed, "choose", not_told)
    await group.level(group.copy(group.other), group.pair.source)


async def test_nothing_makes_a_snapshot_without_the_memory_for_it(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forking, "MOST_OF_MACHINE", 1e-6)
    copy = group.copy(group.one)
    with pytest.raises(NoMemoryForSnapshot, match=group.pair.source.address):
        async with asyncio.timeout(SECONDS):
            await copy.nearly_level()
    assert group.pair.progress.followed == ""
    assert await links_at(group.one) == await links_at(group.pair.source) == 0


@pytest.mark.long
async def test_a_master_that_would_count_the_link_is_noticed_before_the_lock(group: Group) -> None:
    copy = group.copy()
    async with asyncio.timeout(SECONDS):
        await copy.nearly_level()
    await group.master.config_set("min-replicas-to-write", 1)
    with pytest.raises(CountsFollowers):
        await copy.nearly_level()
    await copy.close()
    await _emptied(group.pair.target)
    # Nobody counts what follows a replica.
    await group.level(group.copy(group.other), group.other)


@pytest.mark.long
async def test_a_cut_before_the_snapshot_of_a_replica_is_whole_is_its_loss(group: Group) -> None:
    async with client_of(group.one) as replica:
        await replica.config_set("rdb-key-save-delay", 20_000)
        copy = group.copy(group.one)
        task = asyncio.create_task(copy.nearly_level())
        await until(lambda: _has_link(group.one))
        await asyncio.sleep(0.3)
        await replica.execute_command("CLIENT", "KILL", "TYPE", "replica")
        with pytest.raises(ReplicaLost) as lost:
            async with asyncio.timeout(SECONDS):
                await task
    assert lost.value.passing


async def _has_link(server: RedisServer) -> bool:
    return await links_at(server) > 0
