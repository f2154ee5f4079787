"""Moves keys from one source to one target within one database: *take*, *place*, *drop*, a batch of keys at a time.

docs/moving-keys.md says how these steps uphold **absent-first** and **one-way**. If the reply to a step does not come,
its outcome is unknown, and the permit is doubted: it is renewed before anything else is taken.

**bounded**: a key that is not moved by its deadline is given up, and the sessions that wait for it get an error. Two
batches are under way at a time, so that one is taken while the other is placed.
"""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import Any, Protocol

import hiredis
import structlog

from proxy.engine.backend import Backend, command
from proxy.engine.router import Router
from proxy.moving.move import Move, Origin
from proxy.moving.permits import Permits
from proxy.settings import ProxySettings
from slots import moving, scripts
from slots.moving import DROP, PLACE, TAKE, Taken
from slots.permits import processes_of
from slots.replies import NotUnderstood, integer
from slots.scripts import Script

log = structlog.get_logger()

MOST_UNDER_WAY = 2
RETRY_SECONDS = 0.02
"""Seconds before keys that could not be moved are tried again."""
BATCH_KEYS = 64
"""Most keys of waiting commands that move in one step. A step of so many small keys takes less than a millisecond."""
BATCH_BYTES = 512 * 1024
"""A batch takes no more keys once it has so many bytes."""
LOOK_SECONDS, MOST_LOOK_SECONDS = 0.002, 0.05
"""Seconds before a key that another mover moves is looked for again, at first and at most. In between it is a quarter
of the time that the move has taken so far."""
BUSY_SECONDS = 2.0
"""Seconds after which another mover of a small key is taken for dead, and the permit renewed. It is half of
``move_seconds`` if that is less, for otherwise the waiting sessions would have given up before."""
ASK_SECONDS = 1.0
"""Seconds between two requests to the migrator for the same key."""
CONFIRM_SECONDS = 1.0
"""Seconds for the target's replicas to confirm keys; less if ``move_seconds`` is short."""
PIECES = b"-it goes in pieces"
FULL = b"OOM"
"""Part of the error of a target that is at its maxmemory."""
FINAL_ERRORS = (FULL, b"READONLY", b"NOAUTH", b"WRONGPASS", b"NOPERM", b"MISCONF", b"Bad data format")
"""Parts of errors that another try soon would not cure."""
NOT_PERMITTED = b"-" + scripts.NOT_PERMITTED.encode()

Arguments = tuple[str | bytes | int, ...]


