"""What a worker needs to live, and how it ends when it cannot go on."""

import asyncio
import json
import os
import resource
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from proxy.engine.allowance import clock
from proxy.supervisor.workermetrics import WORKER_METRICS
from proxy.worker.openfiles import OTHERS
from slots.messages.channel import Counters, Drain, Known, KnownServers
from slots.messages.message import encode
from slots.messages.questions import WorkerCounters
from tests.integration.worker import harness
from tests.integration.worker.conversations import Talk
from tests.integration.worker.harness import INSTANCE, LIMIT, OTHER, WorkerHarness, WorkerProcess

StartWorker = Callable[..., Awaitable[WorkerHarness]]

pytestmark = pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs prlimit")


def events(worker: WorkerHarness, name: str) -> list[dict[str, Any]]:
    """The worker's log events of that name."""
    lines = worker.process.log.read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["event"] == name]


@pytest.fixture
def few_files() -> Iterator[int]:
    """Processes started within the test may open this many files at first, and more when they ask for it."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
    yield 512
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_a_worker_may_open_the_files_that_its_clients_need(start_worker: StartWorker, few_files: int) -> None:
    worker = await start_worker(servers=1, max_clients=700, own_connections=50)
    assert resource.prlimit(worker.process.pid, resource.RLIMIT_NOFILE)[0] == 750 + OTHERS
    assert not events(worker, "fewer_clients")


async def test_a_worker_tells_the_figures_that_are_shown(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1)
    told = await worker.next(lambda one: isinstance(one, Counters))
    assert told.counters.keys() == WORKER_METRICS.keys()


class ScriptedWorker(WorkerProcess):
    """A worker that begins with a script."""

    script: ClassVar[str]

    def __init__(self, log: Path, descriptor: int, *inherited: Any) -> None:
        super().__init__(log, descriptor, *inherited)
        self.arguments = [sys.executable, "-c", self.script, "--channel", str(descriptor)]


class LimitedWorker(ScriptedWorker):
    """A worker that the system allows 300 open files, and no more."""

    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300)); "
        "from proxy.worker.worker import main; main()"
    )


async def test_bounded_a_worker_takes_no_more_clients_than_it_has_files_for(
    start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "WorkerProcess", LimitedWorker)
    worker = await start_worker(servers=1)
    (event,) = events(worker, "fewer_clients")
    assert event["clients"] == (300 - OTHERS) // 2 == 22
    told = await worker.next(lambda one: isinstance(one, Counters))
    assert told.counters["max_clients"] == 22
    assert told.counters["max_clients_lacking"] == event["max_clients"] - 22
    talks = [Talk(worker.settings.listen) for _ in range(23)]
    for talk in talks:
        await talk.__aenter__()
    async with asyncio.timeout(LIMIT):
        assert [await talk.ask("PING") for talk in talks[:22]] == [b"+PONG\r\n"] * 22
        assert await talks[22].ended() == b"-ERR max number of clients reached\r\n"
    for talk in talks:
        talk.writer.close()


class FailingWorker(ScriptedWorker):
    """A worker that cannot do what it has to do each second, once it has had three requests."""

    script = (
        "from proxy.worker import figures, worker; count = figures.Figures.counters\n"
        "figures.Figures.counters = lambda self: (\n"
        "    1 // (self._services.router.loop.requests < 3) and count(self)\n"
        ")\n"
        "worker.main()"
    )


async def test_bounded_a_worker_whose_clock_has_stopped_ends(
    start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its supervisor would find out in the end. Until then no request would get an error for want of a reply."""
    monkeypatch.setattr(harness, "WorkerProcess", FailingWorker)
    worker = await start_worker(servers=1)
    async with Talk(worker.settings.listen) as talk:
        assert [await talk.ask("PING") for _ in range(3)] == [b"+PONG\r\n"] * 3
        assert await talk.ended() == b""
    async with asyncio.timeout(LIMIT):
        while worker.process.running:
            await asyncio.sleep(0.02)
    (event,) = events(worker, "worker_failed")
    assert "ZeroDivisionError" in event["exception"]


