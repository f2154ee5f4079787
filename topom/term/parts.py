"""Puts together the parts of one topom for a term, and gives each part what it needs of the others.

Parts are made from below, a room at a time: a part gets only parts that are made before it. What operators can order is
a method of a part.
"""

import secrets
from collections.abc import Callable
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
from topom.cluster.protection import Protection
from topom.cluster.tablehistory import TableHistory
from topom.cluster.topology import all_servers
from topom.cluster.waiters import Waiters
from topom.copies.digests.checks import Digests
from topom.copies.filling import Filling
from topom.copies.joining import Joins
from topom.copies.strays import Strays
from topom.copies.telling import Telling
from topom.doctor.examining import Doctor
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
from topom.migration.interfaces import Mover, Observer
from topom.migration.mover import RedisMover
from topom.migration.orders import Orders
from topom.migration.rulechanges import RuleChanges
from topom.migration.sweeping import Sweeps
from topom.migrators.members import Migrators
from topom.placement.applying import Placements
from topom.placement.copying import PlacedCopies
from topom.placement.detaching import Detaching
from topom.placement.pool import Pool
from topom.placement.stepping import Stepping
from topom.proxies.barrier import Barrier
from topom.proxies.forgetting import Gone
from topom.proxies.keptusers import UserBook
from topom.proxies.limitshares import LimitShares
from topom.proxies.lost import LostProxies
from topom.proxies.members import Members
from topom.proxies.oldmarks import OldMarks
from topom.proxies.ownkeys import OwnKeys
from topom.proxies.proxylist import ProxyList
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
from topom.store import Store
from topom.term import features
from topom.term.access import Access
from topom.term.settings import TopomSettings


