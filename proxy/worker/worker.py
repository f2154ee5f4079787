"""A worker process: puts the engine's parts together, and talks with the supervisor over the channel.

A worker serves clients by its table, even while topom is away. It ends when its supervisor does.
"""

import argparse
import asyncio
import os
import socket
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

import structlog
import uvloop

from proxy.channel import Channel, ChannelError
from proxy.clusterview import ClusterView, Node
from proxy.commands import families
from proxy.commands.dispatch import SlowPath
from proxy.commands.notable import NotableLog
from proxy.commands.pubsub.pubsub import subscription_of
from proxy.commands.services import Services
from proxy.engine.requests import Loop
from proxy.engine.router import Router
from proxy.moving.migrating import KeyMover
from proxy.servers.backends import BackendOptions
from proxy.servers.ownconnections import OwnConnections
from proxy.settings import ProxySettings
from proxy.worker import openfiles, scheduling
from proxy.worker.asking import Questions
from proxy.worker.clients.arrivals import Arrivals
from proxy.worker.clients.draining import Draining, Partings
from proxy.worker.figures import Figures
from proxy.worker.holding import Holding
from proxy.worker.inforce import InForce
from proxy.worker.loads import Loads
from proxy.worker.lostconnections import LostConnections
from proxy.worker.replicas.replicas import Replicas
from proxy.worker.routing import Routing
from slots import commands, garbage, logs
from slots.access import ServerTls
from slots.messages import channel as messages
from slots.messages.channel import SupervisorMessage
from slots.messages.questions import Question, WorkerCounters
from slots.tls import TlsError

log = structlog.get_logger()

TICK_SECONDS = 0.1
DRAIN_STEP_SECONDS = 0.02
SLOW_TICK_SECONDS = 1.0


