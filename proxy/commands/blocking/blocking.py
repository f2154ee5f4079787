"""Commands that wait at a server: BLPOP and similar, XREAD and XREADGROUP with BLOCK, WAIT, and CLIENT UNBLOCK.

Pops first take what is there by now. A command that has to wait does so on a connection of its session's own.
**drained**: waiting commands of a slot hold up its lock, so they are unblocked when the slot leaves its server. The
command then waits in the proxy until the slot is served again, and goes to the new server with the rest of its timeout.
**in-order**: a command is looked at once everything before it has been answered, and later requests wait for its reply.
**bounded**: ``own_connections`` of :mod:`proxy.servers.ownconnections`.
"""

import asyncio
from collections.abc import Collection, Coroutine
from functools import partial
from typing import Any

from proxy.channel import Message
from proxy.commands import replies
from proxy.commands.blocking import acknowledged, streamreads
from proxy.commands.blocking.blockedcommand import ERROR, TIMEOUT, BlockedCommand, StoppedError
from proxy.commands.blocking.blockingrequest import BlockingRequest
from proxy.commands.family import Answer, Family, Handler
from proxy.commands.services import Services
from proxy.commands.state import state_of
from proxy.engine.backend import command as make_request
from proxy.engine.multi import EXEC, MULTI
from proxy.engine.outcomes import Outcome, Reply, clear, nothing_owed
from proxy.engine.refusals import NO_SERVER
from proxy.engine.router import LOCKED
from proxy.engine.session import Session
from proxy.servers import slotrequests
from proxy.servers.ownconnections import OwnConnection, OwnConnectionError
from slots import commands
from slots.commands import Command, Route, Timeout
from slots.keys import INTEGER, NOT_AN_INTEGER
from slots.table import SlotTable

ONE_REPLY = b"*1\r\n"
"""The beginning of the reply to EXEC after one command."""
REFUSED = b"-EXECABORT"
NOTHING = (b"*-1\r\n", b"$-1\r\n", b"_\r\n")
UNBLOCKED = b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"
NO_SLOT = -1


class Waiter:
    """A session whose request at the front waits at one or more servers."""

    __slots__ = (
        "asked",
        "changed",
        "closing",
        "commands",
        "leaving",
        "newest",
        "outcome",
        "parked",
        "request",
        "session",
        "slot",
    )

    def __init__(self, session: Session, request: BlockingRequest, slot: int) -> None:
        self.session = session
        self.request = request
        self.slot = slot
        self.commands: list[BlockedCommand] = []
        self.newest: dict[int, bytes] = {}
        self.outcome: Reply[bytes | None] = Reply()
        """The reply; None if the command has to go to another server."""
        self.leaving = False
        """Whether its slot is leaving the server."""
        self.asked: bytes | None = None
        """The reason that another client gave with CLIENT UNBLOCK: TIMEOUT or ERROR."""
        self.closing = False
        """Whether its session is closed instead of getting the reply that nothing came."""
        self.parked = False
        """Whether it waits in the proxy for its slot to be unlocked."""
        self.changed = asyncio.Event()

    def stop(self, reason: bytes) -> None:
        """Have it come back from the servers."""
        self.changed.set()
        for command in self.commands:
            command.stop(reason)


