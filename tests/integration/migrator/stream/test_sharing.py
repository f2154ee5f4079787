"""Copies to several targets by one replication stream of their source: what becomes of one concerns no other."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from migrator.connection import Connection, Timeouts, pack
from migrator.errors import MigrationError, TargetUnavailable
from migrator.pace import Pace
from migrator.pair import copying_prefix
from migrator.progress import Progress
from migrator.stream import applying, followed, handshake, link, sourcestream
from migrator.stream.applying import HIDE, CopyVoid, end_copies
from migrator.stream.errors import LeftBehind, StreamBegun
from migrator.stream.running import NEARLY_BYTES, RunningCopy, TargetEvicts, make_ready
from migrator.stream.sourceconnection import SourceConnection
from migrator.stream.sourcestream import SourceStream
from slotferry.redis_server import RedisServer, start_redis
from slots.access import ServerAccess
from slots.commands import find, keys_of
from slots.keyslots import KeySlots
from slots.reserved import HIDDEN, RESERVED, SWEPT
from tests.integration.migrator.pairs import INSTANCE, NUMBER_OF_SLOTS, Pair, client_of, slot_of
from tests.integration.migrator.stream.test_replicas import links_at, until
from tests.integration.migrator.stream.test_running import assert_level, connected
from tests.integration.migrator.stream.traffic import Command, Writer, filled

SECONDS = 90.0
PARTS = [range(number, NUMBER_OF_SLOTS, 4) for number in range(3)]
"""The slots that go to each target; the others stay."""
EXTRA = ("--repl-diskless-sync-delay", "0", "--repl-timeout", "3600")
STREAM = "5eed"
PATIENT = Timeouts(connect_seconds=600.0, reply_seconds=600.0)
"""A target that stands still is not given up for that."""


class FollowedWriter(Writer):
    """Writes no faster than copies take it: a busy machine slows copies down more than their source."""

    def __init__(self, server: RedisServer, seed: int, copies: Sequence[RunningCopy]) -> None:
        super().__init__(server, seed)
        self._copies = copies

    async def rest(self) -> None:
        await asyncio.sleep(0.01 if any(copy.lag is None for copy in self._copies) else 0)
        while not self._stopped and any((copy.lag or 0) > NEARLY_BYTES // 4 for copy in self._copies):
            await asyncio.sleep(0.005)


class PartWriter(FollowedWriter):
    """Writes keys of some slots only."""

    def __init__(self, server: RedisServer, seed: int, copies: Sequence[RunningCopy], slots: range) -> None:
        super().__init__(server, seed, copies)
        self._slots = slots

    def command(self) -> Command:
        while True:
            command = super().command()
            argv = [word if isinstance(word, bytes) else str(word).encode() for word in command]
            if all(slot_of(key) in self._slots for key in keys_of(find(argv), argv)):
                return command


class Sharing:
    """A source, three targets, and a copy to each of them."""

    def __init__(self, source: RedisServer, targets: list[RedisServer], folder: Path) -> None:
        self.server = source
        self.targets = targets
        self.folder = folder
        self.source = client_of(source)
        self.pace = Pace()
        self.timeouts = Timeouts()
        self.copies: list[RunningCopy] = []

    def stream(self, run_id: str, id: str = STREAM) -> SourceStream:
        return SourceStream(
            self.server.address,
            run_id,
            id=id,
            folder=self.folder,
            access=ServerAccess(),
            instance=INSTANCE,
            term=1,
            timeouts=self.timeouts,
        )

    async def ready(self, part: int, id: str, stream: str = STREAM) -> tuple[str, str]:
        return await make_ready(
            self.server.address,
            self.targets[part].address,
            id,
            stream=stream,
            access=ServerAccess(),
            instance=INSTANCE,
            term=1,
        )

    async def copy(
        self, stream: SourceStream | None, part: int, id: str = "c0ffee", stream_id: str = STREAM
    ) -> RunningCopy:
        """A copy that is ready to begin, in a stream of its own by default."""
        source, target = await self.ready(part, f"{id}{part}", stream_id)
        copy = RunningCopy(
            stream or self.stream(source, stream_id),
            self.targets[part].address,
            PARTS[part],
            f"{id}{part}",
            run_id=target,
            key_slots=KeySlots("crc32", NUMBER_OF_SLOTS),
            pace=self.pace,
            progress=Progress(),
        )
        self.copies.append(copy)
        return copy

    async def begin(self) -> list[RunningCopy]:
        """Three copies in one stream."""
        stream = self.stream((await self.source.info("server"))["run_id"])
        return [await self.copy(stream, part) for part in range(3)]

    async def assert_level(self, part: int) -> None:
        assert await assert_level(Pair(self.server, self.targets[part]), PARTS[part]) > 10

    async def settle(self, *parts: int) -> None:
        async with asyncio.timeout(SECONDS):
            for part in parts:
                await self.copies[part].settle(PARTS[part])
                await self.assert_level(part)


async def nearly_level(*copies: RunningCopy) -> None:
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(*(copy.nearly_level() for copy in copies))


@pytest.fixture
async def sharing(tmp_path: Path) -> AsyncIterator[Sharing]:
    names = ("source", "one", "two", "three")
    source, *targets = await asyncio.gather(*(start_redis(name, tmp_path, extra=EXTRA) for name in names))
    await filled(source, 3, 3000)
    sharing = Sharing(source, targets, tmp_path / "spool")
    yield sharing
    for copy in sharing.copies:
        await copy.close()
    await sharing.source.aclose()
    await asyncio.gather(*(server.stop() for server in (source, *targets)))


def stop(server: RedisServer) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)


def go_on(server: RedisServer) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGCONT)


@pytest.mark.long
async def test_level_at_one_target_after_the_other_by_one_snapshot_while_the_others_are_written(
    sharing: Sharing,
) -> None:
    before = (await sharing.source.info("stats"))["sync_full"]
    copies = await sharing.begin()
    # These rename and copy between slots of any two copies, and of none.
    mixing = [FollowedWriter(sharing.server, number, copies) for number in (1, 2)]
    writers = [PartWriter(sharing.server, 10 + part, copies, slots) for part, slots in enumerate(PARTS)]
    tasks = [asyncio.create_task(writer.run()) for writer in (*mixing, *writers)]
    try:
        await nearly_level(*copies)
        assert await links_at(sharing.server) == 1
        for writer in mixing:
            writer.stop()
        await asyncio.gather(*tasks[:2])
        for part, writer in enumerate(writers):
            await nearly_level(copies[part])
            written = [other.written for other in writers]
            writer.stop()
            await tasks[2 + part]
            await sharing.settle(part)
            # Cleaning at the source takes nothing from the target.
            moved = [key for key in await sharing.source.keys("*") if slot_of(key) in PARTS[part]]
            await sharing.source.delete(*moved)
            async with asyncio.timeout(SECONDS):
                while any(
                    other.written == already
                    for other, already in zip(writers[part + 1 :], written[part + 1 :], strict=True)
                ):
                    await asyncio.sleep(0.01)
            async with client_of(sharing.targets[part]) as target:
                kept = [key for key in await target.keys("*") if not key.startswith(RESERVED)]
            assert {slot_of(key) % 4 for key in kept} == {part}
    finally:
        for writer in (*mixing, *writers):
            writer.stop()
        await asyncio.gather(*tasks)
    assert (await sharing.source.info("stats"))["sync_full"] == before + 1
    for copy in copies:
        await copy.close()
    await until(lambda: _no_link(sharing.server))


async def _no_link(server: RedisServer) -> bool:
    return await links_at(server) == 0


async def _killed(target: RedisServer) -> None:
    await target.stop()


async def _evicting(target: RedisServer) -> None:
    async with client_of(target) as redis:
        await redis.config_set("maxmemory-policy", "allkeys-lru")
        await redis.config_set("maxmemory", 1 << 40)


async def _taken_over(target: RedisServer) -> None:
    connection = await connected(target)
    await end_copies(connection)
    connection.close()


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "error"), [(_killed, TargetUnavailable), (_evicting, TargetEvicts), (_taken_over, CopyVoid)]
)
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.timeout(120)
async def test_what_goes_wrong_at_one_target_ends_its_copy_alone(
    sharing: Sharing, fault: Callable[[RedisServer], Awaitable[None]], error: type[MigrationError], early: bool
) -> None:
    copies = await sharing.begin()
    if early:
        await fault(sharing.targets[1])
    else:
        await nearly_level(*copies)
        await fault(sharing.targets[1])
    await filled(sharing.server, 4, 500)

    async def go_on() -> None:
        await copies[1].nearly_level()
        await copies[1].settle(PARTS[1])

    with pytest.raises(error):
        await asyncio.wait_for(go_on(), 90)
    await nearly_level(copies[0], copies[2])
    await sharing.settle(0, 2)


@pytest.mark.long
async def test_a_target_that_stands_still_takes_no_time_of_another_ones_lock(sharing: Sharing) -> None:
    sharing.timeouts = PATIENT
    copies = await sharing.begin()
    await nearly_level(*copies)
    stop(sharing.targets[1])
    try:
        await filled(sharing.server, 4, 2000)
        await nearly_level(copies[0], copies[2])
        await sharing.settle(0, 2)
        assert copies[1]._task is not None
        assert not copies[1]._task.done()
    finally:
        go_on(sharing.targets[1])
    await nearly_level(copies[1])
    await sharing.settle(1)


@pytest.mark.long
@pytest.mark.parametrize("early", [True, False])
async def test_a_target_that_stands_still_for_longer_than_it_may_is_given_up(
    sharing: Sharing, early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applying, "ATTEMPT_SECONDS", 0.05)
    sharing.timeouts = Timeouts(reply_seconds=1.0)
    copies = await sharing.begin()
    if not early:
        await nearly_level(*copies)
    stop(sharing.targets[1])
    try:
        await filled(sharing.server, 4, 500)
        with pytest.raises(TargetUnavailable):
            await nearly_level(copies[1])
        await nearly_level(copies[0], copies[2])
        await sharing.settle(0, 2)
    finally:
        go_on(sharing.targets[1])


@pytest.mark.long
async def test_the_copy_that_is_furthest_behind_is_given_up_when_room_gets_short(
    sharing: Sharing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "SPOOL_BYTES", 64 << 20)
    monkeypatch.setattr(sourcestream, "LOOK_SECONDS", 0.01)
    sharing.timeouts = PATIENT
    copies = await sharing.begin()
    await nearly_level(*copies)
    stop(sharing.targets[1])
    try:
        reader = copies[0]._stream._readers[copies[1]]
        # Once the copy is given up, there is room again.
        while reader._error is None and not reader._spool.is_short():
            await sharing.source.set("string:1", b"value" * 100_000)
            # However slow the machine is, the others are not the ones that are behind.
            await nearly_level(copies[0], copies[2])
        await nearly_level(copies[0], copies[2])
        await until(lambda: _is_closed(reader._error))
    finally:
        go_on(sharing.targets[1])
    with pytest.raises(LeftBehind):
        await nearly_level(copies[1])
    await sharing.settle(0, 2)


async def _is_closed(error: MigrationError | None) -> bool:
    return error is not None


@pytest.mark.long
async def test_after_a_cut_of_the_link_all_go_on_where_they_were(sharing: Sharing) -> None:
    copies = await sharing.begin()
    await nearly_level(*copies)
    before = await sharing.source.info("stats")
    await sharing.source.execute_command("CLIENT", "KILL", "TYPE", "replica")
    await filled(sharing.server, 4, 500)
    await nearly_level(*copies)
    await sharing.settle(0, 1, 2)
    after = await sharing.source.info("stats")
    assert (after["sync_full"], after["sync_partial_ok"]) == (before["sync_full"], before["sync_partial_ok"] + 1)


@pytest.mark.long
async def test_all_fail_when_the_source_is_lost(sharing: Sharing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "GO_ON_SECONDS", 0.5)
    copies = await sharing.begin()
    await nearly_level(*copies)
    assert sharing.server.pid is not None
    os.kill(sharing.server.pid, signal.SIGKILL)
    for copy in copies:
        assert copy._task is not None
        with pytest.raises(MigrationError, match="lost"):
            async with asyncio.timeout(SECONDS):
                await copy._task
    stream = copies[0]._stream
    assert stream._task is not None
    async with asyncio.timeout(SECONDS):
        await asyncio.wait((stream._task,))


@pytest.mark.long
async def test_a_copy_that_comes_behind_the_beginning_is_refused(sharing: Sharing) -> None:
    stream = sharing.stream((await sharing.source.info("server"))["run_id"])
    first = await sharing.copy(stream, 0)
    await nearly_level(first)
    with pytest.raises(StreamBegun, match="without this copy") as refused:
        await sharing.copy(stream, 1)
    assert refused.value.passing
    await sharing.settle(0)


@pytest.mark.long
async def test_the_end_of_a_copy_leaves_the_others_and_that_of_the_last_one_ends_the_link(sharing: Sharing) -> None:
    copies = await sharing.begin()
    going = [asyncio.create_task(copy.nearly_level()) for copy in copies]
    await copies[0].close()
    await asyncio.wait(going)
    await copies[1].close()
    await filled(sharing.server, 4, 500)
    await nearly_level(copies[2])
    await sharing.settle(2)
    assert await links_at(sharing.server) == 1
    await copies[2].close()
    await until(lambda: _no_link(sharing.server))


@pytest.mark.long
async def test_the_last_copy_is_closed_once_the_link_is(sharing: Sharing, monkeypatch: pytest.MonkeyPatch) -> None:
    close, closed = link.Link.close, []

    def slowly(one: link.Link) -> None:
        time.sleep(0.2)  # as for a name that is looked up
        close(one)
        closed.append(one)

    monkeypatch.setattr(link.Link, "close", slowly)
    copies = await sharing.begin()
    await nearly_level(*copies)
    await copies[0].close()
    await copies[1].close()
    assert not closed
    await copies[2].close()
    assert len(closed) == 1


@pytest.mark.long
async def test_a_copy_that_is_made_ready_ends_nothing_of_the_others_of_its_stream_at_the_source(
    sharing: Sharing,
) -> None:
    async def named() -> set[tuple[str, str]]:
        found = await sharing.source.client_list()
        return {(one["id"], one["name"]) for one in found if ".migrator-copying." in one["name"]}

    first = await sharing.copy(None, 0)
    await nearly_level(first)
    before = await named()
    assert len(before) >= 2, "its link, and the connection for its marker"
    await asyncio.gather(sharing.ready(1, "facade1"), sharing.ready(2, "facade2"))
    assert before <= await named()
    await filled(sharing.server, 4, 500)
    await nearly_level(first)
    await sharing.settle(0)


@pytest.mark.long
async def test_a_stream_that_begins_ends_all_that_an_earlier_one_has_at_the_source(sharing: Sharing) -> None:
    async def named() -> set[str]:
        return {one["id"] for one in await sharing.source.client_list() if ".migrator-copying." in one["name"]}

    await nearly_level(await sharing.copy(None, 0))
    earlier = await named()
    assert len(earlier) >= 2, "its link, and the connection for its marker"
    await sharing.ready(1, "facade1", "facade")
    assert not earlier & await named()


@pytest.mark.long
async def test_a_process_that_stands_still_with_its_link_holds_up_no_later_stream(sharing: Sharing) -> None:
    """It has asked for a snapshot, and reads nothing of it. The source would drop it after its ``repl-timeout``."""
    await sharing.source.mset({f"string:{number}": os.urandom(1 << 20) for number in range(64)})
    earlier = SourceConnection(sharing.server.address, ServerAccess())
    try:
        name = f"{copying_prefix('facade')}{INSTANCE}.follow"
        await asyncio.to_thread(handshake.introduce, earlier, ServerAccess(), name)
        await asyncio.to_thread(handshake.ask_for_snapshot, earlier, "")
        copy = await sharing.copy(None, 0)
        await nearly_level(copy)
        await sharing.settle(0)
    finally:
        earlier.close()


class Late:
    """A connection to the source whose process stands still before one of its commands."""

    def __init__(self, connection: Connection, command: bytes) -> None:
        self.connection = connection
        self.command = command
        self.stands, self.goes_on = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    async def send(self, data: bytes, *rest: Any) -> Any:
        if self.command in data:
            self.stands.set()
            await self.goes_on.wait()
        return await self.connection.send(data, *rest)


@pytest.mark.long
@pytest.mark.parametrize(
    "command", [pack("HDEL", SWEPT, "swept", "token"), pack("EVAL", HIDE.text)[4:]], ids=["HDEL", "EVAL"]
)
async def test_what_a_former_copy_does_late_at_its_source_harms_no_later_one(sharing: Sharing, command: bytes) -> None:
    """A process that was paused goes on: it takes away a sweep's mark and sets its marker, or adds its hidden keys."""
    former = await sharing.copy(None, 0, "facade")
    await nearly_level(former)
    assert former._writing is not None
    late = Late(former._writing, command)
    former._writing = late  # type: ignore[assignment]
    settling = asyncio.create_task(former.settle(PARTS[0]))
    await late.stands.wait()
    async with client_of(sharing.targets[0]) as target:
        await target.flushall()  # as a sweep would
    copy = await sharing.copy(None, 0)
    await nearly_level(copy)
    late.goes_on.set()
    with pytest.raises(MigrationError):
        await settling
    await filled(sharing.server, 4, 500)
    await nearly_level(copy)
    await copy.settle(PARTS[0])
    await sharing.assert_level(0)
    if await sharing.source.exists(HIDDEN):
        assert not await sharing.source.hexists(SWEPT, "swept"), "a sweep is due, which sets the number anew"
