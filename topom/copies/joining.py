"""Servers that join a group as replicas: empty, with old data, or as copies already; each is made whole first.

A server that is added to a group as a replica is *joining* until it was once seen to hold a whole copy of its master's
data: in the same stream of writes, its link up. That is stored. Until then topom has it follow the master, which
replaces what it held. topom does not choose it as the successor of a failed master: it may hold nothing, or something
else. (Proxies look for themselves. They read from a replica only if it follows the group's master with its link up, in
the master's stream: :mod:`proxy.worker.replicas.replicagroup`.)

A server that may have what nobody else has is told nothing, unless an operator has said that it may be wiped
(**last-copy**, :mod:`topom.servers.lastcopy`). A replica that an operator wants to be filled *anew* joins, too: it is
told to forget what it has, and is whole once the very process that was told has a copy again.

:mod:`topom.copies.filling` has the servers filled. This module answers what that asks: which servers join, and what is
stored once they are told, or whole.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from slots.group import Group
from topom.cluster import differing
from topom.cluster.events import Said, What
from topom.cluster.joins import homes, without
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState, Joining
from topom.copies.wanted import Asker, Wanted
from topom.periodic import never_held
from topom.reasons import Reason, Reasons
from topom.servers.lastcopy import As, ServerFailed
from topom.servers.replication import ServerReplication

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a server was when it was looked at: a replica of this group, with this master, joining by this entry."""

    group: int
    master: str
    entry: Joining


def without_whole(state: ClusterState, whole: Mapping[str, Seen]) -> ClusterState:
    """As :func:`without`, for those servers that are still what they were when they were seen whole, by address.

    A server that was removed and added again meanwhile, or has another master, was not seen whole in its new place.
    """
    groups = homes(state.table)
    return without(state, {server for server, seen in whole.items() if _is_still(state, groups, server, seen)})


def filled(state: ClusterState, whole: Mapping[str, Seen]) -> ClusterState:
    """As :func:`without_whole`; servers that were filled anew do not count as differing any more."""
    new = without_whole(state, whole)
    anew = {server for server, entry in state.joining.items() if entry.anew and server not in new.joining}
    return differing.without(new, anew) if anew else new


def with_told(state: ClusterState, server: str, entry: Joining, run_id: str) -> ClusterState:
    """The state in which this process was told to forget what it has, if it still joins as it did."""
    if state.joining.get(server) is not entry:
        return state
    return replace(state, joining={**state.joining, server: replace(entry, told=run_id)})


def _is_still(state: ClusterState, groups: Mapping[str, Group], server: str, seen: Seen) -> bool:
    group = groups.get(server)
    # It has to be the very same entry: if the server was added again, the new entry may be equal.
    same = group is not None and (group.id, group.master) == (seen.group, seen.master)
    return same and state.joining.get(server) is seen.entry


class Joins(Asker):
    """The servers that join groups of one topom.

    Args:
        paused: why nothing is done for them now; None if it is done.
    """

    def __init__(
        self, ledger: Ledger, replication: ServerReplication, paused: Callable[[], Reason | None] = never_held
    ) -> None:
        super().__init__(Reasons[str]("server_not_whole", level="info"))
        self._paused = paused
        self._ledger = ledger
        self._replication = replication

    def wanted(self, state: ClusterState) -> Sequence[Wanted]:
        """A copy on each server that joins."""
        if not state.joining:
            return ()
        groups = homes(state.table)
        return [
            _wanted(group, state.joining[server], group.id in state.promotions)
            for server in sorted(state.joining)
            if (group := groups.get(server)) is not None
        ]

    def held(self) -> Reason | None:
        """A server that joins waits while an operator has paused topom."""
        return self._paused()

    def held_whole(self) -> Reason | None:
        """That a copy is whole is only noted."""
        return None

    async def told(self, copy: Wanted, run_id: str) -> None:
        """Store which process was told: a later process of a server that is filled anew may have the old data."""
        await super().told(copy, run_id)
        entry = copy.entry
        if copy.anew and isinstance(entry, Joining):
            await self._ledger.change(lambda state, epoch: with_told(state, copy.server, entry, run_id))

    async def whole(self, copies: Sequence[Wanted]) -> None:
        """These servers do not join any more."""
        for copy in copies:
            await self._keep(copy.server)
        seen = {
            copy.server: Seen(copy.group, copy.master, copy.entry) for copy in copies if isinstance(copy.entry, Joining)
        }
        await self._ledger.change(lambda state, epoch: filled(state, seen), [_said_whole(copy) for copy in copies])
        for copy in copies:
            log.info("server_whole", group=copy.group, server=copy.server)

    async def _keep(self, server: str) -> None:
        """Have it remember its master. If it were restarted without that, it would be a master with what it holds."""
        try:
            await self._replication.keep(server)
        except ServerFailed as error:
            log.debug("role_not_kept", server=server, reason=str(error))


def as_what(entry: Joining) -> As:
    """The role in which a server that joins is told to follow."""
    if entry.wipe:
        return As.ANEW if entry.anew else As.SPARE
    return As.AGAIN if entry.again else As.NEW


def _wanted(group: Group, entry: Joining, has_new_master: bool) -> Wanted:
    """The copy on a server that joins.

    **last-copy**: after a change of masters a copy from the former master does not count. That may leave the group, and
    would fill the server no more.
    """
    server, master = entry.address, group.servers[0]
    return Wanted(
        server=server,
        master=master,
        group=group.id,
        told_as=as_what(entry),
        nodes=frozenset({group.node_of(server), group.node_of(master)}),
        anew=entry.anew,
        told=entry.told,
        copy_of=entry.copy_of,
        directly=has_new_master,
        patient=True,
        entry=entry,
    )


def _said_whole(copy: Wanted) -> Said:
    if copy.anew:
        text = f"replica {copy.server} was filled anew by its master, and holds a whole copy"
        return Said(What.REPLICA_RESYNCED, text)
    return Said(What.SERVER_WHOLE, f"server {copy.server} of group {copy.group} holds a whole copy")
