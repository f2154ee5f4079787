"""A copy that a migrator makes: what is asked of it, in which order, and what is made of its reports."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from migrator.progress import Progress
from migrator.stream.errors import NotNearlyLevel
from slots.messages.copies import (
    BeginCopy,
    CloseCopy,
    CopyState,
    Done,
    Failed,
    Held,
    KeepOnly,
    Latency,
    NearlyLevel,
    Settle,
    ToMigrator,
)
from tests.unit.topom.migrators.fakes import ID, FakeLink, copy_of, registration
from topom.migrators import copies
from topom.migrators.copies import RemoteCopy
from topom.migrators.gathering import Gathering, OutOfTurn
from topom.migrators.members import CopyFailed, MigratorLost, Migrators

Answer = Callable[[int], Done | Failed]


class Test:
    """A copy, its migrator, and what was done in which order."""

    __test__ = False

    def __init__(self) -> None:
        self.migrators = Migrators()
        self.link = FakeLink()
        self.migrator = self.migrators.register(registration(), False, self.link)
        self.progress = Progress()
        self.ready = 0
        self.copy = copy_of(self.migrators, self.progress, self._make_ready)

    async def _make_ready(self) -> tuple[str, str]:
        assert not self.link.said, "the migrator is told once both servers are ready"
        self.ready += 1
        return "a" * 40, "b" * 40

    async def next(self, kind: type[ToMigrator]) -> ToMigrator:
        async with asyncio.timeout(60):
            while not self.link.said or not isinstance(self.link.said[-1], kind):
                await asyncio.sleep(0)
        return self.link.said[-1]

    @asynccontextmanager
    async def doing(self, work: asyncio.Future[None]) -> AsyncIterator[None]:
        try:
            yield
            async with asyncio.timeout(60):
                await work
        finally:
            work.cancel()

    async def level(self) -> None:
        async with self.doing(asyncio.ensure_future(self.copy.nearly_level())):
            asked = await self.next(NearlyLevel)
            assert isinstance(asked, NearlyLevel)
            self.migrator.take(Done(number=asked.number))


async def test_a_copy_from_its_beginning_to_its_end() -> None:
    test = Test()
    await test.level()
    assert test.ready == 1
    begun, asked = test.link.said
    assert begun == BeginCopy(
        copy_id=ID,
        stream_id=ID,
        source="a:1",
        target="b:1",
        source_run_id="a" * 40,
        target_run_id="b" * 40,
        replicas=["a:2"],
        slots=[3, 5],
        slot_function="crc32",
        number_of_slots=16,
        instance="1" * 32,
        term=7,
    )
    assert asked == NearlyLevel(number=1, copy_id=ID)
    test.copy.keep_only([5, 9])
    assert test.link.said[-1] == KeepOnly(copy_id=ID, slots=[5])
    await test.level()
    assert test.ready == 1
    async with test.doing(asyncio.ensure_future(test.copy.settle((5,)))):
        settle = await test.next(Settle)
        assert settle == Settle(number=3, copy_id=ID, slots=[5])
        assert not test.progress.complete
        test.migrator.take(Done(number=3))
    assert test.progress.complete
    async with test.doing(asyncio.ensure_future(test.copy.close())):
        assert await test.next(CloseCopy) == CloseCopy(number=4, copy_id=ID)
        assert test.migrators.copies == 0
        test.migrator.take(Failed(number=4, kind="fault", what="broken", passing=True))
    await test.copy.close()


async def test_a_copy_that_was_never_nearly_level_is_not_settled_and_begins_anew() -> None:
    test = Test()
    with pytest.raises(NotNearlyLevel, match=r"the copy to b:1 was not nearly level .* it begins anew") as raised:
        await test.copy.settle((5,))
    assert raised.value.passing
    assert test.link.said == []


async def test_slots_that_left_before_the_beginning_are_not_copied() -> None:
    test = Test()
    test.copy.keep_only([3])
    await test.level()
    begun = test.link.said[0]
    assert isinstance(begun, BeginCopy)
    assert begun.slots == [3]


async def test_if_the_servers_cannot_be_made_ready_nothing_is_told() -> None:
    test = Test()

    async def fail() -> tuple[str, str]:
        raise OSError("gone")

    test.copy._make_ready = fail
    with pytest.raises(OSError, match="gone"):
        await test.copy.nearly_level()
    await test.copy.close()
    assert (test.link.said, test.migrators.copies) == ([], 0)


async def test_copies_that_begin_at_the_same_time_are_spread_over_the_migrators() -> None:
    test = Test()
    another = test.migrators.register(registration(2), False, FakeLink())
    ready = asyncio.Event()

    async def wait() -> tuple[str, str]:
        await ready.wait()
        return "a" * 40, "b" * 40

    beginning = []
    for number in range(4):
        copy = copy_of(test.migrators, Progress(), wait, f"{number:032x}")
        beginning.append(asyncio.ensure_future(copy.nearly_level()))
    async with asyncio.timeout(60):
        while test.migrators.copies < 4:
            await asyncio.sleep(0)
    assert (test.migrator.load, another.load) == (2, 2)
    for one in beginning:
        one.cancel()
    await asyncio.gather(*beginning, return_exceptions=True)
    assert test.migrators.copies == 0, "what was broken off before it began counts for nothing"


async def test_a_migrator_that_goes_voids_its_copy_for_good_and_is_not_waited_for() -> None:
    test = Test()
    await test.level()
    settling = asyncio.ensure_future(test.copy.settle((5,)))
    await test.next(Settle)
    test.migrators.disconnected(test.migrator)
    test.progress.followed = "a:2"
    with pytest.raises(MigratorLost) as found:
        await settling
    assert not found.value.of_followed, "the server that was followed is not to blame"
    test.migrators.register(registration(2), False, FakeLink())
    with pytest.raises(MigratorLost):
        await test.copy.nearly_level()
    said = len(test.link.said)
    await test.copy.close()
    assert len(test.link.said) == said
    assert not test.progress.complete


@pytest.mark.parametrize("of_followed", [False, True])
async def test_a_copy_that_fails_is_not_complete(of_followed: bool) -> None:
    test = Test()
    await test.level()
    settling = asyncio.ensure_future(test.copy.settle((5,)))
    await test.next(Settle)
    test.migrator.take(Failed(number=2, kind="data", what="void", passing=True, of_followed=of_followed))
    with pytest.raises(CopyFailed, match="void") as failed:
        await settling
    assert failed.value.of_followed is of_followed
    assert not test.progress.complete


async def test_the_end_of_a_copy_is_not_waited_for_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "CLOSE_SECONDS", 0.01)
    test = Test()
    await test.level()
    await test.copy.close()
    assert test.migrators.copies == 0


def test_reports_become_progress_and_what_goes_backward_counts_for_nothing() -> None:
    test = Test()
    latency = Latency(p99=1.5, quiet=1.0, allowed=2.0)
    held = Held(speed=0.5, source=latency, target=Latency(), held_back="by the source", since=3.0)
    test.copy.reported(CopyState(copy_id=ID, keys=0, size=0, followed="a:2"))
    assert test.progress.followed == "a:2"
    for keys, size, lag in ((10, 100, None), (25, 300, 7), (20, 400, 6), (25, 200, 5)):
        test.copy.reported(CopyState(copy_id=ID, keys=keys, size=size, lag=lag, held=held))
        assert test.copy.lag == lag
    assert (test.progress.keys_moved, test.progress.bytes_moved) == (25, 300)
    pacing = test.progress.pacing()
    assert pacing is not None
    assert (pacing.speed, pacing.held_back, pacing.since) == (0.5, "by the source", 3.0)
    assert (pacing.source.address, pacing.source.p99, pacing.target.address) == ("a:1", 1.5, "b:1")
    test.copy.reported(CopyState(copy_id=ID, keys=25, size=300))
    assert test.progress.pacing() is None


class Two:
    """Two copies of one source that begin together, and two migrators that could make them."""

    def __init__(self, seconds: float = 1000.0) -> None:
        self.gathering = Gathering(seconds)
        self.migrators = Migrators()
        self.links = [FakeLink(), FakeLink()]
        self.members = [
            self.migrators.register(registration(number), False, link) for number, link in enumerate(self.links)
        ]
        self.hangs: dict[str, asyncio.Event] = {}
        self.copies = {id: self._copy(id) for id in ("a" * 32, "b" * 32)}

    def _copy(self, id: str) -> RemoteCopy:
        self.gathering.join(id)

        async def ready() -> tuple[str, str]:
            if id in self.hangs:
                await self.hangs[id].wait()
            return "a" * 40, "b" * 40

        return copy_of(self.migrators, Progress(), ready, id, self.gathering)

    @asynccontextmanager
    async def beginning(self, *ids: str) -> AsyncIterator[list[asyncio.Task[None]]]:
        tasks = [asyncio.create_task(self.copies[id].nearly_level()) for id in ids]
        try:
            yield tasks
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def said(self, count: int) -> list[ToMigrator]:
        """What one of the migrators was told; the other one was told nothing."""
        async with asyncio.timeout(60):
            while sum(len(link.said) for link in self.links) < count:
                await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        said, nothing = sorted((link.said for link in self.links), key=len, reverse=True)
        assert nothing == []
        assert len(said) == count
        return said


A, B = "a" * 32, "b" * 32


async def test_the_migrator_hears_of_all_copies_of_a_stream_before_it_begins() -> None:
    two = Two()
    async with two.beginning(A):
        (begun,) = await two.said(1)
        assert isinstance(begun, BeginCopy)
        async with two.beginning(B):
            said = await two.said(4)
    assert [type(message) for message in said] == [BeginCopy, BeginCopy, NearlyLevel, NearlyLevel]
    assert [message.stream_id for message in said if isinstance(message, BeginCopy)] == [two.gathering.id] * 2


async def test_a_copy_that_is_late_is_not_told_to_the_migrator() -> None:
    two = Two(seconds=0.01)
    async with two.beginning(A):
        await two.said(2)
        async with two.beginning(B) as tasks:
            with pytest.raises(OutOfTurn):
                await tasks[0]
    assert two.migrators.copies == 1


async def test_a_copy_that_is_late_while_its_servers_are_made_ready_is_not_told_either() -> None:
    two = Two(seconds=0.01)
    two.hangs[B] = asyncio.Event()
    async with two.beginning(A):
        (begun,) = await two.said(1)
        async with two.beginning(B) as tasks:
            await two.said(2)
            two.hangs[B].set()
            with pytest.raises(OutOfTurn):
                await tasks[0]
    assert isinstance(begun, BeginCopy)
    assert two.migrators.copies == 1


async def test_one_that_was_cancelled_keeps_nobody_waiting() -> None:
    two = Two()
    async with two.beginning(A):
        await two.said(1)
        two.gathering.leave(B)
        await two.said(2)
