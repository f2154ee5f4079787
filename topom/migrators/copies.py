"""A copy that a migrator makes: what topom knows of it, and asks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress

from migrator.progress import Pacing, Progress, ServerLatency
from migrator.stream.errors import NotNearlyLevel
from slots.keyslots import KeySlots
from slots.messages.copies import (
    MOST_REPLICAS,
    BeginCopy,
    CloseCopy,
    CopyState,
    Held,
    KeepOnly,
    Latency,
    NearlyLevel,
    Settle,
)
from topom.migrators.gathering import Place
from topom.migrators.members import Migrator, Migrators

CLOSE_SECONDS = 5.0
"""How long a migrator may take to end a copy. Whatever it does after that writes nothing: see the room."""


class RemoteCopy:
    """One copy. It is a :class:`topom.migration.streamed.Copy`.

    Args:
        source, target: ``host:port`` of both masters.
        id: of the copy.
        replicas: of the source; one of them is followed in its place if it can be.
        place: among the copies with which it shares a stream.
        instance, term: of this topom.
        make_ready: lets the copy begin at both, and gives their run ids (:func:`migrator.stream.running.make_ready`).
    """

    def __init__(
        self,
        migrators: Migrators,
        source: str,
        target: str,
        slots: Sequence[int],
        id: str,
        progress: Progress,
        replicas: Sequence[str],
        place: Place,
        *,
        key_slots: KeySlots,
        instance: str,
        term: int,
        make_ready: Callable[[], Awaitable[tuple[str, str]]],
    ) -> None:
        self._migrators = migrators
        self.source = source
        self.target = target
        self.slots = frozenset(slots)
        self.progress = progress
        self.lag: int | None = None
        """Bytes of the source's stream that are missing at the target, as far as is known."""
        self._id = id
        self._replicas = list(replicas[:MOST_REPLICAS])
        self._place = place
        self._key_slots = key_slots
        self._instance = instance
        self._term = term
        self._make_ready = make_ready
        self._migrator: Migrator | None = None
        self._counted = (0, 0)

    @property
    def made_by(self) -> str:
        """The migrator that makes it, as messages name it; "" while none does."""
        return "" if self._migrator is None else self._migrator.named

    async def nearly_level(self) -> None:
        """Return once little is missing at the target. Raises MigrationError if the copy is void, and OutOfTurn if the
        stream that it was to share has begun without it."""
        if self._migrator is None:
            self._migrator = await self._begun()
        await self._place.gathering.begun(self._place.one)
        await self._migrator.ask(lambda number: NearlyLevel(number=number, copy_id=self._id))

    async def settle(self, slots: Sequence[int]) -> None:
        """Return once **level** holds for these slots, which are locked. Raises MigrationError."""
        if self._migrator is None:
            raise NotNearlyLevel(self.target)
        kept = sorted(slots)
        await self._migrator.ask(lambda number: Settle(number=number, copy_id=self._id, slots=kept))
        self.progress.completed()

    def keep_only(self, slots: Collection[int]) -> None:
        """Copy no other slots from now on."""
        self.slots &= frozenset(slots)
        if self._migrator is not None:
            self._migrator.tell(KeepOnly(copy_id=self._id, slots=sorted(self.slots)))

    async def close(self) -> None:
        """End the copy. It raises nothing."""
        self.progress.pacing = lambda: None
        one = self._migrator
        if one is None or one.copies.pop(self._id, None) is None:
            return
        self._migrators.changed()
        if not one.gone:
            with suppress(Exception):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await one.ask(lambda number: CloseCopy(number=number, copy_id=self._id))

    def reported(self, state: CopyState) -> None:
        """Its migrator says how far it is."""
        keys, size = self._counted
        if state.keys >= keys and state.size >= size:
            self.progress.moved(state.keys - keys, state.size - size)
            self._counted = state.keys, state.size
        self.lag = state.lag
        self.progress.followed = state.followed or ""
        pacing = self._pacing(state.held) if state.held is not None else None
        self.progress.pacing = lambda: pacing

    async def _begun(self) -> Migrator:
        gathering = self._place.gathering
        one = gathering.migrator(await self._migrators.near(self.source))
        # It has this copy from here on, so that copies which begin meanwhile are not all given to the same one.
        one.copies[self._id] = self
        self._migrators.changed()
        try:
            source_run_id, target_run_id = await self._make_ready()
            gathering.require_turn(self._place.one)
        except BaseException:
            one.copies.pop(self._id, None)
            self._migrators.changed()
            raise
        one.tell(
            BeginCopy(
                copy_id=self._id,
                stream_id=self._place.stream_id,
                source=self.source,
                target=self.target,
                source_run_id=source_run_id,
                target_run_id=target_run_id,
                replicas=self._replicas,
                slots=sorted(self.slots),
                slot_function=self._key_slots.function,
                number_of_slots=self._key_slots.number_of_slots,
                slot_rules=self._key_slots.rules,
                instance=self._instance,
                term=self._term,
            )
        )
        return one

    def _pacing(self, held: Held) -> Pacing:
        return Pacing(
            held.speed,
            _latency(self.source, held.source),
            _latency(self.target, held.target),
            held.held_back,
            held.since,
        )


def _latency(address: str, of: Latency) -> ServerLatency:
    return ServerLatency(address, of.p99, of.quiet, of.allowed)
