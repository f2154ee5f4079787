"""A worker process: the engine's parts put together, and the channel to the supervisor.

A worker serves clients by its table whatever becomes of topom. It ends when its supervisor does.
"""

import argparse
import asyncio
import itertools
import os
import resource
import socket
import sys
from typing import Any

import structlog
import uvloop

from proxy import address as addresses
from proxy import logs
from proxy.backends import BackendOptions
from proxy.channel import Channel, Message
from proxy.engine.connection import format_address
from proxy.engine.requests import Loop
from proxy.engine.router import Router
from proxy.engine.session import Session
from proxy.holding import Holding
from proxy.migrating import KeyMover
from proxy.routing import Routing
from proxy.settings import ProxySettings
from proxy.settling import Settling
from proxy.slowpath.connection import ConnectionCommands
from proxy.slowpath.dispatch import SlowPath
from proxy.slowpath.server import ServerCommands
from slots import commands
from slots.table import SlotTable, TableError

log = structlog.get_logger()

TICK_SECONDS = 0.1
SLOW_TICK_SECONDS = 1.0
ACCEPT_AT_ONCE = 64
BACKLOG = 1024
ACCEPT_RETRY_SECONDS = 0.5
"""Pause after a connection could not be accepted, for want of a file descriptor for example."""
ASK_SECONDS = 2.0
"""Limit of a question to all workers; the supervisor answers within a second with what it has."""


