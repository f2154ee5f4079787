"""Has the servers of a group follow the master that the slot table names, once a change of masters is decided.

A server that is told to follow another loses what only it has. The command that tells it may come late: after topom
has given up on it, and even after this topom has ceased to lead. Nothing may undo what clients wrote to the master that
the table names (**one-owner**). So

- the engine of all copies (:mod:`topom.copies.filling`) tells a server only while nobody can lock slots or groups, and
  only if the table names that master, and the server in its group, at that instant;
- a master that a late command has made a replica is made a master again;
- a server that has what its master lacks is not told (**last-copy**, :mod:`topom.servers.lastcopy`): a master that came
  back empty or with older data fills nobody, and the change of masters is not over until an operator has decided.
"""

from collections.abc import Sequence

import structlog

from slots.group import Group
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState, Promotion
from topom.copies.wanted import Asker, Wanted
from topom.errors import TopomError
from topom.proxies.barrier import Barrier
from topom.reasons import Reason, Reasons
from topom.servers.lastcopy import As, NotToFollow, ServerFailed
from topom.servers.readings import Replication
from topom.servers.replication import ServerReplication, look_at_all

log = structlog.get_logger(__name__)


class Followers(Asker):
    """The servers of one topom's groups, after changes of masters."""

    def __init__(self, ledger: Ledger, barrier: Barrier, replication: ServerReplication) -> None:
        super().__init__(Reasons[str]("server_not_told_to_follow"))
        self._ledger = ledger
        self._replication = replication
        self._barrier = barrier

    def wanted(self, state: ClusterState) -> Sequence[Wanted]:
        """A copy on each replica of the groups whose change of masters is decided and not over.

        **last-copy**: a server that was never whole in its group may hold what nobody else has. It is left to
        :mod:`topom.copies.joining`, whose rules are stricter.
        """
        found: list[Wanted] = []
        for group_id, promotion in sorted(state.promotions.items()):
            group = state.table.groups.get(group_id)
            if group is not None and group.master is not None and not group.locked:
                found += [_wanted(group, server, promotion) for server in _members(state, group)]
        return found

    def waits(self, copy: Wanted, why: Reason | TopomError) -> None:
        """Note why a server is not told. If it is connecting, or does not answer, nothing is noted: that passes, or is
        said elsewhere.
        """
        if isinstance(why, NotToFollow):
            super().waits(copy, why)
        else:
            self.reasons.over(copy.server)

    async def all_follow(self, group_id: int, promotion: Promotion) -> bool:
        """Whether a group's servers follow its master, and the master follows nobody; else it is made a master again.

        A replica that says that it is a master counts as one that follows, unless the promotion was about it:
        :mod:`topom.copies.strays` deals with strays. Servers that were never whole count only if they follow a server
        that the promotion is about: that may leave the group, and nobody else tells them then.
        """
        group = self._ledger.table.groups.get(group_id)
        if group is None or group.master is None:
            return True
        members = _members(self._ledger.state, group)
        leads = await self._leads(group, promotion)
        if any(self._replication.has_failed(server) for server in members):
            return False
        said = await look_at_all(self._replication, list(group.replicas))
        if not leads or not all(_follows(said[server], group.servers[0], server, promotion) for server in members):
            return False
        others = [said[server] for server in said if server not in members]
        if any(isinstance(one, Replication) and _is_behind(one, group.servers[0], promotion) for one in others):
            return False
        try:
            for server in group.servers:
                await self._replication.keep(server)
        except ServerFailed:
            return False
        return True

    async def _leads(self, group: Group, promotion: Promotion) -> bool:
        """Whether a group's master is one; it is made one again if it is not.

        A master that the change of masters does not concern is not asked.
        """
        master = group.servers[0]
        if master not in promotion.concerned:
            return True
        try:
            if (await self._replication.look(master)).is_master:
                return True
            async with self._barrier.locking():
                if self._holds(group, master):
                    await self._replication.make_master(master)
                    log.warning("master_restored", group=group.id, server=master)
        except ServerFailed as error:
            log.debug("master_not_restored", server=master, reason=str(error))
        return False

    def _holds(self, group: Group, server: str) -> bool:
        """Whether the group still has the server and the master that it had, and nobody is giving it another one.

        A server that has left the group meanwhile may be the master of another one.
        """
        now = self._ledger.table.groups.get(group.id)
        return now is not None and not now.locked and now.master == group.master and server in now.servers


def _members(state: ClusterState, group: Group) -> list[str]:
    """The replicas of a group that were whole once."""
    joining = state.joining
    return [server for server in group.replicas if server not in joining or joining[server].again]


def _wanted(group: Group, server: str, promotion: Promotion) -> Wanted:
    master = group.servers[0]
    return Wanted(
        server=server,
        master=master,
        group=group.id,
        told_as=As.MEMBER,
        directly=True,
        known=True,
        also_a_master=server in promotion.concerned,
        sure=promotion.run_id if promotion.server == master else "",
        entry=promotion,
    )


def _is_behind(said: Replication, master: str, promotion: Promotion) -> bool:
    """Whether a server follows one that the promotion is about, and that is not the master."""
    return any(said.follows(server) for server in promotion.concerned if server != master)


def _follows(said: Replication | ServerFailed, master: str, server: str, promotion: Promotion) -> bool:
    if isinstance(said, ServerFailed):
        return False
    if said.is_master:
        return server not in promotion.concerned
    # Its link has to be up: then it has done all that was sent to it before, even what it had not read yet.
    return said.follows(master) and said.link_up
