"""Whoever waits for a migrator hears of its answer, or of its end; what comes late counts for nothing."""

import asyncio
from typing import Any

import pytest

from migrator.pace import PaceSettings
from slots.kinds import Kind
from slots.messages.copies import CopyState, Done, Failed, NearlyLevel, Report, SetPace
from tests.unit.topom.migrators.fakes import FakeLink, registration
from topom.migrators import members
from topom.migrators.members import CopyFailed, Migrator, MigratorLost, Migrators, NoMigrator, Refused

ID = "c0ffee" + "0" * 26


def asking(one: Migrator) -> asyncio.Task[None]:
    return asyncio.create_task(one.ask(lambda number: NearlyLevel(number=number, copy_id=ID)))


@pytest.fixture
def link() -> FakeLink:
    return FakeLink()


@pytest.fixture
def migrators() -> Migrators:
    return Migrators()


async def asked(link: FakeLink) -> int:
    """The number of the newest request."""
    async with asyncio.timeout(60):
        while not link.said or not isinstance(link.said[-1], NearlyLevel):
            await asyncio.sleep(0)
    return link.said[-1].number


async def test_each_request_has_its_own_answer(migrators: Migrators, link: FakeLink) -> None:
    one = migrators.register(registration(), False, link)
    first, number = asking(one), await asked(link)
    second = asking(one)
    while await asked(link) == number:
        await asyncio.sleep(0)
    one.take(Done(number=number + 1))
    await second
    assert not first.done()
    one.take(Failed(number=number, kind="data", what="it differs", to_do="look", passing=False))
    with pytest.raises(CopyFailed, match="it differs; look") as found:
        await first
    assert (found.value.kind, found.value.passing) == (Kind.DATA, False)


async def test_a_kind_that_is_not_known_does_not_end_a_stream(migrators: Migrators, link: FakeLink) -> None:
    one = migrators.register(registration(), False, link)
    task, number = asking(one), await asked(link)
    one.take(Failed(number=number, kind="of a newer version", what="no", passing=True))
    with pytest.raises(CopyFailed) as found:
        await task
    assert (found.value.kind, found.value.passing) == (Kind.SERVER, True)


@pytest.mark.parametrize("late", [Done(number=1), Failed(number=1, kind="", what="", passing=True), Report(copies=[])])
async def test_what_comes_late_counts_for_nothing(migrators: Migrators, link: FakeLink, late: Any) -> None:
    one = migrators.register(registration(), False, link)
    task = asking(one)
    assert await asked(link) == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    one.take(late)
    again, number = asking(one), 2
    while await asked(link) != number:
        await asyncio.sleep(0)
    one.take(late)
    assert not again.done()
    one.take(Done(number=number))
    one.take(Done(number=number))
    await again


async def test_all_waits_end_with_the_stream_and_so_does_every_later_one(migrators: Migrators, link: FakeLink) -> None:
    one = migrators.register(registration(), False, link)
    tasks = [asking(one), asking(one)]
    await asked(link)
    migrators.disconnected(one)
    migrators.disconnected(one)
    for task in (*tasks, asking(one)):
        with pytest.raises(MigratorLost, match=r"migrator 1 \(process 1 on host\) is lost") as found:
            await task
        assert found.value.passing
    assert link.ended
    assert migrators.all() == []
    said = len(link.said)
    one.tell(SetPace(keys_per_second=0, bytes_per_second=0, latency_goal_milliseconds=0.0, paused=False))
    assert len(link.said) == said


async def test_no_answer_is_waited_for_without_a_limit(
    migrators: Migrators, link: FakeLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "LONGEST_SECONDS", 0.01)
    with pytest.raises(MigratorLost):
        await asking(migrators.register(registration(), False, link))


async def test_a_process_that_comes_back_has_lost_its_copies(migrators: Migrators, link: FakeLink) -> None:
    former = migrators.register(registration(), False, link)
    task = asking(former)
    await asked(link)
    again = migrators.register(registration(), False, FakeLink())
    with pytest.raises(MigratorLost):
        await task
    migrators.disconnected(former)
    assert migrators.all() == [again]
    with pytest.raises(Refused, match="registered already"):
        again.take(registration())


async def test_there_are_not_too_many(migrators: Migrators, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "MOST_MIGRATORS", 1)
    migrators.register(registration(1), False, FakeLink())
    migrators.register(registration(1), False, FakeLink())
    with pytest.raises(Refused, match="there may not be more"):
        migrators.register(registration(2), False, FakeLink())


async def test_a_copy_waits_for_one_and_takes_the_nearest(link: FakeLink) -> None:
    told: list[tuple[bool, str]] = []
    migrators = Migrators(lambda server: ("n1", "") if server == "a:1" else ("", ""), lambda *note: told.append(note))
    waiting = asyncio.create_task(migrators.near("a:1"))
    async with asyncio.timeout(60):
        await migrators.wanted.wait()
    far = migrators.register(registration(1), False, link)
    assert await waiting is far
    near = migrators.register(registration(2, node="n1"), False, link)
    assert await migrators.near("a:1") is near
    assert await migrators.near("b:1") is far
    migrators.disconnected(near)
    assert told[0] == (True, "migrator 1 (process 1 on host) registered")
    assert told[-1] == (False, "migrator 2 (process 2 on host) is gone; it had 0 copies")


async def test_none_is_waited_for_without_a_limit(migrators: Migrators, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "WAIT_SECONDS", 0.01)
    with pytest.raises(NoMigrator, match=r"within 0\.01 s; see topom's log") as found:
        await migrators.near("a:1")
    assert found.value.passing


class Heard:
    def __init__(self) -> None:
        self.states: list[CopyState] = []

    def reported(self, state: CopyState) -> None:
        self.states.append(state)


async def test_each_copy_hears_of_itself(migrators: Migrators, link: FakeLink) -> None:
    one = migrators.register(registration(), False, link)
    heard = one.copies[ID] = Heard()
    mine, other = CopyState(copy_id=ID, keys=1, size=2), CopyState(copy_id="f" * 32, keys=1, size=2)
    one.take(Report(copies=[other, mine]))
    assert heard.states == [mine]
    assert one.disk is None
    one.take(Report(copies=[], disk=17))
    assert one.disk == 17


async def test_limits_are_divided_by_copies() -> None:
    migrators, links = Migrators(), [FakeLink(), FakeLink()]
    ones = [migrators.register(registration(number + 1), False, link) for number, link in enumerate(links)]
    ones[0].copies.update({"a" * 32: Heard(), "b" * 32: Heard()})
    ones[1].copies["c" * 32] = Heard()
    assert migrators.copies == 3
    migrators.set_pace(PaceSettings(1000, 0, 2.5), paused=True, parts=4)
    assert [link.said[-1] for link in links] == [
        SetPace(keys_per_second=keys, bytes_per_second=0, latency_goal_milliseconds=2.5, paused=True)
        for keys in (500, 250)
    ]