class Worker:
    """One worker.

    Args:
        channel: to the supervisor.
        start: the supervisor's ``start`` message.
    """

    def __init__(self, channel: Channel, start: Message) -> None:
        self._channel = channel
        self._settings = settings = ProxySettings.from_wire(start["settings"])
        self._index = int(start["index"])
        self._product = str(start["product"])
        self._databases = int(start["databases"])
        self._listen_fd: int | None = start["listen_fd"]
        self._slot_function = str(start["slot_function"])
        loop = asyncio.get_running_loop()
        self._loop = Loop(loop, int(start["number_of_slots"]))
        self._settling = Settling(settings, self._settled)
        self._options = BackendOptions(
            settings, start["instance"], int(start["incarnation"]), self._settling.lost, self._fenced
        )
        password = settings.password.get_secret_value()
        self._router = Router(
            self._loop, self._slot_function, self._databases, self._options, settings, commands.table()
        )
        self._router.gated = bool(password)
        self._holding = Holding(settings.lock_hold_seconds)
        self._mover = KeyMover(self._router, settings)
        self._routing = Routing(
            self._router, self._holding, self._mover, self._settling, settings.lock_drain_seconds, self._send_verdict
        )
        self._connection = ConnectionCommands(
            password, self._databases, lambda: self._router.sessions, self._ask_all, lambda: self._loop.now
        )
        server = ServerCommands(self._ask_all, self._describe, addresses.split(settings.listen)[1])
        self._router.slow_path = SlowPath(self._connection, server)
        self._router.holding = self._holding
        self._router.mover = self._mover
        self._listener: socket.socket | None = None
        self._session_ids = itertools.count(1)
        self._connections = 0
        self._refused = 0
        self._question_ids = itertools.count(1)
        self._questions: dict[int, asyncio.Future[list[Any]]] = {}
        self._draining = False

    # -- the channel ---------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Serve until told to drain, or until the supervisor is gone; the exit status."""
        ticking = asyncio.create_task(self._tick())
        try:
            while True:
                message = await self._channel.receive()
                if message is None:
                    return 1
                if message["type"] == "drain":
                    return await self._drain()
                self._take(message)
        finally:
            ticking.cancel()
            self._routing.close()
            await self._settling.close()

    def _take(self, message: Message) -> None:
        match message["type"]:
            case "table":
                self._take_table(message)
            case "identity":
                self._take_identity(message)
            case "ask":
                self._channel.send({"type": "answer", "id": message["id"], "answer": self._answer(message["what"])})
            case "answer":
                question = self._questions.pop(message["id"], None)
                if question is not None and not question.done():
                    question.set_result([answer for answer in message["answers"] if answer is not None])
            case unknown:
                log.warning("unknown_message", type=unknown)

    def _take_table(self, message: Message) -> None:
        try:
            if "since" in message:
                if self._routing.table is None:
                    raise TableError("there is no table to apply changes to")
                table = self._routing.table.with_changes(message)
            else:
                table = SlotTable.from_wire(message)
        except TableError as error:
            log.warning("table_not_applied", reason=str(error))
            self._channel.send({"type": "resync"})
            return
        self._routing.apply(table)
        if self._listener is None and not self._draining:
            self._listen()

    def _take_identity(self, message: Message) -> None:
        # one-owner: by the old table the new name could send commands where they no longer belong, so the old
        # connections end, the table that came along is put in force, and only then is anything opened again. The
        # mover comes last: a session that hears from it that its key did not move goes on at once.
        self._options.instance = str(message["instance"])
        self._options.incarnation = int(message["incarnation"])
        reason = "was left: this proxy was fenced off and takes a new identity; the command may or may not have run"
        for backend in self._router.shared_backends:
            backend.reset(reason)
        if message.get("table") is not None:
            self._routing.apply(SlotTable.from_wire(message["table"]))
        self._mover.reset(reason)

    async def _ask_all(self, what: str) -> list[Any]:
        number = next(self._question_ids)
        question: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._questions[number] = question
        self._channel.send({"type": "ask", "id": number, "what": what})
        try:
            return await asyncio.wait_for(question, ASK_SECONDS)
        except TimeoutError:
            return [self._answer(what)]
        finally:
            self._questions.pop(number, None)

    def _answer(self, what: str) -> Any:
        match what:
            case "clients":
                return self._connection.describe_all()
            case "counters":
                return self._counters()
            case _:
                return None

    def _send_verdict(self, message: Message) -> None:
        # A verdict that crosses an `identity` on its way must not count for the new identity.
        self._channel.send({**message, "instance": self._options.instance})

    def _settled(self) -> None:
        self._routing.check()

    def _fenced(self, address: str) -> None:
        log.error("fenced", server=address, instance=self._options.instance)
        self._channel.send({"type": "fenced", "server": address, "instance": self._options.instance})

    # -- clients -------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        if self._listen_fd is not None:
            listener = socket.socket(fileno=self._listen_fd)
        else:
            host, port = addresses.split(self._settings.listen)
            listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind((host, port))
        listener.setblocking(False)
        listener.listen(BACKLOG)
        self._listener = listener
        asyncio.get_running_loop().add_reader(listener.fileno(), self._accept)
        self._channel.send({"type": "ready", "address": format_address(listener.getsockname())})

    def _accept(self) -> None:
        assert self._listener is not None
        for _ in range(ACCEPT_AT_ONCE):
            try:
                sock, peer = self._listener.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                # Those that wait stay readable; without a pause the loop would spin on them.
                log.error("accept_failed", reason=str(error), retry_seconds=ACCEPT_RETRY_SECONDS)
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._listener.fileno())
                loop.call_later(ACCEPT_RETRY_SECONDS, self._accept_again)
                return
            sock.setblocking(False)
            if len(self._router.sessions) >= self._settings.max_clients:
                self._refused += 1
                try:
                    sock.send(b"-ERR max number of clients reached\r\n")
                except OSError:
                    log.debug("client_refused_and_gone")
                sock.close()
                continue
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._connections += 1
            number = next(self._session_ids) * self._settings.worker_count + self._index
            Session(self._router, sock, format_address(peer), number)

    def _accept_again(self) -> None:
        if self._listener is not None and not self._draining:
            asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)

    async def _drain(self) -> int:
        """Stop listening, finish what is owed, exit; clients still connected after the limit are closed.

        Status 0 says that no server can still run anything that this worker sent (**drained**).
        """
        self._draining = True
        loop = asyncio.get_running_loop()
        if self._listener is not None:
            loop.remove_reader(self._listener.fileno())
            self._listener.close()
        deadline = loop.time() + self._settings.drain_seconds
        while self._router.sessions and loop.time() < deadline:
            for session in list(self._router.sessions):
                session.drain()
            # The channel is read on: a slot may have to be unlocked for a request that waits.
            await self._receive_for(0.02)
        left = len(self._router.sessions)
        for session in list(self._router.sessions):
            session.close()
        while self._in_flight() and loop.time() < deadline:
            await self._receive_for(0.02)
        unanswered = self._in_flight()
        unsettled = self._settling.unsettled_anywhere()
        log.info("worker_drained", index=self._index, clients_closed=left, unanswered=unanswered, unsettled=unsettled)
        return 1 if unanswered or unsettled else 0

    async def _receive_for(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while True:
                    message = await self._channel.receive()
                    if message is None:
                        await asyncio.sleep(seconds)
                    elif message["type"] != "drain":
                        self._take(message)
        except TimeoutError:
            return

    def _in_flight(self) -> int:
        return sum(backend.queued for backend in self._router.shared_backends) + self._mover.waiting

    # -- time ----------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        elapsed = SLOW_TICK_SECONDS
        while True:
            self._loop.tick()
            for backend in self._router.shared_backends:
                backend.check_time()
            self._mover.check_time()
            self._holding.expire()
            elapsed += TICK_SECONDS
            if elapsed >= SLOW_TICK_SECONDS:
                elapsed = 0.0
                self._holding.forget_closed()
                settings = self._settings
                for session in list(self._router.sessions):
                    session.check_time(settings.session_stall_seconds, settings.session_idle_seconds)
                self._channel.send({"type": "counters", "counters": self._counters()})
            await asyncio.sleep(TICK_SECONDS)

    def _counters(self) -> dict[str, float]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "requests": self._loop.requests,
            "errors": self._loop.errors,
            "clients": len(self._router.sessions),
            "connections": self._connections,
            "refused": self._refused,
            "held": len(self._holding),
            "moving": self._mover.waiting,
            "moved": self._mover.moved,
            "in_flight": self._in_flight(),
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "memory_bytes": _resident_bytes(),
        }

    def _describe(self) -> dict[str, Any]:
        table = self._routing.table
        return {
            "product": self._product,
            "epoch": table.epoch if table else 0,
            "number_of_slots": self._loop.number_of_slots,
            "slot_function": self._slot_function,
            "databases": self._databases,
            "groups": len(table.groups) if table else 0,
            "workers": self._settings.worker_count,
            "instance": self._options.instance,
        }


def _resident_bytes() -> int:
    """Memory of this process; where the system does not tell (macOS), the most it has had."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def serve(descriptor: int) -> int:
    """Be a worker on the channel whose socket is ``descriptor``; the exit status."""
    channel = await Channel.open(socket.socket(fileno=descriptor))
    start = await channel.receive()
    if start is None:
        return 1
    if start["type"] != "start":
        raise SystemExit(f"the first message is {start['type']!r}, not 'start'")
    logs.configure(start["settings"]["log_level"])
    return await Worker(channel, start).run()


def main() -> None:
    """``python -m proxy.worker --channel FD``; started by the supervisor."""
    parser = argparse.ArgumentParser(description="A worker of a Slotferry proxy. Started by 'slotferry proxy'.")
    parser.add_argument("--channel", type=int, required=True, help="file descriptor of the channel to the supervisor")
    status = uvloop.run(serve(parser.parse_args().channel))
    # Nothing is left to clean up; the interpreter's own shutdown would only take time.
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
