"""Has each batch, and each pair of groups of a plan, go the way that suits it (:mod:`topom.migration.ways`).

Before a batch begins its servers are looked at in any case (:mod:`migrator.checks`). A plan has them looked at for its
forecast; nothing is written there.

**bounded**: so many servers are asked at once, and all of them together within a time. What was not told by then is not
known.
"""

import asyncio
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from migrator.checks import Findings
from migrator.errors import MigrationError
from migrator.facts import Facts
from migrator.followable import Followable
from topom.cluster.ledger import Ledger
from topom.cluster.speed import Speeds
from topom.cluster.state import MigrationSettings
from topom.errors import TopomError
from topom.migration.batches import Batch, Pair, share_of, whole_replicas
from topom.migration.ways import ASSUMED, AUTO, NOTHING_KNOWN, Choice, Ground, Sized, Way, choose

MOST_LOOKS = 32
LOOKS_SECONDS = 10.0
GIVEN_UP_SECONDS = 600.0
"""So long no copy is chosen for a pair of groups whose copies failed."""

Sizes = Callable[[int, Collection[int]], Sized | None]
"""What was measured of slots of a group, and of all its slots; None if nothing was."""


class Looker(Protocol):
    """What is needed of the migrator."""

    async def look(self, server: str) -> tuple[Facts, Followable]:
        """What a server says of itself; nothing is written there.

        Raises :class:`~migrator.errors.MigrationError` and :class:`~topom.errors.TopomError`.
        """


@dataclass(frozen=True, slots=True)
class Ways:
    """The ways of a plan, by pair, and sentences about servers that were not looked at."""

    choices: Mapping[Pair, Choice] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class Choosing:
    """Chooses for one topom.

    Args:
        clock: seconds from any beginning.

    Attributes:
        sizes: what was measured of slots.
        assumed: what counts where nothing is known.
    """

    def __init__(
        self,
        ledger: Ledger,
        looker: Looker,
        settings: Callable[[], MigrationSettings],
        speeds: Speeds,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._looker = looker
        self._settings = settings
        self._speeds = speeds
        self.sizes: Sizes = lambda group_id, slots: None
        self.assumed = ASSUMED
        self._clock = clock
        self._given_up: dict[Pair, tuple[float, str]] = {}

    def of_batch(self, batch: Batch, found: Findings) -> Choice:
        """The way of a batch that begins, by what was found at its servers."""
        ground = self._ground(
            batch.source_id, batch.slots, 1, found.source, found.target, found.followable, batch.avoided
        )
        ground = replace(ground, reads_payloads=found.reads_payloads)
        wanted = self._settings().way
        if batch.by_keys:
            now = self._clock()
            self._given_up = {pair: one for pair, one in self._given_up.items() if one[0] > now}
            self._given_up[batch.pair] = now + GIVEN_UP_SECONDS, batch.by_keys
        given_up = batch.by_keys or self._given_up_lately(batch.pair, wanted, only_way=not found.reads_payloads)
        return choose(ground, wanted, given_up, self.assumed)

    def forget_given_up(self) -> None:
        """Choose copies again for pairs of groups whose copies failed: an operator has seen to that."""
        self._given_up.clear()

    def _given_up_lately(self, pair: Pair, wanted: str, *, only_way: bool = False) -> str:
        """Why copies of an earlier batch of this pair failed: what a source runs for one batch it runs for the next,
        and each copy costs it a snapshot. If an operator wants the stream, each batch is tried; but not where that is
        the only way, so that batches come one after the other until one arrives."""
        until, reason = self._given_up.get(pair, (0.0, ""))
        tried = wanted == AUTO or only_way
        return f"{reason} (as an earlier batch found)" if tried and self._clock() < until else ""

    async def of_pairs(self, pairs: Mapping[Pair, Collection[int]]) -> Ways:
        """The ways of slots that would move, by the pair of their groups, and what they cost. Slots that are offline
        have no keys, and no way."""
        table = self._ledger.table
        masters = {
            pair: (source, target)
            for pair in pairs
            if (source := table.master_of(pair[0])) is not None and (target := table.master_of(pair[1])) is not None
        }
        seen = await self._look_at({server for ends in masters.values() for server in ends})
        settings = self._settings()
        choices = {}
        for pair, (source, target) in masters.items():
            rounds = max(1, math.ceil(len(pairs[pair]) / settings.parallel_slots))
            facts, followable = seen.told.get(source, (None, None))
            taker, _ = seen.told.get(target, (None, None))
            ground = self._ground(pair[0], pairs[pair], rounds, facts, taker, followable)
            reads = facts is None or taker is None or taker.reads_payloads_of(facts)
            given_up = self._given_up_lately(pair, settings.way, only_way=not reads)
            choice = choose(replace(ground, reads_payloads=reads), settings.way, given_up, self.assumed)
            choices[pair] = choice.times(rounds)
            if choice.way is not Way.STREAM and not reads:
                seen.warnings.append(
                    f"{target} is of an older version than {source} and takes keys only by the replication stream, so "
                    f"the slots for it will wait: {choice.reason}"
                )
        return Ways(choices, tuple(seen.warnings))

    def _ground(
        self,
        source_id: int,
        slots: Collection[int],
        rounds: int,
        source: Facts | None,
        target: Facts | None,
        followable: Followable | None,
        avoided: Collection[str] = (),
    ) -> Ground:
        known = followable or NOTHING_KNOWN
        if whole_replicas(self._ledger.table, source_id, avoided):
            known = known.with_replica()
        settings, sized = self._settings(), self.sizes(source_id, slots)
        return Ground.of(
            share_of(self._ledger.table, source_id, slots) / rounds,
            sized.part(rounds) if sized is not None else None,
            source,
            target,
            known,
            by_keys=self._speeds.by_keys.latest or self._ledger.state.speed,
            by_stream=self._speeds.by_stream.latest,
            keys_limit=settings.keys_per_second,
            bytes_limit=settings.bytes_per_second,
        )

    async def _look_at(self, servers: Iterable[str]) -> "_Seen":
        seen = _Seen()
        turn = asyncio.Semaphore(MOST_LOOKS)

        async def look(server: str) -> None:
            try:
                async with turn:
                    seen.told[server] = await self._looker.look(server)
            except (MigrationError, TopomError) as error:
                seen.warnings.append(f"{server} was not looked at for the way and its forecast: {error.what}")

        tasks = [asyncio.create_task(look(server)) for server in sorted(servers)]
        try:
            _, late = await asyncio.wait(tasks, timeout=LOOKS_SECONDS) if tasks else (set(), set())
            for task in tasks:
                if task.done():
                    task.result()
            if late:
                seen.warnings.append(f"{len(late)} servers did not say within {LOOKS_SECONDS:g} s what they have")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return seen


@dataclass(slots=True)
class _Seen:
    told: dict[str, tuple[Facts, Followable]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
