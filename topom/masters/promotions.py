"""Planned changes of a group's master, without the loss of anything acknowledged.

The group is locked at all proxies, the replica runs all that the master has, the replica is made the master, and the
group is unlocked:

1. topom looks at the replica, and waits if it is only a little behind. No request is held yet.
2. The lock is stored, and proxies acknowledge it: nothing is in flight at the master, and no proxy sends it anything
   (**drained**). topom tells the master to hold all other writes, for a bounded time.
3. Once the replica has run all that the master has, it is made a master. From here on there is only the way forward.
4. The group with its new master, unlocked, is stored. Meanwhile the other servers are made replicas of it.
5. topom tells each server that does not follow yet to follow, until it does, however long it is away.

If anything goes wrong before step 3 is done, the lock is taken back, and the master stays. What is stored shows how far
a promotion is. A locked group is between 2 and 4, and whether the replica is a master tells on which side of 3. While
the group is locked no proxy writes to either server, so both have all that was acknowledged, and either may become the
master (**one-owner**: proxies use the one that the table names, and only after the lock). A group that is not locked is
at step 5. **bounded**: steps 2 and 3 take at most ``promotion_seconds``. A group stays locked for longer only while the
store does not answer, or while neither of its two servers answers and no operator forces a third.

Only one group is locked at a time, and no batch of slots meanwhile. So a proxy's refusal of a table concerns that lock.

:mod:`topom.masters.choice` decides which server may become the master. The lock is in :mod:`topom.masters.grouplocks`.
Steps 4 and 5, and what a former leader has left, are in :mod:`topom.masters.endings`. :mod:`topom.masters.lockedgroups`
gives a locked group a third server as its master if its two servers are gone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import Any, Protocol

import structlog

from slots.group import Group
from slots.table import SlotTable
from topom.cluster import topology
from topom.cluster.ledger import Ledger
from topom.cluster.state import Promotion
from topom.errors import LeaderSilent, NotReady, ServerNotFound
from topom.masters import choice
from topom.masters.choice import Choice
from topom.masters.endings import Endings
from topom.masters.grouplocks import GroupLocks, Observer
from topom.masters.lockedgroups import LockedGroups
from topom.masters.outcomes import Kind, Outcomes
from topom.proxies.barrier import Barrier
from topom.servers.replication import ServerReplication, look_at_all
from topom.servers.whole import Refusal, Why

log = structlog.get_logger(__name__)

POLL_SECONDS = 0.002
"""Seconds between two questions to the replica how far it is, while its group is locked."""
LOOK_SECONDS = 0.1
"""The same, before the lock."""
NEAR_BYTES = 1_048_576
"""How many bytes a replica may be behind its master when its group is locked."""
SPARE_SECONDS = 1.0
"""The former master holds writes for so many seconds more than the promotion may take."""
FORCE = "start it again, or take the replica as it is with --force: what its master had not sent to it is lost"
"""What can be done if the master of a planned promotion does not answer."""
TAKE_OVER = "if somebody else has made the other server the master, name it with --force, and nothing is lost"
"""What can be done if the master of a planned promotion is a replica."""
TO_DO = {Why.MASTER_SILENT: FORCE, Why.MASTER_FOLLOWS: TAKE_OVER}
MAY_PASS = frozenset({Why.MASTER_FOLLOWS, Why.IS_MASTER, Why.NO_LINK, Why.OTHER_STREAM, Why.BEHIND})
"""If a planned change is refused for one of these, it waits for that to pass, for as long as it may take."""

Choose = Callable[[], Awaitable[str]]
"""Gives the replica that becomes the master."""


class StoodDown(Protocol):
    """Knows whether lost proxies that cannot be fenced off a master have stopped using it."""

    async def confirm(self, group: Group, server: str) -> None:
        """Ask again what :meth:`require` relies on. Raises :class:`NotReady`."""

    def require(self, group: Group, server: str) -> None:
        """Raises :class:`NotReady` if a lost proxy may still use the group's master when ``server`` takes its place."""


