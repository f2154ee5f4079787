"""topom as one object: its parts put together, and the operators' requests that need more than one of them."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import structlog

from slots import ranges
from slots.table import SlotTable
from topom.balance.firstlayout import FirstLayout
from topom.balance.rebalancing import Rebalancing
from topom.balance.sizebook import SizeBook
from topom.balance.sizes import Freshness, freshness
from topom.cluster import cancelling as interventions
from topom.cluster import topology
from topom.cluster.cancelling import Cancelled
from topom.cluster.differing import Differing
from topom.cluster.events import NAMED_BY
from topom.cluster.hours import Hours
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState
from topom.cluster.tablehistory import TableHistory
from topom.cluster.topology import all_servers
from topom.cluster.waiters import Waiters
from topom.copies import joining
from topom.copies.digests.checks import Digests
from topom.copies.filling import Filling
from topom.copies.joining import Joins
from topom.copies.strays import Strays
from topom.errors import ProxiesNotReady, ServersUnreachable, SweepUnderWay
from topom.leaving.groups import Departures
from topom.leaving.nodes import NodeDepartures
from topom.leaving.servers import ServerDepartures
from topom.masters.failover import Masters
from topom.masters.offsets import Offsets
from topom.masters.promotions import Promotions
from topom.masters.protection import Protection
from topom.masters.sentinels.service import Sentinels
from topom.migration.actions import Actions
from topom.migration.mover import RedisMover
from topom.migration.steps import Mover, Observer
from topom.migration.sweeping import Sweeps
from topom.placement.applying import Placements
from topom.placement.pool import Pool
from topom.placement.stepping import Stepping
from topom.proxies.barrier import Barrier
from topom.proxies.forgetting import Gone
from topom.proxies.frames import TableFrames
from topom.proxies.lost import LostProxies
from topom.proxies.members import Member, Members
from topom.proxies.oldmarks import OldMarks
from topom.proxies.ownkeys import OwnKeys
from topom.proxies.proxylist import ProxyList
from topom.servers.detector import Condition
from topom.servers.health import Health
from topom.servers.identities import Identities, with_run_ids
from topom.servers.lastcopy import Alarms
from topom.servers.redis_servers import RedisServers
from topom.servers.replication import ServerReplication
from topom.store import Store, StoreConflict
from topom.term.settings import TopomSettings
from topom.term.tending import Tending

log = structlog.get_logger(__name__)

ASSIGN_SECONDS = 5.0
"""How long an assignment waits for proxies to acknowledge that the slots are offline."""
CLOCK_SECONDS = 1.0
"""How often it is looked whether the hours of migration have come or are over."""

NOBODY_NEW: Mapping[str, str] = MappingProxyType({})

TableChange = Callable[[SlotTable, int], SlotTable]


class Topom:
    """One topom. :meth:`start` before anything else; :meth:`run` does what goes on by itself."""

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
    ) -> None:
        """
        Args:
            mover: moves keys; the migrator when None.
            on_step: told of each step of the slot state machine.
            leads: whether it may change anything at this instant; see :mod:`topom.store.leading`.
            term: of this leader; 0 where no other topom uses the store.
            process: instance of the process that this is a term of. Events name either by the same eight digits.
            url: at which the others reach the process's API.
        """
        self.settings = settings
        self.instance = (process or secrets.token_hex(16))[:NAMED_BY] + secrets.token_hex(16 - NAMED_BY // 2)
        self.leads = leads
        self.retired = asyncio.Event()
        """Set once it does not lead any more, for good."""
        self.tending = Tending(StoreConflict)
        """Of what goes on by itself while this one leads."""
        self._store = store
        self.ledger = Ledger(store, self.instance, leads, settings.events_kept, term, url)
        self.waiters = Waiters(self.ledger, settings.waiters)
        self.members = Members(self.ledger, settings.proxy_lease_seconds, settings.stand_down_rule())
        self.proxies = ProxyList(self.members)
        access = settings.redis_access
        self.servers = RedisServers(access, settings.redis_timeout_seconds, leads)
        self.barrier = Barrier(
            self.ledger, self.members, self.servers, lambda server: self.identities.run_id_of(server)
        )
        self.old_marks = OldMarks(self.ledger, self.servers)
        self.health = Health(
            self.ledger,
            access,
            settings.detector_settings(),
            settings.server_probe_seconds,
            settings.redis_timeout_seconds,
            lambda server, run_id: self.identities.heard(server, run_id),
        )
        self.identities = Identities(
            self.ledger, ServerReplication(self.servers, leads), lambda server: self.health.of(server).condition
        )
        mover = mover or RedisMover(
            settings.product_settings(),
            access,
            self.instance,
            leads,
            term,
            self.identities.conflict,
            self.identities.doubt,
        )
        self.sweeps = Sweeps(
            self.ledger, mover, self.servers, self.health, lambda: self.protection.active, self.identities.conflict
        )
        self.actions = Actions(
            self.ledger,
            self.barrier,
            mover,
            settings.migration_settings(),
            settings.barrier_seconds,
            on_step,
            self.sweeps.ensure,
        )
        self.differing = Differing(lambda: self.ledger.state)
        # last-copy: whoever tells servers whom to follow does it by this one.
        replication = ServerReplication(
            self.servers, leads, settings.ha_lag_bytes_max, Alarms(self.ledger).raised, self.identities.conflict
        )
        self.promotions = Promotions(
            self.ledger,
            self.barrier,
            replication,
            settings.barrier_seconds,
            settings.promotion_seconds,
            on_step,
            self.differing.problem,
            lambda group_id: self.sentinels.left_alone(group_id),
        )
        self.protection = Protection(settings.protection_share, self.ledger, settings.server_suspect_seconds)
        self.offsets = Offsets(self.ledger, replication, self.health.hears, settings.ha_lag_bytes_max)
        self.masters = Masters(
            self.ledger,
            self.members,
            self.barrier,
            self.health,
            self.promotions,
            replication,
            self.protection,
            self.offsets,
            settings.masters_settings(),
            self.differing.problem,
            LostProxies(self.ledger, self.members, self.servers, settings.masters_settings().proxy_suspect_seconds)
            if settings.stand_down_rule() is not None
            else None,
        )
        self.gone = Gone(
            self.ledger,
            self.members,
            self.barrier,
            self.servers,
            settings.proxy_forget_seconds,
            lambda: self.protection.active,
        )
        self.own_keys = OwnKeys(self.ledger, self.barrier, self.servers, self.health.hears)
        self.digests = Digests(self.ledger, access)
        self.sizes = SizeBook(store, settings.number_of_slots)
        self.first_layout = FirstLayout(self.ledger, self.servers, settings.min_groups, self.identities.require)
        self.rebalancing = Rebalancing(self.ledger, self.sizes, self.freshness, self.actions)
        self.departures = Departures(self.ledger, self.rebalancing)
        self.pool = Pool(self.ledger, self.servers, self.identities)
        self.node_departures = NodeDepartures(self.ledger, self.pool, self.differing.problem)
        self.server_departures = ServerDepartures(
            self.ledger,
            self.promotions,
            replication,
            self.node_departures,
            self.differing.problem,
            self.health.has_failed,
        )
        filling = Filling(
            self.ledger,
            self.barrier,
            replication,
            settings.barrier_seconds,
            lambda server, group_id: self.sentinels.copies.prepare(server, group_id),
            self.identities,
        )
        self.joins = Joins(self.ledger, replication, filling)
        self.strays = Strays(
            self.ledger,
            replication,
            lambda server: self.health.of(server).condition is Condition.ALIVE,
            lambda: self.protection.active,
            settings.ha == "sentinel",
        )
        stepping = Stepping(
            self.ledger,
            self.barrier,
            self.health,
            self.promotions,
            replication,
            self.pool,
            filling,
            settings.stepping_settings(),
            self.differing.problem,
        )
        self.placements = Placements(
            self.ledger,
            self.health,
            self.pool,
            self.protection,
            stepping,
            settings.placement_rules(),
            settings.placement_settle_seconds,
        )
        self.sentinels = Sentinels(
            settings.ha,
            self.ledger,
            self.servers,
            settings.sentinels,
            settings.sentinel_settings(),
            settings.sentinel_access,
            settings.redis_timeout_seconds,
            leads,
            lambda server: self.differing.of(server) is not None,
            self.health.has_failed,
            stepping.detach,
        )
        self._frames: TableFrames | None = None
        self._history: TableHistory | None = None
        self._one_assignment = asyncio.Lock()
        self._running: list[asyncio.Task[None]] = []

    @property
    def frames(self) -> TableFrames:
        """The frames that bring proxies to the table that is stored."""
        assert self._frames is not None, "topom was not started"
        return self._frames

    @property
    def history(self) -> TableHistory:
        """What changed of the table that is stored, for clients that read it."""
        assert self._history is not None, "topom was not started"
        return self._history

    async def start(self) -> None:
        """Read the store and take its writer's place. Raises :class:`~topom.errors.TopomError`."""
        await self.ledger.start(self.settings.product_settings())
        await self.sizes.start()
        self._frames = TableFrames(self.ledger.table)
        self._history = TableHistory(self.ledger.table)
        # Before the members listen, who wake the links: a link that wakes finds the frames of the new table.
        self.ledger.listen(self._publish)
        self.members.start()
        self.identities.start()

    def show(self, state: ClusterState) -> None:
        """Take on what another topom has stored, instead of :meth:`start` and :meth:`run`, for reading only."""
        if self._frames is None:
            self.ledger.show(state)
            self._frames = TableFrames(state.table)
            self._history = TableHistory(state.table)
            self.ledger.listen(self._publish)
            self.members.start()
            self.identities.start()
        else:
            self.ledger.show(state)

    def counts(self, member: Member) -> bool:
        """Whether a proxy may be told now that it is a member and not fenced (:mod:`topom.proxies.standdown`)."""
        return self.leads() and not self.ledger.lost.is_set() and member.record.id in self.ledger.state.proxies

    def retire(self) -> None:
        """End every proxy's control stream, and all waits for news: another leads, or will, or the process ends."""
        self.retired.set()
        self.waiters.release()

    async def run(self) -> None:
        """Watch leases, repeat refused tables, run batches and follow Sentinels, until cancelled.

        Raises:
            StoreConflict: another topom has written to the store.
        """
        loops: dict[str, Callable[[], Awaitable[None]]] = {
            "leases": self.members.watch,
            "refused tables": self.barrier.tell_again,
            "batches": self.actions.run,
            "promotions": self.promotions.run,
            "health": self.health.run,
            "run ids": self.identities.run,
            "masters": self.masters.run,
            **({"offsets": self.offsets.run} if self.settings.ha == "topom" else {}),
            "lost proxies": self.gone.run,
            "fences": self.barrier.finish,
            "old marks": self.old_marks.run,
            "own keys": self.own_keys.run,
            "hours": self._follow_clock,
            "first layout": self.first_layout.run,
            "list of proxies": self.proxies.run,
            "leaving groups": self.departures.run,
            "leaving servers": self.server_departures.run,
            "joining servers": self.joins.run,
            "strays": self.strays.run,
            "sweeps": self.sweeps.run,
            "sentinels": self.sentinels.run,
            "digests": self.digests.run,
            "placement": self.placements.run,
        }
        async with asyncio.TaskGroup() as group:
            for name, loop in loops.items():
                self._running.append(group.create_task(self.tending.keep(name, loop), name=name))

    def not_ended(self) -> list[str]:
        """Names of the tasks of :meth:`run` that have not ended."""
        return [task.get_name() for task in self._running if not task.done()]

    async def close(self) -> None:
        """Let go of servers and store, after :meth:`run` has ended."""
        with suppress(Exception):
            await self.servers.close()
        await self.ledger.close()

    def freshness(self) -> Freshness:
        """How far the sizes of slots can be trusted now."""
        state = self.ledger.state
        return freshness(
            self.sizes.known, state.table, state.moved, self.sizes.clock(), self.settings.sizes_stale_seconds
        )

    async def edit(self, make: TableChange, wipe: bool = False, run_ids: Mapping[str, str] = NOBODY_NEW) -> SlotTable:
        """Change the table as ``make`` says; the table that then holds. Raises what ``make`` and the store raise.

        Servers that come to be replicas by it have to become whole; ``wipe`` is whether their keys may be lost, and
        ``run_ids`` who they are (:meth:`topom.servers.identities.Identities.admit`).
        """

        def change(state: ClusterState, epoch: int) -> ClusterState:
            table = make(state.table, epoch)
            self.identities.require_new(state, run_ids)
            new = joining.with_new(state, interventions.with_table(state, table), wipe)
            return with_run_ids(new, run_ids)

        return (await self.ledger.change(change)).table

    async def edit_slots(self, make: TableChange) -> tuple[int, list[int]]:
        """As :meth:`edit`; the epoch that then holds, and ids of the slots that changed."""
        changed: list[int] = []

        def tracked(table: SlotTable, epoch: int) -> SlotTable:
            new = make(table, epoch)
            changed[:] = topology.changed_slots(table, new)
            return new

        table = await self.edit(tracked)
        if changed:
            log.info("slots_changed", slots=ranges.show(changed), epoch=table.epoch)
        return table.epoch, changed

    async def assign(self, text: str, group_id: int) -> tuple[int, list[int]]:
        """Give offline slots to a group at once; epoch and ids of the slots that changed.

        **one-owner**: only when every proxy has acknowledged a table in which they are offline, and lost proxies
        are fenced everywhere, so that nobody sends to a former owner any more.

        Raises:
            ProxiesNotReady: when that takes longer than :data:`ASSIGN_SECONDS`.
            TopomError: as :func:`topom.cluster.topology.assign`.
        """
        slots = topology.parse_slots(text, self.settings.number_of_slots)
        deadline = asyncio.get_running_loop().time() + ASSIGN_SECONDS
        async with self._one_assignment:
            while True:
                # Checked first, so that what can never be assigned is refused at once.
                topology.assign(self.ledger.table, self.ledger.state.version + 1, slots, group_id)
                self.identities.require_one_name(topology.group_of(self.ledger.table, group_id).servers[0])
                await self.sweeps.stop(self.ledger.table.master_of(group_id))
                left = max(0.0, deadline - asyncio.get_running_loop().time())
                await self.barrier.everyone_current(all_servers(self.ledger.table), left)
                waited = False

                def assign(table: SlotTable, epoch: int) -> SlotTable:
                    nonlocal waited
                    # Nothing changes the table while this runs, so what holds here holds when it is stored.
                    waited = self.barrier.passed(table.epoch, all_servers(table))
                    return topology.assign(table, epoch, slots, group_id) if waited else table

                try:
                    outcome = await self.edit_slots(assign)
                except SweepUnderWay:
                    # One that began since the one before was stopped.
                    if not left:
                        raise
                    continue
                if waited:
                    return outcome
                if not left:
                    raise ProxiesNotReady("the table changes faster than proxies acknowledge it; try again in a while")

    async def cancel(self, text: str | None) -> Cancelled:
        """Call off the actions of slots, of all when None; what becomes of each (:mod:`topom.cluster.cancelling`).

        Raises:
            InvalidSlots: ``text`` is no list of slots.
        """
        slots = self._slots(text)
        outcome = Cancelled()

        def cancel(state: ClusterState, epoch: int) -> ClusterState:
            nonlocal outcome
            new, outcome = interventions.cancel(state, epoch, slots)
            return new

        await self.ledger.change(cancel)
        log.info(
            "slots_cancelled",
            ended=ranges.show(outcome.ended),
            returning=ranges.show(outcome.returning),
            too_late=ranges.show(outcome.too_late),
        )
        # What goes back has been waiting long enough.
        self.actions.retry()
        return outcome

    async def skip(self, text: str) -> list[int]:
        """Have slots that do not go on step aside until they are retried; ids of those that now do.

        Raises:
            InvalidSlots: ``text`` is no list of slots.
        """
        slots = self._slots(text)
        reasons = self.actions.reasons()
        changed: list[int] = []

        def skip(state: ClusterState, epoch: int) -> ClusterState:
            new = interventions.skip(state, epoch, {slot: reasons.get(slot, "") for slot in slots})
            changed[:] = sorted(set(new.skipped) - set(state.skipped))
            return new

        await self.ledger.change(skip)
        log.info("slots_skipped", slots=ranges.show(changed))
        return changed

    async def retry(self, text: str | None) -> list[int]:
        """Try at once what failed and waits; skipped slots, all when None, go on too: ids of those.

        Raises:
            InvalidSlots: ``text`` is no list of slots.
        """
        slots = self._slots(text)
        changed: list[int] = []

        def retry(state: ClusterState, epoch: int) -> ClusterState:
            new = interventions.unskipped(state, slots)
            changed[:] = sorted(set(state.skipped) - set(new.skipped))
            return new

        await self.ledger.change(retry)
        self.actions.retry()
        log.info("slots_retried", skipped=ranges.show(changed))
        return changed

    def _slots(self, text: str | None) -> Collection[int]:
        number = self.settings.number_of_slots
        return range(number) if text is None else topology.parse_slots(text, number)

    async def remove_proxy(self, proxy_id: int, force: bool) -> dict[str, str]:
        """Fence a proxy off every server and forget it; reasons by server where it could not be fenced.

        Raises:
            ProxyNotFound: there is none of that id.
            ServersUnreachable: without ``force``, when servers do not answer; then nothing was done, or, if one
                failed in between, the fence there is made up for before slots next move to or from it.
        """
        self.members.get(proxy_id)
        servers = all_servers(self.ledger.table)
        if not force:
            _require_reachable(proxy_id, await self.servers.unreachable(servers), done=False)
        await self.members.fence([proxy_id], "removed", "an operator removed the proxy", only_lost=False)
        failures = await self.barrier.fence_removed(servers)
        if not force:
            _require_reachable(proxy_id, failures, done=True)
        return failures

    async def set_migration(self, changes: Mapping[str, Any]) -> None:
        """Set migration settings, by the names of :class:`~topom.cluster.state.MigrationSettings`, over the configured
        ones.

        Raises:
            InvalidHours: the hours or their time zone cannot be read.
            StoreError, LostPlace: as :meth:`topom.cluster.ledger.Ledger.change`.
        """
        Hours.parse(changes.get("hours", ""), changes.get("time_zone", ""))

        def change(state: ClusterState, epoch: int) -> ClusterState:
            merged = {**state.migration_changes, **changes}
            return replace(state, migration_changes=merged) if merged != state.migration_changes else state

        await self.ledger.change(change)
        log.info("migration_set", **changes)

    async def _follow_clock(self) -> None:
        while True:
            self.actions.follow_clock()
            await asyncio.sleep(CLOCK_SECONDS)

    def _publish(self, old: ClusterState, new: ClusterState) -> None:
        if old.table is not new.table:
            self.frames.publish(new.table)
            self.history.publish(new.table)


def _require_reachable(proxy_id: int, failures: Mapping[str, str], done: bool) -> None:
    if failures:
        reasons = "; ".join(f"{address}: {reason}" for address, reason in sorted(failures.items()))
        outcome = "was removed, but is not fenced" if done else "cannot be removed, for it cannot be fenced"
        raise ServersUnreachable(
            f"proxy {proxy_id} {outcome} everywhere ({reasons}); bring these servers back, or use force if it is "
            "sure that the proxy's process has ended"
        )