@pytest.mark.long
async def test_bounded_a_question_that_its_supervisor_does_not_pass_on_is_answered_by_itself(
    start_worker: StartWorker,
) -> None:
    worker = await start_worker(servers=1)
    worker.answering = False
    async with Talk(worker.settings.listen) as one, Talk(worker.settings.listen) as two:
        # Without its supervisor, a worker answers by what it knows itself.
        one.send("CLIENT", "UNBLOCK", 99999)
        two.send("EVALSHA", "0" * 40, 0)
        assert await one.reply() == b":0\r\n"
        one.send("CLIENT", "LIST")
        assert b"cmd=client|list" in await one.reply()
        assert await two.reply() == b"-NOSCRIPT No matching script. Please use EVAL.\r\n"


class UnheardWorker(WorkerProcess):
    """A worker whose log is on a disk that is full."""

    def __init__(self, log: Path, descriptor: int, *inherited: Any) -> None:
        super().__init__(Path("/dev/full"), descriptor, *inherited)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
async def test_a_log_that_cannot_be_written_costs_nothing_but_the_log(
    start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "WorkerProcess", UnheardWorker)
    worker = await start_worker(servers=1, log_level="debug")
    async with Talk(worker.settings.listen) as talk:
        assert await talk.ask("SET", "k", "v") == b"+OK\r\n"
        worker.channel.send(Drain())
        assert await talk.ended() == b""
    async with asyncio.timeout(LIMIT):
        while worker.process.running:
            await asyncio.sleep(0.02)
    # To its supervisor: nothing of it is left at the servers.
    assert worker.process.status == 0


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="needs Linux")
@pytest.mark.parametrize("chosen", [True, False])
async def test_a_worker_interrupts_nobody_unless_told_to(start_worker: StartWorker, chosen: bool) -> None:
    worker = await start_worker(servers=1, batch_scheduling=chosen)
    assert os.sched_getscheduler(worker.process.pid) == (os.SCHED_BATCH if chosen else os.SCHED_OTHER)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"type":"of another version"}', "message: Input tag 'of another version' found"),
        (b'{"type":"drain","more":1}', "drain.more: Extra inputs are not permitted"),
        (b'{"type":"known_servers"}', "known_servers.instance: Field required"),
        (None, "the supervisor says a second time how to start"),
    ],
)
async def test_a_worker_that_does_not_understand_its_supervisor_ends_and_says_why(
    start_worker: StartWorker, line: bytes | None, reason: str
) -> None:
    worker = await start_worker(servers=1)
    worker.channel._writer.write((line or encode(worker.begun).encode()) + b"\n")
    async with asyncio.timeout(LIMIT):
        while worker.process.running:
            await asyncio.sleep(0.02)
    assert worker.process.status == 1
    [event] = events(worker, "supervisor_not_understood")
    assert event["reason"].removeprefix("a message came that cannot be used: ").startswith(reason)


@pytest.mark.long
async def test_final_fence_what_another_identity_knows_does_not_count(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1)

    def say(instance: str, processes: dict[str, str]) -> None:
        known = Known(processes=processes, until=clock() + 3600.0)
        worker.channel.send(KnownServers(instance=instance, known=known))

    async with Talk(worker.settings.listen) as talk:
        await talk.ask("SELECT", 1)
        say(INSTANCE, {})
        await worker.asked(WorkerCounters())
        # A connection that has yet to be made waits until its server's process is known.
        talk.send("SET", "k", "v")
        await worker.under_way()
        say(OTHER, worker.run_ids)
        reply = asyncio.ensure_future(talk.reply())
        done, _ = await asyncio.wait([reply], timeout=0.5)
        assert not done
        say(INSTANCE, worker.run_ids)
        assert await reply == b"+OK\r\n"
