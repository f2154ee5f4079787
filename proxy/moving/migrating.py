"""Migrate-then-execute: for a command on a moving slot, its keys are moved first, then it runs at the target.

**absent-first**: a session waits here if its request names a key that is not known to be absent from the source. After
the last step of the key's move (:mod:`proxy.moving.batches`) the source does not have it. By **one-way** it will not
have it again in this migration. The engine remembers that, so a hot key pays once. All sessions that wait for a key
share one move, and keys asked for meanwhile share the next batch.

That holds for a source that goes on running. A source that was restarted with older data may have the key back before
this proxy hears of it: the proxy may pause, or the source's host may go without a word. A value written at the target
then counts for more than the source's (:mod:`slots.beginning`). But if the key is removed at the target, nothing is
left there that could count. So a request that may remove a key (:attr:`slots.commands.Command.takes_away`) has its keys
looked for at the source each time, by a call that is sent after the request came.

Moves use connections of their own, so other traffic to the source is not queued behind them.

The scripts that move keys are in :mod:`slots.moving`, the permit without which nothing moves in :mod:`slots.permits`.
"""

import asyncio
import time
from collections.abc import Collection, Coroutine, Sequence
from typing import Any

from proxy.engine.router import MIGRATING, Router
from proxy.moving.batches import PIECES, KeyBatches, not_moved
from proxy.moving.fulltargets import FullTargets
from proxy.moving.move import Move, MoveKey, Origin, Sleeper, Waiter
from proxy.moving.permits import Permits
from proxy.moving.sourcereads import SourceReads
from proxy.settings import ProxySettings


