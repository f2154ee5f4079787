"""The forced promotion of a locked group: of the two servers that its change of masters is about, neither answers.

An operator names a third one. Nobody writes to the group since it was locked, so it does not matter which of the two
was its master last, and what is lost is what those two had been sent before and the third one had not.
"""

from dataclasses import replace

import structlog

from slots.table import Group, SlotTable
from topom.cluster import topology
from topom.cluster.cancelling import with_table
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState, Promotion
from topom.errors import NotReady, TopomError
from topom.masters import choice
from topom.masters.endings import Endings, PromotionFailed
from topom.masters.grouplocks import GroupLocks, with_promotion
from topom.proxies.barrier import Barrier
from topom.servers.replication import ServerReplication, look_at_all

log = structlog.get_logger(__name__)


class LockedGroups:
    """The locked groups of one topom that wait for servers which are gone.

    Args:
        barrier_seconds: how long proxies may take to acknowledge a table.
    """

    def __init__(
        self,
        ledger: Ledger,
        barrier: Barrier,
        replication: ServerReplication,
        locks: GroupLocks,
        endings: Endings,
        barrier_seconds: float,
    ) -> None:
        self._ledger = ledger
        self._barrier = barrier
        self._replication = replication
        self._locks = locks
        self._endings = endings
        self._barrier_seconds = barrier_seconds

    async def force(self, group_id: int, address: str) -> SlotTable:
        """Have another server become the master of a group whose change of masters waits for servers that are gone.

        Raises:
            NotReady: the group does not wait for them any more, or the server is refused (:mod:`topom.masters.choice`).
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
            await self._require(group, address, gone)
            run_id = (await self._replication.read(address)).run_id
            promotion = Promotion(address, earlier.former, run_id=run_id)
            self._locks.require_known(or_lost=False)
            with self._locks.held_by_this(group_id):
                epoch = await self._lock_again(group, earlier, promotion, gone)
                return await self._switch(group, promotion, gone, epoch)

    async def _require(self, group: Group, address: str, gone: list[str]) -> None:
        """Raises what says why an operator may not have this server made the master now."""
        said = await look_at_all(self._replication, [*gone, address])
        choice.forced(self._ledger.state, group, address, said, gone).require()

    async def _lock_again(self, group: Group, earlier: Promotion, promotion: Promotion, gone: list[str]) -> int:
        """Have every proxy lock the group without those that are gone, and store that the change is another one.

        The epoch of the lock.

        Until it is sure that it can be done, what is stored is the earlier change: should one of its servers come back
        after all, it is the one that has everything.
        """

        def still(state: ClusterState) -> Group:
            now = topology.group_of(state.table, group.id)
            if not now.locked or promotion.server not in now.servers or state.promotions.get(group.id) != earlier:
                raise NotReady(f"group {group.id} was changed meanwhile; look at it, and try again")
            return now

        def lock_again(state: ClusterState, epoch: int) -> ClusterState:
            return with_table(state, state.table.changed(epoch, groups=[replace(still(state), lost=True)]))

        def decided(state: ClusterState, epoch: int) -> ClusterState:
            still(state)
            return with_promotion(state, group.id, promotion)

        servers = _without(group, gone)
        try:
            epoch = (await self._ledger.change(lock_again)).table.epoch
            await self._locks.observe("lock stored")
            await self._barrier.reach(epoch, servers, self._barrier_seconds, stop_at_refusal=True)
            await self._locks.observe("lock acknowledged")
            await self._require(group, promotion.server, gone)
            self._locks.require_held(epoch, servers)
        except TopomError as error:
            raise PromotionFailed(f"group {group.id} stays locked as it was: {error}") from error
        await self._ledger.change(decided)
        log.warning("locked_group_forced", group=group.id, server=promotion.server, epoch=epoch)
        return epoch

    async def _switch(self, group: Group, promotion: Promotion, gone: list[str], epoch: int) -> SlotTable:
        """From the lock of everybody to its end, whichever that is."""
        try:
            self._locks.require_held(epoch, _without(group, gone))
            await self._replication.make_master(promotion.server, promotion.run_id)
        except Exception as error:
            return await self._endings.decide(group.id, promotion, str(error) or type(error).__name__)
        await self._locks.observe("replica is master")
        return await self._endings.complete(group.id, promotion)


def _without(group: Group, gone: list[str]) -> list[str]:
    """Those that are gone are not in the way: proxies were never told to write to any but the former master."""
    return [server for server in group.servers if server not in gone]
