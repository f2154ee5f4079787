"""The forced promotion of a locked group, in which neither server of its change of masters answers.

An operator names a third server. No proxy has written to the group since it was locked, so it does not matter which of
the two was its master last. What is lost are the writes that those two have and the third one has not.
"""

from dataclasses import replace

import structlog

from slots.group import Group
from slots.table import SlotTable
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
    """The locked groups of one topom that wait for servers that are gone.

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
        """Make another server the master of a group whose change of masters waits for servers that are gone.

        Raises:
            NotReady: the group does not wait for them now, or the server is refused (:mod:`topom.masters.choice`).
            PromotionFailed: a proxy did not lock, or one of the servers came back; the group stays locked as it was.
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
            with self._locks.held_by_this(group_id):
                epoch = await self._lock_again(group, earlier, promotion, gone)
                return await self._switch(group, promotion, gone, epoch)

    async def _require(self, group: Group, address: str, gone: list[str]) -> None:
        """Raises the refusal, if an operator may not make this server the master now."""
        said = await look_at_all(self._replication, [*gone, address])
        choice.forced(self._ledger.state, group, address, said, gone).require()

    async def _lock_again(self, group: Group, earlier: Promotion, promotion: Promotion, gone: list[str]) -> int:
        """Lock the group at every proxy without the servers that are gone, and store the new change; gives the lock's
        epoch.

        Until it is sure that the new change can be made, the earlier change stays stored. If one of its servers comes
        back after all, that server has everything.
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
        """Go from the lock at every proxy to the end of the change, whether it succeeds or not."""
        try:
            self._locks.require_held(epoch, _without(group, gone))
            await self._replication.make_master(promotion.server, promotion.run_id)
        except Exception as error:
            return await self._endings.decide(group.id, promotion, str(error) or type(error).__name__)
        await self._locks.observe("replica is master")
        return await self._endings.complete(group.id, promotion)


def _without(group: Group, gone: list[str]) -> list[str]:
    """The group's other servers. Those that are gone are not in the way: proxies were never told to write to any server
    except the former master.
    """
    return [server for server in group.servers if server not in gone]
