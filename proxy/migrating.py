"""Migrate-then-execute: a command for a slot on the move has its keys moved first, then runs at the target.

**absent-first**: a session whose request names a key that is not known to be absent from the source waits here
until it is. The key is moved with MIGRATE, which is atomic at the source: after OK or NOKEY the source does not
have it, and, **one-way**, will not have it again in this migration; the engine remembers that, so a hot key pays
once. All sessions that wait for a key share one move, and keys asked for meanwhile share the next call.

Moves go over connections of their own, so other traffic to the source is not queued behind them.

MIGRATE is first tried without REPLACE. BUSYKEY means that the target holds a copy from an earlier move whose
outcome was not known, or from before the slot was the target's; the source's copy is the truth until the source
has deleted it, so the same keys go again with REPLACE. IOERR means that the outcome is not known; the source may
still have the key, so it is asked again.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import structlog

from proxy import address as addresses
from proxy.engine.backend import Backend, command
from proxy.engine.router import Router
from proxy.settings import ProxySettings

log = structlog.get_logger()

RETRY_SECONDS = 0.02
"""Wait before a move whose outcome is not known is tried again."""
FINAL_ERRORS = (b"OOM", b"READONLY", b"NOAUTH", b"WRONGPASS", b"NOPERM", b"Bad data format", b"MISCONF")
"""Parts of errors that trying again soon does not help."""

MoveKey = tuple[int, int, bytes]
"""Number of the migration, database, key."""


@dataclass(eq=False, slots=True)
class Move:
    """One key on its way, and the sessions that wait for it."""

    slot: int
    identity: MoveKey
    deadline: float
    waiters: list["Waiter"] = field(default_factory=list)


class Sleeper(Protocol):
    """What waits for keys to be moved: a session, or what stands for a part of its request."""

    def wake(self, cleared: int) -> None:
        """All keys are absent from their sources, by the table of the generation ``cleared``."""

    def fail(self, error: bytes) -> None:
        """A key could not be moved."""


class Errand:
    """Keys that are moved for something else than the request at the front of a session as it stands."""

    def __init__(self) -> None:
        self.done: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        """None once all keys are absent from their source, or the error reply."""

    def wake(self, cleared: int) -> None:
        """All keys are absent."""
        if not self.done.done():
            self.done.set_result(None)

    def fail(self, error: bytes) -> None:
        """A key could not be moved."""
        if not self.done.done():
            self.done.set_result(error)


@dataclass(eq=False, slots=True)
class Waiter:
    """Who waits, and how many of the keys it waits for are still to be moved."""

    sleeper: Sleeper
    generation: int
    left: int
    failed: bool = False


class KeyMover:
    """Moves the keys that the sessions of one worker wait for.

    Args:
        router: tells each slot's target and migration; remembers what was seen absent.
        settings: limits.
    """

    def __init__(self, router: Router, settings: ProxySettings) -> None:
        self._router = router
        self._settings = settings
        self._sources: dict[int, str] = {}
        self._moves: dict[MoveKey, Move] = {}
        self._lanes: dict[tuple[str, str, int], Lane] = {}
        self.moved = 0

    def set_source(self, slot: int, address: str | None) -> None:
        """Name the server that a migrating slot's keys come from; None when it no longer migrates."""
        if address is None:
            self._sources.pop(slot, None)
        else:
            self._sources[slot] = address

    def need(self, session: Sleeper, database: int, missing: Sequence[tuple[int, bytes]]) -> None:
        """Move keys (each with its slot) that the request at the front of ``session`` names, then wake it.

        Called by the engine; ``session`` is woken or failed from the event loop, never from within this call.
        """
        self._move(session, {(database, key): slot for slot, key in missing})

    def move(self, slot: int, keys: Iterable[tuple[int, bytes]]) -> "asyncio.Future[bytes | None]":
        """Move keys (each with its database) of one slot, which migrates; None once they are absent, else an error."""
        errand = Errand()
        wanted = dict.fromkeys(keys, slot)
        if wanted:
            self._move(errand, wanted)
        else:
            errand.wake(self._router.generation)
        return errand.done

    def _move(self, sleeper: Sleeper, wanted: dict[tuple[int, bytes], int]) -> None:
        waiter = Waiter(sleeper, self._router.generation, len(wanted))
        deadline = time.monotonic() + self._settings.move_seconds
        for (database, key), slot in wanted.items():
            _, target, migration = self._router.route(slot)
            assert target is not None, "a migrating slot has a target"
            identity = (migration, database, key)
            move = self._moves.get(identity)
            if move is None:
                move = self._moves[identity] = Move(slot, identity, deadline)
                self._router.loop.hold_slot(slot)
                self._lane(self._sources[slot], target, database).add(move)
            move.waiters.append(waiter)

    def _lane(self, source: str, target: str, database: int) -> "Lane":
        lane = self._lanes.get((source, target, database))
        if lane is None:
            lane = self._lanes[source, target, database] = Lane(self, source, target, database)
        return lane

    def finish(self, move: Move, error: bytes | None) -> None:
        """A move is over: the key is absent from its source (``error`` None), or could not be moved."""
        migration, database, key = move.identity
        del self._moves[move.identity]
        if error is None:
            self.moved += 1
            self._router.absent.remember(migration, database, key)
        self._router.loop.release_slot(move.slot)
        for waiter in move.waiters:
            if error is not None and not waiter.failed:
                waiter.failed = True
                waiter.sleeper.fail(error)
            waiter.left -= 1
            if not waiter.left and not waiter.failed:
                waiter.sleeper.wake(waiter.generation)

    def is_current(self, move: Move, source: str, target: str) -> bool:
        """Whether the slot still migrates from and to where it did when the move was asked for."""
        _, address, migration = self._router.route(move.slot)
        return (migration, address, self._sources.get(move.slot)) == (move.identity[0], target, source)

    def drop(self, move: Move) -> None:
        """Move nothing; whoever waits looks again, by the table of now."""
        del self._moves[move.identity]
        self._router.loop.release_slot(move.slot)
        for waiter in move.waiters:
            waiter.left -= 1
            if not waiter.left and not waiter.failed:
                # absent-first: of another table, it says nothing of the keys.
                waiter.sleeper.wake(waiter.generation)

    def close_idle(self) -> None:
        """Close the connections to sources that nothing migrates from any more."""
        in_use = set(self._sources.values())
        for name, lane in list(self._lanes.items()):
            if name[0] not in in_use and lane.idle:
                lane.backend.close()
                del self._lanes[name]

    def check_time(self) -> None:
        """Let the connections give up replies that are overdue; called a few times a second."""
        # A session that is told goes on, and may open another lane.
        for lane in list(self._lanes.values()):
            lane.backend.check_time()

    def reset(self, reason: str) -> None:
        """End every connection; moves under way are tried again over new ones."""
        for lane in list(self._lanes.values()):
            lane.backend.reset(reason)

    @property
    def waiting(self) -> int:
        """Keys on their way."""
        return len(self._moves)

    @property
    def router(self) -> Router:
        """The router whose keys are moved."""
        return self._router

    @property
    def settings(self) -> ProxySettings:
        """The proxy's settings."""
        return self._settings


