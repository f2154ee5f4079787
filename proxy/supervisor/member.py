"""The proxy as a member of its product: what topom, its workers and its servers say, and what follows from it.

The parts are put together here. None of them knows of the process around them, whose life is
:mod:`proxy.supervisor.supervisor`.

Upholds, for workers that died, **drained** and **one-owner**.
"""

import os
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import structlog

from proxy.listening import Reservations, check_certificates
from proxy.settings import ProxySettings
from proxy.supervisor.acknowledging import Acknowledgements
from proxy.supervisor.announcing import Announcements
from proxy.supervisor.answers import Answers
from proxy.supervisor.control import Control
from proxy.supervisor.figures import Figures
from proxy.supervisor.identity import Identity
from proxy.supervisor.kept_table.tablefile import Kept
from proxy.supervisor.kept_table.tablekeeping import TableKeeping
from proxy.supervisor.keptusers import UsersOfTopom
from proxy.supervisor.leftovers import Leftovers
from proxy.supervisor.limitshares import LimitShares
from proxy.supervisor.loads import Loads
from proxy.supervisor.newsettings import NewSettings
from proxy.supervisor.processes import Worker
from proxy.supervisor.readiness import Readiness
from proxy.supervisor.serverviews import ServerViews
from proxy.supervisor.standdown.standdown import StandDown
from proxy.supervisor.workforce import OfTables, Workforce
from slots.connections import worker_prefix
from slots.dialing import ControlError
from slots.messages import channel, control
from slots.messages.message import Product
from slots.reaching import look_at_certificates
from slots.reloading import Reloading
from slots.slot import TableError
from slots.table import SlotTable
from slots.version import program_version

log = structlog.get_logger()


class Life(Protocol):
    """The process of the member."""

    @property
    def draining(self) -> bool:
        """Whether the proxy drains."""

    def fill_seats(self) -> None:
        """The product is known: start the workers."""

    def worker_ready(self) -> None:
        """A worker serves clients."""

    def drain(self) -> None:
        """topom says that the proxy has to drain and end."""


