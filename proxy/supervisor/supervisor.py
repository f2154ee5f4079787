"""The proxy's supervisor: starts the workers, passes tables on to them, and answers topom for all of them.

It serves no client itself, so that a crash of any one process only costs the clients of that process. A worker that
dies is started again under a new incarnation; a supervisor that dies takes its workers along.

Upholds **epochs** (an older table is refused) and, for workers that died, **drained** and **one-owner**.
"""

import asyncio
import os
import signal
import socket
import uuid
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog
import uvloop

from proxy.listening import ListenError, Reservations, certificates, check_certificates
from proxy.settings import ProxySettings
from proxy.supervisor.acknowledging import Acknowledgements
from proxy.supervisor.announcing import Announcements
from proxy.supervisor.answers import Answers
from proxy.supervisor.control import Control
from proxy.supervisor.kept_table import coldstart
from proxy.supervisor.kept_table.tablefile import Kept
from proxy.supervisor.kept_table.tablekeeping import TableKeeping
from proxy.supervisor.keptusers import UsersOfTopom
from proxy.supervisor.leftovers import Leftovers
from proxy.supervisor.limitshares import LimitShares
from proxy.supervisor.loads import Loads
from proxy.supervisor.metrics import MetricsServer, Number, ProxyCollector
from proxy.supervisor.newsettings import NewSettings
from proxy.supervisor.processes import WORKER_COMMAND, Inherited, Worker
from proxy.supervisor.serverviews import ServerViews
from proxy.supervisor.standdown.standdown import StandDown
from proxy.supervisor.workforce import OfTables, Workforce
from slots import garbage, logs
from slots.connections import worker_prefix
from slots.dialing import ControlError
from slots.messages import channel, control
from slots.messages.message import Product
from slots.reaching import look_at_certificates
from slots.reloading import Reloading, on_hangup
from slots.slot import TableError
from slots.table import SlotTable
from slots.tls import TlsError
from slots.version import program_version

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
        self.instance = uuid.uuid4().hex
        """The identity under which the proxy registers with topom."""
        self.metrics_address = ""
        """Where metrics are served, ``host:port`` with the true port; empty for nowhere."""
        self._former_instance = self.instance
        self._identity_is_new = False  # and the workers do not have it yet
        self._was_registered = False  # under this identity
        self._topom: control.Registered | None = None
        self._known: control.KnownTable | None = None
        """The newest table that it has had, also as another process, under whatever identity (**newest-store**)."""
        self._product: Product | None = None
        self._table: SlotTable | None = None
        self._acks = Acknowledgements()
        self._keeping = TableKeeping(
            settings.table_file, self._is_kept, lambda epoch, why: self._answers.refuse(epoch, why)
        )
        self._access, self._to_topom = settings.redis_access, settings.topom_certificates()
        self._views = ServerViews(self._access, lambda *seen: self._standdown.saw(*seen))
        self._leftovers = Leftovers(self._access, lambda: self._answers.consider())
        self._loads = Loads(lambda load: self._control.send(load), settings.hash_hot_keys)
        self._limits = LimitShares(lambda: self._workforce.alive.values(), settings, self.beat)
        self._workforce = Workforce(worker_command, self, self._loads, self._limits)
        self._places = Reservations(settings)
        self._announcements = Announcements(settings, lambda: self._places.addresses, self._tell_of_proxies)
        self._standdown = StandDown(self._access, self)
        self._new_settings = NewSettings(
            self.reloading,
            self._workforce.alive.values,
            lambda: self._places.addresses,
            lambda answer: self._control.send(answer),
        )
        self._users = UsersOfTopom(
            settings,
            self._take_users,
            lambda: self._new_settings.are_followed and self._keeping.has_users(self._users.known),
        )
        self._control = Control(
            settings.topom,
            settings.token.get_secret_value(),
            self._to_topom,
            self,
            *(self._announcements, self._standdown, self._views, self._loads, self._limits, self._new_settings),
            self._users,
        )
        self._answers = Answers(
            self._acks,
            self._workforce,
            self._keeping,
            self._leftovers,
            lambda: None if self._identity_is_new else self._table,
            self._control.send,
            settings.lock_drain_seconds,
        )
        self._seats = settings.worker_count
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
        return self._places.address

    # Life of the proxy

    async def serve(self) -> int:
        """Serve until :meth:`stop`, drain, and give the exit status.

        Raises :class:`ListenError` and :class:`TlsError` for the places where clients connect.
        """
        certificates(self.settings)  # better found now than when a worker starts
        metrics = MetricsServer(
            ProxyCollector(self._workforce.counters, self._figures, self._server_groups), self.not_ready
        )
        try:
            await self._places.reserve_within(PLACES_SECONDS)
            if self.settings.metrics:
                self.metrics_address = await metrics.start(self.settings.metrics)
            kept = await self._keeping.open()
            if kept is not None:
                # Whether it is served or not, topom learns from it that its store is older.
                self._known = kept.known
                self._users.begin_with(kept.users)
            garbage.spare_what_is_here()
            log.info("proxy_starts", address=self.address, instance=self.instance, metrics=self.metrics_address)
            self._controlling = self._begin(self._control.run())
            self._begin(self._tick())
            self._begin(self._standdown.run())
            if kept is not None:
                self._begin(self._start_alone(kept))
            await self._draining.wait()
            self.beat()  # from now on, cluster clients are sent elsewhere
            endings = [self._begin(self._drain()), self._begin(self._aborted.wait())]
            await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
            return 1 if self._aborted.is_set() or self._failed else 0
        finally:
            self._workforce.kill()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._answers.close()
            await self._keeping.close()
            await self._views.close()
            await self._leftovers.close()
            await metrics.close()
            self._places.close()

    def stop(self) -> None:
        """Drain and end; a second call ends at once."""
        if self._told_to_stop:
            log.warning("proxy_aborted")
            self._aborted.set()
        self._told_to_stop = True
        self._draining.set()

    def _look(self, settings: ProxySettings) -> Callable[[], None]:
        check_certificates(settings, self.settings)
        use_certificates = look_at_certificates(self._access, self._to_topom, settings)

        def put() -> None:
            use_certificates()
            self._use(settings)

        return put

    def _use(self, settings: ProxySettings) -> None:
        """Let settings hold that may change while the proxy runs; a worker that starts later gets them then."""
        self.settings = settings
        logs.set_level(settings.log_level)
        self._control.use_token(settings.token.get_secret_value())
        self._users.use(settings)
        self._tell_settings()

    def _tell_settings(self) -> None:
        self._new_settings.tell(self._users.settings)
        self._limits.change(self._users.settings)

    def _take_users(self) -> None:
        """topom keeps other users."""
        self._tell_settings()
        self._keeping.keeps_users(self._users.known)

    def _is_kept(self) -> None:
        """The table, and the users of topom, are in the file."""
        self._answers.consider()
        self._tell_of_users()

    def _tell_of_users(self) -> None:
        if self._users.is_news:
            self.beat()

    def drain(self) -> None:
        """Drain and end, as topom says; topom may say so several times."""
        if not self._draining.is_set():
            log.info("told_to_drain")
            self._draining.set()

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
        self._places.withdraw()
        settings = self.settings
        log.info("proxy_drains", workers=len(self._workforce.alive), seconds=settings.drain_seconds)
        # Sessions are cut off, and then requests in flight have the last seconds once more.
        await self._workforce.drain(self._keepers, settings.drain_seconds + 2 * settings.drain_last_seconds)
        # drained: topom may only forget the proxy once nothing that it sent can still run.
        if not await self._leftovers.wait(LEFTOVERS_SECONDS):
            log.warning("proxy_leaves_connections", servers=self._leftovers.servers)
        elif not await self._control.reach():
            if self._product is not None:
                log.warning("proxy_leaves_unheard", reason=UNHEARD)
        # one-owner: a member that has left is neither waited for nor fenced, so no process may start as that member
        # again.
        elif not await self._keeping.remove():
            log.warning("proxy_stays_member", reason="its table_file cannot be removed; topom will fence it")
        elif await self._control.leave():
            log.info("proxy_left")
        else:
            log.warning("proxy_leaves_unheard", reason=UNHEARD)

    async def _tick(self) -> None:
        """Each second: check the workers, and log now and then what is waited for."""
        ticks = 0
        while True:
            await asyncio.sleep(TICK_SECONDS)
            ticks += 1
            self._workforce.tick()
            self._limits.tick()
            if ticks % CONFIRM_TICKS == 0 and self._control.connected and not self._standdown.doubts:
                self._keeping.confirmed(self.workers_instance, self._standdown.known)
            if ticks % WAITING_TICKS == 0 and not self._draining.is_set() and (missing := self._missing()):
                log.warning("proxy_waits", reason="; ".join(missing))

    async def _start_alone(self, kept: Kept) -> None:
        """Serve by the table in the file if :mod:`proxy.supervisor.kept_table.coldstart` allows it."""
        found = await coldstart.may_serve(
            kept,
            self._keeping.age,
            self.settings,
            self._access,
            lambda: self._product is None and not self._draining.is_set(),
        )
        if found is None:
            return
        age = found
        # A registration under the other identity must not end after this.
        self._controlling.cancel()
        await asyncio.gather(self._controlling, return_exceptions=True)
        if self._product is None:
            log.warning("serves_alone", epoch=kept.table.epoch, instance=kept.instance, age_seconds=round(age))
            self.instance = self._former_instance = kept.instance
            self._table = kept.table
            self._acks.received(kept.table)
            self._keeping.served(kept)
            self._standdown.start_alone(kept.stand_down, age + coldstart.MARGIN_SECONDS, kept.processes)
            self._was_registered = True
            self._views.keep(kept.table)
            self._fill_seats(kept.product)
        self._controlling = self._begin(self._control.run())

    def _fill_seats(self, product: Product) -> None:
        self._product = product
        self._loads.begin(product.number_of_slots)
        inherited: list[Inherited] = [*self._places.inherited.values()]
        if self._keeping.lock is not None:
            inherited.append(self._keeping.lock)
        self._keepers = [self._begin(self._workforce.keep(index, inherited)) for index in range(self._seats)]

    # Workers (proxy.supervisor.workforce.Overseer)

    @property
    def workers_instance(self) -> str:
        """The identity of the workers: the former one, until a table comes under a new one."""
        return self._former_instance if self._identity_is_new else self.instance

    def welcome(self, worker: Worker) -> None:
        """Send a worker that was just started all that it needs."""
        assert self._product is not None
        worker.send(
            channel.Start(
                settings=self._new_settings.wire(self._users.settings),
                index=worker.index,
                incarnation=worker.incarnation,
                instance=worker.instance,
                product=self._product,
                allowance=self._standdown.grant(),
                known_servers=self._standdown.known_servers(),
                listen_fds={place: shared.fileno() for place, shared in self._places.inherited.items()},
            )
        )
        if (proxies := self._announcements.message()) is not None:
            worker.send(proxies)
        self._limits.share_out()
        # one-owner: a table from before the proxy was shut out must not go to a new worker.
        if self._table is not None and not self._identity_is_new:
            worker.send_table(self._table)

    def heard(self, worker: Worker, message: OfTables) -> None:
        """Handle a worker's message about tables or servers."""
        if isinstance(message, channel.OfIdentity) and message.instance != worker.instance:
            return  # sent under an earlier identity
        match message:
            case channel.Ack():
                worker.acknowledged(message.epoch)
                self._retire(worker)
                self._answers.consider()
            case channel.Nack():
                self._answers.refuse(message.epoch, f"worker {worker.index}: {message.reason}")
            case channel.Resync():
                if self._table is not None and not self._identity_is_new:
                    worker.send_table(self._table, whole=True)
            case channel.Ready():
                worker.ready = True
                log.info("worker_ready", address=message.address, **worker.describe())
                self._announce()
            case channel.SettingsTaken():
                self._new_settings.taken(worker, message.number)
                self._tell_of_users()
            case channel.Limited():
                worker.limited = True
            case channel.Met():
                self._standdown.met(message.server, message.process)
            case channel.Fenced():
                self.fence_found(message.server, **worker.describe())

    def lost(self, worker: Worker, clean: bool) -> None:
        """A worker has ended. Its connections at the servers are ended, unless it has finished properly."""
        if not clean:
            self._leftovers.hold(worker.prefix, worker.servers)
            self._leftovers.begin(worker.prefix)
        self._retire(worker)
        self._answers.consider()
        self._new_settings.ended()

    def _retire(self, worker: Worker) -> None:
        """The worker has closed its connections of earlier identities: have the servers confirm it."""
        for prefix in worker.retired_prefixes:
            self._leftovers.begin(prefix)
        worker.retired_prefixes.clear()

    def fence_found(self, server: str, **by: Any) -> None:
        """The proxy was found to be fenced: topom takes it for lost, and it has to register again."""
        if not self._identity_is_new:
            log.warning("fence_found", server=server, **by)
            self.shut_out("fenced")
            self._control.register_again()

    def _announce(self) -> None:
        if not self._announced and not self._missing():
            self._announced = True
            log.info("proxy_ready", address=self.address, workers=self._seats, metrics=self.metrics_address)

    def _tell_of_proxies(self) -> None:
        """Send the workers the list of proxies for cluster mode."""
        proxies = self._announcements.message()
        if proxies is not None:
            for worker in self._workforce.alive.values():
                worker.send(proxies)

    # The rule of standing down (proxy.supervisor.standdown.standdown.Proxy)

    def group_replicas(self) -> Mapping[int, Collection[str]]:
        """By group, its replicas."""
        return {group.id: group.replicas for group in self._table.groups.values()} if self._table is not None else {}

    def tell_workers(self, message: channel.Allowance) -> None:
        """Tell every worker its grant."""
        for worker in self._workforce.alive.values():
            worker.limited = worker.limited and message.grant.all is not None
            worker.send(message)

    def tell_known_servers(self, message: channel.KnownServers) -> None:
        """Tell every worker which processes of servers are known."""
        for worker in self._workforce.alive.values():
            worker.send(message)

    def workers_limited(self) -> bool:
        """Whether every worker has confirmed a limit."""
        return all(worker.limited for worker in self._workforce.alive.values())

    def beat(self) -> None:
        """Send a heartbeat now."""
        if self._control.connected:
            self._control.send(self.heartbeat())

    def keeps_rule(self, seconds: float | None) -> bool:
        """Have the rule kept with the table; say whether no process can start from a file with a laxer one."""
        return self._keeping.keeps_rule(seconds)

    # Messages of topom (proxy.supervisor.control.Handler)

    def registration(self) -> control.Register:
        """The registration. The epoch is the one that was acknowledged under this identity."""
        return control.Register(
            changes_rules=True,
            instance=self.instance,
            registered_before=self._was_registered,
            address=self.address,
            hostname=socket.gethostname(),
            pid=os.getpid(),
            workers=self._seats,
            version=program_version(),
            epoch=self._acks.acked,
            draining=self._draining.is_set(),
            stands_down=self._standdown.registration(),
            cluster=self._announcements.registration(),
            known=self._known,
        )

    def heartbeat(self) -> control.Heartbeat:
        """The heartbeat to send now."""
        silent, unanswered = self._views.silent()
        return control.Heartbeat(
            epoch=self._acks.acked,
            counters={**self._workforce.counters.total(), **self._settings_told()},
            draining=self._draining.is_set(),
            asked=self._views.asked,
            silent=silent,
            unanswered=unanswered,
            number=self._standdown.heartbeat(),
            stands_down=self._standdown.confirmed(),
            limited=self._limits.told(),
            connections=self._limits.connections(),
            users=self._users.told(),
        )

    def registered(self, answer: control.Registered) -> None:
        """Start the workers the first time; later, repeat messages that may have been lost."""
        product = answer.product
        self._was_registered = True
        self._topom = answer
        if self._product is None:
            self._fill_seats(product)
        elif self._product != product:
            raise ControlError(
                f"topom now speaks of {product}, but this proxy serves {self._product}; it goes on with what it has. "
                "Restart it if the change is meant"
            )
        if self._acks.acked:
            self._control.send(control.Ack(epoch=self._acks.acked))

    def table(self, message: control.Table) -> None:
        """Take a table and pass it on."""
        try:
            new = self._read(message.table)
        except TableError as error:
            raise ControlError(f"topom sent a table that cannot be used: {error}") from error
        if new is None:
            self._control.send(control.Resync())
            return
        now = self._table
        # epochs: an older table, or another one of the same epoch, comes from a topom that lost its place.
        if now is not None and (new.epoch < now.epoch or (new.epoch == now.epoch and new != now)):
            log.error(
                "table_refused", epoch=new.epoch, own_epoch=now.epoch, reason="topom is behind this proxy's table"
            )
            return
        # Clients may wait for this table: what topom sent is sent on, rather than found once more for each worker.
        known = message.table if "since" in message.table else None
        self._table = new
        self._acks.received(new)
        if self._topom is not None:
            self._known = control.KnownTable(
                cluster=self._topom.cluster, start=self._topom.start, epoch=new.epoch, seal=message.seal
            )
        if self._identity_is_new:
            self._take_identity(new)
        else:
            for worker in self._workforce.alive.values():
                worker.send_table(new, known=known)
        servers = {server for group in new.groups.values() for server in group.servers}
        if self._product is not None:
            self._keeping.received(self.instance, self._product, new, self._known)
        self._leftovers.keep_only(servers)
        self._standdown.keep_only(servers)
        self._views.keep(new)
        log.debug("table_received", epoch=new.epoch)
        self._answers.consider()

    def _read(self, content: Mapping[str, Any]) -> SlotTable | None:
        """The table of a message; None if it is changes to a table that is not the present one."""
        if "since" in content:
            if self._table is None or self._identity_is_new or content["since"] != self._table.epoch:
                return None
            return self._table.with_changes(content)
        new = SlotTable.from_wire(content)
        if self._product is not None and len(new.slots) != self._product.number_of_slots:
            raise TableError(f"it has {len(new.slots)} slots, the product has {self._product.number_of_slots}")
        return new

    def shut_out(self, reason: str) -> None:
        """Make a new identity. The workers keep the old one until the table for the new one is there.

        final-fence: they use no server under the old one from now on, and no process starts from the file under it.
        """
        if not self._identity_is_new:
            self._former_instance = self.instance
        self._identity_is_new = self._product is not None
        self._standdown.new_identity(workers_have_it=not self._identity_is_new)
        self._keeping.over()
        self.instance = uuid.uuid4().hex
        self._was_registered = False
        self._acks.new_identity()
        log.info("identity_changed", instance=self.instance, reason=reason)

    def _take_identity(self, table: SlotTable) -> None:
        """Give the workers the new identity with its table; the old one's connections at the servers are ended."""
        self._identity_is_new = False
        self._standdown.identity_taken()
        for worker in self._workforce.alive.values():
            # drained: until the servers have confirmed it, old connections may still have commands to run.
            self._leftovers.hold(worker_prefix(worker.instance, worker.incarnation), worker.servers)
            worker.send_identity(self.instance, table, self._standdown.grant(), self._standdown.known_servers())

    # What others see

    def _settings_told(self) -> dict[str, Number]:
        """What topom and Prometheus are told of the settings; the log has names and sentences."""
        known = self.reloading
        return {
            "settings_since": round(known.since, 3),
            "settings_restart": len(known.restart),
            "settings_refused": int(bool(known.refused)),
        }

    def _missing(self) -> list[str]:
        """What is still missing to serve; empty if nothing is."""
        ready = self._workforce.ready
        if self._product is None:
            return [f"not registered with topom at {', '.join(self.settings.topom)}"]
        if self._table is None:
            return ["no slot table from topom yet"]
        return [] if ready == self._seats else [f"{ready} of {self._seats} workers are ready"]

    def not_ready(self) -> str | None:
        """Why no client should be sent to this proxy now; None if it serves. Anybody may read it, so it names nothing.

        A proxy that waits or was fenced is well: it serves again by itself, so only who sends clients may heed this.
        """
        if self._draining.is_set():
            return "this proxy drains"
        if self._identity_is_new:
            return "this proxy was shut out as lost or fenced off, and waits until topom takes it in again"
        if self._table is None:
            return "this proxy has no slot table from topom yet"
        if self._workforce.ready == 0:
            return "no worker of this proxy listens"
        if over := set(self._standdown.groups_over()):
            owners = {slot.group_id for slot in self._table.slots if slot.group_id}
            if owners <= over:
                return "this proxy serves no group until topom or all replicas of a group answer it"
        return None

    def _server_groups(self) -> dict[str, int]:
        groups = self._table.groups.values() if self._table is not None else ()
        return {server: group.id for group in groups for server in group.servers}

    def _figures(self) -> dict[str, tuple[str, Number]]:
        settings = self._settings_told()
        return {
            "settings_since_seconds": ("When the settings in force were read.", settings["settings_since"]),
            "settings_restart": ("Settings that differ in the file and need a restart.", settings["settings_restart"]),
            "settings_refused": (
                "1 if the settings could not be used when they were read last.",
                settings["settings_refused"],
            ),
            "epoch": ("Epoch of the slot table that all workers apply.", self._acks.acked),
            "topom_connected": ("1 while the control stream to topom stands.", int(self._control.connected)),
            "groups_stood_down": (
                "Groups that are not served because neither topom nor all of their replicas answer.",
                len(self._standdown.groups_over()),
            ),
            "workers": ("Worker processes that there should be.", self._seats),
            "workers_ready": ("Worker processes that serve clients.", self._workforce.ready),
            "servers_with_leftover_connections": (
                "Servers where a dead worker's connections may live.",
                len(self._leftovers.servers),
            ),
        }