class KeyMover:
    """Moves the keys that the sessions of one worker wait for.

    Args:
        router: gives each slot's target and migration; remembers keys seen absent.
        settings: limits.
    """

    def __init__(self, router: Router, settings: ProxySettings) -> None:
        self._router = router
        self._settings = settings
        self._sources: dict[int, Origin] = {}
        self._moves: dict[MoveKey, Move] = {}
        self._batches: dict[tuple[Origin, str, int], KeyBatches] = {}
        self.permits = Permits(settings, router.options.new_name)
        self.reads = SourceReads(router, settings)
        self._full_targets = FullTargets(router, self.permits, self.reads, settings, self._sources.get, self.start)
        self.moved = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def set_source(self, slot: int, origin: Origin | None) -> None:
        """Set where a migrating slot's keys come from; None when it no longer migrates."""
        if origin is None:
            self._sources.pop(slot, None)
        else:
            self._sources[slot] = origin

    def need(
        self,
        session: Sleeper,
        database: int,
        missing: Sequence[tuple[int, bytes]],
        deadline: float | None = None,
        asks: bool = False,
    ) -> None:
        """Move keys (each with its slot) that the request at the front of ``session`` names, then wake it.

        Called by the engine; ``session`` is woken or failed from the event loop, never from within this call.
        ``deadline``, on the monotonic clock, is ``move_seconds`` from now unless told otherwise. ``asks`` if a question
        that the source has already got is not enough.
        """
        wanted = {(database, key): slot for slot, key in missing}
        waiter = Waiter(session, self._router.generation, len(wanted))
        if deadline is None:
            deadline = time.monotonic() + self._settings.move_seconds
        for (database, key), slot in wanted.items():
            _, target, migration = self._router.route(slot)
            assert target is not None, "a migrating slot has a target"
            identity = (migration, database, key)
            move = self._moves.get(identity)
            if move is None:
                move = self._moves[identity] = Move(slot, identity, deadline)
                self._begin(move, target)
            elif asks and move.asked:
                # absent-first: the source's answer to an earlier call may be older than this request.
                move.later.append(waiter)
                continue
            move.waiters.append(waiter)
            if move.read_at is not None:
                # Not now: the session has not stopped yet.
                asyncio.get_running_loop().call_soon(self.found_big, move, move.read_at)

    def _begin(self, move: Move, target: str) -> None:
        self._router.loop.hold_slot(move.slot)
        self._batches_for(self._sources[move.slot], target, move.identity[1]).add(move)

    def _batches_for(self, source: Origin, target: str, database: int) -> KeyBatches:
        name = (source, target, database)
        batches = self._batches.get(name)
        if batches is None:
            batches = self._batches[name] = KeyBatches(self, *name)
        return batches

    def finish(self, move: Move, error: bytes | None) -> None:
        """A move is over: the key is absent from its source (``error`` None), or could not be moved."""
        migration, database, key = move.identity
        if error is None:
            self.moved += 1
            self._router.absent.remember(migration, database, key)
        self._end(move)
        self._router.loop.release_slot(move.slot)
        for waiter in move.waiters:
            waiter.left -= 1
            if error is not None and waiter.leave():
                waiter.sleeper.fail(error)
            elif not waiter.left and waiter.leave():
                waiter.sleeper.wake(waiter.generation)

    def _end(self, move: Move) -> None:
        """A move is over. For sessions that came too late for the source's answer, the source is asked again."""
        del self._moves[move.identity]
        later = [waiter for waiter in move.later if not waiter.over]
        state, target, migration = self._router.route(move.slot)
        if not later:
            return
        if state == MIGRATING and migration == move.identity[0] and target is not None:
            deadline = time.monotonic() + self._settings.move_seconds
            again = self._moves[move.identity] = Move(move.slot, move.identity, deadline, waiters=later)
            self._begin(again, target)
        else:
            # They are looked at again, by the present table.
            move.waiters.extend(later)

    def found_big(self, move: Move, origin: Origin) -> None:
        """A key goes in pieces from ``origin``, which takes longer; sessions that only read it need not wait."""
        if not move.big_since:
            move.big_since = time.monotonic()
            move.deadline = max(move.deadline, move.big_since + self._settings.big_key_seconds)
        if origin != self._sources.get(move.slot):
            # by-action: it is looked for again, by the present table.
            return
        move.read_at = origin
        error = not_moved(origin.address, self._router.route(move.slot)[1] or "", PIECES)
        for waiter in list(move.waiters):
            if waiter.over or waiter.told:
                continue
            waiter.told = True
            if self._full_targets.deletes(waiter.sleeper):
                waiter.leave()
                self._full_targets.begin(waiter.sleeper, error, waits=True)
            else:
                waiter.sleeper.big(origin, waiter.leave)

    def refuse(self, move: Move, error: bytes) -> None:
        """A target takes no keys: reads and deletes run at the source, and other requests get the error."""
        del self._moves[move.identity]
        # Sessions that go on there ask the source by themselves.
        move.ask_again()
        for waiter in move.waiters:
            if waiter.leave() and not self._full_targets.begin(waiter.sleeper, error):
                waiter.sleeper.fail(error)
        # drained: not before the sessions that go on elsewhere hold the slot themselves.
        self._router.loop.release_slot(move.slot)

    def is_current(self, move: Move, origin: Origin, target: str) -> bool:
        """Whether the slot still migrates between the same groups, by the same action, as when the move was asked
        for."""
        _, address, migration = self._router.route(move.slot)
        return (migration, address, self._sources.get(move.slot)) == (move.identity[0], target, origin)

    def drop(self, move: Move) -> None:
        """Move nothing; the waiting sessions look again, by the present table."""
        self._end(move)
        self._router.loop.release_slot(move.slot)
        for waiter in move.waiters:
            waiter.left -= 1
            if not waiter.left and waiter.leave():
                # absent-first: under another table, it says nothing about the keys.
                waiter.sleeper.wake(waiter.generation)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` in the background, unless the worker ends."""
        if self._closed:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop all background work for good."""
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.permits.close()

    def close_idle(self) -> None:
        """Close the connections to sources of no present migration."""
        origins = set(self._sources.values())
        in_use = {origin.address for origin in origins}
        for name, batches in list(self._batches.items()):
            if name[0] not in origins and batches.idle:
                for backend in batches.backends:
                    backend.close()
                del self._batches[name]
        self.permits.keep(in_use)
        self.reads.keep(in_use)

    def leave(self, servers: Collection[str]) -> None:
        """End the connections to servers that have been replaced as masters, or are being replaced.

        Their keys under way are asked for again, by the present table. Further answers of such a server are ignored.
        """
        for batches in list(self._batches.values()):
            batches.leave(servers, "is not its group's master any more")
        self.reads.leave(servers)

    def check_time(self) -> None:
        """Close connections whose replies are overdue; called a few times a second."""
        # A session that is told goes on, and may begin others.
        for batches in list(self._batches.values()):
            for backend in batches.backends:
                backend.check_time()
        self.reads.check_time()

    def reset(self, reason: str) -> None:
        """End every connection; moves under way are tried again over new ones."""
        for batches in list(self._batches.values()):
            batches.leave({backend.address for backend in batches.backends}, reason)
        self.reads.reset(reason)

    @property
    def migrating(self) -> bool:
        """Whether any slot migrates."""
        return bool(self._sources)

    @property
    def waiting(self) -> int:
        """Number of keys on their way."""
        return len(self._moves)

    @property
    def router(self) -> Router:
        """The router whose keys are moved."""
        return self._router

    @property
    def settings(self) -> ProxySettings:
        """The proxy's settings."""
        return self._settings