class Worker:
    """One worker.

    Args:
        channel: to the supervisor.
        start: the supervisor's first message.
        settings: those of ``start``.
    """

    def __init__(self, channel: Channel[SupervisorMessage], start: messages.Start, settings: ProxySettings) -> None:
        self._channel = channel
        self._settings = settings
        self._access = settings.redis_access
        self._index = start.index
        self._draining = False
        self._make_engine(start)
        self._make_commands(start)

    def _make_engine(self, start: messages.Start) -> None:
        """What takes requests to servers, by the table in force."""
        settings = self._settings
        self._loop = Loop(asyncio.get_running_loop(), start.product.number_of_slots)
        self._limit_sessions()
        self._loop.on_excess = self._close_largest
        self._lost_connections = LostConnections(settings, lambda: self._routing.check())
        self._options = BackendOptions(
            settings,
            start.instance,
            start.incarnation,
            self._lost_connections.lost,
            lambda address: self._in_force.fenced(address),
            self._disconnected,
            lambda address, process: self._in_force.met(address, process),
        )
        self._options.known_servers.take(start.known_servers)
        self._router = Router(
            self._loop, start.product.slot_function, start.product.databases, self._options, settings, commands.table()
        )
        self._router.replica_reads = settings.replica_reads
        self._replicas = Replicas(self._router, settings, f"{start.instance} {self._index}")
        self._holding = Holding(settings.lock_hold_seconds)
        self._mover = KeyMover(self._router, settings)
        self._own = OwnConnections(self._loop, self._options, settings)
        self._routing = Routing(
            self._router,
            self._replicas,
            self._holding,
            self._mover,
            self._lost_connections,
            self._own,
            settings.lock_drain_seconds,
            lambda epoch, refused: self._in_force.send_verdict(epoch, refused),
            lambda slots: self._slow_path.slots_leaving(slots),
        )
        self._holding.is_stood_down = self._routing.is_stood_down
        self._in_force = InForce(
            self._channel,
            self._loop,
            self._options,
            self._router,
            self._replicas,
            self._holding,
            self._mover,
            self._own,
            self._routing,
            lambda table: self._slow_path.table_applied(table),
        )
        self._loop.on_alarm = self._in_force.stand_down
        self._options.allowances.take(start.allowance)

    def _make_commands(self, start: messages.Start) -> None:
        """What handles commands that the engine does not, who may give which, and what is told of them."""
        settings = self._settings
        self._cluster: ClusterView | None = None
        self._notable = notable = NotableLog(self._index, settings.worker_count, settings.hash_hot_keys)
        self._loop.statistics.watch(settings.slow_log_microseconds, notable.note)
        self._questions = Questions(self._channel, self._answer)
        self._services = services = Services(
            settings=settings,
            index=self._index,
            router=self._router,
            options=self._options,
            own=self._own,
            databases=start.product.databases,
            masters=self._routing.masters,
            table=lambda: self._routing.table,
            cluster=lambda: self._cluster,
            ask_all=self._questions.ask_all,
            notable=notable,
            describe=lambda: self._figures.describe(),
            now=lambda: self._loop.now,
            started=time.time(),
        )
        made = families.make(services)
        self._authentication = made.permissions
        self._slow_path = SlowPath(made, self._router)
        self._router.slow_path = self._slow_path
        self._router.holding = self._holding
        self._router.mover = self._mover
        self._arrivals = Arrivals(settings, self._router, self._index, start.listen_fds, self._authentication.begin)
        users = self._authentication
        self._figures = Figures(
            start.product, services, self._arrivals, users, self._holding, self._mover, self._replicas
        )
        self._figures.clients_lacking = ProxySettings.from_wire(start.settings).max_clients - settings.max_clients
        self._loads = Loads(self._loop, notable, users.limits, users.connections, settings.hash_hot_keys)

    # -- the channel ---------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Serve until told to drain, or until the supervisor is gone; the exit status."""
        ticking = asyncio.create_task(self._tick())
        ticking.add_done_callback(self._ticked)
        try:
            while True:
                message = await self._channel.receive()
                if message is None:
                    return 1
                if isinstance(message, messages.Drain):
                    return await self._drain()
                self._take(message)
        finally:
            ticking.cancel()
            await self._close()

    async def _close(self) -> None:
        """Close each part, whatever another one raises."""
        async with AsyncExitStack() as closing:  # the last one first
            closing.push_async_callback(self._mover.close)
            closing.push_async_callback(self._lost_connections.close)
            closing.push_async_callback(self._slow_path.close)
            closing.callback(self._replicas.close)
            closing.callback(self._routing.close)

    def _take(self, message: SupervisorMessage) -> None:
        match message:
            case messages.Table():
                if self._in_force.take_table(message) and not self._arrivals.listening and not self._draining:
                    self._channel.send(messages.Ready(address=self._arrivals.listen()))
            case messages.Identity():
                self._in_force.take_identity(message)
            case messages.Allowance():
                self._in_force.take_allowance(message)
            case messages.KnownServers():
                self._in_force.take_known_servers(message)
            case messages.Proxies():
                self._cluster = ClusterView(Node.of(message.own), map(Node.of, message.nodes))
            case messages.Ask():
                self._slow_path.keep(asyncio.create_task(self._questions.give_answer(message)))
            case messages.Answers():
                self._questions.answered(message)
            case messages.Shares():
                self._authentication.limits.share(message.shares)
                self._authentication.connections.share(message.connections)
            case messages.Settings():
                self._take_settings(ProxySettings.from_wire(message.settings))
                self._channel.send(messages.SettingsTaken(number=message.number))
            case messages.Start():
                raise ChannelError("the supervisor says a second time how to start")
            case messages.Drain():
                pass  # it is under way

    def _take_settings(self, settings: ProxySettings) -> None:
        before = self._settings
        clients = openfiles.most_clients(settings)
        self._figures.clients_lacking = settings.max_clients - clients
        settings = settings.model_copy(update={"max_clients": clients})
        self._settings = self._services.settings = settings
        self._arrivals.configure(settings)
        self._access.follow(ServerTls.of(settings, "redis_tls"))
        logs.set_level(settings.log_level)
        self._limit_sessions()
        self._loop.statistics.watch(settings.slow_log_microseconds, self._notable.note)
        if (settings.users, settings.password) != (before.users, before.password):
            self._authentication.change_users(settings)

    def _limit_sessions(self) -> None:
        # The rest is the memory allocator's own.
        self._loop.kept_limit = self._settings.sessions_limit_bytes * 7 // 8
        # As much again is left for what the sessions themselves hold.
        self._loop.waiting_limit = self._loop.kept_limit // 2

    def _close_largest(self) -> None:
        """bounded: too much is kept for all sessions together. The largest sessions are closed until there is room
        again."""
        enough = self._loop.kept_limit * 9 // 10
        for session in sorted(self._router.sessions, key=lambda session: session.kept, reverse=True):
            if self._loop.kept + self._loop.waiting <= enough or not session.kept:
                break
            log.warning("session_closed", reason="sessions_limit_bytes", client=session.peer, kept=session.kept)
            session.close()

    def _answer(self, question: Question) -> Any:
        if isinstance(question, WorkerCounters):
            return self._figures.counters()
        return self._slow_path.answer(question)

    def _disconnected(self, address: str, shared: bool) -> None:
        if shared:
            # The server may have been restarted, and have lost scripts and libraries.
            self._router.loaded.forget_server(self._router.server_index(address))
        self._replicas.server_lost(address)
        self._slow_path.server_lost(address)

    # -- stopping ------------------------------------------------------------------------------------------

    async def _drain(self) -> int:
        """Let no new client in, have the clients leave one after another (:mod:`proxy.worker.clients.draining`), exit.

        Status 0 says that no server can still run anything that this worker sent (**drained**).
        """
        self._draining = True
        loop = asyncio.get_running_loop()
        settings = self._settings
        self._arrivals.withdraw()
        partings = Partings()
        clients = Draining(
            self._router.sessions,
            settings.drain_seconds,
            settings.drain_last_seconds,
            partings.part,
            self._slow_path.retiring,
            loop.time(),
        )
        while not (self._arrivals.withdrawn() & clients.step(loop.time())):
            # The channel is still read: a slot may have to be unlocked for a request that waits.
            await self._receive_for(DRAIN_STEP_SECONDS)
        deadline = loop.time() + settings.drain_last_seconds
        while (self._figures.in_flight or partings) and loop.time() < deadline:
            await self._receive_for(DRAIN_STEP_SECONDS)
        unanswered = self._figures.in_flight
        not_ended = self._lost_connections.all_servers()
        log.info("worker_drained", index=self._index, cut=clients.cut, unanswered=unanswered, not_ended=not_ended)
        return 1 if unanswered or not_ended else 0

    async def _receive_for(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while True:
                    message = await self._channel.receive()
                    if message is None:
                        await asyncio.sleep(seconds)
                    else:
                        self._take(message)
        except TimeoutError:
            return

    # -- time ----------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        elapsed = SLOW_TICK_SECONDS
        while True:
            self._loop.tick()
            self._in_force.stand_down()
            for backend in self._router.shared_backends:
                backend.check_time()
            self._mover.check_time()
            self._arrivals.check_time()
            self._holding.expire()
            self._replicas.tick()
            self._own.tick()
            self._slow_path.tick()
            self._authentication.limits.tick()
            elapsed += TICK_SECONDS
            if elapsed >= SLOW_TICK_SECONDS:
                elapsed = 0.0
                self._holding.forget_closed()
                settings = self._settings
                for session in list(self._router.sessions):
                    # As with Redis, a client with a subscription is never idle.
                    idle_seconds = 0.0 if subscription_of(session) else settings.session_idle_seconds
                    session.check_time(settings.session_stall_seconds, idle_seconds)
                read = self._loop.statistics.read()
                commands = {name: messages.Statistic(*counts) for name, counts in read.items()}
                self._channel.send(messages.Counters(counters=self._figures.counters(), commands=commands))
                self._loads.tell(self._channel, self._routing.servers)
            await asyncio.sleep(TICK_SECONDS)

    def _ticked(self, ticking: "asyncio.Task[None]") -> None:
        if not ticking.cancelled():
            # bounded: without it no limit of time holds any more. The supervisor starts another worker.
            log.critical("worker_failed", exc_info=ticking.exception())
            self._channel.close()


async def serve(descriptor: int) -> int:
    """Run a worker on the channel whose socket is ``descriptor``; give the exit status."""
    channel = await Channel.open(socket.socket(fileno=descriptor), messages.parse_supervisor)
    try:
        start = await channel.receive()
        if start is None:
            return 1
        if not isinstance(start, messages.Start):
            raise ChannelError(f"the first message is {start.type!r}, not 'start'")
        settings = ProxySettings.from_wire(start.settings)
        logs.configure(settings.log_level)
        if settings.batch_scheduling:
            scheduling.interrupt_nobody()
        served = {**start.settings, "max_clients": openfiles.most_clients(settings)}
        worker = Worker(channel, start, ProxySettings.from_wire(served))
        garbage.spare_what_is_here()
        return await worker.run()
    except ChannelError as error:
        log.critical("supervisor_not_understood", reason=str(error))
        return 1
    except TlsError as error:
        log.critical("worker_cannot_start", reason=str(error))
        return 1


def main() -> None:
    """``python -m proxy.worker.worker --channel FD``; started by the supervisor."""
    parser = argparse.ArgumentParser(description="A worker of a Slotferry proxy. Started by 'slotferry proxy'.")
    parser.add_argument("--channel", type=int, required=True, help="file descriptor of the channel to the supervisor")
    status = uvloop.run(serve(parser.parse_args().channel))
    # Nothing is left to clean up, and the interpreter's own shutdown would only take time.
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