class Parts:
    """The parts of one topom. What they are made of is as :class:`topom.term.service.Topom` has it."""

    def __init__(
        self,
        settings: TopomSettings,
        store: Store,
        mover: Mover | None,
        on_step: Observer | None,
        leads: Callable[[], bool],
        term: int,
        process: str,
        url: str,
        day: Day | None,
        access: Access | None,
        newest: bool,
    ) -> None:
        self.settings = settings
        self.instance = (process or secrets.token_hex(16))[:NAMED_BY] + secrets.token_hex(16 - NAMED_BY // 2)
        self.leads = leads
        self._access = access or Access(settings)
        self._make_cluster(store, term, url)
        self._make_servers()
        self._make_proxies(newest)
        self._make_load(day)
        self._make_migration(mover, on_step, term)
        self._make_masters(on_step)
        self._make_copies()
        self._make_placement()
        self._make_balance(store)
        self._make_leaving()

    def _make_cluster(self, store: Store, term: int, url: str) -> None:
        self.ledger = Ledger(store, self.instance, self.leads, self.settings.events_kept, term, url)
        self.waiters = Waiters(self.ledger, self.settings.waiters)
        self.history = TableHistory(self.ledger)
        self.protection = Protection(self.settings.protection_share, self.ledger, self.settings.server_suspect_seconds)
        self.hands_off = HandsOff(self.ledger, self.protection)
        self.differing = Differing(lambda: self.ledger.state)

    def _make_servers(self) -> None:
        self.servers = RedisServers(
            self._access.servers, self.settings.redis_timeout_seconds, self.leads, self._signature
        )
        self.health = Health(
            self.ledger,
            self._access.servers,
            features.detector(self.settings),
            self.settings.redis_timeout_seconds,
        )
        self.identities = Identities(self.ledger, ServerReplication(self.servers, self.leads), self.health.condition_of)
        self.health.listen(self.identities.heard)
        # last-copy: all parts that tell servers which master to follow use this object.
        self._replication = ServerReplication(
            self.servers,
            self.leads,
            self.settings.ha_lag_bytes_max,
            Alarms(self.ledger).raised,
            self.identities.conflict,
            self.health,
            self._signature,
        )
        self.edits = Edits(self.ledger, self.identities)

    def _make_proxies(self, newest: bool) -> None:
        self.frames = TableFrames(self.ledger)
        self.members = Members(
            self.ledger,
            self.settings.proxy_lease_seconds,
            features.stand_down_seconds(self.settings),
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
            self.ledger,
            self.members,
            self.barrier,
            self.servers,
            self.settings.proxy_forget_seconds,
            self.hands_off.reason,
        )
        self.old_marks = OldMarks(self.ledger, self.servers, self.hands_off.paused)
        self.own_keys = OwnKeys(self.ledger, self.barrier, self.servers, self.health.hears, self.hands_off.paused)

    def _make_load(self, day: Day | None) -> None:
        self.doctor = Doctor(self.ledger, self.servers, self.health, self.members, self._access.servers)

        self.load = Book(self.settings.number_of_slots, day=day)
        self.asking = Asking(self.ledger, self.members, self.load)

    def _make_migration(self, mover: Mover | None, on_step: Observer | None, term: int) -> None:
        self.migrators = Migrators(self._labels, self._note_migrator)
        mover = mover or RedisMover(
            self.settings.databases,
            lambda: self.ledger.state.key_slots,
            self._access.servers,
            self.instance,
            self.leads,
            term,
            self.identities.conflict,
            self.identities.doubt,
            Strangers(self.ledger, self.servers, self.members.newest).reason,
            self.servers.use,
            self.migrators,
            self.settings.data / "spool",
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
            features.migration(self.settings),
            self.settings.barrier_seconds,
            on_step,
            self.sweeps.ensure,
        )
        self.orders = Orders(self.ledger, self.actions)
        self.rules = RuleChanges(
            self.ledger,
            self.members,
            self.barrier,
            partial(misplaced.count, access=self._access.servers, instance=self.instance),
            self.settings.barrier_seconds,
        )
        self.assignments = Assignments(
            self.ledger, self.edits, self.identities, self.barrier, self.sweeps, self.servers.use
        )

    def _make_masters(self, on_step: Observer | None) -> None:
        self._detaching = Detaching(
            self.ledger, self.barrier, self.health, self._replication, self.settings.barrier_seconds
        )
        self.sentinels = Sentinels(
            self.settings.ha,
            self.ledger,
            self.servers,
            self.settings.sentinels,
            features.sentinels(self.settings),
            self._access.sentinels,
            self.leads,
            self.health.has_failed,
            self._detaching.detach,
        )
        self.promotions = Promotions(
            self.ledger,
            self.barrier,
            self._replication,
            self.settings.barrier_seconds,
            self.settings.promotion_seconds,
            on_step,
            self.sentinels.unwatched,
        )
        self.offsets = Offsets(self.ledger, self._replication, self.health.hears, self.settings.ha_lag_bytes_max)
        self.masters = Masters(
            self.ledger,
            self.members,
            self.health,
            self.promotions,
            self._replication,
            self.hands_off,
            self.offsets,
            features.masters(self.settings),
            LostProxies(self.ledger, self.members, self.servers, features.masters(self.settings).proxy_suspect_seconds)
            if features.stand_down_seconds(self.settings) is not None
            else None,
        )

    def _make_copies(self) -> None:
        telling = Telling(
            self.ledger,
            self.barrier,
            self._replication,
            self.settings.barrier_seconds,
            self.sentinels.copies.prepare,
            self.identities,
        )
        self.filling = Filling(self.ledger, self._replication, telling)
        self.joins = Joins(self.ledger, self._replication, self.hands_off.paused)
        self.strays = Strays(
            self.ledger, self._replication, self.health.is_alive, self.hands_off, self.settings.ha == "sentinel"
        )
        self.digests = Digests(self.ledger, self._access.servers)

    def _make_placement(self) -> None:
        self.pool = Pool(self.ledger, self.servers, self.identities)
        placed = PlacedCopies(
            self.ledger, self._replication, self.hands_off, self._detaching, self.settings.placement_lag_bytes_max
        )
        stepping = Stepping(
            self.ledger,
            self.health,
            self.promotions,
            self._replication,
            self.filling,
            placed,
            self._detaching,
            features.stepping(self.settings),
        )
        self.filling.serve(self.promotions.endings.followers, self.joins, placed)
        self.placements = Placements(
            self.ledger,
            self.health,
            self.pool,
            self.hands_off,
            stepping,
            features.placement(self.settings),
            self.settings.placement_settle_seconds,
        )

    def _make_balance(self, store: Store) -> None:
        self.sizes = SizeBook(store, self.settings.number_of_slots, self.settings.sizes_stale_seconds)
        self.actions.choosing.sizes = lambda group_id, slots: sizes_in(
            self.sizes.known, self.ledger.table, group_id, slots
        )
        self.first_layout = FirstLayout(
            self.ledger, self.servers, self.settings.min_groups, self.identities.require, self.hands_off.paused
        )
        self.rebalancing = Rebalancing(self.ledger, self.sizes, self.actions, self.load, self.health.has_failed)
        self.auto_rebalance = AutoRebalance(
            self.ledger,
            self.rebalancing,
            self.load,
            self.sizes,
            lambda: self.actions.halt,
            lambda: self.health.silent(all_servers(self.ledger.table)),
            self.actions.steps.check,
            self.hands_off.reason,
            on=self.settings.rebalance == "auto",
            rules=Rules.after(self.settings.rebalance_after_seconds),
        )

    def _make_leaving(self) -> None:
        self.departures = Departures(self.ledger, self.rebalancing, self.hands_off.paused)
        self.node_departures = NodeDepartures(self.ledger, self.pool)
        self.server_departures = ServerDepartures(
            self.ledger,
            self.promotions,
            self._replication,
            self.node_departures,
            self.health.has_failed,
            self.hands_off.paused,
        )

    # What parts are given beside other parts

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
