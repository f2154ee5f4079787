"""The proxy's worker processes: one for each seat, started again when they die, ended when they hang.

The supervisor handles their messages about tables. Their counters and their questions to each other are handled here.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol, TypeAlias

import structlog

from proxy.channel import ChannelError
from proxy.supervisor import metrics
from proxy.supervisor.asking import Questions
from proxy.supervisor.limitshares import LimitShares
from proxy.supervisor.loads import Loads
from proxy.supervisor.processes import Inherited, Worker
from slots.messages.channel import (
    Ack,
    Answer,
    Ask,
    Counters,
    Drain,
    Fenced,
    Limited,
    Load,
    Met,
    Nack,
    Ready,
    Resync,
    SettingsTaken,
    SupervisorMessage,
    WorkerMessage,
)

SILENT_TICKS = 15
"""A worker that sends nothing for so many ticks is taken for hung, and killed. Workers report each second."""
RESTART_SECONDS_MIN = 0.1
RESTART_SECONDS_MAX = 5.0
STABLE_SECONDS = 10.0
"""A worker that lived this long is started again at once; another one after a growing wait."""
DRAIN_MARGIN_SECONDS = 5.0
"""Seconds for workers to end after their time to drain, before they are killed."""

log = structlog.get_logger()

OfTables: TypeAlias = Ready | Ack | Nack | Resync | SettingsTaken | Limited | Met | Fenced
"""A worker's message that is not only for other workers."""


class Overseer(Protocol):
    """Handles the events of workers."""

    @property
    def workers_instance(self) -> str:
        """The identity that a worker started now gets."""

    def welcome(self, worker: Worker) -> None:
        """A worker was started: send it all that it needs."""

    def heard(self, worker: Worker, message: OfTables) -> None:
        """A worker sent a message that is not only for other workers."""

    def lost(self, worker: Worker, clean: bool) -> None:
        """A worker has ended. ``clean``: it was told to drain, and did."""


class Workforce:
    """All workers of a proxy.

    Args:
        command: starts a worker; ``--channel FD`` is appended.
        overseer: handles the events.
        loads: take what workers count of their traffic.
        limits: take what users with limits ask for.
    """

    def __init__(self, command: Sequence[str], overseer: Overseer, loads: Loads, limits: LimitShares) -> None:
        self.alive: dict[int, Worker] = {}
        """The present workers, by index."""
        self.counters = metrics.Counters()
        self._command = command
        self._overseer = overseer
        self._loads = loads
        self._limits = limits
        self._questions = Questions(self.alive.values)
        self._incarnations = 0
        self._draining = asyncio.Event()

    @property
    def ready(self) -> int:
        """How many workers serve clients."""
        return sum(worker.ready for worker in self.alive.values())

    async def keep(self, index: int, inherited: Sequence[Inherited]) -> None:
        """Keep one seat filled until :meth:`drain`, and return when its worker has ended after that."""
        loop = asyncio.get_running_loop()
        wait = RESTART_SECONDS_MIN
        while not self._draining.is_set():
            began = loop.time()
            try:
                worker = await self._start(index, inherited)
            except OSError as error:
                log.error("worker_not_started", worker=index, reason=str(error))
            else:
                status = await self._attend(worker)
                if status == 0 and self._draining.is_set():
                    log.info("worker_ended", **worker.describe())
                    return
                log.error("worker_died", status=status, **worker.describe())
            if loop.time() - began > STABLE_SECONDS:
                wait = RESTART_SECONDS_MIN
            try:
                await asyncio.wait_for(self._draining.wait(), wait)
            except TimeoutError:
                self.counters.restarts += 1
                wait = min(wait * 2, RESTART_SECONDS_MAX)

    async def drain(self, keepers: Sequence[asyncio.Task[None]], seconds: float) -> None:
        """Have all workers finish what they owe and end; kill those that take longer.

        Args:
            keepers: the tasks in which :meth:`keep` runs.
            seconds: the time that the workers were given.
        """
        self._draining.set()
        for worker in list(self.alive.values()):
            worker.send(Drain())
        if not keepers:
            return
        _, late = await asyncio.wait(keepers, timeout=seconds + DRAIN_MARGIN_SECONDS)
        for worker in self.alive.values():
            log.warning("worker_did_not_drain", **worker.describe())
        self.kill()
        if late:
            await asyncio.wait(late, timeout=DRAIN_MARGIN_SECONDS)

    def tell(self, message: SupervisorMessage) -> None:
        """Send every worker a message."""
        for worker in self.alive.values():
            worker.send(message)

    def kill(self) -> None:
        """End all workers at once."""
        for worker in self.alive.values():
            worker.kill()

    def tick(self) -> None:
        """Called each second: kill workers that hang. bounded: nobody waits for a worker that does not run."""
        for worker in self.alive.values():
            worker.silent_ticks += 1
            if worker.silent_ticks > SILENT_TICKS:
                log.error("worker_hangs", **worker.describe())
                worker.kill()

    async def _start(self, index: int, inherited: Sequence[Inherited]) -> Worker:
        self._incarnations += 1
        instance = self._overseer.workers_instance
        worker = await Worker.start(self._command, index, self._incarnations, instance, inherited)
        self.alive[index] = worker
        self._overseer.welcome(worker)
        if self._draining.is_set():
            worker.send(Drain())
        log.info("worker_started", **worker.describe())
        return worker

    async def _attend(self, worker: Worker) -> int:
        """Handle a worker's messages until it ends; give its exit status."""
        try:
            while (message := await worker.receive()) is not None:
                self._hear(worker, message)
        except ChannelError as error:
            log.error("worker_not_understood", reason=str(error), **worker.describe())
            worker.kill()
        finally:
            status = await worker.ended()
            del self.alive[worker.index]
            self._questions.forget_worker(worker)
            self.counters.ended(worker.index)
            self._loads.ended(worker.index)
            self._limits.ended(worker.index)
            self._overseer.lost(worker, clean=status == 0 and self._draining.is_set())
        return status

    def _hear(self, worker: Worker, message: WorkerMessage) -> None:
        match message:
            case Counters():
                self.counters.update(worker.index, message.counters)
                self.counters.commands.update(worker.index, message.commands)
            case Load():
                self._loads.take(worker.index, message)
                self._limits.take(worker.index, message.limited, message.connections)
                self.counters.traffic.add(message.servers, message.users, message.limited)
            case Ask():
                self._questions.ask(worker, message)
            case Answer():
                self._questions.answer(worker, message)
            case _:
                self._overseer.heard(worker, message)
