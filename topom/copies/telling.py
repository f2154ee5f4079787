"""Has a server follow a master, which replaces whatever the server holds. The engine does it here for every asker.

It takes these steps, in this order:

1. Every proxy has the newest table, or is fenced off the server, so none takes it for a replica of its former group.
   If Redis Sentinels decide which server is master, they do not take it for a whole copy
   (:mod:`topom.masters.sentinels.electable`). For a server that is *known* in its group, both are true already.
2. Nobody can lock slots or groups from here on (:meth:`topom.proxies.barrier.Barrier.locking`), and the table names
   the master (**one-owner**).
3. The copy is still wanted by what is stored now.
4. The server does not count as keeping fenced proxies off any more: its marks are replaced with all else that it holds,
   and so are marks that it gets until it is told.
5. The server is asked whether it would lose something that nobody said may be lost, and whether it is the process that
   this was decided for. Only then it is told (**last-copy**, :mod:`topom.servers.lastcopy`; **run-id**,
   :mod:`topom.servers.identities`).
"""

from collections.abc import Awaitable, Callable

from slots.table import SlotTable
from topom.cluster import fences
from topom.cluster.ledger import Ledger
from topom.copies.wanted import Wanted
from topom.errors import Conflict
from topom.proxies.barrier import Barrier
from topom.servers.identities import Identities
from topom.servers.replication import ServerReplication


class FillingOvertaken(Conflict):
    """The server is not to be filled by this master any more, or not now; it is looked at again."""


async def _nothing(server: str, group_id: int) -> None:
    """What is done before a server is told if only topom chooses masters."""


class Telling:
    """Tells servers of one topom which master to follow.

    Args:
        barrier_seconds: how long proxies may take to acknowledge a table.
        prepare: is called with a server and the group for which it is filled, before the server is told. Raises a
            TopomError if it must not be told now.
        identities: knows which server is at an address.
    """

    def __init__(
        self,
        ledger: Ledger,
        barrier: Barrier,
        replication: ServerReplication,
        barrier_seconds: float,
        prepare: Callable[[str, int], Awaitable[None]] = _nothing,
        identities: Identities | None = None,
    ) -> None:
        self._ledger = ledger
        self._barrier = barrier
        self._replication = replication
        self._barrier_seconds = barrier_seconds
        self._prepare = prepare
        self._identities = identities

    async def require(self, copy: Wanted) -> str:
        """The run id of a server that may be told, by what it and its master say now.

        Raises:
            NotToFollow: it might lose what nobody else has.
            SameServer, NotCompared, ReplicaOfAnother: as :class:`~topom.servers.identities.Identities`.
            ServerFailed: one of them does not answer.
        """
        await self._require_known(copy)
        await self._require_not_needed(copy)
        run_id = await self._replication.require(copy.server, copy.master, copy.told_as, copy.sure)
        if self._identities is not None:
            self._identities.heard(copy.server, run_id)
        await self._require_known(copy)
        return run_id

    async def tell(self, copy: Wanted, run_id: str, is_wanted: Callable[[], bool]) -> None:
        """Have a server follow the master of a group.

        Args:
            run_id: of the process that this was decided for; another process is not told.
            is_wanted: whether, by what is stored now, the copy is still wanted.

        Raises:
            ProxiesNotReady: a proxy has an older table; nothing was done.
            FillingOvertaken: the group has another master, or is getting one, or the copy is not wanted any more.
            NotToFollow, SameServer, NotCompared, ReplicaOfAnother: as :meth:`require`; it was not told.
            ServerFailed: it is not known whether the server was told.
            TopomError: as ``prepare``, and :meth:`topom.cluster.ledger.Ledger.change`; it was not told.
        """
        if not copy.known:
            await self._prepare(copy.server, copy.group)
            await self._barrier.everyone_current([copy.server], self._barrier_seconds)
        async with self._barrier.locking():
            await self._require_not_needed(copy)
            await self._require_known(copy)
            await self._unmark(copy.server)
            _require_master(self._ledger.table, copy.group, copy.master)
            if not is_wanted():
                raise FillingOvertaken("its group was changed just now, or it is not to be filled any more")
            try:
                await self._replication.follow(
                    copy.server, copy.master, copy.told_as, copy.sure, anew=copy.anew, decided=run_id
                )
            finally:
                await self._unmark(copy.server)

    async def _require_known(self, copy: Wanted) -> None:
        # run-id: the process that is told is the very one that was compared with all others. A known server was
        # compared when it came in, and a change of masters that is decided does not wait for the others.
        if self._identities is not None and not copy.known:
            self._identities.require(copy.server, copy.master)
            await self._identities.require_no_copy(copy.group, copy.server, copy.told_as)

    async def _require_not_needed(self, copy: Wanted) -> None:
        """Raises NotToFollow, ServerFailed for a server whose old copy may be all that is left of a group."""
        group = self._ledger.table.groups.get(copy.copy_of) if copy.copy_of is not None else None
        if group is not None and group.servers:
            await self._replication.require_not_needed(copy.server, group.servers[0])

    async def _unmark(self, server: str) -> None:
        self._barrier.emptied(server)
        await self._ledger.change(lambda state, epoch: fences.emptied(state, server))


def _require_master(table: SlotTable, group_id: int, master: str) -> None:
    """Raises FillingOvertaken unless the group has this master, and is not getting another one."""
    group = table.groups.get(group_id)
    if group is None or group.locked or group.master != master:
        raise FillingOvertaken("its group was changed just now, or is being given another master")
