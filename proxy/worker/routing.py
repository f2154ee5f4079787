"""A worker's slot table: put in force slot by slot, and acknowledged once it holds.

An epoch is acknowledged when no command is under way at a server that the new table takes its slot from (**drained**).
That is so when every locked or offline slot has had all its replies, and every connection that was lost with replies
outstanding is ended by its server. If a lock does not drain in time, this worker gives it up and refuses it to topom,
which then tells every proxy to unlock. Once acknowledged, a lock is kept until a newer table ends it, in any event,
because topom may have handed the slot on.

While slot rules change, a worker locks all slots itself until that has drained, and no longer: from then on it only
keeps clients off the keys whose slot changes. So a topom that dies amid a change keeps no other request waiting.

The proxy may be unable to use a group for now (:mod:`proxy.servers.allowances`). Then the group's slots are locked as
if its master were lost. That does not change what is acknowledged.

**one-owner**: before a table is acknowledged that says that a master is lost, every connection to that master has
ended. None is opened while the table says so. If the master only hung, it may go on after another server has replaced
it, but then it answers nobody.

**epochs**: an older table than the one in force is ignored.
"""

import asyncio
from collections.abc import Callable, Collection, Set
from dataclasses import dataclass, replace

import structlog

from proxy.engine.router import LOCKED, MIGRATING, OFFLINE, OPEN, Router
from proxy.moving.migrating import KeyMover
from proxy.moving.move import Origin
from proxy.servers.ownconnections import OwnConnections
from proxy.worker.holding import Holding
from proxy.worker.lostconnections import LostConnections
from proxy.worker.replicas.replicas import Replicas
from slots import ranges
from slots.beginning import UNKNOWN as UNKNOWN_BEGINNING
from slots.beginning import Beginning
from slots.rules import SlotRule
from slots.slot import Slot
from slots.states import AT_SOURCE, Course, SlotState
from slots.table import SlotTable

log = structlog.get_logger()

LOST = "has failed, and another server takes its place; the command may have run there"
FORMER = "is not its group's master any more and did not reply in time; the command may have run there"


@dataclass(frozen=True, slots=True)
class Route:
    """The destination of one slot's requests: a state of :mod:`proxy.engine.router`, the server, and the source if it
    moves.

    A slot that is locked to be turned round has a source, too: the group that its keys have come from until then. A
    slot whose master is ``lost`` is locked without waiting for that server's replies. ``epoch``, ``beginning`` and
    ``min_replicas`` are those of :class:`slots.slot.Action`, for an action that moves keys. **by-action**: so no two
    actions have equal routes, and knowledge by one route counts for no other.
    """

    state: int
    address: str | None
    source: str | None = None
    epoch: int = 0
    beginning: Beginning = UNKNOWN_BEGINNING
    min_replicas: int = 0
    lost: bool = False


def route_of(table: SlotTable, slot: Slot, stood_down: Set[int] = frozenset(), all_locked: bool = False) -> Route:
    """A slot's route, by its state, the locks of its groups or of all slots, and the groups that may not be used for
    now."""
    route = _route_by_state(table, slot)
    if route.state == OFFLINE:
        return route
    groups = [table.groups[slot.group_id]] if slot.group_id in table.groups else []
    at_rest = slot.action is None or slot.action.state in AT_SOURCE
    if slot.action is not None and not at_rest:
        groups.append(table.groups[slot.action.target_id])
    if any(group.lost for group in groups):
        return replace(route, state=LOCKED, lost=True)
    if at_rest and (all_locked or any(group.locked for group in groups)):
        return replace(route, state=LOCKED)
    # drained: a lock of the table is kept as the table has it.
    if route.state != LOCKED and any(group.id in stood_down for group in groups):
        return replace(route, state=LOCKED, lost=True)
    return route


