"""One topom for a term: its parts (:mod:`topom.term.parts`), and the loops in which they work."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from topom.cluster.lineage import StoreIsOlder
from topom.cluster.state import ClusterState
from topom.cluster.topology import all_servers
from topom.errors import NotLeading, TopomError
from topom.load.day import Day
from topom.migration.clock import Clock
from topom.migration.interfaces import Mover, Observer
from topom.migrators.child import Child
from topom.periodic import Loop
from topom.proxies.fencing import Fences
from topom.proxies.leases import Leases
from topom.proxies.refusedtables import RefusedTables
from topom.store import Store, StoreConflict
from topom.term import features
from topom.term.access import Access
from topom.term.features import OwnMigrator
from topom.term.parts import Parts
from topom.term.settings import TopomSettings
from topom.term.tending import Tending


class Topom(Parts):
    """One topom. Call :meth:`start` first; :meth:`run` runs the loops."""

    def __init__(
        self,
        settings: TopomSettings,
        store: Store,
        mover: Mover | None = None,
        on_step: Observer | None = None,
        leads: Callable[[], bool] = lambda: True,
        term: int = 0,
        process: str = "",
        url: str = "",
        day: Day | None = None,
        access: Access | None = None,
        own_migrator: OwnMigrator | None = None,
        newest: bool = False,
        seen: ClusterState | None = None,
    ) -> None:
        """
        Args:
            mover: moves keys; None for the migrator.
            on_step: is called with each step of the slot state machine.
            leads: whether this topom may change anything at this instant; see :mod:`topom.store.leading`.
            term: the term of this leader; 0 if no other topom uses the store.
            process: the instance of the process that has this term. Events name both by the same eight digits.
            url: where other topoms reach the process's API.
            day: what the process knows of the load of the last day; None for nothing.
            access: how the process gets in at servers; None for a way by the settings.
            own_migrator: how the migrator that this process starts itself reaches it; None for no such migrator.
            newest: whether an operator says that the store is the newest.
            seen: the newest state that the process has seen; None for none.
        """
        super().__init__(settings, store, mover, on_step, leads, term, process, url, day, access, newest)
        self._seen = seen
        self._newest = newest
        self.retired = asyncio.Event()
        """Set once it has ceased to lead, for good."""
        self.tending = Tending(StoreConflict, StoreIsOlder)
        """Keeps the loops that run while this topom leads."""
        self._following = False
        self._telling_loops: tuple[Loop, ...] = (
            Leases(self.members),
            RefusedTables(self.ledger, self.members),
            self.proxies,
            self.asking,
            self.health,
        )
        """They do nothing to servers."""
        self._acting_loops: tuple[Loop, ...] = (
            Fences(self.ledger, self.barrier, self.health.is_alive),
            self.gone,
            self.old_marks,
            self.own_keys,
            self.identities,
            self.masters,
            *([self.offsets] if self.settings.ha == "topom" else []),
            self.actions,
            Clock(self.actions),
            self.sweeps,
            self.rules,
            self.filling,
            self.strays,
            self.digests,
            self.placements,
            self.first_layout,
            self.auto_rebalance,
            self.departures,
            self.server_departures,
            *self.sentinels.loops,
        )
        self._own_migrator = own_migrator
        self._child = Child(self.migrators, features.migrator(settings, own_migrator)) if own_migrator else None
        self.loops = (*self._telling_loops, *self._acting_loops, self.promotions.endings)
        """The loops that run by themselves; each says in a sentence what it does."""
        self._running: list[asyncio.Task[None]] = []

    def configure(self, settings: TopomSettings) -> None:
        """Let settings hold that may change while topom runs."""
        self.settings = settings
        self.waiters.limit = settings.waiters
        self.actions.configure(features.migration(settings))
        if self._child is not None and self._own_migrator is not None:
            self._child.configure(features.migrator(settings, self._own_migrator))

    async def start(self) -> None:
        """Read the store and take its writer's place. Raises :class:`~topom.errors.TopomError`."""
        await self.ledger.start(features.product(self.settings), self._newest, self._seen)
        if self._newest:
            # newest-store: by an operator's word, marks at servers say nothing against it.
            await self.servers.use(all_servers(self.ledger.table))
        await self.sizes.start()
        self._follow()

    def show(self, state: ClusterState) -> None:
        """Take over what another topom has stored, for reading only, instead of :meth:`start` and :meth:`run`."""
        self.ledger.show(state)
        if not self._following:
            self._follow()

    def _follow(self) -> None:
        self._following = True
        self.members.start()
        self.users.start()
        self.identities.start()

    def retire(self) -> None:
        """End every proxy's control stream, and all waits for news: another topom leads, or will, or this one ends."""
        self.retired.set()
        self.members.newest.end()
        self.waiters.release()

    async def run(self) -> None:
        """Run the loops until cancelled.

        Raises:
            StoreConflict: another topom has written to the store.
            StoreIsOlder: a proxy knows a table that was made after what the store holds.
        """
        works: dict[str, Callable[[], Awaitable[None]]] = {loop.name: loop.run for loop in self._telling_loops}
        works["newest store"] = self.members.newest.watch
        acting = {loop.name: loop.run for loop in self._acting_loops}
        acting["promotions"] = self.promotions.run
        if self._child is not None:
            acting[self._child.name] = self._child.run
        works |= {name: partial(self._once_settled, work) for name, work in acting.items()}
        try:
            async with asyncio.TaskGroup() as group:
                for name, work in works.items():
                    self._running.append(group.create_task(self.tending.keep(name, work), name=name))
        except* StoreIsOlder:
            # newest-store: another start could not prove it again once the proxies that know have ended.
            with suppress(TopomError):
                await self.members.newest.store_proof()
            raise

    async def _once_settled(self, work: Callable[[], Awaitable[None]]) -> None:
        """newest-store: act only once the proxies had time to say that the store is an older one."""
        try:
            await self.members.newest.settled()
        except (StoreIsOlder, NotLeading):
            return  # :meth:`~topom.proxies.newest.NewestStore.watch` ends the term
        await work()

    def not_ended(self) -> list[str]:
        """Names of the tasks of :meth:`run` that have not ended."""
        return [task.get_name() for task in self._running if not task.done()]

    async def close(self) -> None:
        """Close the connections to servers and the ledger, after :meth:`run` has ended."""
        with suppress(Exception):
            await self.servers.close()
        await self.ledger.close()
