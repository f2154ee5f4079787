"""Commands that wait at a server: BLPOP and similar, XREAD and XREADGROUP with BLOCK, WAIT, and CLIENT UNBLOCK.

Pops take what is there by now before they get here (:mod:`proxy.engine.pops`). A command that has to wait does so on a
connection of its session's own; for keys of several slots, it waits in the proxy
(:mod:`proxy.commands.blocking.overslots`). LMPOP and ZMPOP, which do not wait, come here for such keys only.
**drained**: waiting commands of a slot hold up its lock, so they are unblocked when the slot leaves its server. The
command then waits in the proxy until the slot is served again, and goes to the new server with the rest of its timeout.
**in-order**: a command waits once everything before it has been answered, and later requests wait for its reply.
**bounded**: ``own_connections`` of :mod:`proxy.servers.ownconnections`.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import Any

from proxy.commands import replies
from proxy.commands.blocking import acknowledged, streamreads
from proxy.commands.blocking.blockedcommand import ERROR, TIMEOUT, BlockedCommand
from proxy.commands.blocking.blockingrequest import BlockingRequest
from proxy.commands.blocking.overslots import OverSlots
from proxy.commands.blocking.waiter import NO_SLOT, UNBLOCKED, Waiter
from proxy.commands.family import Answer, Decided, Family, Handler
from proxy.commands.keyreads import Held
from proxy.commands.serverversions import ServerVersions
from proxy.commands.services import Services
from proxy.commands.state import state_of
from proxy.engine.outcomes import ASKED, Outcome, Reply, nothing_owed
from proxy.engine.refusals import NO_SERVER
from proxy.engine.router import LOCKED, OPEN
from proxy.engine.session import Session
from proxy.servers.ownconnections import OwnConnection, OwnConnectionError
from slots import commands
from slots.commands import Command, Route, Timeout
from slots.keys import INTEGER, NOT_AN_INTEGER
from slots.messages.questions import Asked, Unblock
from slots.table import SlotTable


class BlockingCommands(Family):
    """The family's handlers.

    Args:
        services: the worker's parts.
        versions: knows servers that cannot tell of changes.
        held: what all requests over several slots keep.
    """

    def __init__(self, services: Services, versions: ServerVersions, held: Held) -> None:
        self._services = services
        self._versions = versions
        self._over_slots = OverSlots(services, held)
        self._router = services.router
        self._own = services.own
        self._reply_seconds = services.settings.backend_reply_seconds
        # In the order in which they began to wait, in which they also go on.
        self._waiters: dict[int, Waiter] = {}
        self._pops = {
            command.name.encode(): (command, command.timeout)
            for command in commands.table().values()
            if command.route is Route.BLOCKING and command.timeout is not None
        }
        services.router.blocking = self
        self._parked: dict[Waiter, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {
            **{command.name: partial(self.pop, command, timeout) for command, timeout in self._pops.values()},
            **dict.fromkeys(("LMPOP", "ZMPOP"), self._over_slots.take_now),
            "XREAD": self.read,
            "XREADGROUP": self.read,
            "WAIT": self.wait,
            "WAITAOF": self.wait,
            "CLIENT|UNBLOCK": self.client_unblock,
        }

    def answers(self) -> dict[type[Asked], Answer]:
        """That about CLIENT UNBLOCK."""
        return {Unblock: self._answer_unblock}

    # -- requests ------------------------------------------------------------------------------------------

    async def pop(self, command: Command, limit: Timeout, session: Session, argv: list[bytes]) -> Outcome:
        """BLPOP, BRPOP, BLMOVE, BRPOPLPUSH, BLMPOP, BZPOPMIN, BZPOPMAX, BZMPOP."""
        keys = commands.keys_of(command, argv)
        request = self._request(argv, limit)
        if self._over_slots.takes(session.database, argv[0], keys):
            if self._versions.old:
                # It cannot tell of changes: refused, as all else over slots.
                return keys
            if request.refused:
                # Its server says why, which looks at the timeout first.
                for place in commands.key_positions(command, argv):
                    request.argv[place] = keys[0]
                keys = keys[:1]
        await nothing_owed()
        return await self._block(Waiter(session, request), keys, {})

    def _request(self, argv: list[bytes], limit: Timeout) -> BlockingRequest:
        return BlockingRequest(argv, limit.place % len(argv), limit.milliseconds, self._time())

    async def read(self, session: Session, argv: list[bytes]) -> Outcome:
        """XREAD and XREADGROUP. Those without BLOCK are routed like any other command, if their keys share a slot."""
        how = streamreads.parse(argv)
        keys = [argv[place] for place in how.keys]
        over_slots = self._over_slots.takes(session.database, argv[0], keys)
        if how.block is None:
            return await self._over_slots.streams.read(session, argv, how) if over_slots else keys
        if over_slots and self._versions.old:
            # It cannot tell of changes: refused, as all else over slots.
            return keys
        await nothing_owed()
        waiter = Waiter(session, BlockingRequest(argv, how.block, True, self._time()))
        return await self._block(waiter, keys, how.newest(argv))

    async def wait(self, session: Session, argv: list[bytes]) -> Outcome:
        """WAIT replicas timeout, WAITAOF local replicas timeout."""
        await nothing_owed()
        masters = self._services.masters()
        if not masters:
            return NO_SERVER
        waiter = Waiter(session, BlockingRequest(argv, len(argv) - 1, True, self._time()))
        waiter.followed = True
        self._waiters[session.id] = waiter
        state_of(session).blocking = waiter.request
        try:
            said = await asyncio.gather(*(self._wait_at(waiter, address) for address in masters))
        finally:
            self._forget(waiter)
        errors = [reply for reply in said if reply.startswith(b"-")]
        if not errors:
            return acknowledged.smallest(said)
        if waiter.asked is None and waiter.closing:
            session.close()
        # A wait that was ended because of another's error has no word of its own.
        return next((error for error in errors if not error.startswith(b"-UNBLOCKED ")), errors[0])

    async def _block(
        self, waiter: Waiter, keys: list[bytes], newest: dict[int, bytes], reply: bytes | None = None
    ) -> bytes:
        """Wait at the server of the keys' slot, or over their slots. If the slot leaves its server, go to the next one.

        ``reply`` is that of the first server, if it has waited there by now.
        """
        waiter.followed = True
        try:
            while True:
                if reply is None:
                    waiter.leaving = waiter.stopped = False
                    if self._over_slots.takes(waiter.session.database, waiter.request.argv[0], keys):
                        self._begin(waiter, NO_SLOT)
                        reply = await self._over_slots.take(waiter)
                    else:
                        reply = await self._at_server(waiter, keys, newest)
                if not reply.startswith(b"-UNBLOCKED "):
                    return reply
                # It has run nothing.
                over = await self._after_unblocking(waiter, reply)
                if over is not None:
                    return over
                reply = None
        except OwnConnectionError as error:
            return error.reply
        finally:
            self._forget(waiter)

    # -- pops for which there is nothing by now: the engine goes on with their replies --------------------------

    def begin_wait(self, session: Session, argv: list[bytes], heard: Callable[[bytes], None]) -> Decided:
        """Have a pop wait at the server of its keys, which has nothing for it.

        ``heard`` gets the server's reply, unless a handler has to do more than to ask.
        """
        command, limit = self._pops[argv[0].upper()]
        keys = commands.keys_of(command, argv)
        slot, *others = {self._router.slot_of_key(session.database, key) for key in keys}
        state, address, _ = self._router.route(slot)
        # drained: the slot's way is free in this step. in-order: nothing is owed. Rules may have changed meanwhile.
        if others or state != OPEN or address is None or session.owed:
            return self.pop(command, limit, session, argv)
        connection = self._own.take_idle(address, session.database, session.protocol)
        if connection is None:
            return self.pop(command, limit, session, argv)
        waiter = Waiter(session, self._request(argv, limit))
        self._begin(waiter, slot)
        running = self._command(connection, slot).begin()
        waiter.commands = [running]
        now = self._time()
        try:
            running.send(waiter.request.payload(now), waiter.request.left(now) + self._reply_seconds, heard)
        except MemoryError:
            running.leave()
            self._forget(waiter)
            raise
        return ASKED

    def came_back(self, session: Session, reply: bytes) -> None:
        """The reply of such a pop has come."""
        waiter = self._waiters.get(session.id)
        if waiter is not None and not reply.startswith(b"-UNBLOCKED "):
            self._forget(waiter)

    def unblocked(self, session: Session, argv: list[bytes], reply: bytes) -> Decided:
        """Such a pop has come back with nothing. It may have to go to the slot's next server."""
        command, _ = self._pops[argv[0].upper()]
        return self._block(self._waiters[session.id], commands.keys_of(command, argv), {}, reply)

    def session_closed(self, session: Session) -> None:
        """End its wait. A handler that follows it is cancelled, and does the same."""
        waiter = self._waiters.get(session.id)
        if waiter is not None and not waiter.followed:
            self._forget(waiter)
            for running in waiter.commands:
                running.stop(ERROR)

    # -- at the server -----------------------------------------------------------------------------------------

    async def _at_server(self, waiter: Waiter, keys: list[bytes], newest: dict[int, bytes]) -> bytes:
        """The server's reply; UNBLOCKED if the waiter was stopped before it was asked."""
        session, request = waiter.session, waiter.request
        try:
            connection, slot = await self._own.take_for(session, keys, partial(self._making, waiter))
        except asyncio.CancelledError:
            if not waiter.stopped or session.closed:
                raise
            return UNBLOCKED
        self._begin(waiter, slot)
        with self._command(connection, slot) as command:
            waiter.commands = [command]
            if waiter.stopped:
                # It was stopped in the moment in which the connection was there.
                return UNBLOCKED
            unknown = {place: key for place, key in newest.items() if place not in request.ids}
            found = await streamreads.ask_newest(connection, unknown) if unknown else {}
            if command.stopped:
                return UNBLOCKED
            now = self._time()
            reply = await command.ask(request.payload(now), request.left(now) + self._reply_seconds)
        if reply.startswith(b"-UNBLOCKED "):
            request.ids.update(found)
        return reply

    def _making(self, waiter: Waiter, task: "asyncio.Task[OwnConnection]", slot: int) -> None:
        # A slot that is held is told of when it leaves its server, and then the connection is no longer waited for.
        self._router.loop.hold_slot(slot)
        waiter.making = {task}
        # drained: as soon as the connection is there, for the keys' way is looked at again, and may be locked by then.
        task.add_done_callback(partial(self._made, waiter, slot))
        self._begin(waiter, slot)

    def _made(self, waiter: Waiter, slot: int, task: "asyncio.Task[OwnConnection]") -> None:
        waiter.making.discard(task)
        self._router.loop.release_slot(slot)

    def _begin(self, waiter: Waiter, slot: int) -> None:
        """From now on it waits for the server of a slot, and may be stopped."""
        waiter.slot = slot
        waiter.commands = []
        self._waiters[waiter.session.id] = waiter
        state_of(waiter.session).blocking = waiter.request

    def _forget(self, waiter: Waiter) -> None:
        session = waiter.session
        if self._waiters.get(session.id) is waiter:
            del self._waiters[session.id]
            state_of(session).blocking = None

    def _command(self, connection: OwnConnection, slot: int) -> BlockedCommand:
        return BlockedCommand(self._own, self._router, self._reply_seconds, self._start, connection, slot)

    def _time(self) -> float:
        return self._router.loop.event_loop.time()

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._router.loop.work_time.task(coroutine))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _after_unblocking(self, waiter: Waiter, reply: bytes) -> bytes | None:
        """The reply to a request that came back from its server, where it has run nothing; None if it goes to another
        one."""
        session = waiter.session
        if waiter.leaving and not waiter.closing and not await self._unlocked(waiter):
            return waiter.request.nothing(session.protocol)
        if waiter.asked == TIMEOUT:
            return waiter.request.nothing(session.protocol)
        if waiter.asked is None and waiter.closing:
            session.close()
        return None if waiter.leaving and waiter.asked is None else reply

    async def _unlocked(self, waiter: Waiter) -> bool:
        """Wait until the slot is not locked, or the waiter is stopped; false when its time is over."""
        deadline, event_loop = waiter.request.deadline, self._router.loop.event_loop
        self._parked[waiter] = None
        timer = None if deadline is None else event_loop.call_at(deadline, self._time_is_over, waiter)
        try:
            while self._locked(waiter.slot) and not (waiter.closing or waiter.asked is not None):
                waiter.parked = Reply(loop=event_loop)
                if not await waiter.parked:
                    return False
        finally:
            waiter.parked = None
            del self._parked[waiter]
            if timer is not None:
                timer.cancel()
        return True

    def _time_is_over(self, waiter: Waiter) -> None:
        if waiter.parked is not None:
            waiter.parked.give(False)

    def _locked(self, slot: int) -> bool:
        return self._router.route(slot)[0] == LOCKED

    async def _wait_at(self, waiter: Waiter, address: str) -> bytes:
        """Wait at one server."""
        request = waiter.request
        making = self._own.make(address, 0, 2)
        waiter.making.add(making)
        try:
            connection = await self._own.made(making)
        except OwnConnectionError as error:
            reply = error.reply
        except asyncio.CancelledError:
            if not waiter.stopped or waiter.session.closed:
                raise
            reply = _stopped(waiter)
        else:
            with self._command(connection, NO_SLOT) as command:
                waiter.commands.append(command)
                now = self._time()
                limit = request.left(now) + self._reply_seconds
                if not waiter.stopped:
                    reply = await acknowledged.ask(command, request.payload(now), limit)
                else:
                    reply = _stopped(waiter)
        finally:
            waiter.making.discard(making)
        if reply.startswith(b"-"):
            waiter.stop(ERROR)
        return reply

    # -- ending the wait -----------------------------------------------------------------------------------

    def slots_leaving(self, slots: Collection[int]) -> None:
        """drained: commands that wait at the slots' servers are unblocked, and run again elsewhere."""
        for waiter in list(self._waiters.values()):
            if waiter.slot in slots:
                waiter.leaving = True
                waiter.stop(ERROR)

    def retiring(self, session: Session) -> None:
        """Close a waiting session that has received nothing. If its reply came just then, the session gets it first."""
        self.says_no_more(session)

    def says_no_more(self, session: Session) -> bool:
        """The same for a session whose client says no more: it may still listen. False if the session does not wait."""
        waiter = self._waiters.get(session.id)
        if waiter is None or not waiter.waits:
            return False
        waiter.closing = True
        waiter.stop(ERROR)
        return True

    def table_applied(self, table: SlotTable) -> None:
        """Slots may have been unlocked."""
        self._over_slots.keys.table_applied(table)
        self._go_on()

    def tick(self) -> None:
        """Called ten times a second."""
        if self._versions.old:
            self._over_slots.keys.refuse_all(f"{self._versions.old[0]} is older than Redis 6")
        self._over_slots.keys.tick()
        self._go_on()

    def _go_on(self) -> None:
        """Let commands go on whose slot is served again."""
        for waiter in list(self._parked):
            if waiter.parked is not None and not self._locked(waiter.slot):
                waiter.parked.give(True)

    async def close(self) -> None:
        """The worker ends."""
        self._over_slots.keys.close()
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
        answers = await self._services.ask_all(Unblock(number=int(argv[2]), error=reason == ERROR))
        return replies.integer(max(answers, default=0))

    def _answer_unblock(self, question: Unblock) -> Any:
        waiter = self._waiters.get(question.number)
        return None if waiter is None else self._unblock(waiter, ERROR if question.error else TIMEOUT)

    async def _unblock(self, waiter: Waiter, reason: bytes) -> int:
        """1 if this ended the session's wait, else 0."""
        if waiter.asked is not None or not waiter.waits:
            return 0
        pending = waiter.parked is not None or bool(waiter.making)
        running = [command for command in waiter.commands if not command.over]
        waiter.asked = reason
        waiter.stop(reason)
        return int(pending or any([await command.unblocked() for command in running]))


def _stopped(waiter: Waiter) -> bytes:
    """A server's reply to a WAIT that was not sent."""
    return waiter.request.nothing(2) if waiter.asked == TIMEOUT else UNBLOCKED
