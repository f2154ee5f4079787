"""Has a server that is no master be filled by one: told to follow it, which replaces whatever it holds.

Whoever makes copies (:mod:`topom.copies.joining`, :mod:`topom.placement.stepping`) has it done here, so that what it
takes is done in one way and in one order:

1. Every proxy has the newest table, or is fenced off the server: none takes it for a replica of a group that it was in
   before.
2. Nobody can lock slots or groups from here on (:meth:`topom.proxies.barrier.Barrier.locking`), and the table names
   the master (**one-owner**).
3. It does not count as keeping fenced proxies off any more: the marks that it has are among what is replaced, and so
   are those that are put up until it is told.
4. It is asked whether anything would be lost that nobody said may be, and who it is; and only then told (**last-copy**,
   :mod:`topom.servers.lastcopy`; **run-id**, :mod:`topom.servers.identities`).

Before all of that, Redis Sentinels are kept from taking it for a whole copy, where they say who is master
(:mod:`topom.masters.sentinels.electable`).

**bounded**: a node gives one copy at a time, and takes one, whoever makes it. The copies of a placement are those that
are stored as ``copying``; those of servers that join are noted here while they are made.
"""

from collections.abc import Awaitable, Callable

from slots.table import SlotTable
from topom.cluster import fences
from topom.cluster.ledger import Ledger
from topom.errors import Conflict
from topom.proxies.barrier import Barrier
from topom.servers.identities import Identities
from topom.servers.lastcopy import As
from topom.servers.replication import ServerReplication


class FillingOvertaken(Conflict):
    """The server is not to be filled by this master any more, or not now; it is looked at again."""


async def _nothing(server: str, group_id: int) -> None:
    """What is done before a server is told, where nobody else chooses masters."""


class Filling:
    """The servers that one topom has filled.

    Args:
        barrier_seconds: how long proxies may take to acknowledge a table.
        identities: knows who the servers are.
        prepare: given a server and the group that it is to be filled for, before it is told. Raises a TopomError if it
            is not to be told now.
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
        self._identities = identities
        self._prepare = prepare
        self._ledger = ledger
        self._barrier = barrier
        self._replication = replication
        self._barrier_seconds = barrier_seconds
        self._joining: dict[str, frozenset[str]] = {}

    async def tell(
        self,
        server: str,
        master: str,
        group_id: int,
        told_as: As,
        require: Callable[[], None],
        anew: bool = False,
        copy_of: int | None = None,
    ) -> str:
        """Have a server follow the master of a group; the run id of the process that was told.

        Args:
            told_as, anew: as for :meth:`topom.servers.replication.ServerReplication.follow`.
            require: raises a TopomError if, by what is stored now, it is not to be filled any more.
            copy_of: as for :meth:`require_not_needed`.

        Raises:
            ProxiesNotReady: a proxy has an older table; nothing was done.
            FillingOvertaken: the group has another master, or is getting one.
            NotToFollow: it might lose what nobody else has; it was not told.
            SameServer, NotCompared, ReplicaOfAnother: as :class:`~topom.servers.identities.Identities`; likewise.
            ServerFailed: it is not known whether the server was told.
            TopomError: as ``prepare``, ``require`` and :meth:`topom.cluster.ledger.Ledger.change`; it was not told.
        """
        if self._identities is not None:
            self._identities.require(server, master)
            await self._identities.require_no_copy(group_id, server, told_as)
        await self.require_not_needed(server, copy_of)
        await self._prepare(server, group_id)
        await self._barrier.everyone_current([server], self._barrier_seconds)
        async with self._barrier.locking():
            await self.require_not_needed(server, copy_of)
            decided = await self._replication.require(server, master, told_as)
            if self._identities is not None:
                # run-id: what is told below is the very process that was compared with all others.
                self._identities.heard(server, decided)
                self._identities.require(server, master)
                await self._identities.require_no_copy(group_id, server, told_as)
            await self._unmark(server)
            _require_master(self._ledger.table, group_id, master)
            require()
            try:
                return await self._replication.follow(server, master, told_as, anew=anew, decided=decided)
            finally:
                await self._unmark(server)

    async def require_not_needed(self, server: str, copy_of: int | None) -> None:
        """Raises NotToFollow, ServerFailed for a server that may have all that is left of a group, by its old copy.

        Args:
            copy_of: that group; None for a server that has none, or of which an operator has said that it may be wiped.
        """
        group = self._ledger.table.groups.get(copy_of) if copy_of is not None else None
        if group is not None and group.servers:
            await self._replication.require_not_needed(server, group.servers[0])

    async def _unmark(self, server: str) -> None:
        self._barrier.emptied(server)
        await self._ledger.change(lambda state, epoch: fences.emptied(state, server))

    def note(self, server: str, nodes: frozenset[str]) -> None:
        """A server that joins is being filled, which concerns these nodes."""
        self._joining[server] = nodes

    def over(self, server: str) -> None:
        """It is not being filled any more, or was not."""
        self._joining.pop(server, None)

    def in_the_way(self, server: str, nodes: frozenset[str]) -> str:
        """Another server that is being filled on one of these nodes, or by one of them; empty if there is none."""
        for other, taken in self._joining.items():
            if other != server and nodes & taken:
                return other
        state = self._ledger.state
        run = state.placement.run
        for step in run.steps if run is not None else ():
            if step.state == "copying" and step.server != server:
                group = state.table.groups.get(step.group)
                masters = {group.node_of(group.master)} if group is not None and group.master is not None else set()
                if nodes & {step.node, *masters}:
                    return step.server
        return ""


def _require_master(table: SlotTable, group_id: int, master: str) -> None:
    """Raises FillingOvertaken unless the group has this master, and is not getting another one."""
    group = table.groups.get(group_id)
    if group is None or group.locked or group.master != master:
        raise FillingOvertaken("its group was changed just now, or is being given another master")