class Lane:
    """The moves from one source to one target within one database: one MIGRATE at a time, of all that wait."""

    def __init__(self, mover: KeyMover, source: str, target: str, database: int) -> None:
        settings = mover.settings
        self._mover = mover
        self._source = source
        self._target = target
        self._waiting: deque[Move] = deque()
        self._busy = False
        self._scheduled = False
        host, port = addresses.split(target)
        timeout = str(int(settings.move_seconds * 1000))
        self._prefix: tuple[bytes | str, ...] = ("MIGRATE", host, str(port), "", str(database), timeout)
        self._suffix: tuple[bytes | str, ...] = (*settings.redis_access.migrate_login, "KEYS")
        # A second more than MIGRATE's own limit, so that the source tells the outcome where it can.
        self.backend = Backend(
            mover.router.loop, source, database, 2, mover.router.options, settings.move_seconds + 1.0
        )

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is on its way."""
        return not self._busy and not self._waiting

    def add(self, move: Move) -> None:
        """Move a key with the next call, which begins with the next turn of the event loop."""
        self._waiting.append(move)
        self._schedule()

    def _schedule(self, delay: float = 0.0) -> None:
        # Never from within `add`: what asked for the key has to have stopped before it can be woken.
        if not self._busy and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_later(delay, self._next)

    def _next(self) -> None:
        self._scheduled = False
        if self._busy:
            return
        now = time.monotonic()
        batch: list[Move] = []
        late: list[Move] = []
        while self._waiting and len(batch) < self._mover.settings.move_batch_keys:
            move = self._waiting.popleft()
            if not self._is_current(move):
                # one-owner: the source or the target is another server by now.
                self._mover.drop(move)
                continue
            (batch if move.deadline > now else late).append(move)
        if batch:
            self._call(batch, replace=False)
        for move in late:
            # bounded: the calls before it took all its time.
            self._mover.finish(move, self._error(b"-others were moved before it"))

    def _is_current(self, move: Move) -> bool:
        return self._mover.is_current(move, self._source, self._target)

    def _call(self, batch: list[Move], replace: bool) -> None:
        self._busy = True
        options = ("REPLACE", *self._suffix) if replace else self._suffix
        keys = [move.identity[2] for move in batch]
        self.backend.call(command((*self._prefix, *options, *keys)), partial(self._answered, batch, replace))

    def _answered(self, batch: list[Move], replace: bool, reply: bytes) -> None:
        self._busy = False
        if not reply.startswith(b"-"):
            for move in batch:
                self._mover.finish(move, None)
        elif b"BUSYKEY" in reply and not replace and all(map(self._is_current, batch)):
            # one-way: the source's copy is the truth as long as it is there; the target's is a leftover.
            self._call(batch, replace=True)
            return
        else:
            self._failed(batch, reply)
        self._schedule()

    def _failed(self, batch: list[Move], reply: bytes) -> None:
        now = time.monotonic()
        final = any(part in reply for part in FINAL_ERRORS)
        again = [move for move in batch if not final and move.deadline > now]
        for move in batch:
            if move not in again:
                self._mover.finish(move, self._error(reply))
        if again:
            log.debug("move_retried", source=self._source, target=self._target, keys=len(again), reason=repr(reply))
            self._waiting.extendleft(reversed(again))
            self._schedule(RETRY_SECONDS)

    def _error(self, reply: bytes) -> bytes:
        reason = reply[1:].strip().decode(errors="replace")
        return (
            f"-TRYAGAIN the key is on its way from {self._source} to {self._target} and could not be moved yet"
            f" ({reason}); nothing was run\r\n"
        ).encode()