class Member:
    """One proxy.

    Args:
        settings: of the proxy.
        reloading: reads them anew.
        worker_command: starts a worker; ``--channel FD`` is appended.
        life: the process.
    """

    def __init__(
        self, settings: ProxySettings, reloading: Reloading[ProxySettings], worker_command: Sequence[str], life: Life
    ) -> None:
        self._life = life
        self.seats = settings.worker_count
        """How many workers there should be."""
        self.identity = Identity()
        self.acks = Acknowledgements()
        self.keeping = TableKeeping(
            settings.table_file, self._is_kept, lambda epoch, why: self.answers.refuse(epoch, why)
        )
        self.access, self._to_topom = settings.redis_access, settings.topom_certificates()
        self.views = ServerViews(self.access, lambda *seen: self.standdown.saw(*seen))
        self.leftovers = Leftovers(self.access, lambda: self.answers.consider())
        self.loads = Loads(lambda load: self.control.send(load), settings.hash_hot_keys)
        self.limits = LimitShares(lambda: self.workforce.alive.values(), settings, self.beat)
        self.workforce = Workforce(worker_command, self, self.loads, self.limits)
        self.places = Reservations(settings)
        self._announcements = Announcements(settings, lambda: self.places.addresses, self._tell_of_proxies)
        self.standdown = StandDown(self.access, self)
        self._new_settings = NewSettings(
            reloading,
            self.workforce.alive.values,
            lambda: self.places.addresses,
            lambda answer: self.control.send(answer),
        )
        self.users = UsersOfTopom(
            settings,
            self._take_users,
            lambda: self._new_settings.are_followed and self.keeping.has_users(self.users.known),
        )
        self.control = Control(
            settings.topom,
            settings.token.get_secret_value(),
            self._to_topom,
            self,
            *(self._announcements, self.standdown, self.views, self.loads, self.limits, self._new_settings),
            self.users,
        )
        self.answers = Answers(
            self.acks,
            self.workforce,
            self.keeping,
            self.leftovers,
            lambda: self.identity.table_in_force,
            self.control.send,
            settings.lock_drain_seconds,
        )
        self.readiness = Readiness(
            settings.topom, self.seats, self.identity, self.workforce, self.standdown, lambda: life.draining
        )
        self.figures = Figures(
            self.seats, reloading, self.acks, self.control, self.standdown, self.workforce, self.leftovers
        )

    # From its beginning to its end

    def begin_with(self, kept: Kept) -> None:
        """An earlier process of the proxy has had this. Whether it is served or not, topom learns of it."""
        self.identity.known = kept.known
        self.users.begin_with(kept.users)

    def serve_alone(self, kept: Kept, age: float) -> None:
        """Serve by this, without topom, which was heard ``age`` seconds ago at most."""
        self.identity.go_on_as(kept)
        self.acks.received(kept.table)
        self.keeping.served(kept)
        self.standdown.start_alone(kept.stand_down, age, kept.processes)
        self.views.keep(kept.table)
        self._start_workers(kept.product)

    def _start_workers(self, product: Product) -> None:
        self.loads.begin(product.number_of_slots)
        self._life.fill_seats()

    async def close(self) -> None:
        """Wait for nothing any more, and close what is open at servers and files."""
        self.answers.close()
        await self.keeping.close()
        await self.views.close()
        await self.leftovers.close()

    # Settings and users

    def look(self, settings: ProxySettings, now: ProxySettings) -> Callable[[], None]:
        """Look whether these settings can be used in place of those that hold now; give what puts them to use."""
        check_certificates(settings, now)
        use_certificates = look_at_certificates(self.access, self._to_topom, settings)

        def use() -> None:
            use_certificates()
            self.control.use_token(settings.token.get_secret_value())
            self.users.use(settings)
            self._tell_settings()

        return use

    def _tell_settings(self) -> None:
        """Tell the workers; one that starts later gets them then."""
        self._new_settings.tell(self.users.settings)
        self.limits.change(self.users.settings)

    def _take_users(self) -> None:
        """topom keeps other users."""
        self._tell_settings()
        self.keeping.keeps_users(self.users.known)

    def _is_kept(self) -> None:
        """The table, and the users of topom, are in the file."""
        self.answers.consider()
        self._tell_of_users()

    def _tell_of_users(self) -> None:
        if self.users.is_news:
            self.beat()

    # Workers (proxy.supervisor.workforce.Overseer)

    @property
    def workers_instance(self) -> str:
        """The identity of the workers."""
        return self.identity.of_workers

    def welcome(self, worker: Worker) -> None:
        """Send a worker that was just started all that it needs."""
        assert self.identity.product is not None
        worker.send(
            channel.Start(
                settings=self._new_settings.wire(self.users.settings),
                index=worker.index,
                incarnation=worker.incarnation,
                instance=worker.instance,
                product=self.identity.product,
                allowance=self.standdown.grant(),
                known_servers=self.standdown.known_servers(),
                listen_fds={place: shared.fileno() for place, shared in self.places.inherited.items()},
            )
        )
        if (proxies := self._announcements.message()) is not None:
            worker.send(proxies)
        self.limits.share_out()
        # one-owner: a table from before the proxy was shut out must not go to a new worker.
        if (table := self.identity.table_in_force) is not None:
            worker.send_table(table)

    def heard(self, worker: Worker, message: OfTables) -> None:
        """Handle a worker's message about tables or servers."""
        if isinstance(message, channel.OfIdentity) and message.instance != worker.instance:
            return  # sent under an earlier identity
        match message:
            case channel.Ack():
                worker.acknowledged(message.epoch)
                self._retire(worker)
                self.answers.consider()
            case channel.Nack():
                self.answers.refuse(message.epoch, f"worker {worker.index}: {message.reason}")
            case channel.Resync():
                if (table := self.identity.table_in_force) is not None:
                    worker.send_table(table, whole=True)
            case channel.Ready():
                worker.ready = True
                log.info("worker_ready", address=message.address, **worker.describe())
                self._life.worker_ready()
            case channel.SettingsTaken():
                self._new_settings.taken(worker, message.number)
                self._tell_of_users()
            case channel.Limited():
                worker.limited = True
            case channel.Met():
                self.standdown.met(message.server, message.process)
            case channel.Fenced():
                self.fence_found(message.server, **worker.describe())

    def lost(self, worker: Worker, clean: bool) -> None:
        """A worker has ended. Its connections at the servers are ended, unless it has finished properly."""
        if not clean:
            self.leftovers.hold(worker.prefix, worker.servers)
            self.leftovers.begin(worker.prefix)
        self._retire(worker)
        self.answers.consider()
        self._new_settings.ended()

    def _retire(self, worker: Worker) -> None:
        """The worker has closed its connections of earlier identities: have the servers confirm it."""
        for prefix in worker.retired_prefixes:
            self.leftovers.begin(prefix)
        worker.retired_prefixes.clear()

    def fence_found(self, server: str, **by: Any) -> None:
        """The proxy was found to be fenced: topom takes it for lost, and it has to register again."""
        if not self.identity.is_new:
            log.warning("fence_found", server=server, **by)
            self.shut_out("fenced")
            self.control.register_again()

    def _tell_of_proxies(self) -> None:
        """Send the workers the list of proxies for cluster mode."""
        proxies = self._announcements.message()
        if proxies is not None:
            self.workforce.tell(proxies)

    # The rule of standing down (proxy.supervisor.standdown.standdown.Proxy)

    def group_replicas(self) -> Mapping[int, Collection[str]]:
        """By group, its replicas."""
        return self.identity.replicas()

    def tell_workers(self, message: channel.Allowance) -> None:
        """Tell every worker its grant."""
        for worker in self.workforce.alive.values():
            worker.limited = worker.limited and message.grant.all is not None
        self.workforce.tell(message)

    def tell_known_servers(self, message: channel.KnownServers) -> None:
        """Tell every worker which processes of servers are known."""
        self.workforce.tell(message)

    def workers_limited(self) -> bool:
        """Whether every worker has confirmed a limit."""
        return all(worker.limited for worker in self.workforce.alive.values())

    def beat(self) -> None:
        """Send a heartbeat now."""
        if self.control.connected:
            self.control.send(self.heartbeat())

    def keeps_rule(self, seconds: float | None) -> bool:
        """Have the rule kept with the table; say whether no process can start from a file with a laxer one."""
        return self.keeping.keeps_rule(seconds)

    # Messages of topom (proxy.supervisor.control.Handler)

    def registration(self) -> control.Register:
        """The registration. The epoch is the one that was acknowledged under this identity."""
        return control.Register(
            changes_rules=True,
            instance=self.identity.instance,
            registered_before=self.identity.registered,
            address=self.places.address,
            hostname=socket.gethostname(),
            pid=os.getpid(),
            workers=self.seats,
            version=program_version(),
            epoch=self.acks.acked,
            draining=self._life.draining,
            stands_down=self.standdown.registration(),
            cluster=self._announcements.registration(),
            known=self.identity.known,
        )

    def heartbeat(self) -> control.Heartbeat:
        """The heartbeat to send now."""
        silent, unanswered = self.views.silent()
        return control.Heartbeat(
            epoch=self.acks.acked,
            counters={**self.workforce.counters.total(), **self.figures.of_settings()},
            draining=self._life.draining,
            asked=self.views.asked,
            silent=silent,
            unanswered=unanswered,
            number=self.standdown.heartbeat(),
            stands_down=self.standdown.confirmed(),
            limited=self.limits.told(),
            connections=self.limits.connections(),
            users=self.users.told(),
        )

    def registered(self, answer: control.Registered) -> None:
        """Start the workers the first time; later, repeat messages that may have been lost."""
        if self.identity.is_registered(answer):
            self._start_workers(answer.product)
        if self.acks.acked:
            self.control.send(control.Ack(epoch=self.acks.acked))

    def table(self, message: control.Table) -> None:
        """Take a table and pass it on."""
        try:
            new = self.identity.read(message.table)
        except TableError as error:
            raise ControlError(f"topom sent a table that cannot be used: {error}") from error
        if new is None:
            self.control.send(control.Resync())
            return
        if self.identity.refuses(new):
            log.error(
                "table_refused",
                epoch=new.epoch,
                own_epoch=self.identity.epoch,
                reason="topom is behind this proxy's table",
            )
            return
        self.acks.received(new)
        if self.identity.take(new, message.seal):
            self._give_identity(new)
        else:
            # Clients may wait for this table: what topom sent is sent on, rather than found once more for each worker.
            known = message.table if "since" in message.table else None
            for worker in self.workforce.alive.values():
                worker.send_table(new, known=known)
        servers = self.identity.groups_of_servers().keys()
        if self.identity.product is not None:
            self.keeping.received(self.identity.instance, self.identity.product, new, self.identity.known)
        self.leftovers.keep_only(servers)
        self.standdown.keep_only(servers)
        self.views.keep(new)
        log.debug("table_received", epoch=new.epoch)
        self.answers.consider()

    def shut_out(self, reason: str) -> None:
        """Make a new identity. The workers keep the old one until the table for the new one is there.

        final-fence: they use no server under the old one from now on, and no process starts from the file under it.
        """
        self.identity.end()
        self.standdown.new_identity(workers_have_it=not self.identity.is_new)
        self.keeping.over()
        self.acks.new_identity()
        log.info("identity_changed", instance=self.identity.instance, reason=reason)

    def drain(self) -> None:
        """Have the process drain and end."""
        self._life.drain()

    def _give_identity(self, table: SlotTable) -> None:
        """Give the workers the new identity with its table; the old one's connections at the servers are ended."""
        self.standdown.identity_taken()
        for worker in self.workforce.alive.values():
            # drained: until the servers have confirmed it, old connections may still have commands to run.
            self.leftovers.hold(worker_prefix(worker.instance, worker.incarnation), worker.servers)
            worker.send_identity(self.identity.instance, table, self.standdown.grant(), self.standdown.known_servers())
