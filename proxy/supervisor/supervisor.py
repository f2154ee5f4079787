"""The proxy's supervisor: a process that starts the workers, keeps them, and drains them at its end.

It serves no client itself, so that a crash of any one process only costs the clients of that process. A worker that
dies is started again under a new incarnation; a supervisor that dies takes its workers along. What it says and hears is
in :mod:`proxy.supervisor.member`.

Upholds **drained** and **one-owner** at the end: a proxy leaves topom only once nothing that it sent can still run.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import structlog
import uvloop

from proxy.listening import ListenError, certificates
from proxy.settings import ProxySettings
from proxy.supervisor.kept_table import coldstart
from proxy.supervisor.kept_table.tablefile import Kept
from proxy.supervisor.member import Member
from proxy.supervisor.metrics import MetricsServer, ProxyCollector
from proxy.supervisor.processes import WORKER_COMMAND, Inherited
from slots import garbage, logs
from slots.reloading import Reloading, on_hangup
from slots.tls import TlsError

TICK_SECONDS = 1.0
WAITING_TICKS = 5  # between two log events about what is waited for
CONFIRM_TICKS = 2  # between two notes that the kept table is the newest
LEFTOVERS_SECONDS = 5.0
"""How long the end of the proxy waits for servers to end the connections of dead workers."""
PLACES_SECONDS = 5.0
"""How long a proxy waits for places that another process has. Workers end a moment after a supervisor that was killed,
and a proxy that is started in its place finds them there."""
UNHEARD = "topom was not reached; it will fence the proxy when it has to"

log = structlog.get_logger()


def run(settings: ProxySettings, worker_command: Sequence[str] = WORKER_COMMAND, file: Path | None = None) -> int:
    """Run a proxy until SIGTERM or SIGINT; give the exit status. A second signal ends it without draining.

    SIGHUP makes it read its settings anew, from ``file`` if they stand in one.
    """
    logs.configure(settings.log_level)
    return uvloop.run(_run(settings, worker_command, file))


async def _run(settings: ProxySettings, worker_command: Sequence[str], file: Path | None) -> int:
    try:
        supervisor = Supervisor(settings, worker_command, file)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, supervisor.stop)
        on_hangup(supervisor.reloading.reload)
        return await supervisor.serve()
    except (ListenError, TlsError) as error:
        log.error("cannot_start", reason=str(error))
        return 1


class Supervisor:
    """One proxy. :meth:`serve` runs it, :meth:`stop` ends it.

    Args:
        settings: of the proxy.
        worker_command: starts a worker; ``--channel FD`` is appended.
        file: where the settings stand; None if they come from the environment alone.
    """

    def __init__(
        self, settings: ProxySettings, worker_command: Sequence[str] = WORKER_COMMAND, file: Path | None = None
    ) -> None:
        self.settings = settings
        """Those that hold now; some may change."""
        self.reloading = Reloading(settings, file)
        """Reads them anew."""
        self.reloading.takers.append(self._look)
        self.metrics_address = ""
        """Where metrics are served, ``host:port`` with the true port; empty for nowhere."""
        self.member = Member(settings, self.reloading, worker_command, self)
        self._keepers: list[asyncio.Task[None]] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._announced = False
        self._failed = False
        self._draining = asyncio.Event()
        self._told_to_stop = False
        self._aborted = asyncio.Event()

    @property
    def address(self) -> str:
        """Where clients connect, ``host:port`` with the true port; the first of several such places."""
        return self.member.places.address

    async def serve(self) -> int:
        """Serve until :meth:`stop`, drain, and give the exit status.

        Raises :class:`ListenError` and :class:`TlsError` for the places where clients connect.
        """
        certificates(self.settings)  # better found now than when a worker starts
        member = self.member
        metrics = MetricsServer(
            ProxyCollector(member.workforce.counters, member.figures.all, member.identity.groups_of_servers),
            member.readiness.not_ready,
        )
        try:
            await member.places.reserve_within(PLACES_SECONDS)
            if self.settings.metrics:
                self.metrics_address = await metrics.start(self.settings.metrics)
            kept = await member.keeping.open()
            if kept is not None:
                # Whether it is served or not, topom learns from it that its store is older.
                member.begin_with(kept)
            garbage.spare_what_is_here()
            log.info(
                "proxy_starts", address=self.address, instance=member.identity.instance, metrics=self.metrics_address
            )
            self._controlling = self._begin(member.control.run())
            self._begin(self._tick())
            self._begin(member.standdown.run())
            if kept is not None:
                self._begin(self._start_alone(kept))
            await self._draining.wait()
            member.beat()  # from now on, cluster clients are sent elsewhere
            endings = [self._begin(self._drain()), self._begin(self._aborted.wait())]
            await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
            return 1 if self._aborted.is_set() or self._failed else 0
        finally:
            member.workforce.kill()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await member.close()
            await metrics.close()
            member.places.close()

    def stop(self) -> None:
        """Drain and end; a second call ends at once."""
        if self._told_to_stop:
            log.warning("proxy_aborted")
            self._aborted.set()
        self._told_to_stop = True
        self._draining.set()

    def _look(self, settings: ProxySettings) -> Callable[[], None]:
        use = self.member.look(settings, self.settings)

        def put() -> None:
            self.settings = settings
            logs.set_level(settings.log_level)
            use()

        return put

    def _begin(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task that lives as long as the proxy. If it fails, the proxy drains and ends."""

        def check(task: asyncio.Task[Any]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                log.critical("proxy_failed", exc_info=error)
                self._failed = True
                self._draining.set()

        task = asyncio.create_task(coroutine)
        task.add_done_callback(check)
        self._tasks.append(task)
        return task

    async def _drain(self) -> None:
        """Let the workers finish, then leave topom. bounded: by the settings of draining and a few constants."""
        member = self.member
        member.places.withdraw()
        settings = self.settings
        log.info("proxy_drains", workers=len(member.workforce.alive), seconds=settings.drain_seconds)
        # Sessions are cut off, and then requests in flight have the last seconds once more.
        await member.workforce.drain(self._keepers, settings.drain_seconds + 2 * settings.drain_last_seconds)
        # drained: topom may only forget the proxy once nothing that it sent can still run.
        if not await member.leftovers.wait(LEFTOVERS_SECONDS):
            log.warning("proxy_leaves_connections", servers=member.leftovers.servers)
        elif not await member.control.reach():
            if member.identity.product is not None:
                log.warning("proxy_leaves_unheard", reason=UNHEARD)
        # one-owner: a member that has left is neither waited for nor fenced, so no process may start as that member
        # again.
        elif not await member.keeping.remove():
            log.warning("proxy_stays_member", reason="its table_file cannot be removed; topom will fence it")
        elif await member.control.leave():
            log.info("proxy_left")
        else:
            log.warning("proxy_leaves_unheard", reason=UNHEARD)

    async def _tick(self) -> None:
        """Each second: check the workers, and log now and then what is waited for."""
        member = self.member
        ticks = 0
        while True:
            await asyncio.sleep(TICK_SECONDS)
            ticks += 1
            member.workforce.tick()
            member.limits.tick()
            if ticks % CONFIRM_TICKS == 0 and member.control.connected and not member.standdown.doubts:
                member.keeping.confirmed(member.workers_instance, member.standdown.known)
            if ticks % WAITING_TICKS == 0 and not self.draining and (missing := member.readiness.missing()):
                log.warning("proxy_waits", reason="; ".join(missing))

    async def _start_alone(self, kept: Kept) -> None:
        """Serve by the table in the file if :mod:`proxy.supervisor.kept_table.coldstart` allows it."""
        member = self.member
        age = await coldstart.may_serve(
            kept,
            member.keeping.age,
            self.settings,
            member.access,
            lambda: member.identity.product is None and not self.draining,
        )
        if age is None:
            return
        # A registration under the other identity must not end after this.
        self._controlling.cancel()
        await asyncio.gather(self._controlling, return_exceptions=True)
        if member.identity.product is None:
            log.warning("serves_alone", epoch=kept.table.epoch, instance=kept.instance, age_seconds=round(age))
            member.serve_alone(kept, age + coldstart.MARGIN_SECONDS)
        self._controlling = self._begin(member.control.run())

    # The process of the member (proxy.supervisor.member.Life)

    @property
    def draining(self) -> bool:
        """Whether the proxy drains."""
        return self._draining.is_set()

    def fill_seats(self) -> None:
        """Start the workers, and keep them."""
        member = self.member
        inherited: list[Inherited] = [*member.places.inherited.values()]
        if member.keeping.lock is not None:
            inherited.append(member.keeping.lock)
        self._keepers = [self._begin(member.workforce.keep(index, inherited)) for index in range(member.seats)]

    def worker_ready(self) -> None:
        """Say once that the proxy serves."""
        member = self.member
        if not self._announced and not member.readiness.missing():
            self._announced = True
            log.info("proxy_ready", address=self.address, workers=member.seats, metrics=self.metrics_address)

    def drain(self) -> None:
        """Drain and end, as topom says; topom may say so several times."""
        if not self._draining.is_set():
            log.info("told_to_drain")
            self._draining.set()
