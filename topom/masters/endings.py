"""How a change of masters ends, and what goes on afterwards: steps 4 and 5 of :mod:`topom.masters.promotions`.

A group that is locked is given the master that it has by then, by what its servers say; one that is not locked has
its master, and its other servers are seen to until they follow it, however long they are away. Whoever leads next goes
on from what is stored.
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
    """The promotion was taken back: the master is who it was."""


class Endings(Loop):
    """The changes of masters of one topom that are decided, or broken off.

    Args:
        locks: which groups somebody else is at.
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
        """There may be something to go on with: look soon, and soon again after that."""
        self._backoff.reset()
        super().wake()

    async def look(self) -> Look:
        """Go on with what a topom before has left, and see whether the servers follow that have yet to."""
        waiting = await self._go_on()
        return Look("; ".join(waiting), self._backoff.next() if waiting else None)

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        if old.promotions is not new.promotions:
            self.wake()

    async def decide(self, group_id: int, promotion: Promotion, reason: str) -> SlotTable:
        """A locked group's promotion did not get to its end, or this topom does not know: find out who is its master.

        Raises:
            PromotionFailed: the master is who it was.
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
            # Where masters are noted at all.
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
        """How far the new master is in its stream, for it may fail at once, too (:mod:`topom.masters.offsets`)."""
        said = await self._ask(server)
        return {group_id: Noted(server, said.stream, said.offset)} if said and said.is_master and said.stream else {}

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

    async def _go_on(self) -> list[str]:
        """Take each promotion that nobody is at further. Gives a sentence for each that has to be looked at again."""
        waiting: list[str] = []
        for group_id, promotion in list(self._ledger.state.promotions.items()):
            if group_id in self._locks.busy:
                continue
            group = self._ledger.table.groups.get(group_id)
            if group is not None and group.locked:
                await self._end_lock(group_id, promotion)
                waiting.append(f"group {group_id} is locked until it is known which server is its master")
            elif await self.followers.all_follow(group_id, promotion):
                await self._ledger.change(lambda state, epoch, over=group_id: _without(state, over))  # type: ignore[misc]
                log.info("promotion_over", group=group_id)
            else:
                waiting.append(f"not all servers of group {group_id} follow {promotion.server} yet")
        return waiting

    async def _end_lock(self, group_id: int, promotion: Promotion) -> None:
        """Give a locked group that nobody is at its master, whichever it is."""
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


def _without(state: ClusterState, group_id: int) -> ClusterState:
    """The state in which this group's promotion is over, unless another one has begun."""
    group = state.table.groups.get(group_id)
    if group_id not in state.promotions or (group is not None and group.locked):
        return state
    return replace(
        state, promotions={number: entry for number, entry in state.promotions.items() if number != group_id}
    )
