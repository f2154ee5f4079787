"""What a migrator answers to topom: once for each request, whatever becomes of the copy."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from migrator.errors import MigrationError
from migrator.process import copies
from migrator.process.copies import Copies
from migrator.progress import Pacing, Progress, ServerLatency
from migrator.stream.errors import ReplicaLost
from migrator.stream.sourcestream import SourceStream
from slots.access import ServerAccess
from slots.kinds import Kind
from slots.messages.copies import (
    MOST_OF_A_STREAM,
    BeginCopy,
    CloseCopy,
    CopyState,
    Done,
    Failed,
    KeepOnly,
    MigratorMessage,
    NearlyLevel,
    Report,
    SetPace,
    Settle,
)
from slots.rules import SlotRule

ID, OTHER, THIRD = "c0ffee" + "0" * 26, "facade" + "0" * 26, "decade" + "0" * 26
STREAM = "5" * 32


class CannotGoOn(MigrationError):
    kind = Kind.DATA
    passing = False


class FakeCopy:
    """Takes the place of a copy: what it does is what the test says."""

    made: list["FakeCopy"]
    target = "b:1"

    def __init__(self, stream: SourceStream, *arguments: Any, **options: Any) -> None:
        stream.join(self)
        self.stream, self.arguments, self.options = stream, arguments, options
        self.kept: list[int] = []
        self.closed = 0
        self.level = asyncio.Event()
        self.error: Exception | None = None
        self.lag = 7
        FakeCopy.made.append(self)

    def start(self) -> None:
        pass

    async def nearly_level(self) -> None:
        self.stream.begun = True
        await self.level.wait()
        if self.error is not None:
            raise self.error

    async def settle(self, slots: list[int]) -> None:
        self.kept = slots

    def keep_only(self, slots: list[int]) -> None:
        self.kept = slots

    async def close(self) -> None:
        self.closed += 1


class Answers:
    def __init__(self) -> None:
        self.queue: asyncio.Queue[MigratorMessage] = asyncio.Queue()

    async def next(self) -> MigratorMessage:
        """The next one that is no report."""
        async with asyncio.timeout(60):
            while isinstance(message := await self.queue.get(), Report):
                pass
        return message


@pytest.fixture(autouse=True)
def _fake(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCopy.made = []
    monkeypatch.setattr(copies, "RunningCopy", FakeCopy)


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
async def held(answers: Answers, tmp_path: Path) -> AsyncIterator[Copies]:
    held = Copies(ServerAccess(), tmp_path, answers.queue.put_nowait)
    yield held
    await held.close()


def begin(id: str = ID, stream: str = STREAM, source: str = "a:1", source_run_id: str = "a" * 40) -> BeginCopy:
    return BeginCopy(
        copy_id=id,
        stream_id=stream,
        source=source,
        target="b:1",
        source_run_id=source_run_id,
        target_run_id="b" * 40,
        replicas=["a:2"],
        slots=[3],
        slot_function="crc32",
        number_of_slots=16,
        slot_rules=(SlotRule("bull:(*):*"),),
        instance="1" * 32,
        term=4,
    )


async def test_a_copy_from_its_beginning_to_its_end(held: Copies, answers: Answers, tmp_path: Path) -> None:
    held.take(begin())
    [copy] = FakeCopy.made
    assert copy.arguments == ("b:1", [3], ID)
    key_slots = copy.options["key_slots"]
    assert (copy.options["run_id"], key_slots.function, key_slots.number_of_slots) == ("b" * 40, "crc32", 16)
    assert key_slots.rules == (SlotRule("bull:(*):*"),)
    stream = copy.stream
    assert (stream.source, stream.run_id, stream.folder) == ("a:1", "a" * 40, tmp_path)
    assert (stream.instance, stream.term, stream.followed._replicas) == ("1" * 32, 4, ["a:2"])
    held.take(NearlyLevel(number=1, copy_id=ID))
    held.take(KeepOnly(copy_id=ID, slots=[2]))
    assert copy.kept == [2]
    held.take(Settle(number=2, copy_id=ID, slots=[3]))
    assert await answers.next() == Done(number=2)
    copy.level.set()
    assert await answers.next() == Done(number=1)
    held.take(CloseCopy(number=3, copy_id=ID))
    assert await answers.next() == Done(number=3)
    held.take(CloseCopy(number=4, copy_id=ID))
    assert await answers.next() == Done(number=4)
    assert (copy.closed, (await held.report()).copies) == (1, [])


async def test_which_server_was_followed_is_said_before_the_failure(held: Copies, answers: Answers) -> None:
    held.take(begin())
    [copy] = FakeCopy.made
    copy.options["progress"].followed = "a:2"
    copy.error = CannotGoOn("it is gone")
    copy.level.set()
    held.take(NearlyLevel(number=1, copy_id=ID))
    async with asyncio.timeout(60):
        report, failed = await answers.queue.get(), await answers.queue.get()
    assert isinstance(report, Report)
    assert [state.followed for state in report.copies] == ["a:2"]
    assert isinstance(failed, Failed)


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (
            CannotGoOn("it differs", "look"),
            Failed(number=1, kind="data", what="it differs", to_do="look", passing=False),
        ),
        (CannotGoOn("a\nb" * 900), None),
        (ReplicaLost("gone"), Failed(number=1, kind="server", what="gone", passing=True, of_followed=True)),
        (
            KeyError("oops"),
            Failed(
                number=1, kind="fault", what="KeyError: 'oops'", to_do="the migrator's log says more", passing=False
            ),
        ),
        (
            OSError("full"),
            Failed(number=1, kind="fault", what="OSError: full", to_do="the migrator's log says more", passing=True),
        ),
    ],
)
async def test_what_goes_wrong_is_told(held: Copies, answers: Answers, error: Exception, failed: Failed | None) -> None:
    held.take(begin())
    [copy] = FakeCopy.made
    copy.error = error
    copy.level.set()
    held.take(NearlyLevel(number=1, copy_id=ID))
    said = await answers.next()
    assert isinstance(said, Failed)
    assert said == failed or failed is None


async def test_a_copy_with_a_wrong_figure_is_left_out_of_reports_and_costs_no_answer(
    held: Copies, answers: Answers
) -> None:
    for id in (ID, OTHER):
        held.take(begin(id))
    wrong, right = FakeCopy.made
    wrong.options["progress"].keys_moved = -1
    with structlog.testing.capture_logs() as said:
        assert [[state.copy_id for state in (await held.report()).copies] for _ in range(3)] == [[OTHER]] * 3
    assert [event["event"] for event in said] == ["copy_not_reported"], "it is not said each time"
    wrong.error = CannotGoOn("it differs")
    wrong.level.set()
    held.take(NearlyLevel(number=1, copy_id=ID))
    assert isinstance(await answers.next(), Failed)
    wrong.options["progress"].keys_moved = 0
    assert [state.copy_id for state in (await held.report()).copies] == [ID, OTHER]
    assert not right.closed


async def test_a_copy_that_is_not_here_fails_and_begins_anew(held: Copies, answers: Answers) -> None:
    held.take(KeepOnly(copy_id=ID, slots=[2]))
    for request in (NearlyLevel(number=1, copy_id=ID), Settle(number=2, copy_id=ID, slots=[3])):
        held.take(request)
        said = await answers.next()
        assert isinstance(said, Failed)
        assert said.number == request.number
        assert said.passing


async def test_neither_copies_nor_requests_are_without_a_limit(
    held: Copies, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "MOST_COPIES", 1)
    monkeypatch.setattr(copies, "MOST_REQUESTS", 1)
    held.take(begin())
    held.take(begin())
    held.take(begin(OTHER))
    assert len(FakeCopy.made) == 1
    held.take(NearlyLevel(number=1, copy_id=ID))
    held.take(NearlyLevel(number=2, copy_id=ID))
    said = await answers.next()
    assert isinstance(said, Failed)
    assert (said.number, said.passing) == (2, True)
    held.take(CloseCopy(number=3, copy_id=ID))
    assert await answers.next() == Done(number=3), "a copy can always be ended"
    assert FakeCopy.made[0].closed == 1


async def test_the_end_of_the_stream_ends_everything_and_nothing_more_is_said(held: Copies, answers: Answers) -> None:
    held.take(begin())
    held.take(begin(OTHER))
    held.take(NearlyLevel(number=1, copy_id=ID))
    held.take(NearlyLevel(number=2, copy_id=OTHER))
    await asyncio.sleep(0)
    await held.close()
    assert [copy.closed for copy in FakeCopy.made] == [1, 1]
    assert answers.queue.empty()


async def test_all_copies_share_the_pace(held: Copies) -> None:
    held.take(begin())
    held.take(begin(OTHER))
    held.set_pace(SetPace(keys_per_second=100, bytes_per_second=5, latency_goal_milliseconds=2.5, paused=True))
    paces = [copy.options["pace"] for copy in FakeCopy.made]
    assert paces[0] is paces[1]
    assert (paces[0].settings.keys_per_second, paces[0].settings.latency_goal_milliseconds) == (100, 2.5)
    assert paces[0].paused
    held.set_pace(SetPace(keys_per_second=0, bytes_per_second=0, latency_goal_milliseconds=0.0, paused=False))
    assert not paces[0].paused


async def test_copies_with_one_stream_id_share_a_stream(held: Copies) -> None:
    held.take(begin())
    held.take(begin(OTHER))
    held.take(begin(THIRD, "6" * 32))
    streams = [copy.stream for copy in FakeCopy.made]
    assert streams[0] is streams[1]
    assert streams[0] is not streams[2]


@pytest.mark.parametrize("other", [{"source": "c:1"}, {"source_run_id": "c" * 40}])
async def test_a_copy_of_another_source_than_its_stream_fails(
    held: Copies, answers: Answers, other: dict[str, str]
) -> None:
    held.take(begin())
    held.take(begin(OTHER, **other))
    held.take(NearlyLevel(number=1, copy_id=OTHER))
    said = await answers.next()
    assert isinstance(said, Failed)
    assert (said.number, said.passing) == (1, True)
    assert len(FakeCopy.made) == 1


async def test_a_copy_that_comes_behind_the_beginning_of_its_stream_fails(held: Copies, answers: Answers) -> None:
    held.take(begin())
    held.take(NearlyLevel(number=1, copy_id=ID))
    await asyncio.sleep(0)
    held.take(begin(OTHER))
    held.take(NearlyLevel(number=2, copy_id=OTHER))
    said = await answers.next()
    assert isinstance(said, Failed)
    assert (said.number, said.passing) == (2, True)
    assert "without this copy" in said.what
    held.take(CloseCopy(number=3, copy_id=OTHER))
    assert await answers.next() == Done(number=3)
    FakeCopy.made[0].level.set()
    assert await answers.next() == Done(number=1)


async def test_no_more_copies_than_255_share_a_stream(held: Copies, answers: Answers) -> None:
    ids = [f"{number:032x}" for number in range(MOST_OF_A_STREAM + 1)]
    for id in ids:
        held.take(begin(id))
    held.take(NearlyLevel(number=1, copy_id=ids[-1]))
    said = await answers.next()
    assert isinstance(said, Failed)
    assert "255" in said.what
    assert len(FakeCopy.made) == 255


async def test_a_stream_is_forgotten_with_its_last_copy(held: Copies, answers: Answers) -> None:
    for id in (ID, OTHER):
        held.take(begin(id))
    for number, id in enumerate((ID, OTHER), 1):
        assert len(held._streams) == 1
        held.take(CloseCopy(number=number, copy_id=id))
        assert await answers.next() == Done(number=number)
    assert held._streams == {}


async def test_a_report_says_how_far_each_copy_is(held: Copies) -> None:
    held.take(begin())
    progress: Progress = FakeCopy.made[0].options["progress"]
    progress.moved(5, 90)
    progress.followed = "a:2"
    assert (await held.report()).copies == [CopyState(copy_id=ID, keys=5, size=90, lag=7, followed="a:2")]
    progress.pacing = lambda: Pacing(
        0.5, ServerLatency("a:1", 1.5, None, 2.0), ServerLatency("b:1", None, None, 2.0), "by\na:1", 3.0
    )
    [state] = (await held.report()).copies
    assert state.held is not None
    assert (state.held.speed, state.held.source.p99, state.held.held_back) == (0.5, 1.5, "by a:1")
