"""The moves from one source to one target within one database, a call of the script at a time (:mod:`slots.moving`).

**bounded**: a key that is not moved by its deadline is given up, and whoever waits for it gets an error.
"""

import asyncio
import time
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import Any, Protocol

import hiredis
import structlog

from proxy.engine.backend import Backend, command
from proxy.engine.router import Router
from proxy.move import Move, Origin
from proxy.permits import Permits
from proxy.settings import ProxySettings
from slots import address as addresses
from slots import moving
from slots.moving import MOVE_SCRIPT, Moved
from slots.replies import NotUnderstood

log = structlog.get_logger()

RETRY_SECONDS = 0.02
"""Wait before a move whose outcome is not known is tried again."""
MIGRATE_SECONDS = 1.0
"""How long a source waits for a target that does not answer; it serves nobody meanwhile."""
BATCH_BYTES = 512 * 1024
"""Bytes after which a MIGRATE takes no more keys."""
LOOK_SECONDS, MOST_LOOK_SECONDS = 0.002, 0.05
"""How soon after a key was found to go in pieces it is looked for again, at first and at most; in between, a quarter of
the time that it has taken so far."""
NOTHING = 0
"""A bound that every key is above."""
ASK_SECONDS = 1.0
"""How often the migrator is asked for a key."""
PIECES = b"-it goes in pieces"
FULL = b"OOM"
"""Part of the error of a target that is at its maxmemory."""
FINAL_ERRORS = (b"OOM", b"READONLY", b"NOAUTH", b"WRONGPASS", b"NOPERM", b"Bad data format", b"MISCONF")
"""Parts of errors that trying again soon does not help."""


