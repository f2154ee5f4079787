"""Puts together the parts of one topom for a term, and gives each part what it needs of the others.

Parts are made from below: a part gets only parts that are made before it. What operators can order is a method of a
part.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from topom.balance.autorebalance import AutoRebalance
from topom.balance.deciding import Rules
from topom.balance.firstlayout import FirstLayout
from topom.balance.rebalancing import Rebalancing
from topom.balance.sizebook import SizeBook
from topom.balance.sizes import sizes_in
from topom.cluster import lineage
from topom.cluster.differing import Differing
from topom.cluster.events import NAMED_BY, What
from topom.cluster.hands_off import HandsOff
from topom.cluster.ledger import Ledger
from topom.cluster.lineage import StoreIsOlder
from topom.cluster.protection import Protection
from topom.cluster.state import ClusterState
from topom.cluster.tablehistory import TableHistory
from topom.cluster.topology import all_servers
from topom.cluster.waiters import Waiters
from topom.copies.digests.checks import Digests
from topom.copies.filling import Filling
from topom.copies.joining import Joins
from topom.copies.strays import Strays
from topom.copies.telling import Telling
from topom.doctor.examining import Doctor
from topom.errors import NotLeading, TopomError
from topom.leaving.groups import Departures
from topom.leaving.nodes import NodeDepartures
from topom.leaving.servers import ServerDepartures
from topom.load.asking import Asking
from topom.load.book import Book
from topom.load.day import Day
from topom.masters.failover import Masters
from topom.masters.offsets import Offsets
from topom.masters.promotions import Promotions
from topom.masters.sentinels.service import Sentinels
from topom.migration import misplaced
from topom.migration.actions import Actions
from topom.migration.assigning import Assignments
from topom.migration.clock import Clock
from topom.migration.interfaces import Mover, Observer
from topom.migration.mover import RedisMover
from topom.migration.orders import Orders
from topom.migration.rulechanges import RuleChanges
from topom.migration.sweeping import Sweeps
from topom.migrators.child import Child
from topom.migrators.members import Migrators
from topom.periodic import Loop
from topom.placement.applying import Placements
from topom.placement.copying import PlacedCopies
from topom.placement.detaching import Detaching
from topom.placement.pool import Pool
from topom.placement.stepping import Stepping
from topom.proxies.barrier import Barrier
from topom.proxies.fencing import Fences
from topom.proxies.forgetting import Gone
from topom.proxies.keptusers import UserBook
from topom.proxies.leases import Leases
from topom.proxies.limitshares import LimitShares
from topom.proxies.lost import LostProxies
from topom.proxies.members import Members
from topom.proxies.oldmarks import OldMarks
from topom.proxies.ownkeys import OwnKeys
from topom.proxies.proxylist import ProxyList
from topom.proxies.refusedtables import RefusedTables
from topom.proxies.reloads import Reloads
from topom.proxies.removing import Removals
from topom.proxies.strangers import Strangers
from topom.proxies.tableframes import TableFrames
from topom.servers.edits import Edits
from topom.servers.health import Health
from topom.servers.identities import Identities
from topom.servers.lastcopy import Alarms
from topom.servers.redis_servers import RedisServers
from topom.servers.replication import ServerReplication
from topom.store import Store, StoreConflict
from topom.term import features
from topom.term.access import Access
from topom.term.features import OwnMigrator
from topom.term.settings import TopomSettings
from topom.term.tending import Tending


class Topom:
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
        self.settings = settings
        self._seen = seen
        self._newest = newest
        self.instance = (process or secrets.token_hex(16))[:NAMED_BY] + secrets.token_hex(16 - NAMED_BY // 2)
        self.leads = leads
        self.retired = asyncio.Event()
        """Set once it has ceased to lead, for good."""
        self.tending = Tending(StoreConflict, StoreIsOlder)
        """Keeps the loops that run while this topom leads."""
        self._following = False

        self.ledger = Ledger(store, self.instance, leads, settings.events_kept, term, url)
        self.waiters = Waiters(self.ledger, settings.waiters)
        self.history = TableHistory(self.ledger)
        self.protection = Protection(settings.protection_share, self.ledger, settings.server_suspect_seconds)
        self.hands_off = HandsOff(self.ledger, self.protection)
        self.differing = Differing(lambda: self.ledger.state)

        access = access or Access(settings)
        self.servers = RedisServers(access.servers, settings.redis_timeout_seconds, leads, self._signature)
        self.health = Health(
            self.ledger,
            access.servers,
            features.detector(settings),
            settings.redis_timeout_seconds,
        )
        self.identities = Identities(self.ledger, ServerReplication(self.servers, leads), self.health.condition_of)
        self.health.listen(self.identities.heard)
        # last-copy: all parts that tell servers which master to follow use this object.
        replication = ServerReplication(
            self.servers,
            leads,
            settings.ha_lag_bytes_max,
            Alarms(self.ledger).raised,
            self.identities.conflict,
            self.health,
            self._signature,
        )
        self.edits = Edits(self.ledger, self.identities)

        self.frames = TableFrames(self.ledger)
        self.members = Members(
            self.ledger,
            settings.proxy_lease_seconds,
            features.stand_down_seconds(settings),
            lambda instances: self.servers.fenced_by(instances, all_servers(self.ledger.table)),
            # newest-store: by an operator's word, marks at servers say nothing against it.
            None if newest else lambda: self.servers.used_by(all_servers(self.ledger.table)),
        )
        self.proxies = ProxyList(self.members)
        self.users = UserBook(self.ledger, self.members)
        self.limits = LimitShares(lambda: {member.record.id: member for member in self.members.all()})
        self.reloads = Reloads(self.ledger, self.members)
        self.barrier = Barrier(self.ledger, self.members, self.servers, self.identities.run_id_of)
        self.removals = Removals(self.ledger, self.members, self.barrier, self.servers)
        self.gone = Gone(
            self.ledger, self.members, self.barrier, self.servers, settings.proxy_forget_seconds, self.hands_off.reason
        )
        self.old_marks = OldMarks(self.ledger, self.servers, self.hands_off.paused)
        self.own_keys = OwnKeys(self.ledger, self.barrier, self.servers, self.health.hears, self.hands_off.paused)

        self.doctor = Doctor(self.ledger, self.servers, self.health, self.members, access.servers)

        self.load = Book(settings.number_of_slots, day=day)
        self.asking = Asking(self.ledger, self.members, self.load)

        self.migrators = Migrators(self._labels, self._note_migrator)
        mover = mover or RedisMover(
            settings.databases,
            lambda: self.ledger.state.key_slots,
            access.servers,
            self.instance,
            leads,
            term,
            self.identities.conflict,
            self.identities.doubt,
            Strangers(self.ledger, self.servers, self.members.newest).reason,
            self.servers.use,
            self.migrators,
            settings.data / "spool",
        )
        self.sweeps = Sweeps(
            self.ledger,
            mover,
            self.servers,
            self.health,
            self.hands_off,
            self.identities.conflict,
            self.identities.doubt,
        )
        self.actions = Actions(
            self.ledger,
            self.barrier,
            mover,
            features.migration(settings),
            settings.barrier_seconds,
            on_step,
            self.sweeps.ensure,
        )
        self.orders = Orders(self.ledger, self.actions)
        self.rules = RuleChanges(
            self.ledger,
            self.members,
            self.barrier,
            partial(misplaced.count, access=access.servers, instance=self.instance),
            settings.barrier_seconds,
        )
        self.assignments = Assignments(
            self.ledger, self.edits, self.identities, self.barrier, self.sweeps, self.servers.use
        )

        detaching = Detaching(self.ledger, self.barrier, self.health, replication, settings.barrier_seconds)
        self.sentinels = Sentinels(
            settings.ha,
            self.ledger,
            self.servers,
            settings.sentinels,
            features.sentinels(settings),
            access.sentinels,
            leads,
            self.health.has_failed,
            detaching.detach,
        )
        self.promotions = Promotions(
            self.ledger,
            self.barrier,
            replication,
            settings.barrier_seconds,
            settings.promotion_seconds,
            on_step,
            self.sentinels.unwatched,
        )
        self.offsets = Offsets(self.ledger, replication, self.health.hears, settings.ha_lag_bytes_max)
        self.masters = Masters(
            self.ledger,
            self.members,
            self.health,
            self.promotions,
            replication,
            self.hands_off,
            self.offsets,
            features.masters(settings),
            LostProxies(self.ledger, self.members, self.servers, features.masters(settings).proxy_suspect_seconds)
            if features.stand_down_seconds(settings) is not None
            else None,
        )

        telling = Telling(
            self.ledger,
            self.barrier,
            replication,
            settings.barrier_seconds,
            self.sentinels.copies.prepare,
            self.identities,
        )
        self.filling = Filling(self.ledger, replication, telling)
        self.joins = Joins(self.ledger, replication, self.hands_off.paused)
        self.strays = Strays(self.ledger, replication, self.health.is_alive, self.hands_off, settings.ha == "sentinel")
        self.digests = Digests(self.ledger, access.servers)

        self.pool = Pool(self.ledger, self.servers, self.identities)
        placed = PlacedCopies(self.ledger, replication, self.hands_off, detaching, settings.placement_lag_bytes_max)
        stepping = Stepping(
            self.ledger,
            self.health,
            self.promotions,
            replication,
            self.filling,
            placed,
            detaching,
            features.stepping(settings),
        )
        self.filling.serve(self.promotions.endings.followers, self.joins, placed)
        self.placements = Placements(
            self.ledger,
            self.health,
            self.pool,
            self.hands_off,
            stepping,
            features.placement(settings),
            settings.placement_settle_seconds,
        )

        self.sizes = SizeBook(store, settings.number_of_slots, settings.sizes_stale_seconds)
        self.actions.choosing.sizes = lambda group_id, slots: sizes_in(
            self.sizes.known, self.ledger.table, group_id, slots
        )
        self.first_layout = FirstLayout(
            self.ledger, self.servers, settings.min_groups, self.identities.require, self.hands_off.paused
        )
        self.rebalancing = Rebalancing(self.ledger, self.sizes, self.actions, self.load)
        self.auto_rebalance = AutoRebalance(
            self.ledger,
            self.rebalancing,
            self.load,
            self.sizes,
            lambda: self.actions.halt,
            lambda: self.health.silent(all_servers(self.ledger.table)),
            self.actions.steps.check,
            self.hands_off.reason,
            on=settings.rebalance == "auto",
            rules=Rules.after(settings.rebalance_after_seconds),
        )

        self.departures = Departures(self.ledger, self.rebalancing, self.hands_off.paused)
        self.node_departures = NodeDepartures(self.ledger, self.pool)
        self.server_departures = ServerDepartures(
            self.ledger,
            self.promotions,
            replication,
            self.node_departures,
            self.health.has_failed,
            self.hands_off.paused,
        )
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
            *([self.offsets] if settings.ha == "topom" else []),
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

    def _signature(self) -> str:
        state = self.ledger.state
        # newest-store: a fence is stored without a change of the table.
        return lineage.signature(state.cluster_id, state.seal_key, state.starts[-1].writer, state.version)

    def _labels(self, server: str) -> tuple[str, str]:
        for group in self.ledger.table.groups.values():
            if server in group.servers:
                return group.node_of(server), group.datacenter_of(server)
        return "", ""

    def _note_migrator(self, came: bool, says: str) -> None:
        if self.leads():
            self.ledger.note(What.MIGRATOR_REGISTERED if came else What.MIGRATOR_GONE, says)

    def not_ended(self) -> list[str]:
        """Names of the tasks of :meth:`run` that have not ended."""
        return [task.get_name() for task in self._running if not task.done()]

    async def close(self) -> None:
        """Close the connections to servers and the ledger, after :meth:`run` has ended."""
        with suppress(Exception):
            await self.servers.close()
        await self.ledger.close()