class BlockingCommands(Family):
    """The family's handlers.

    Args:
        services: the worker's parts.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._router = services.router
        self._reply_seconds = services.settings.backend_reply_seconds
        self._waiters: dict[int, Waiter] = {}
        # The order in which they began to wait, in which they also go on.
        self._at_slot: dict[int, dict[Waiter, None]] = {}
        self._parked: dict[Waiter, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {
            **{
                name: partial(self.pop, command, command.timeout)
                for name, command in commands.table().items()
                if command.route is Route.BLOCKING and command.timeout is not None
            },
            "XREAD": self.read,
            "XREADGROUP": self.read,
            "WAIT": self.wait,
            "WAITAOF": self.wait,
            "CLIENT|UNBLOCK": self.client_unblock,
        }

    def answers(self) -> dict[str, Answer]:
        """Answers to other workers' questions."""
        return {"unblock": self._answer_unblock}

    # -- requests ------------------------------------------------------------------------------------------

    async def pop(self, command: Command, limit: Timeout, session: Session, argv: list[bytes]) -> Outcome:
        """BLPOP, BRPOP, BLMOVE, BRPOPLPUSH, BLMPOP, BZPOPMIN, BZPOPMAX, BZMPOP."""
        keys = commands.keys_of(command, argv)
        await nothing_owed()
        request = BlockingRequest(argv, limit.place % len(argv), limit.milliseconds, self._time())
        reply = await self._at_once(session, keys, argv)
        return reply if reply is not None else await self._block(session, keys, request, {})

    async def _at_once(self, session: Session, keys: list[bytes], argv: list[bytes]) -> bytes | None:
        """The reply if there is something by now. That needs no connection of its own: in a transaction, none waits."""
        slot, address = await clear(keys)
        payload = MULTI + make_request(tuple(argv)) + EXEC
        backend = self._router.shared(session, address)
        reply = await slotrequests.send(self._router, slot, backend, payload, 2, slotrequests.as_it_came)
        if reply.startswith(REFUSED):
            # Without MULTI the server says why.
            return None
        reply = reply.removeprefix(ONE_REPLY)
        return None if reply in NOTHING else reply

    async def read(self, session: Session, argv: list[bytes]) -> Outcome:
        """XREAD and XREADGROUP. Those without BLOCK are routed like any other command."""
        how = streamreads.parse(argv)
        keys = [argv[place] for place in how.keys]
        if how.block is None:
            return keys
        await nothing_owed()
        return await self._block(session, keys, BlockingRequest(argv, how.block, True, self._time()), how.newest(argv))

    async def wait(self, session: Session, argv: list[bytes]) -> Outcome:
        """WAIT replicas timeout, WAITAOF local replicas timeout."""
        await nothing_owed()
        request = BlockingRequest(argv, len(argv) - 1, True, self._time())
        masters = self._services.masters()
        if not masters:
            return NO_SERVER
        waiter = Waiter(session, request, NO_SLOT)
        waiter.commands.extend(self._command() for _ in masters)
        return await self._outcome(waiter, self._run_everywhere(waiter, masters)) or UNBLOCKED

    async def _block(
        self, session: Session, keys: list[bytes], request: BlockingRequest, newest: dict[int, bytes]
    ) -> bytes:
        """Wait at the server of the keys' slot. If the slot leaves it, wait at its next server."""
        while True:
            slot, address = await clear(keys)
            waiter = Waiter(session, request, slot)
            waiter.newest = newest
            waiter.commands.append(self._command())
            # drained: the slot is held until the server has nothing left to run of it.
            self._router.loop.hold_slot(slot)
            self._at_slot.setdefault(slot, {})[waiter] = None
            reply = await self._outcome(waiter, self._run(waiter, address))
            if reply is not None:
                return reply

    def _time(self) -> float:
        return self._router.loop.event_loop.time()

    def _command(self) -> BlockedCommand:
        return BlockedCommand(self._services.own, self._router, self._reply_seconds, self._start)

    async def _outcome(self, waiter: Waiter, running: Coroutine[Any, Any, bytes | None]) -> bytes | None:
        """Wait at the servers; give the reply, or None if the command has to go to another server."""
        self._waiters[waiter.session.id] = waiter
        state_of(waiter.session).blocking = waiter.request
        # A task of its own: once a command is sent, it is followed to its end, even if the client leaves.
        self._start(self._finish(waiter, running))
        try:
            return await waiter.outcome
        finally:
            self._forget(waiter)
            state_of(waiter.session).blocking = None

    async def _finish(self, waiter: Waiter, running: Coroutine[Any, Any, bytes | None]) -> None:
        try:
            outcome = await running
        except Exception as error:
            waiter.outcome.fail(error)
        else:
            waiter.outcome.give(outcome)

    def _forget(self, waiter: Waiter) -> None:
        if self._waiters.get(waiter.session.id) is waiter:
            del self._waiters[waiter.session.id]

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- at the servers ------------------------------------------------------------------------------------

    async def _run(self, waiter: Waiter, address: str) -> bytes | None:
        """Wait at the server of the slot; give the reply, or None if the slot has another server now."""
        session = waiter.session
        command = waiter.commands[0]
        try:
            reply = await command.run(address, session.database, session.protocol, partial(self._talk, waiter, command))
        except OwnConnectionError as error:
            reply = error.reply
        except StoppedError:
            reply = UNBLOCKED
        finally:
            del self._at_slot[waiter.slot][waiter]
            if not self._at_slot[waiter.slot]:
                del self._at_slot[waiter.slot]
            self._router.loop.release_slot(waiter.slot)
        return await self._after_unblocking(waiter, reply) if reply.startswith(b"-UNBLOCKED ") else reply

    async def _talk(self, waiter: Waiter, command: BlockedCommand, connection: OwnConnection) -> bytes:
        request = waiter.request
        newest = {place: key for place, key in waiter.newest.items() if place not in request.ids}
        found = await streamreads.ask_newest(connection, newest) if newest else {}
        if command.stopped:
            raise StoppedError
        now = self._time()
        reply = await connection.ask(request.payload(now), request.left(now) + self._reply_seconds)
        if reply.startswith(b"-UNBLOCKED "):
            request.ids.update(found)
        return reply

    async def _after_unblocking(self, waiter: Waiter, reply: bytes) -> bytes | None:
        """What to do with a request that came back from its server, where it has run nothing."""
        request = waiter.request
        if waiter.leaving and not waiter.closing:
            waiter.parked = True
            self._parked[waiter] = None
            try:
                async with asyncio.timeout_at(request.deadline):
                    while self._locked(waiter.slot) and not self._given_up(waiter):
                        waiter.changed.clear()
                        await waiter.changed.wait()
            except TimeoutError:
                return request.nothing(waiter.session.protocol)
            finally:
                waiter.parked = False
                del self._parked[waiter]
        if waiter.asked == TIMEOUT:
            return request.nothing(waiter.session.protocol)
        if waiter.asked is None and waiter.closing:
            waiter.session.close()
        return None if waiter.leaving and waiter.asked is None else reply

    def _given_up(self, waiter: Waiter) -> bool:
        return waiter.session.closed or waiter.closing or waiter.asked is not None

    def _locked(self, slot: int) -> bool:
        return self._router.route(slot)[0] == LOCKED

    async def _run_everywhere(self, waiter: Waiter, masters: list[str]) -> bytes:
        """Wait at all masters at once; give the smallest count, or the first error."""
        said = await asyncio.gather(
            *(self._run_at(waiter, command, address) for command, address in zip(waiter.commands, masters, strict=True))
        )
        errors = [reply for reply in said if reply.startswith(b"-")]
        if not errors:
            return acknowledged.smallest(said)
        if waiter.asked is None and waiter.closing:
            waiter.session.close()
        # A wait that was ended because of another's error has no word of its own.
        return next((error for error in errors if not error.startswith(b"-UNBLOCKED ")), errors[0])

    async def _run_at(self, waiter: Waiter, command: BlockedCommand, address: str) -> bytes:
        request = waiter.request

        async def talk(connection: OwnConnection) -> bytes:
            now = asyncio.get_running_loop().time()
            return await acknowledged.ask(connection, request.payload(now), request.left(now) + self._reply_seconds)

        try:
            reply = await command.run(address, 0, 2, talk)
        except OwnConnectionError as error:
            reply = error.reply
        except StoppedError:
            reply = request.nothing(2) if waiter.asked == TIMEOUT else UNBLOCKED
        if reply.startswith(b"-"):
            waiter.stop(ERROR)
        return reply

    # -- ending the wait -----------------------------------------------------------------------------------

    def slots_leaving(self, slots: Collection[int]) -> None:
        """drained: commands that wait at the slots' servers are unblocked, and run again elsewhere."""
        for slot in [slot for slot in self._at_slot if slot in slots]:
            for waiter in list(self._at_slot[slot]):
                waiter.leaving = True
                waiter.stop(ERROR)

    def session_closed(self, session: Session) -> None:
        """When a client leaves, its command at the server is ended."""
        waiter = self._waiters.pop(session.id, None)
        if waiter is not None:
            waiter.stop(ERROR)

    def retiring(self, session: Session) -> None:
        """Close a waiting session that has received nothing. If its reply came just then, the session gets it first."""
        waiter = self._waiters.get(session.id)
        if waiter is not None:
            waiter.closing = True
            waiter.stop(ERROR)

    def table_applied(self, table: SlotTable) -> None:
        """Slots may have been unlocked."""
        self.tick()

    def tick(self) -> None:
        """Let commands go on whose slot is served again."""
        for waiter in self._parked:
            if not self._locked(waiter.slot):
                waiter.changed.set()

    async def close(self) -> None:
        """The worker ends."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- CLIENT UNBLOCK ------------------------------------------------------------------------------------

    async def client_unblock(self, session: Session, argv: list[bytes]) -> Outcome:
        """CLIENT UNBLOCK id [TIMEOUT | ERROR]."""
        if len(argv) > 4:
            name = replies.shown(argv[1])
            return replies.error(f"ERR unknown subcommand or wrong number of arguments for '{name}'. Try CLIENT HELP.")
        reason = argv[3].upper() if len(argv) == 4 else TIMEOUT
        if reason not in (TIMEOUT, ERROR):
            return replies.error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
        if not INTEGER.fullmatch(argv[2]) or not -(2**63) <= int(argv[2]) < 2**63:
            return replies.error(NOT_AN_INTEGER)
        answers = await self._services.ask_all("unblock", number=int(argv[2]), reason=reason.decode())
        return replies.integer(max(answers, default=0))

    def _answer_unblock(self, message: Message) -> Any:
        waiter = self._waiters.get(message["number"])
        return None if waiter is None else self._unblock(waiter, message["reason"].encode())

    async def _unblock(self, waiter: Waiter, reason: bytes) -> int:
        """1 if this ended the session's wait, else 0."""
        running = [command for command in waiter.commands if not command.over]
        if waiter.outcome.done() or waiter.asked is not None or not (running or waiter.parked):
            return 0
        waiter.asked = reason
        waiter.stop(reason)
        return int(waiter.parked or any([await command.unblocked() for command in running]))