class Mover(Protocol):
    """What a lane needs of the :class:`proxy.migrating.KeyMover` that it belongs to."""

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
        """Move nothing; whoever waits looks again, by the table of now."""

    def found_big(self, move: Move, origin: Origin) -> None:
        """A key goes in pieces from ``origin``, where it may be read meanwhile."""

    def runs_at_source(self, move: Move) -> bool:
        """Whether all who wait for a key that its target does not take can do without the move."""

    def refuse(self, move: Move, error: bytes) -> None:
        """A target takes no keys: whoever reads or deletes does so at the source, and others get the error."""

    def is_current(self, move: Move, origin: Origin, target: str) -> bool:
        """Whether the slot still migrates from and to where it did, by the same action, when the move was asked for."""

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` in the background."""


class Lane:
    """The moves from one source to one target within one database: one MIGRATE at a time, of all that wait."""

    def __init__(self, mover: Mover, origin: Origin, target: str, database: int) -> None:
        settings = mover.settings
        self._mover = mover
        self._origin = origin
        self._source = origin.address
        self._target = target
        self._waiting: deque[Move] = deque()
        self._busy = False
        self._scheduled = False
        self._where = addresses.split(target)
        self._database = database
        # Whoever carries keys is asked for each, however small: an empty string is larger than that.
        self._most_elements = NOTHING if origin.carried else settings.big_key_elements
        self._most_bytes = NOTHING if origin.carried else settings.big_key_bytes
        self._why_slow = b"-topom carries it" if origin.carried else PIECES
        self._login = settings.redis_access.migrate_login
        # Which connection to the source has had its server's run id compared with the permit.
        self._checked = 0
        self._script_known = True
        # Keys that go in pieces, between two looks at them.
        self._looking = 0
        # A second more than MIGRATE's own limit, so that the source tells the outcome where it can.
        self.backend = Backend(
            mover.router.loop, origin.address, database, 2, mover.router.options, settings.move_seconds + 1.0
        )

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is on its way."""
        return not self._busy and not self._waiting and not self._looking

    def add(self, move: Move) -> None:
        """Move a key with the next call, which begins with the next turn of the event loop."""
        move.ask_again()
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
        # bounded: also of those that are not to be moved no more in one turn, so that others have theirs.
        for _ in range(min(len(self._waiting), self._mover.settings.move_batch_keys)):
            if batch and (batch[-1].alone or self._waiting[0].alone):
                break
            move = self._waiting.popleft()
            if not self._is_current(move):
                # one-owner: the source or the target is another server by now.
                self._mover.drop(move)
                continue
            (batch if move.deadline > now else late).append(move)
        if batch:
            self._call(batch)
        elif self._waiting:
            self._schedule()
        for move in late:
            # bounded
            self._mover.finish(move, self._error(self._why_slow if move.big_since else b"-others were moved before it"))

    def _is_current(self, move: Move) -> bool:
        return self._mover.is_current(move, self._origin, self._target)

    def _call(self, batch: list[Move]) -> None:
        self._busy = True
        settings = self._mover.settings
        check = not self.backend.is_ready or self.backend.connects != self._checked
        permit = self._mover.permits.get(self._source, self._target)
        for move in batch:
            move.asked = True
        keys = [move.identity[2] for move in batch]
        asked = any(time.monotonic() - move.asked_at > ASK_SECONDS for move in batch)
        request = command(
            (
                *(("EVALSHA", MOVE_SCRIPT.digest) if self._script_known else ("EVAL", MOVE_SCRIPT.text)),
                len(keys),
                *keys,
                *moving.move_arguments(
                    permit,
                    self._where,
                    self._database,
                    int(min(settings.move_seconds, MIGRATE_SECONDS) * 1000),
                    check=check,
                    most_elements=self._most_elements,
                    most_bytes=self._most_bytes,
                    enough_bytes=BATCH_BYTES,
                    wanted=asked,
                    keeps_target=self._origin.beginning.keeps_target(*moving.processes_of(permit)),
                    login=self._login,
                ),
            )
        )
        self.backend.call(request, partial(self._answered, batch, asked))

    def _answered(self, batch: list[Move], asked: bool, reply: bytes) -> None:
        self._busy = False
        if reply.startswith(b"*"):
            reader = hiredis.Reader()
            reader.feed(reply)
            try:
                moved = Moved.of(reader.gets(), len(batch))
            except NotUnderstood as error:
                self._failed(batch, b"-" + str(error).encode())
                self._schedule()
                return
            self._checked = self.backend.connects
            self._script_known = True
            big = {batch[place] for place in moved.big}
            for move in big:
                move.ask_again()
                self._mover.found_big(move, self._origin)
                self._look_again(move, asked)
            for move in batch[: moved.looked_at]:
                if move not in big:
                    self._mover.finish(move, None)
            self._put_back(batch[moved.looked_at :])
        elif reply.startswith(b"-NOSCRIPT"):
            self._script_known = False
            self._put_back(batch)
        elif reply.startswith(b"-UNSETTLED") or (b"IOERR" in reply and b"connecting" not in reply):
            self._busy = True
            self._mover.start(self._settle(batch))
            return
        else:
            self._failed(batch, reply)
        self._schedule()

    def _put_back(self, moves: list[Move]) -> None:
        """Move keys with the next call, before all others."""
        for move in moves:
            move.ask_again()
        self._waiting.extendleft(reversed(moves))

    def _look_again(self, move: Move, asked: bool) -> None:
        now = time.monotonic()
        if asked:
            move.asked_at = now
        delay = min(MOST_LOOK_SECONDS, max(LOOK_SECONDS, (now - move.big_since) / 4))
        self._looking += 1
        asyncio.get_running_loop().call_later(delay, self._look, move)

    def _look(self, move: Move) -> None:
        self._looking -= 1
        self.add(move)

    async def _settle(self, batch: list[Move]) -> None:
        """Have the permit renewed, then move the keys again."""
        left = min(move.deadline for move in batch) - time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, left)):
                reason = await self._mover.permits.renew(self._source, self._target)
        except TimeoutError:
            reason = "whether an earlier attempt may still arrive is not known yet"
        except Exception as error:
            # drained: these keys hold their slots until somebody is told what became of them.
            log.exception("permit_not_renewed", source=self._source, target=self._target)
            reason = str(error) or type(error).__name__
        finally:
            self._busy = False
        if reason is None:
            self._put_back(batch)
        else:
            self._failed(batch, b"-" + reason.encode())
        self._schedule()

    def _refused(self, batch: list[Move], reply: bytes) -> None:
        """The target is full. Of several keys only one may be there to move: the others are looked for one by one."""
        again = []
        for move in batch:
            if len(batch) == 1 or self._mover.runs_at_source(move):
                self._mover.refuse(move, self._error(reply))
            else:
                move.alone = True
                again.append(move)
        self._put_back(again)

    def _failed(self, batch: list[Move], reply: bytes) -> None:
        permit = self._mover.permits.get(self._source, self._target)
        # Where the target's copy counts, the source's may be an old one.
        if FULL in reply and not self._origin.beginning.keeps_target(*moving.processes_of(permit)):
            self._refused(batch, reply)
            return
        now = time.monotonic()
        final = any(part in reply for part in FINAL_ERRORS)
        again = [move for move in batch if not final and move.deadline > now]
        for move in batch:
            if move not in again:
                self._mover.finish(move, self._error(reply))
        if again:
            log.debug("move_retried", source=self._source, target=self._target, keys=len(again), reason=repr(reply))
            self._put_back(again)
            self._schedule(RETRY_SECONDS)

    def _error(self, reply: bytes) -> bytes:
        return not_moved(self._source, self._target, reply)


def not_moved(source: str, target: str, reply: bytes) -> bytes:
    """The error for whoever waits for a key that could not be moved, because of this reply."""
    reason = reply[1:].strip().decode(errors="replace")
    return (
        f"-TRYAGAIN the key is on its way from {source} to {target} and could not be moved yet"
        f" ({reason}); nothing was run\r\n"
    ).encode()
