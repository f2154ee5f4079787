"""A worker process: puts the engine's parts together, and talks with the supervisor over the channel.

A worker serves clients by its table, even while topom is away. It ends when its supervisor does.
"""

import argparse
import asyncio
import inspect
import itertools
import os
import resource
import socket
import sys
import time
from collections.abc import Collection
from contextlib import AsyncExitStack
from typing import Any

import structlog
import uvloop

from proxy.channel import Channel, ChannelError, MessageTooLong
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
from proxy.worker.clients.arrivals import Arrivals
from proxy.worker.clients.draining import Draining, Partings
from proxy.worker.holding import FENCED_OFF, STOOD_DOWN, Holding
from proxy.worker.loads import Loads
from proxy.worker.lostconnections import LostConnections
from proxy.worker.replicas.replicas import Replicas
from proxy.worker.routing import Routing
from slots import commands, garbage, logs
from slots.access import ServerTls
from slots.messages import channel as messages
from slots.messages.channel import SupervisorMessage
from slots.messages.message import sentence
from slots.messages.questions import Question, WorkerCounters
from slots.slot import TableError
from slots.table import SlotTable
from slots.tls import TlsError

log = structlog.get_logger()

TICK_SECONDS = 0.1
DRAIN_STEP_SECONDS = 0.02
SLOW_TICK_SECONDS = 1.0
ASK_SECONDS = 2.0
"""Limit of a question to all workers; the supervisor answers within a second with the answers it has."""


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
        self._clients_lacking = ProxySettings.from_wire(start.settings).max_clients - settings.max_clients
        self._index = start.index
        self._product = start.product
        loop = asyncio.get_running_loop()
        self._loop = Loop(loop, start.product.number_of_slots)
        self._limit_sessions()
        self._loop.on_excess = self._close_largest
        self._lost_connections = LostConnections(settings, self._lost_connections_ended)
        self._options = BackendOptions(
            settings,
            start.instance,
            start.incarnation,
            self._lost_connections.lost,
            self._fenced,
            self._disconnected,
            self._met,
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
            self._send_verdict,
            self._slots_leaving,
        )
        self._holding.is_stood_down = self._routing.is_stood_down
        self._confirmed_limit = False
        self._loop.on_alarm = self._stand_down
        self._options.allowances.take(start.allowance)
        self._cluster: ClusterView | None = None
        self._notable = notable = NotableLog(self._index, settings.worker_count, settings.hash_hot_keys)
        self._loop.statistics.watch(settings.slow_log_microseconds, notable.note)
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
            ask_all=self._ask_all,
            notable=notable,
            describe=self._describe,
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
        self._question_ids = itertools.count(1)
        self._questions: dict[int, asyncio.Future[list[Any]]] = {}
        users = self._authentication
        self._loads = Loads(self._loop, notable, users.limits, users.connections, settings.hash_hot_keys)
        self._draining = False

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
                self._take_table(message)
            case messages.Identity():
                self._take_identity(message)
            case messages.Allowance():
                self._take_allowance(message)
            case messages.KnownServers():
                self._take_known_servers(message)
            case messages.Proxies():
                self._cluster = ClusterView(Node.of(message.own), map(Node.of, message.nodes))
            case messages.Ask():
                self._slow_path.keep(asyncio.create_task(self._give_answer(message)))
            case messages.Answers():
                question = self._questions.pop(message.id, None)
                if question is not None and not question.done():
                    question.set_result([answer for answer in message.answers if answer is not None])
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
        self._clients_lacking = settings.max_clients - clients
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

    def _take_table(self, message: messages.Table) -> None:
        content = message.table
        try:
            if "since" in content:
                if self._routing.table is None:
                    raise TableError("there is no table to apply changes to")
                table = self._routing.table.with_changes(content)
            else:
                table = SlotTable.from_wire(content)
        except TableError as error:
            log.warning("table_not_applied", reason=str(error))
            self._channel.send(messages.Resync())
            return
        self._apply(table)
        if not self._arrivals.listening and not self._draining:
            self._channel.send(messages.Ready(address=self._arrivals.listen()))

    def _take_identity(self, message: messages.Identity) -> None:
        # one-owner: with the old table, the new name could send commands to servers that no longer own the slots. So
        # the old connections end, the table that came along is put in force, and only then is anything opened again.
        # The mover comes last: a session that learns that its key did not move goes on at once.
        self._options.instance = message.instance
        self._options.incarnation = message.incarnation
        reason = "was left: this proxy was fenced off and takes a new identity; the command may or may not have run"
        for backend in self._router.shared_backends:
            backend.reset(reason)
        self._own.reset(reason)
        self._replicas.reset(reason)
        # by-action: the former identity's knowledge about moving slots does not hold for this one.
        self._routing.forget()
        self._mover.permits.keep(set())
        self._options.known_servers.take(message.known_servers)
        self._options.allowances.renew(message.allowance)
        self._apply(SlotTable.from_wire(message.table))
        self._mover.reset(reason)

    def _take_allowance(self, message: messages.Allowance) -> None:
        # one-owner: a grant to an earlier identity does not count for this one.
        if message.instance != self._options.instance:
            return
        allowances = self._options.allowances
        allowances.take(message.grant)
        self._stand_down()
        if allowances.limited and not self._confirmed_limit:
            self._channel.send(messages.Limited())
        self._confirmed_limit = allowances.limited

    def _take_known_servers(self, message: messages.KnownServers) -> None:
        # final-fence: processes known to an earlier identity do not count for this one.
        if message.instance == self._options.instance:
            self._options.known_servers.take(message.known)
            self._loop.processes_known()

    def _stand_down(self) -> None:
        """Hold requests for groups that may no longer be used, and let requests for usable groups go."""
        allowances = self._options.allowances
        over = allowances.over()
        if over or allowances.ended:
            self._loop.end_over()
        self._holding.stood_down = FENCED_OFF if allowances.ended else STOOD_DOWN
        if over != self._routing.stood_down:
            log.warning("groups_stood_down", groups=sorted(over), before=sorted(self._routing.stood_down))
            self._routing.stand_down(over)
        self._loop.alarm = time.monotonic() + allowances.seconds_left()

    def _apply(self, table: SlotTable) -> None:
        allowances = self._options.allowances
        if self._routing.table is None or table.epoch >= self._routing.table.epoch:
            allowances.applied(table)
        over = allowances.over()
        if over:
            self._loop.end_over()
        # one-owner: requests held by the former table do not go anywhere by that table.
        self._routing.apply(table, over)
        self._loop.alarm = time.monotonic() + allowances.seconds_left()
        self._own.keep_servers({server for group in table.groups.values() for server in group.servers})
        self._slow_path.table_applied(table)

    def _slots_leaving(self, slots: Collection[int]) -> None:
        self._slow_path.slots_leaving(slots)

    def _close_largest(self) -> None:
        """bounded: too much is kept for all sessions together. The largest sessions are closed until there is room
        again."""
        enough = self._loop.kept_limit * 9 // 10
        for session in sorted(self._router.sessions, key=lambda session: session.kept, reverse=True):
            if self._loop.kept + self._loop.waiting <= enough or not session.kept:
                break
            log.warning("session_closed", reason="sessions_limit_bytes", client=session.peer, kept=session.kept)
            session.close()

    def _disconnected(self, address: str, shared: bool) -> None:
        if shared:
            # The server may have been restarted, and have lost scripts and libraries.
            self._router.loaded.forget_server(self._router.server_index(address))
        self._replicas.server_lost(address)
        self._slow_path.server_lost(address)

    async def _ask_all(self, question: Question) -> list[Any]:
        number = next(self._question_ids)
        answers: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._questions[number] = answers
        try:
            self._channel.send(messages.Ask(id=number, question=question))
            # Not wait_for, which needs a task: a handler has none until it first waits.
            await asyncio.wait([answers], timeout=ASK_SECONDS)
        except MessageTooLong:
            # The others cannot be asked.
            pass
        finally:
            self._questions.pop(number, None)
        if answers.done():
            return answers.result()
        answer = await self._answer(question)
        return [] if answer is None else [answer]

    async def _give_answer(self, message: messages.Ask) -> None:
        answer = await self._answer(message.question)
        try:
            self._channel.send(messages.Answer(id=message.id, answer=answer))
        except MessageTooLong:
            self._channel.send(messages.Answer(id=message.id, answer=None))

    async def _answer(self, question: Question) -> Any:
        answer = self._counters() if isinstance(question, WorkerCounters) else self._slow_path.answer(question)
        return await answer if inspect.isawaitable(answer) else answer

    def _send_verdict(self, epoch: int, refused: str | None) -> None:
        # A verdict that crosses an `identity` on its way must not count for the new identity.
        instance = self._options.instance
        self._channel.send(
            messages.Ack(instance=instance, epoch=epoch)
            if refused is None
            else messages.Nack(instance=instance, epoch=epoch, reason=sentence(refused))
        )

    def _lost_connections_ended(self) -> None:
        self._routing.check()

    def _met(self, address: str, process: str) -> None:
        self._channel.send(messages.Met(instance=self._options.instance, server=address, process=process))

    def _fenced(self, address: str) -> None:
        log.error("fenced", server=address, instance=self._options.instance)
        self._replicas.fenced()
        # final-fence: from now on, before the supervisor hears of it. The connection that found the fence is still in
        # use.
        self._options.allowances.end()
        asyncio.get_running_loop().call_soon(self._stand_down)
        self._channel.send(messages.Fenced(instance=self._options.instance, server=address))

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
        while (self._in_flight() or partings) and loop.time() < deadline:
            await self._receive_for(DRAIN_STEP_SECONDS)
        unanswered = self._in_flight()
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

    def _in_flight(self) -> int:
        return (
            sum(backend.queued for backend in self._router.shared_backends) + self._mover.waiting + self._own.in_flight
        )

    # -- time ----------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        elapsed = SLOW_TICK_SECONDS
        while True:
            self._loop.tick()
            self._stand_down()
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
                self._channel.send(messages.Counters(counters=self._counters(), commands=commands))
                self._loads.tell(self._channel, self._servers())
            await asyncio.sleep(TICK_SECONDS)

    def _ticked(self, ticking: "asyncio.Task[None]") -> None:
        if not ticking.cancelled():
            # bounded: without it no limit of time holds any more. The supervisor starts another worker.
            log.critical("worker_failed", exc_info=ticking.exception())
            self._channel.close()

    def _servers(self) -> set[str]:
        table = self._routing.table
        return {server for group in table.groups.values() for server in group.servers} if table else set()

    def _counters(self) -> dict[str, float]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "requests": self._loop.requests,
            "errors": self._loop.errors,
            "shed": self._loop.shed,
            "cached": self._router.hot_values.answered,
            "clients": len(self._router.sessions),
            "max_clients": self._settings.max_clients,
            "max_clients_lacking": self._clients_lacking,
            "connections": self._arrivals.accepted,
            "refused": self._arrivals.refused,
            "arriving": len(self._arrivals),
            "arrivals_failed": self._arrivals.failed,
            "authentications_failed": self._authentication.failures,
            "logins_refused": self._authentication.refused,
            "held": len(self._holding),
            "moving": self._mover.waiting,
            "moved": self._mover.moved,
            "replica_slots": self._replicas.slots_read,
            "in_flight": self._in_flight(),
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "memory_bytes": _resident_bytes(),
        }

    def _describe(self) -> dict[str, Any]:
        table = self._routing.table
        return {
            "product": self._product.name,
            "epoch": table.epoch if table else 0,
            "number_of_slots": self._loop.number_of_slots,
            "slot_function": self._product.slot_function,
            "databases": self._product.databases,
            "groups": len(table.groups) if table else 0,
            "workers": self._settings.worker_count,
            "instance": self._options.instance,
        }


def _resident_bytes() -> int:
    """Memory of this process; if the system does not tell (macOS), the most it has had."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


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