class Mover(Protocol):
    """The part of the :class:`proxy.moving.migrating.KeyMover` that its batches use."""

    permits: Permits

    @property
    def router(self) -> Router:
        """The router whose keys are moved."""

    @property
    def settings(self) -> ProxySettings:
        """The proxy's settings."""

    def finish(self, move: Move, error: bytes | None) -> None:
        """A move is over."""

    def drop(self, move: Move) -> None:
        """Move nothing; the waiting sessions look again, by the present table."""

    def found_big(self, move: Move, origin: Origin) -> None:
        """A key goes in pieces from ``origin``, where it may be read meanwhile."""

    def refuse(self, move: Move, error: bytes) -> None:
        """A target takes no keys: reads and deletes run at the source, and other requests get the error."""

    def is_current(self, move: Move, origin: Origin, target: str) -> bool:
        """Whether the slot still migrates between the same groups, by the same action, as when the move was asked
        for."""

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` in the background."""


class _Refused(Exception):
    """A server's answer to a step is an error, or not of the expected form. ``reply`` is the error, of the protocol."""

    def __init__(self, reply: bytes) -> None:
        super().__init__(reply.decode(errors="replace"))
        self.reply = reply


class _End:
    """The connection to one end, over which scripts run there."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        # run-id: the number of the connection whose server has been compared with the permit.
        self._checked = 0

    @property
    def is_compared(self) -> bool:
        """Whether the next bytes use the connection that answered the last script, or none."""
        return self.backend.is_ready and self.backend.connects == self._checked

    async def run(self, script: Script, arguments: Callable[[bool], Arguments]) -> list[Any]:
        """Run a script; give its reply. The argument of ``arguments`` says whether the permit's run id has to be
        compared.

        Raises :class:`_Refused`.
        """
        reply = await self._ask(("EVALSHA", script.digest), arguments)
        if reply.startswith(b"-NOSCRIPT"):
            reply = await self._ask(("EVAL", script.text), arguments)
        if not reply.startswith(b"*"):
            raise _Refused(reply if reply.startswith(b"-") else b"-it does not answer a script")
        reader = hiredis.Reader()
        reader.feed(reply)
        found: list[Any] = reader.gets()
        return found

    async def _ask(self, script: tuple[str, str], arguments: Callable[[bool], Arguments]) -> bytes:
        # In one step: bytes over a ready connection reach the process that was compared, or no process.
        check = not self.is_compared
        answered = self.backend.ask(command((*script, *arguments(check))))
        # Not later: when the reply comes, there may be another connection.
        number = self.backend.connects
        reply = await answered
        if reply.startswith(b"*"):
            self._checked = number
        return reply


class KeyBatches:
    """Moves the waiting keys, in their order."""

    def __init__(self, mover: Mover, origin: Origin, target: str, database: int) -> None:
        settings = mover.settings
        self._mover = mover
        self._origin = origin
        self._target = target
        self._database = database
        self._waiting: deque[Move] = deque()
        self._under_way = 0
        self._scheduled = False
        # Keys that other movers move, between two looks at them.
        self._busy_keys = 0
        # How many times the connections were ended because of another table.
        self._left = 0
        self._name = secrets.token_hex(8)

        def end(address: str) -> _End:
            loop, options = mover.router.loop, mover.router.options
            return _End(Backend(loop, address, database, 2, options, settings.move_seconds))

        self._source_end = end(origin.address)
        self._target_end = end(target)

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is on its way."""
        return not self._under_way and not self._waiting and not self._busy_keys

    @property
    def backends(self) -> tuple[Backend, Backend]:
        """Its connections: to the source, and to the target."""
        return self._source_end.backend, self._target_end.backend

    def leave(self, servers: Collection[str], reason: str) -> None:
        """End the connections to these servers; keys under way there are moved again, by the present table."""
        for backend in self.backends:
            if backend.address in servers:
                self._left += 1
                backend.reset(reason)

    def add(self, move: Move) -> None:
        """Move a key with the next batch, which begins with the next turn of the event loop."""
        move.ask_again()
        self._waiting.append(move)
        self._schedule()

    def _schedule(self, delay: float = 0.0) -> None:
        # Never from within `add`: the session that asked has to stop before it can be woken.
        if self._under_way < MOST_UNDER_WAY and not self._scheduled and self._waiting:
            self._scheduled = True
            asyncio.get_running_loop().call_later(delay, self._next)

    def _next(self) -> None:
        self._scheduled = False
        now = time.monotonic()
        batch: list[Move] = []
        late: list[Move] = []
        # bounded: there is a limit for a turn even if keys need not be moved, so that others have their turn.
        for _ in range(min(len(self._waiting), BATCH_KEYS)):
            move = self._waiting.popleft()
            if not self._is_current(move):
                # one-owner: the source or the target is another server by now.
                self._mover.drop(move)
                continue
            (batch if move.deadline > now else late).append(move)
        if batch:
            self._under_way += 1
            self._mover.start(self._carry(batch))
        self._schedule()
        for move in late:
            # bounded
            why = PIECES if move.big_since else move.refused or b"-others were moved before it, or hold it"
            self._mover.finish(move, self._error(why))

    def _is_current(self, move: Move) -> bool:
        return self._mover.is_current(move, self._origin, self._target)

    async def _carry(self, batch: list[Move]) -> None:
        left = dict.fromkeys(batch)
        delay = 0.0
        try:
            delay = await self._move(left)
        except Exception as error:
            # drained: these keys hold their slots until the waiting sessions know the outcome.
            log.exception("keys_not_moved", source=self._origin.address, target=self._target)
            self._failed(list(left), b"-" + (str(error) or type(error).__name__).encode())
        finally:
            self._under_way -= 1
            self._schedule(delay)

    async def _move(self, left: dict[Move, None]) -> float:
        """Move keys, and remove finished ones from ``left``; give the seconds to wait after that."""
        batch = list(left)
        permit = self._permits.get(self._origin.address, self._target)
        leavings = self._left
        now = time.monotonic()
        asks = any(now - move.asked_at > ASK_SECONDS for move in batch)
        try:
            taken = await self._take(permit, batch, asks)
        except (_Refused, NotUnderstood) as broken:
            return await self._broken_off(permit, left, broken)
        here = {*taken.places, *taken.busy, *taken.big}
        for place, move in enumerate(batch[: taken.looked_at]):
            if place in taken.busy:
                del left[move]
                self._look_again(move, permit)
            elif place in taken.big:
                del left[move]
                self._found_big(move, asks)
            elif place in taken.refused:
                del left[move]
                self._failed([move], b"-" + taken.refused[place])
            elif place not in here:
                del left[move]
                self._mover.finish(move, None)
        if not taken.keys:
            self._put_back(left)
            return RETRY_SECONDS if taken.refused else 0.0
        moves = [batch[place] for place in taken.places]

        def are_current() -> bool:
            # one-owner: no key goes to a replaced server, and none is dropped because of one.
            return self._left == leavings and all(self._is_current(move) for move in moves)

        try:
            if not are_current():
                await self._drop(permit, taken, range(len(moves)))
                raise _Refused(b"-a server was replaced")
            refused = await self._place(permit, taken)
            if not are_current():
                raise _Refused(b"-a server was replaced")
            await self._drop(permit, taken, refused)
        except (_Refused, NotUnderstood) as broken:
            return await self._broken_off(permit, left, broken)
        for place, move in enumerate(moves):
            del left[move]
            if place not in refused:
                self._mover.finish(move, None)
        for place, error in refused.items():
            self._failed([moves[place]], b"-" + error)
        self._put_back(left)
        return RETRY_SECONDS if refused or taken.refused else 0.0

    async def _take(self, permit: str, batch: list[Move], asks: bool) -> Taken:
        for move in batch:
            move.asked = True
        keys = [move.identity[2] for move in batch]
        arguments = partial(
            moving.take_arguments,
            permit,
            self._database,
            self._name,
            keys,
            enough_bytes=BATCH_BYTES,
            wanted=asks,
        )
        return Taken.of(await self._source_end.run(TAKE, arguments), keys)

    async def _place(self, permit: str, taken: Taken) -> dict[int, bytes]:
        """The places of keys that were not placed, each with its error."""
        keeps_target = self._origin.beginning.keeps_target(*processes_of(permit))
        arguments = partial(moving.place_arguments, permit, self._database, taken, keeps_target=keeps_target)
        refused = moving.refused(await self._target_end.run(PLACE, arguments), len(taken.keys))
        if len(refused) < len(taken.keys) and self._origin.min_replicas:
            await self._confirmed()
        return refused

    async def _confirmed(self) -> None:
        """Return once enough replicas of the target have the placed keys."""
        needed = self._origin.min_replicas
        limit = int(min(CONFIRM_SECONDS, self._mover.settings.move_seconds / 2) * 1000)
        if not self._target_end.is_compared:
            # WAIT only covers writes of its own connection: over a new one, it would be answered at once.
            raise _Refused(b"-the connection to the target was lost before its replicas were asked")
        said = await self._target_end.backend.ask(command(("WAIT", needed, max(1, limit))))
        if not said.startswith(b":"):
            raise _Refused(said)
        have = integer(int(said[1:]))
        if have < needed:
            raise _Refused(b"-%d replicas of the target have it, and migration_min_replicas is %d" % (have, needed))

    async def _drop(self, permit: str, taken: Taken, refused: Collection[int]) -> None:
        """Give the claims back, and delete the keys except those ``refused``."""
        moved = [key for place, key in enumerate(taken.keys) if place not in refused]
        keys = [*moved, *(taken.keys[place] for place in refused)]
        arguments = partial(moving.drop_arguments, permit, self._database, self._name, keys, deletes=len(moved))
        held = moving.dropped(await self._source_end.run(DROP, arguments), len(taken.keys))
        if held < len(taken.keys):
            raise _Refused(b"-the source was flushed")

    async def _broken_off(self, permit: str, left: dict[Move, None], error: _Refused | NotUnderstood) -> float:
        """The outcome of a step is unknown, or its permit does not hold: keys are tried again with another permit."""
        moves = list(left)
        left.clear()
        reply = error.reply if isinstance(error, _Refused) else b"-" + str(error).encode()
        self._permits.doubt(self._origin.address, self._target, permit)
        if not reply.startswith(NOT_PERMITTED):
            self._failed(moves, reply)
            return RETRY_SECONDS
        if self._permits.get(self._origin.address, self._target) not in ("", permit):
            # Another batch has renewed it.
            self._put_back(moves)
            return 0.0
        reason: str | None = "whether an earlier attempt may still arrive is not known yet"
        try:
            async with asyncio.timeout(max(0.0, min(move.deadline for move in moves) - time.monotonic())):
                reason = await self._permits.renew(self._origin.address, self._target)
        except TimeoutError:
            pass
        except Exception:
            left.update(dict.fromkeys(moves))
            raise
        if reason is None:
            self._put_back(moves)
            return 0.0
        self._failed(moves, b"-" + reason.encode())
        return RETRY_SECONDS

    @property
    def _permits(self) -> Permits:
        return self._mover.permits

    def _put_back(self, moves: Collection[Move]) -> None:
        """Move keys with the next batch, before all others."""
        for move in moves:
            move.ask_again()
        self._waiting.extendleft(reversed(list(moves)))

    def _found_big(self, move: Move, asked: bool) -> None:
        now = time.monotonic()
        if asked:
            move.asked_at = now
        began = move.big_since or now
        move.ask_again()
        self._mover.found_big(move, self._origin)
        self._look_later(move, began)

    def _look_again(self, move: Move, permit: str) -> None:
        """Another mover is moving the key. If that takes too long it may be dead; its claim goes when the permit is
        renewed."""
        now = time.monotonic()
        if move.busy_permit != permit:
            move.busy_permit, move.busy_since = permit, now
        elif now - move.busy_since > min(BUSY_SECONDS, self._mover.settings.move_seconds / 2):
            self._permits.doubt(self._origin.address, self._target, permit)
        move.ask_again()
        self._look_later(move, move.busy_since)

    def _look_later(self, move: Move, began: float) -> None:
        delay = min(MOST_LOOK_SECONDS, max(LOOK_SECONDS, (time.monotonic() - began) / 4))
        self._busy_keys += 1
        asyncio.get_running_loop().call_later(delay, self._look, move)

    def _look(self, move: Move) -> None:
        self._busy_keys -= 1
        self.add(move)

    def _failed(self, moves: Collection[Move], reply: bytes) -> None:
        """Keys were not moved, because of this reply: they are tried again, unless that does not help."""
        permit = self._permits.get(self._origin.address, self._target)
        # If the target's copy counts, the source's may be an old one.
        if FULL in reply and not self._origin.beginning.keeps_target(*processes_of(permit)):
            for move in moves:
                self._mover.refuse(move, self._error(reply))
            return
        now = time.monotonic()
        final = any(part in reply for part in FINAL_ERRORS)
        again = [move for move in moves if not final and move.deadline > now]
        for move in moves:
            if move not in again:
                self._mover.finish(move, self._error(reply))
        if again:
            log.debug(
                "move_retried", source=self._origin.address, target=self._target, keys=len(again), reason=repr(reply)
            )
            # Behind all others: a key that is refused again and again does not hold up the rest.
            for move in again:
                move.refused = reply
                move.ask_again()
            self._waiting.extend(again)

    def _error(self, reply: bytes) -> bytes:
        return not_moved(self._origin.address, self._target, reply)


def not_moved(source: str, target: str, reply: bytes) -> bytes:
    """The error for sessions whose key could not be moved, because of this reply."""
    reason = reply[1:].strip().decode(errors="replace")
    return (
        f"-TRYAGAIN the key is on its way from {source} to {target} and could not be moved yet"
        f" ({reason}); nothing was run\r\n"
    ).encode()