class Promotions:
    """The changes of masters of one topom.

    Args:
        barrier_seconds: how long proxies may take to acknowledge a table.
        promotion_seconds: how long a group may be locked, and how long topom waits for its replica before that.
        on_step: is called with each step.
        unwatched: keeps Sentinels from electing a master of a group meanwhile.
    """

    def __init__(
        self,
        ledger: Ledger,
        barrier: Barrier,
        replication: ServerReplication,
        barrier_seconds: float,
        promotion_seconds: float,
        on_step: Observer | None = None,
        unwatched: Callable[[int], AbstractAsyncContextManager[None]] = lambda group_id: nullcontext(),
    ) -> None:
        self._unwatched = unwatched
        self._ledger = ledger
        self._barrier = barrier
        self._replication = replication
        self._barrier_seconds = barrier_seconds
        self._seconds = promotion_seconds
        self._locks = GroupLocks(ledger, barrier, on_step)
        self.endings = Endings(ledger, barrier, replication, self._locks)
        self._locked_groups = LockedGroups(ledger, barrier, replication, self._locks, self.endings, barrier_seconds)
        self.outcomes = Outcomes()
        self._tasks: set[asyncio.Task[SlotTable]] = set()

    @property
    def on_step(self) -> Observer | None:
        """Is called with each step."""
        return self._locks.on_step

    @on_step.setter
    def on_step(self, observer: Observer | None) -> None:
        self._locks.on_step = observer

    async def promote(self, group_id: int, address: str) -> SlotTable:
        """Make a replica the master of its group; gives the table that then holds. Cancelling the caller stops nothing.

        Raises:
            GroupNotFound, ServerNotFound: there is no such group, or no such server in it.
            GroupLocked, SlotsInAction: the group changes its master already; slots of the group are being moved.
            ServerLeaving: the server is leaving.
            NotReady: the server is not a replica that could take over; nothing was locked.
            Conflict: as ``unwatched``; nothing was locked.
            PromotionFailed: the promotion was taken back.
            StoreError, LostPlace: as :meth:`topom.cluster.ledger.Ledger.change`; then the promotion is taken back, or
                goes on, by itself.
            LeaderSilent: this topom ceased to lead meanwhile. The next leader takes the promotion back, or goes on with
                it.
        """
        work = self.outcomes.of(Kind.PLANNED, self._promote(group_id, address))
        return await self._finished(work, f"promotion of {address}")

    async def force(self, group_id: int, address: str) -> SlotTable:
        """Make a replica the master of a group whose master an operator knows to be gone; what only the master had is
        lost.

        The group may also stay locked because neither of the two servers of its change of masters answers. Then any
        other of its servers may be named, and what only those two had is lost.

        Raises as :meth:`promote`; NotWhole: the server was never seen whole.
        """
        group = topology.group_of(self._ledger.table, group_id)
        _require_member(group, address)
        name = f"forced promotion of {address}"
        if group.locked and group_id not in self._locks.busy:
            work = self.outcomes.of(Kind.FORCED, self._locked_groups.force(group_id, address))
            return await self._finished(work, name)
        if address == group.master:
            return self._ledger.table

        async def choose() -> str:
            gone = [group.servers[0]]
            said = await look_at_all(self._replication, [*gone, address])
            return choice.forced(self._ledger.state, group, address, said, gone).require()

        work = self.outcomes.of(Kind.FORCED, self._fail_over(group_id, choose, wait_for_lost_proxies=False))
        return await self._finished(work, name)

    async def fail_over(
        self, group_id: int, choose: Choose, wait_for_lost_proxies: bool, stood_down: StoodDown | None = None
    ) -> SlotTable:
        """Make a replica the master of a group whose master is lost; gives the table that then holds.

        **one-owner**: the replica becomes a master only after every proxy has acknowledged that it sends nothing to the
        former one. A lost proxy is fenced off the former master first, if ``wait_for_lost_proxies``, or has
        ``stood_down``. Until then the group gets no other master.

        Args:
            group_id: the group.
            choose: gives the replica; asked again once no proxy sends anything. Raises :class:`NotReady`.
            wait_for_lost_proxies: False if it is sure that no lost proxy can reach the former master.
            stood_down: knows which lost proxies need not be fenced off the former master.

        Raises:
            as :meth:`promote`, except LeaderSilent.
        """
        return await self.outcomes.of(
            Kind.FAILOVER, self._fail_over(group_id, choose, wait_for_lost_proxies, stood_down)
        )

    async def run(self) -> None:
        """Go on with what a former leader has left, and tell servers to follow, until cancelled."""
        try:
            await self.endings.run()
        finally:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- planned -------------------------------------------------------------------------------------------

    async def _promote(self, group_id: int, address: str) -> SlotTable:
        table = self._ledger.table
        group = topology.group_of(table, group_id)
        _require_member(group, address)
        if address == group.master:
            if (refusal := choice.staying(self._ledger.state, address)) is not None:
                raise choice.error_of(refusal)
            return table
        # If this is refused, it is refused at once.
        topology.lock_group(table, self._ledger.state.version + 1, group_id)
        await self._wait_until_near(group, address)
        await self._barrier.everyone_current(group.servers, self._barrier_seconds)
        async with self._barrier.locking(), self._unwatched(group_id):
            promotion = await self._identified(address, group.servers[0])
            with self._locks.held_by_this(group_id):
                await self._locks.lock(group_id, promotion)
                return await self._switch(group_id, promotion)

    async def _look(self, group: Group, address: str, near: int) -> Choice:
        """Whether a replica may take its master's place in a planned change, by what both say now."""
        said = await look_at_all(self._replication, [group.servers[0], address])
        names = {address: self._replication.conflict(address)}
        return choice.planned(self._ledger.state, group, said, near, names)

    async def _wait_until_near(self, group: Group, address: str) -> None:
        """Return once the replica is near enough to its master to catch up in no time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._seconds
        while (found := await self._look(group, address, NEAR_BYTES)).chosen is None:
            refusal = found.refusal
            if refusal.kind not in MAY_PASS or loop.time() >= deadline:
                told = replace(refusal, what=f"{refusal.what}; nothing was changed")
                to_do = TO_DO.get(refusal.kind, told.to_do)
                raise choice.error_of(replace(told, to_do=to_do))
            await asyncio.sleep(LOOK_SECONDS)

    async def _switch(self, group_id: int, promotion: Promotion) -> SlotTable:
        """Go from the lock to the end of the change: the new master, or the former one if it is taken back."""
        table = self._ledger.table
        group = table.groups[group_id]
        deadline = asyncio.get_running_loop().time() + self._seconds
        try:
            # drained: each proxy that could send to the master has locked its slots and had its replies, or is fenced.
            await self._barrier.reach(
                table.epoch, group.servers, min(self._barrier_seconds, self._seconds), stop_at_refusal=True
            )
            await self._locks.observe("lock acknowledged")
            left = deadline - asyncio.get_running_loop().time()
            await self._replication.pause_writes(promotion.former, max(0.0, left) + SPARE_SECONDS)
            await self._wait_until_equal(group, promotion, deadline)
            await self._locks.observe("replica has all")
            self._locks.require_held(table.epoch, group.servers)
            await self._replication.make_master(promotion.server, promotion.run_id)
        except Exception as error:
            # The group must not stay locked for any error.
            await self._locks.observe("failed")
            return await self.endings.decide(group_id, promotion, str(error) or type(error).__name__)
        await self._locks.observe("replica is master")
        return await self.endings.complete(group_id, promotion)

    async def _wait_until_equal(self, group: Group, promotion: Promotion, deadline: float) -> None:
        """Return once the replica has run all that the master has."""
        loop = asyncio.get_running_loop()
        while True:
            found = await self._look(group, promotion.server, near=0)
            refusal: Refusal | None = None if found.chosen is not None else found.refusal
            # The master may take writes again soon after the deadline, so what is found then does not count.
            if loop.time() >= deadline:
                late = "its replica has all that it has, which was found too late:"
                raise NotReady(f"{refusal or late} after {self._seconds:g} s")
            if refusal is None:
                return
            if refusal.kind not in MAY_PASS:
                raise choice.error_of(refusal)
            await asyncio.sleep(POLL_SECONDS)

    # -- without the master --------------------------------------------------------------------------------

    async def _fail_over(
        self, group_id: int, choose: Choose, wait_for_lost_proxies: bool, stood_down: StoodDown | None = None
    ) -> SlotTable:
        group = topology.group_of(self._ledger.table, group_id)
        if group.master is None:
            raise NotReady(f"group {group_id} has no master")
        async with self._barrier.locking():
            promotion = await self._identified(await choose(), group.master)
            with self._locks.held_by_this(group_id):
                await self._locks.lock(group_id, promotion, lost=True)
                servers = group.servers if wait_for_lost_proxies else group.replicas
                if stood_down is not None:
                    servers = (promotion.server,)
                return await self._take_over(group_id, promotion, choose, servers, stood_down)

    async def _take_over(
        self,
        group_id: int,
        promotion: Promotion,
        choose: Choose,
        servers: Collection[str],
        stood_down: StoodDown | None,
    ) -> SlotTable:
        """As :meth:`_switch`, while the former master does not answer. Lost proxies are fenced off ``servers``."""
        table = self._ledger.table
        try:
            await self._barrier.reach(table.epoch, servers, self._barrier_seconds, stop_at_refusal=True)
            await self._locks.observe("lock acknowledged")
            if await choose() != promotion.server:
                raise NotReady(f"{promotion.server} is not the best choice any more")
            if stood_down is not None:
                await stood_down.confirm(table.groups[group_id], promotion.server)
                # one-owner: others may have been lost meanwhile.
                stood_down.require(table.groups[group_id], promotion.server)
            self._locks.require_held(table.epoch, servers)
            await self._replication.make_master(promotion.server, promotion.run_id)
        except Exception as error:
            return await self.endings.decide(group_id, promotion, str(error) or type(error).__name__)
        await self._locks.observe("replica is master")
        return await self.endings.complete(group_id, promotion)

    # -- both ----------------------------------------------------------------------------------------------

    async def _identified(self, server: str, former: str) -> Promotion:
        """A change of masters to a server, with the run id of its process now. Raises ServerFailed."""
        return Promotion(server, former, run_id=(await self._replication.read(server)).run_id)

    async def _finished(self, work: Coroutine[Any, Any, SlotTable], name: str) -> SlotTable:
        """The result of ``work``, which a cancelled caller does not stop. Raises LeaderSilent if the term ends."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise LeaderSilent(
                    "this topom does not lead any more: whether it was done is not known. Look before you try again"
                ) from None
            raise

    def _forget(self, task: asyncio.Task[SlotTable]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the caller gets it, unless the caller was cancelled and nothing waits for it


def _require_member(group: Group, address: str) -> None:
    """Raises ServerNotFound if the server is in another group, or in none."""
    if address not in group.servers:
        raise ServerNotFound(f"group {group.id} has no server {address}; it has {', '.join(group.servers)}")
