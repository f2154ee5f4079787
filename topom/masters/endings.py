"""How a change of masters ends, and what goes on afterwards: steps 4 and 5 of :mod:`topom.masters.promotions`.

A locked group is given the master that its servers show it to have. A group that is not locked has its master already.
Its other servers are told until they follow the master, however long they are away. The next leader goes on from what
is stored.
"""

import asyncio
from contextlib import suppress
from dataclasses import replace

import structlog

from slots.backoff import Backoff
from slots.table import SlotTable
from topom.cluster import topology
from topom.cluster.cancelling import with_table
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState, Noted, Promotion
from topom.errors import Unavailable
from topom.masters.choice import master_of_locked
from topom.masters.followers import Followers
from topom.masters.grouplocks import GroupLocks
from topom.masters.offsets import with_noted
from topom.periodic import Look, Loop
from topom.proxies.barrier import Barrier
from topom.servers.lastcopy import ServerFailed
from topom.servers.readings import Replication
from topom.servers.replication import ServerReplication

log = structlog.get_logger(__name__)

FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 2.0
"""Between two looks at servers that do not follow their master yet; with full jitter."""


class PromotionFailed(Unavailable):
    """The promotion was taken back: the master is the same as before."""


class Endings(Loop):
    """The changes of masters of one topom that are decided, or broken off.

    Args:
        locks: knows which groups another task is working on.
    """

    name = "promotions"
    pause_seconds = 0.01

    def __init__(self, ledger: Ledger, barrier: Barrier, replication: ServerReplication, locks: GroupLocks) -> None:
        super().__init__()
        self._ledger = ledger
        self._barrier = barrier
        self._replication = replication
        self._locks = locks
        self.followers = Followers(ledger, barrier, replication)
        self._backoff = Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)
        ledger.listen(self._changed)
        locks.listen(self.wake)

    def wake(self) -> None:
        """Look soon, and soon again after that: there may be something to go on with."""
        self._backoff.reset()
        super().wake()

    async def look(self) -> Look:
        """Go on with what an earlier topom has left, and see whether all servers follow their new masters."""
        waiting = await self._go_on()
        return Look("; ".join(waiting), self._backoff.next() if waiting else None)

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        if old.promotions is not new.promotions:
            self.wake()

    async def decide(self, group_id: int, promotion: Promotion, reason: str) -> SlotTable:
        """Find out which server is a locked group's master, if its promotion did not get to its end as far as is known.

        Raises:
            PromotionFailed: the master is the same as before.
            ServerFailed: neither of the two servers answers, and the group stays locked.
        """
        successor = await self._ask(promotion.server)
        same = successor is not None and successor.is_master and await self._is_same(promotion)
        former = None if same else await self._ask(promotion.former)
        master = master_of_locked(promotion, same, successor, former)
        if master == promotion.server:
            return await self.complete(group_id, promotion)
        if not master:
            raise ServerFailed(
                f"group {group_id} stays locked, because neither {promotion.former} nor {promotion.server} answers, "
                f"of which one is to be its master ({reason}); bring one of them back"
            )
        if former is not None:
            if not former.is_master:
                await self._replication.make_master(promotion.former)
            await self._replication.resume_writes(promotion.former)
        await self._locks.observe("taking back")
        state = await self._ledger.change(
            lambda state, epoch: with_table(state, topology.unlock_group(state.table, epoch, group_id))
        )
        log.warning("promotion_failed", group=group_id, server=promotion.server, reason=reason, epoch=state.table.epoch)
        await self._locks.observe("taken back")
        raise PromotionFailed(f"{promotion.former} is the master of group {group_id} as before, unlocked: {reason}")

    async def complete(self, group_id: int, promotion: Promotion) -> SlotTable:
        """The replica is a master with all that was acknowledged: store it. The others are told to follow it then."""

        def promoted(state: ClusterState, epoch: int) -> ClusterState:
            new = with_table(state, topology.promote(state.table, epoch, group_id, promotion.server))
            # Only if masters are noted at all.
            return with_noted(new, noted) if group_id in state.offsets else new

        keeping = asyncio.create_task(self._keep(promotion.server))
        try:
            noted = await self._noted(group_id, promotion.server)
            state = await self._ledger.change(promoted)
        finally:
            await keeping
        log.info("server_promoted", group=group_id, server=promotion.server, epoch=state.table.epoch)
        await self._locks.observe("promoted")
        return state.table

    async def _noted(self, group_id: int, server: str) -> dict[int, Noted]:
        """How far the new master is in its stream: it may fail at once, too (:mod:`topom.masters.offsets`)."""
        said = await self._ask(server)
        return {group_id: Noted(server, said.stream, said.offset)} if said and said.is_master and said.stream else {}

    async def _keep(self, server: str) -> None:
        """Have the new master remember at once that it is one, even if other servers are away.

        **last-copy**: if it were restarted with its old configuration file, it would follow the former master. That
        could empty it or set it back, and nobody would be asked.
        """
        with suppress(ServerFailed):  # it is told again when all follow
            await self._replication.keep(server)

    async def _is_same(self, promotion: Promotion) -> bool:
        """Whether the server that should be master is still the process that was chosen.

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

    async def _go_on(self) -> list[str]:
        """Take each promotion further that no other task works on. Gives a sentence for each that is not over yet.

        Locked groups come first, because clients wait for them. The others are looked at together: a server that does
        not answer holds up no other group.
        """
        free = [one for one in self._ledger.state.promotions.items() if one[0] not in self._locks.busy]
        locked = [one for one in free if self._is_locked(one[0])]
        for group_id, promotion in locked:
            await self._end_lock(group_id, promotion)
        rest = [one for one in free if one not in locked]
        said = await asyncio.gather(*(self._end(*one) for one in rest), return_exceptions=True)
        waiting = [f"group {group_id} is locked until it is known which server is its master" for group_id, _ in locked]
        for one in said:
            if isinstance(one, BaseException):
                raise one
            waiting += [one] if one else []
        return waiting

    def _is_locked(self, group_id: int) -> bool:
        group = self._ledger.table.groups.get(group_id)
        return group is not None and group.locked

    async def _end(self, group_id: int, promotion: Promotion) -> str:
        """End a promotion whose servers follow the new master; else the sentence that says what it waits for."""
        if not await self.followers.all_follow(group_id, promotion):
            return f"not all servers of group {group_id} follow {promotion.server} yet"
        state = await self._ledger.change(lambda state, epoch: _without(state, group_id, promotion))
        if group_id not in state.promotions:
            log.info("promotion_over", group=group_id)
        return ""

    async def _end_lock(self, group_id: int, promotion: Promotion) -> None:
        """Give a locked group that no other task works on its master, whichever server that is."""
        async with self._barrier.locking():
            # An operator may have forced another change before this had the lock.
            group = self._ledger.table.groups.get(group_id)
            if group is None or not group.locked or self._ledger.state.promotions.get(group_id) != promotion:
                return
            try:
                await self.decide(group_id, promotion, "topom was restarted or lost its store meanwhile")
            except PromotionFailed:
                pass
            except ServerFailed as error:
                log.error("group_stays_locked", group=group_id, reason=str(error))


def _without(state: ClusterState, group_id: int, promotion: Promotion) -> ClusterState:
    """The state in which this promotion of a group is over, unless another one has begun.

    That all servers follow says nothing of a promotion that was made since, even if it is over already.
    """
    group = state.table.groups.get(group_id)
    if state.promotions.get(group_id) is not promotion or (group is not None and group.locked):
        return state
    return replace(
        state, promotions={number: entry for number, entry in state.promotions.items() if number != group_id}
    )