def _route_by_state(table: SlotTable, slot: Slot) -> Route:
    """The table of states in :mod:`slots.states`."""
    master = table.master_of(slot.group_id)
    action = slot.action
    if action is None or action.state in AT_SOURCE:
        return Route(OPEN if master else OFFLINE, master)
    target = table.master_of(action.target_id)
    if action.state is SlotState.PREPARED:
        # An offline slot has nothing in flight to wait for, and no session to hold requests for.
        turning = action.course is Course.BACK and master != target
        return Route(LOCKED if master else OFFLINE, master, target if turning else None, action.epoch if turning else 0)
    if action.state is SlotState.MIGRATING and master is not None and master != target:
        state = MIGRATING if target else OFFLINE
        return Route(state, target, master, action.epoch, action.beginning, action.min_replicas)
    return Route(OPEN if target else OFFLINE, target)


UNKNOWN = Route(OFFLINE, None)


class Routing:
    """The table in force at one worker.

    Args:
        router, replicas, holding, mover, lost_connections, own: the worker's parts through which a table is put in
            force.
        drain_seconds: how long a lock may take to drain.
        verdict: tells the supervisor of an epoch: None if it holds, else why it was refused.
        slots_leaving: called with slots that were locked, or go to another server, and may have requests in flight.
    """

    def __init__(
        self,
        router: Router,
        replicas: Replicas,
        holding: Holding,
        mover: KeyMover,
        lost_connections: LostConnections,
        own: OwnConnections,
        drain_seconds: float,
        verdict: Callable[[int, str | None], None],
        slots_leaving: Callable[[Collection[int]], None],
    ) -> None:
        self.table: SlotTable | None = None
        self.stood_down: frozenset[int] = frozenset()
        """Groups that the proxy may not use for now."""
        self._all_locked = False
        # The rules and those to come by which nothing is under way any more that was sent before.
        self._drained: tuple[tuple[SlotRule, ...], tuple[SlotRule, ...]] | None = None
        self._router = router
        self._replicas = replicas
        self._holding = holding
        self._mover = mover
        self._lost_connections = lost_connections
        self._own = own
        self._drain_seconds = drain_seconds
        self._verdict = verdict
        self._slots_leaving = slots_leaving
        self._routes: dict[int, Route] = {}
        self._migrations = 0
        # Sources of moving slots that another master has replaced.
        self._former_sources: set[str] = set()
        # Slots whose replies are still awaited, with their former server.
        self._undrained: dict[int, str] = {}
        self._locked: dict[int, str] = {}
        # Locked slots whose lock was acknowledged: this worker never gives it up by itself.
        self._firm: set[int] = set()
        # Slots that go to another server once the old one has answered.
        self._relocating: dict[int, Route] = {}
        self._unacknowledged: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def apply(self, table: SlotTable, stood_down: frozenset[int] = frozenset()) -> None:
        """Put a table in force, and acknowledge it when it holds. ``stood_down`` is as for :meth:`stand_down`."""
        old = self.table
        if old is not None and table.epoch < old.epoch:
            log.warning("older_table_ignored", epoch=table.epoch, own_epoch=old.epoch)
            return
        self.table = table
        # caught-up: before anything is acknowledged.
        self._replicas.apply(table)
        if old is None or (table.rules, table.coming) != (old.rules, old.coming):
            self._router.rule_by(table.rules, table.coming)
        were_locked, self._all_locked = self._all_locked, table.coming is not None
        if (table.rules, table.coming) == self._drained:
            self._all_locked = False
        else:
            self._drained = None
        groups_changed = (
            old is None
            or stood_down != self.stood_down
            or self._all_locked != were_locked
            or any(
                (former := old.groups.get(group_id)) is None
                or (former.master, former.locked, former.lost) != (group.master, group.locked, group.lost)
                for group_id, group in table.groups.items()
            )
        )
        self.stood_down = stood_down
        # Hundreds of slots change in the same way, and clients wait meanwhile. The table keeps the actions alive.
        routes: dict[tuple[int, int], Route] = {}
        for index, slot in enumerate(table.slots):
            # A lock that was given up is taken again by any newer table that has it.
            given_up = slot.id not in self._locked and self._routes.get(slot.id, UNKNOWN).state == LOCKED
            if groups_changed or old is None or slot is not old.slots[index] or given_up:
                alike = slot.group_id, id(slot.action)
                route = routes.get(alike)
                if route is None:
                    route = routes[alike] = route_of(table, slot, stood_down, self._all_locked)
                self._set(slot.id, route)
        self._router.next_generation()
        # one-owner: nothing is acknowledged before all connections have ended that this table ends.
        self._unacknowledged = None
        self._leave_lost(table)
        self._mover.leave(self._former_sources)
        self._former_sources.clear()
        self._mover.close_idle()
        self._holding.release()
        self._unacknowledged = table.epoch
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._drain_seconds, self._out_of_time)
        self._router.loop.watch_drain(self.check)
        if self._undrained:
            # drained: a command that waits at a server on a session's own connection would hold the lock up.
            self._slots_leaving(frozenset(self._undrained))
        self.check()

    def forget(self) -> None:
        """Forget moving keys and acknowledged locks, because the proxy takes a new identity.

        **by-action**: while the former identity was fenced, slots may have come to rest, been written to and begun to
        move again. Its knowledge may be wrong although the route looks the same, and its acknowledgements no longer
        count.
        """
        self._firm.clear()
        for slot in self._routes:
            state, address, _ = self._router.route(slot)
            if state == MIGRATING:
                self._migrations += 1
                self._router.set_route(slot, MIGRATING, address, self._migrations)
        self._router.next_generation()

    def stand_down(self, groups: frozenset[int]) -> None:
        """Hold requests for the slots of these groups, and only these, besides those that the table locks."""
        self.stood_down = groups
        if self.table is not None:
            self._route_anew(self.table)
            self.check()

    def _route_anew(self, table: SlotTable) -> None:
        """Set the routes that are others by now, though the table is the same."""
        for slot in table.slots:
            route = route_of(table, slot, self.stood_down, self._all_locked)
            if route != self._routes.get(slot.id):
                self._set(slot.id, route)
        self._router.next_generation()
        self._holding.release()

    def is_stood_down(self, slot: int) -> bool:
        """Whether a slot is locked because the proxy may not use one of its groups."""
        table, route = self.table, self._routes.get(slot, UNKNOWN)
        return (
            table is not None
            and route.state == LOCKED
            and route != route_of(table, table.slots[slot], frozenset(), self._all_locked)
        )

    def _leave_lost(self, table: SlotTable) -> None:
        """Stop using masters that have failed, and do not wait for their replies: later answers may be lost with
        them."""
        lost = frozenset(group.servers[0] for group in table.groups.values() if group.lost and group.servers)
        self._router.options.lost_masters = lost
        for backend in self._router.shared_backends:
            if backend.address in lost:
                backend.reset(LOST)
        self._own.leave(lost, LOST)
        self._mover.leave(lost)

    @property
    def servers(self) -> set[str]:
        """Addresses of all servers of the table."""
        groups = self.table.groups.values() if self.table is not None else ()
        return {server for group in groups for server in group.servers}

    def masters(self) -> list[str]:
        """Addresses of the masters that own slots, give them away or receive them, by group id."""
        return list(self.table.used_masters.values()) if self.table is not None else []

    def _set(self, slot: int, route: Route) -> None:
        old = self._routes.get(slot)
        self._routes[slot] = route
        self._locked.pop(slot, None)
        self._relocating.pop(slot, None)
        if route.state != LOCKED:
            # An acknowledged lock holds at another master of its group, too, which has had nothing sent for it.
            self._firm.discard(slot)
        busy_at = old.address if old is not None and self._router.loop.slot_in_flight(slot) else None
        if route.state == LOCKED and route.address is not None and not route.lost:
            self._locked[slot] = self._undrained[slot] = route.address
        elif busy_at is not None and route.address != busy_at:
            self._undrained[slot] = busy_at
        elif route.address is not None and route.address == self._undrained.get(slot):
            del self._undrained[slot]
        migration = 0
        if route.state == MIGRATING:
            # by-action: keys known to be absent count for this action, its source and its target only.
            same = old == route
            if not same:
                self._migrations += 1
            migration = self._router.route(slot)[2] if same else self._migrations
        if old is not None and old.source is not None and route.source not in (None, old.source):
            self._former_sources.add(old.source)
        origin = None
        if route.source is not None:
            origin = Origin(route.source, route.epoch, route.beginning, route.min_replicas)
        self._mover.set_source(slot, origin)
        if slot in self._undrained and route.state == OPEN:
            # in-order, one-owner: nothing goes to the new server while the old one owes replies.
            self._relocating[slot] = route
            self._router.set_route(slot, LOCKED, self._undrained[slot], 0)
        else:
            self._router.set_route(slot, route.state, route.address, migration)

    def check(self) -> None:
        """Acknowledge the table if it holds by now; called when a slot's last reply has come."""
        moved = False
        for slot in [slot for slot in self._undrained if not self._router.loop.slot_in_flight(slot)]:
            del self._undrained[slot]
            relocated = self._relocating.pop(slot, None)
            if relocated is not None:
                self._router.set_route(slot, relocated.state, relocated.address, 0)
                moved = True
        if moved:
            self._holding.release()
        if self._unacknowledged is None or self._undrained:
            return
        # drained: a lost connection's server may still run commands that were sent over it.
        if self._lost_connections.servers_among(self._newly_locked_servers()):
            return
        self._firm = set(self._locked)
        epoch, self._unacknowledged = self._unacknowledged, None
        self._stop_timer()
        self._router.loop.watch_drain(None)
        if self.table is not None:
            # Not before: a server that has left the table may still owe replies.
            servers = {server for group in self.table.groups.values() for server in group.servers}
            self._router.keep_servers(servers | self._replicas.leaving)
            self._lost_connections.keep_servers(servers)
        self._verdict(epoch, None)
        if self.table is not None and self.table.coming is not None and self._all_locked:
            # bounded: topom may be gone. No command is under way that this worker would refuse by now.
            self._all_locked, self._drained = False, (self.table.rules, self.table.coming)
            self._route_anew(self.table)

    def _newly_locked_servers(self) -> set[str]:
        """Servers of the locks that are not acknowledged yet: those that commands went to, and those that keys came
        from."""
        new = {slot: address for slot, address in self._locked.items() if slot not in self._firm}
        moved_from = {source for slot in new if (source := self._routes[slot].source) is not None}
        return set(new.values()) | moved_from

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _out_of_time(self) -> None:
        self._timer = None
        if self._unacknowledged is None:
            return
        silent: set[str] = set()
        for slot, route in list(self._relocating.items()):
            # The old server is as good as gone, and its group has a new master.
            del self._relocating[slot]
            silent.add(self._undrained.pop(slot))
            self._router.set_route(slot, route.state, route.address, 0)
        for backend in self._router.shared_backends:
            if backend.address in silent and backend.queued:
                # in-order: sessions with replies owed by it get no others before, so they must not be left waiting.
                backend.reset(FORMER)
        # one-owner
        self._own.leave(silent, FORMER)
        given_up = set(self._locked) - self._firm
        if not given_up:
            # Nothing has to be given up: the replies come, or their connection is lost, within backend_reply_seconds.
            self._holding.release()
            self.check()
            return
        epoch, self._unacknowledged = self._unacknowledged, None
        waiting = set(self._undrained) & given_up
        servers = self._lost_connections.servers_among(self._newly_locked_servers())
        reason = (
            f"slots {ranges.show(waiting)} had no reply to all their commands within {self._drain_seconds:g} s"
            if waiting
            else f"a connection lost at {', '.join(servers)} may still run commands there"
        )
        for slot in given_up:
            self._unlock(slot)
            self._undrained.pop(slot, None)
            del self._locked[slot]
        self._router.loop.watch_drain(self.check if self._undrained else None)
        self._router.next_generation()
        log.warning("lock_refused", epoch=epoch, reason=reason)
        self._verdict(epoch, reason)
        self._holding.release()

    def _unlock(self, slot: int) -> None:
        """Send a slot's requests where they went before its lock."""
        route = self._routes[slot]
        if route.source is None:
            self._router.open_route(slot)
            return
        # absent-first: it was locked to be turned round, and its keys are still moving as before.
        self._migrations += 1
        self._router.set_route(slot, MIGRATING, route.address, self._migrations)

    def close(self) -> None:
        """Stop waiting for anything."""
        self._stop_timer()
        self._router.loop.watch_drain(None)
