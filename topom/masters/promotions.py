"""Planned changes of a group's master, without the loss of anything acknowledged.

A group is locked at all proxies, its replica has run all that the master had, the replica is made the master, the group
is unlocked:

1. The replica is looked at, and waited for if it is only a little behind; nobody is held up yet.
2. The lock is stored, and proxies acknowledge it: nothing is in flight at the master, and nobody sends it anything
   (**drained**). The master is told to hold whatever else writes, for a bounded time.
3. The replica has run all that the master has. It is made a master. From here on there is only the way forward.
4. The group with its new master, unlocked, is stored. Meanwhile the other servers are made replicas of it.
5. What has not followed yet is seen to until it has, however long it is away.

Until step 3 is done, whatever goes wrong has the lock taken back, and the master stays. What is stored says how far a
promotion was: a group that is locked is between 2 and 4, and whether the replica is a master tells on which side of 3.
While it is locked nobody writes to either server, so both have all that was acknowledged, and either may become the
master (**one-owner**: proxies use the one that the table names, and only after the lock). One that is not locked is
at step 5. **bounded**: steps 2 and 3 take ``promotion_seconds`` at the most; a group stays locked longer than that only
while neither of its two servers answers, and no operator forces a third, or the store does not.

One group is locked at a time, and no batch of slots meanwhile: a proxy's refusal of a table then concerns that lock.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import replace
from typing import Any, Protocol

import structlog

from slots.backoff import Backoff
from slots.table import Group, SlotTable
from topom.cluster import topology
from topom.cluster.cancelling import with_table
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState, Noted, Promotion
from topom.errors import LeaderSilent, NotReady, ServerNotFound, TopomError, Unavailable
from topom.masters.followers import Followers
from topom.masters.offsets import with_noted
from topom.masters.outcomes import Kind, Outcomes
from topom.proxies.barrier import Barrier, BarrierFailed
from topom.servers.lastcopy import As, ServerFailed
from topom.servers.readings import Replication
from topom.servers.replication import ServerReplication, obstacle

log = structlog.get_logger(__name__)

POLL_SECONDS = 0.002
"""How often the replica is asked how far it is, while its group is locked."""
LOOK_SECONDS = 0.1
"""The same, before."""
NEAR_BYTES = 1_048_576
"""How far behind its master a replica may be when its group is locked."""
FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 2.0
"""Between two looks at servers that do not follow their master yet; with full jitter."""
SPARE_SECONDS = 1.0
"""For how long the former master holds writes beyond the time that the promotion has."""

Observer = Callable[[str], Awaitable[None]]
"""Told of each step, by name, before the next one."""


Choose = Callable[[], Awaitable[str]]
"""Says which replica is to become the master."""


class StoodDown(Protocol):
    """Knows of lost proxies that they use a master no more off which they cannot be fenced."""

    async def confirm(self, group: Group, server: str) -> None:
        """Ask again what :meth:`require` relies on. Raises :class:`NotReady`."""

    def require(self, group: Group, server: str) -> None:
        """Raises :class:`NotReady` if one may still use the group's master when ``server`` takes its place."""


class PromotionFailed(Unavailable):
    """The promotion was taken back: the master is who it was."""


class Promotions:
    """The changes of masters of one topom.

    Args:
        barrier_seconds: how long proxies may take to acknowledge a table.
        promotion_seconds: how long a group may be locked, and how long its replica is waited for before.
        on_step: told of each step.
        problem_of: why a replica's copy is not to be relied on; None if nothing is known against it.
        left_alone: keeps others from choosing a master of a group meanwhile.
    """

    def __init__(
        self,
        ledger: Ledger,
        barrier: Barrier,
        replication: ServerReplication,
        barrier_seconds: float,
        promotion_seconds: float,
        on_step: Observer | None = None,
        problem_of: Callable[[str], str | None] = lambda server: None,
        left_alone: Callable[[int], AbstractAsyncContextManager[None]] = lambda group_id: nullcontext(),
    ) -> None:
        self._left_alone = left_alone
        self._problem_of = problem_of
        self._ledger = ledger
        self._barrier = barrier
        self._replication = replication
        self.followers = Followers(ledger, barrier, replication)
        self._barrier_seconds = barrier_seconds
        self._seconds = promotion_seconds
        self.on_step = on_step
        self._busy: set[int] = set()
        self.outcomes = Outcomes()
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[SlotTable]] = set()

    async def promote(self, group_id: int, address: str) -> SlotTable:
        """Make a replica the master of its group; the table that then holds. A caller that is cancelled stops nothing.

        Raises:
            GroupNotFound, ServerNotFound: there is none.
            GroupLocked, SlotsInAction: it is being done already; slots of the group are being moved.
            NotReady: the server is no replica of the master that could take over; nothing was locked.
            Conflict: as ``left_alone``; nothing was locked.
            PromotionFailed: it was taken back.
            StoreError, LostPlace: as :meth:`topom.cluster.ledger.Ledger.change`; then it is taken back, or goes on, by
            itself.
            LeaderSilent: this topom ceased to lead meanwhile; the next one takes it back, or goes on with it.
        """
        work = self.outcomes.of(Kind.PLANNED, self._promote(group_id, address))
        return await self._finished(work, f"promotion of {address}")

    async def force(self, group_id: int, address: str) -> SlotTable:
        """Make a replica the master of a group whose master an operator knows to be gone; what only that had is lost.

        So is one that is locked because neither of the two servers answers that a change of masters was about: then any
        other of its servers may be named, whatever of those two is lost with them.

        Raises as :meth:`promote`.
        """
        group = topology.group_of(self._ledger.table, group_id)
        if address not in group.servers:
            raise ServerNotFound(f"group {group_id} has no server {address}; it has {', '.join(group.servers)}")
        name = f"forced promotion of {address}"
        if group.locked and group_id not in self._busy:
            return await self._finished(self.outcomes.of(Kind.FORCED, self._force_locked(group_id, address)), name)
        if address == group.master:
            return self._ledger.table

        async def choose() -> str:
            if await self._ask(group.servers[0]) is not None:
                raise NotReady(f"{group.master} answers; promote {address} without force, and nothing is lost")
            return await self._forceable(address)

        work = self.outcomes.of(Kind.FORCED, self._fail_over(group_id, choose, wait_for_lost_proxies=False))
        return await self._finished(work, name)

    async def fail_over(
        self, group_id: int, choose: Choose, wait_for_lost_proxies: bool, stood_down: StoodDown | None = None
    ) -> SlotTable:
        """Make a replica the master of a group whose master is lost; the table that then holds.

        **one-owner**: the replica becomes a master only after every proxy has acknowledged that it sends nothing to the
        former one any more. A proxy that is lost is fenced off it first, if ``wait_for_lost_proxies``, or has
        ``stood_down``; as long as that is not so, there is no other master.

        Args:
            group_id: of the group.
            choose: says which replica; asked again once no proxy sends anything. Raises :class:`NotReady`.
            wait_for_lost_proxies: False if it is sure that no lost proxy can reach the former master.
            stood_down: knows which lost proxies need not be fenced off it.

        Raises:
            as :meth:`promote`, but for LeaderSilent.
        """
        return await self.outcomes.of(
            Kind.FAILOVER, self._fail_over(group_id, choose, wait_for_lost_proxies, stood_down)
        )

    async def _fail_over(
        self, group_id: int, choose: Choose, wait_for_lost_proxies: bool, stood_down: StoodDown | None = None
    ) -> SlotTable:
        group = topology.group_of(self._ledger.table, group_id)
        if group.master is None:
            raise NotReady(f"group {group_id} has no master")
        async with self._barrier.locking():
            promotion = await self._identified(await choose(), group.master)
            self._require_group_locks(or_lost=False)
            self._busy.add(group_id)
            try:
                await self._lock(group_id, promotion, lost=True)
                servers = group.servers if wait_for_lost_proxies else group.replicas
                if stood_down is not None:
                    servers = (promotion.server,)
                return await self._take_over(group_id, promotion, choose, servers, stood_down)
            finally:
                self._busy.discard(group_id)
                self._wake.set()

    async def run(self) -> None:
        """Go on with what a topom before has left, and see to servers that have yet to follow, until cancelled."""
        self._ledger.listen(self._changed)
        backoff = Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)
        try:
            while True:
                self._wake.clear()
                try:
                    waiting = await self._go_on()
                except TopomError as error:
                    log.error("promotions_wait", reason=str(error))
                    waiting = True
                if not waiting:
                    backoff.reset()
                    await self._wake.wait()
                    continue
                try:
                    async with asyncio.timeout(backoff.next()):
                        await self._wake.wait()
                    backoff.reset()
                except TimeoutError:
                    pass
        finally:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- one promotion -------------------------------------------------------------------------------------

    async def _promote(self, group_id: int, address: str) -> SlotTable:
        table = self._ledger.table
        group = topology.group_of(table, group_id)
        if address not in group.servers:
            raise ServerNotFound(f"group {group_id} has no server {address}; it has {', '.join(group.servers)}")
        if address == group.master:
            return table
        # Refused at once, if it is to be refused.
        topology.lock_group(table, self._ledger.state.version + 1, group_id)
        self._require_group_locks(or_lost=False)
        master = group.servers[0]
        self._require_whole(address)
        await self._wait_until_near(master, address)
        await self._barrier.everyone_current(group.servers, self._barrier_seconds)
        async with self._barrier.locking(), self._left_alone(group_id):
            promotion = await self._identified(address, master)
            self._busy.add(group_id)
            try:
                await self._lock(group_id, promotion)
                return await self._switch(group_id, promotion)
            finally:
                self._busy.discard(group_id)
                self._wake.set()

    async def _identified(self, server: str, former: str) -> Promotion:
        """A change of masters to a server, as the process that it is now. Raises ServerFailed."""
        return Promotion(server, former, run_id=(await self._replication.read(server)).run_id)

    def _require_whole(self, address: str) -> None:
        problem = self._problem_of(address)
        if problem is not None:
            raise NotReady(problem)

    async def _wait_until_near(self, master: str, address: str) -> None:
        """Return once the replica is near enough to its master to catch up in no time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._seconds
        while True:
            try:
                ahead = await self._replication.look(master)
                behind = await self._replication.look(address)
            except ServerFailed as error:
                raise NotReady(f"{error}; nothing was changed") from error
            problem = obstacle(address, master, ahead, behind, NEAR_BYTES)
            if problem is None:
                return
            if loop.time() >= deadline:
                raise NotReady(f"{problem}; nothing was changed")
            await asyncio.sleep(LOOK_SECONDS)

    async def _lock(self, group_id: int, promotion: Promotion, lost: bool = False) -> None:
        def lock(state: ClusterState, epoch: int) -> ClusterState:
            group = topology.group_of(state.table, group_id)
            if group.master != promotion.former or promotion.server not in group.servers:
                raise NotReady(f"group {group_id} was changed meanwhile; look at it, and try again")
            new = with_table(state, topology.lock_group(state.table, epoch, group_id, lost))
            return _with_promotion(new, group_id, promotion)

        state = await self._ledger.change(lock)
        log.info("group_locked", group=group_id, server=promotion.server, lost=lost, epoch=state.table.epoch)
        await self._observe("lock stored")

    async def _switch(self, group_id: int, promotion: Promotion) -> SlotTable:
        """From the lock to its end, whichever that is."""
        table = self._ledger.table
        servers = table.groups[group_id].servers
        deadline = asyncio.get_running_loop().time() + self._seconds
        try:
            # drained: whoever could send to the master has locked its slots and had its replies, or is fenced.
            await self._barrier.reach(
                table.epoch, servers, min(self._barrier_seconds, self._seconds), stop_at_refusal=True
            )
            await self._observe("lock acknowledged")
            left = deadline - asyncio.get_running_loop().time()
            await self._replication.pause_writes(promotion.former, max(0.0, left) + SPARE_SECONDS)
            await self._wait_until_equal(promotion, deadline)
            await self._observe("replica has all")
            self._require_locked(table.epoch, servers)
            self._require_whole(promotion.server)
            await self._replication.make_master(promotion.server, promotion.run_id)
        except Exception as error:
            # Whatever it is, the group must not stay locked for it.
            await self._observe("failed")
            return await self._decide(group_id, promotion, str(error) or type(error).__name__)
        await self._observe("replica is master")
        return await self._complete(group_id, promotion)

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
            await self._observe("lock acknowledged")
            if await choose() != promotion.server:
                raise NotReady(f"{promotion.server} is not the best choice any more")
            if stood_down is not None:
                await stood_down.confirm(table.groups[group_id], promotion.server)
                # one-owner: others may have been lost meanwhile.
                stood_down.require(table.groups[group_id], promotion.server)
            self._require_locked(table.epoch, servers)
            await self._replication.make_master(promotion.server, promotion.run_id)
        except Exception as error:
            return await self._decide(group_id, promotion, str(error) or type(error).__name__)
        await self._observe("replica is master")
        return await self._complete(group_id, promotion)

    async def _force_locked(self, group_id: int, address: str) -> SlotTable:
        """Have another server become the master of a group whose change of masters waits for servers that are gone.

        Nobody writes to the group all the while, so it does not matter which of those two was its master last.

        Raises:
            PromotionFailed: the group stays locked as it was; a proxy did not lock, or one of the servers came back.
        """
        async with self._barrier.locking():
            group = topology.group_of(self._ledger.table, group_id)
            earlier = self._ledger.state.promotions.get(group_id)
            if not group.locked or earlier is None:
                raise NotReady(f"group {group_id} was unlocked meanwhile; look at it, and try again")
            gone = sorted({earlier.server, earlier.former})
            if address in gone:
                raise NotReady(f"group {group_id} is unlocked once {address} answers; bring it back, or name another")

            async def choose() -> str:
                for server in gone:
                    if await self._ask(server) is not None:
                        raise NotReady(f"{server} answers, so group {group_id} is unlocked by itself; look at it again")
                return await self._forceable(address)

            promotion = await self._identified(await choose(), earlier.former)
            self._require_group_locks(or_lost=False)

            def lock_again(state: ClusterState, epoch: int) -> ClusterState:
                return with_table(state, state.table.changed(epoch, groups=[replace(still(state), lost=True)]))

            def still(state: ClusterState) -> Group:
                group = topology.group_of(state.table, group_id)
                if not group.locked or address not in group.servers or state.promotions.get(group_id) != earlier:
                    raise NotReady(f"group {group_id} was changed meanwhile; look at it, and try again")
                return group

            def decided(state: ClusterState, epoch: int) -> ClusterState:
                still(state)
                return _with_promotion(state, group_id, promotion)

            # Those that are gone are not in the way: proxies were never told to write to any but the former master.
            servers = [server for server in group.servers if server not in gone]
            self._busy.add(group_id)
            try:
                # Until it is sure that it can be done, what is stored is the earlier change: should one of its servers
                # come back after all, it is the one that has everything.
                try:
                    epoch = (await self._ledger.change(lock_again)).table.epoch
                    await self._observe("lock stored")
                    await self._barrier.reach(epoch, servers, self._barrier_seconds, stop_at_refusal=True)
                    await self._observe("lock acknowledged")
                    await choose()
                    self._require_locked(epoch, servers)
                except TopomError as error:
                    raise PromotionFailed(f"group {group_id} stays locked as it was: {error}") from error
                await self._ledger.change(decided)
                log.warning("locked_group_forced", group=group_id, server=address, epoch=epoch)
                try:
                    self._require_locked(epoch, servers)
                    await self._replication.make_master(address, promotion.run_id)
                except Exception as error:
                    return await self._decide(group_id, promotion, str(error) or type(error).__name__)
                await self._observe("replica is master")
                return await self._complete(group_id, promotion)
            finally:
                self._busy.discard(group_id)
                self._wake.set()

    async def _forceable(self, address: str) -> str:
        """The server, if it has what it had when it was whole. Raises NotReady, ServerFailed.

        One that says that it is a master was not told to follow since it was started, whatever waits for that.
        """
        said = await self._replication.look(address)
        if not said.is_master and (said.filling or address in self._ledger.state.joining):
            raise NotReady(f"{address} was told to follow its master again, and was not seen whole since")
        return address

    def _require_group_locks(self, or_lost: bool) -> None:
        """Raises NotReady if there is a proxy whose acknowledgement of a lock says nothing."""
        ignorant = self._barrier.without_group_locks(or_lost)
        if ignorant:
            raise NotReady(f"proxy {ignorant[0]} is of a version that knows no locks of groups; upgrade it first")

    def _require_locked(self, epoch: int, servers: Collection[str]) -> None:
        """Raises what says why the lock of this epoch is not everybody's, although the barrier was reached."""
        if not self._barrier.passed(epoch, servers):
            raise BarrierFailed("a proxy registered after the others had locked, and has not locked itself")
        self._require_group_locks(or_lost=True)

    async def _wait_until_equal(self, promotion: Promotion, deadline: float) -> None:
        """Return once the replica has run all that the master has."""
        loop = asyncio.get_running_loop()
        while True:
            ahead = await self._replication.look(promotion.former)
            behind = await self._replication.look(promotion.server)
            problem = obstacle(promotion.server, promotion.former, ahead, behind, near=0)
            # The master may take writes again soon after the deadline, so that nothing found then can be relied on.
            if loop.time() >= deadline:
                late = "its replica has all that it has, which was found too late:"
                raise NotReady(f"{problem or late} after {self._seconds:g} s")
            if problem is None:
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _decide(self, group_id: int, promotion: Promotion, reason: str) -> SlotTable:
        """A locked group's promotion did not get to its end, or this topom does not know: find out who is its master.

        Nobody has written to either server since the lock, so whichever it is has everything that was acknowledged.

        Raises:
            PromotionFailed: the master is who it was.
            ServerFailed: neither of the two servers answers, and the group stays locked.
        """
        successor = await self._ask(promotion.server)
        if successor is not None and successor.is_master and await self._is_same(promotion):
            return await self._complete(group_id, promotion)
        former = await self._ask(promotion.former)
        if former is None and successor is None:
            raise ServerFailed(
                f"group {group_id} stays locked, because neither {promotion.former} nor {promotion.server} answers, "
                f"of which one is to be its master ({reason}); bring one of them back"
            )
        if former is not None:
            if not former.is_master:
                await self._replication.make_master(promotion.former)
            await self._replication.resume_writes(promotion.former)
        await self._observe("taking back")
        state = await self._ledger.change(
            lambda state, epoch: with_table(state, topology.unlock_group(state.table, epoch, group_id))
        )
        log.warning("promotion_failed", group=group_id, server=promotion.server, reason=reason, epoch=state.table.epoch)
        await self._observe("taken back")
        raise PromotionFailed(f"{promotion.former} is the master of group {group_id} as before, unlocked: {reason}")

    async def _complete(self, group_id: int, promotion: Promotion) -> SlotTable:
        """The replica is a master with all that was acknowledged: store it, and have the others follow it."""
        # A former master that is lost is told once it answers.
        lost = self._ledger.table.groups[group_id].lost
        decided = {promotion.server, promotion.former} if lost else {promotion.server}
        others = [server for server in self._ledger.table.groups[group_id].servers if server not in decided]

        def promoted(state: ClusterState, epoch: int) -> ClusterState:
            new = with_table(state, topology.promote(state.table, epoch, group_id, promotion.server))
            # Where masters are noted at all.
            return with_noted(new, noted) if group_id in state.offsets else new

        following = [asyncio.create_task(self._tell(server, promotion)) for server in others]
        following.append(asyncio.create_task(self._keep(promotion.server)))
        try:
            noted = await self._noted(group_id, promotion.server)
            state = await self._ledger.change(promoted)
        finally:
            await asyncio.gather(*following)
        log.info("server_promoted", group=group_id, server=promotion.server, epoch=state.table.epoch)
        await self._observe("promoted")
        return state.table

    async def _noted(self, group_id: int, server: str) -> dict[int, Noted]:
        """How far the new master is in its stream, for it may fail at once, too (:mod:`topom.offsets`)."""
        said = await self._ask(server)
        return {group_id: Noted(server, said.stream, said.offset)} if said and said.is_master and said.stream else {}

    async def _tell(self, server: str, promotion: Promotion) -> None:
        """Make a server follow the new master if it was part of this; what fails is made up for later."""
        try:
            reading = await self._replication.read(server)
            if server == promotion.former or not reading.replication.is_master:
                # run-id: what is thought of one process is not done to another.
                await self._replication.follow(
                    server, promotion.server, As.MEMBER, promotion.run_id, decided=reading.run_id
                )
        except TopomError as error:
            log.warning("server_follows_later", server=server, master=promotion.server, reason=str(error))

    async def _keep(self, server: str) -> None:
        """Have the new master remember at once that it is one, whoever of the others is away.

        **last-copy**: restarted by its configuration file of before, it would follow the former master, and be emptied
        or set back by it without anybody being asked.
        """
        with suppress(ServerFailed):  # made up for when all follow
            await self._replication.keep(server)

    async def _is_same(self, promotion: Promotion) -> bool:
        """Whether the one to be master is the process that was chosen; one that was restarted may be one by itself.

        **run-id**, **last-copy**: a replica without a configuration file is a master after a restart, with nothing.
        """
        try:
            return (await self._replication.read(promotion.server)).run_id == promotion.run_id or not promotion.run_id
        except ServerFailed:
            return False

    async def _ask(self, address: str) -> Replication | None:
        try:
            return await self._replication.look(address)
        except ServerFailed:
            return None

    # -- what is left --------------------------------------------------------------------------------------

    async def _go_on(self) -> bool:
        """Take each promotion that nobody is at further; whether some have to be looked at again."""
        waiting = False
        for group_id, promotion in list(self._ledger.state.promotions.items()):
            if group_id in self._busy:
                continue
            group = self._ledger.table.groups.get(group_id)
            if group is not None and group.locked:
                async with self._barrier.locking():
                    # An operator may have forced another change before this had the lock.
                    group = self._ledger.table.groups.get(group_id)
                    if group is None or not group.locked or self._ledger.state.promotions.get(group_id) != promotion:
                        waiting = True
                        continue
                    try:
                        await self._decide(group_id, promotion, "topom was restarted or lost its store meanwhile")
                    except PromotionFailed:
                        pass
                    except ServerFailed as error:
                        log.error("group_stays_locked", group=group_id, reason=str(error))
                waiting = True
            elif await self.followers.all_follow(group_id, promotion):
                await self._ledger.change(lambda state, epoch, over=group_id: _without(state, over))  # type: ignore[misc]
                log.info("promotion_over", group=group_id)
            else:
                waiting = True
        return waiting

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        if old.promotions is not new.promotions:
            self._wake.set()

    async def _finished(self, work: Coroutine[Any, Any, SlotTable], name: str) -> SlotTable:
        """What ``work`` comes to, which a cancelled caller does not stop. Raises LeaderSilent if the term ends."""
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
            task.exception()  # the caller has it, unless it was cancelled and nobody wants to know

    async def _observe(self, step: str) -> None:
        if self.on_step is not None:
            await self.on_step(step)


def _with_promotion(state: ClusterState, group_id: int, promotion: Promotion) -> ClusterState:
    """The state in which this promotion has begun, and remembers whom an earlier one that is not over was about."""
    before = state.promotions.get(group_id)
    if before is not None:
        others = before.concerned.intersection(state.table.groups[group_id].servers) - promotion.concerned
        promotion = replace(promotion, earlier=tuple(sorted(others)))
    return replace(state, promotions={**state.promotions, group_id: promotion})


def _without(state: ClusterState, group_id: int) -> ClusterState:
    """The state in which this group's promotion is over, unless another one has begun."""
    group = state.table.groups.get(group_id)
    if group_id not in state.promotions or (group is not None and group.locked):
        return state
    return replace(
        state, promotions={number: entry for number, entry in state.promotions.items() if number != group_id}
    )
