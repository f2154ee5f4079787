"""Has the servers of a group follow the master that the slot table names, once a change of masters is decided.

A server that is told to follow another loses what only it has, and a server is told by a command that may come late:
after topom has given up on it, and even after it has ceased to lead. So (**one-owner**: what clients wrote to the
master that the table names is nobody's to undo)

- a server is told only while nobody can lock slots or groups, and only if the table names that master, and the server
  in its group, at that instant;
- a master that a late command has made a replica is made a master again;
- nobody is told who has what its master lacks (**last-copy**, :mod:`topom.servers.lastcopy`): a master that came back
  empty or with older data fills nobody, and the change of masters is not over until an operator has decided.
"""

import asyncio

import structlog

from slots.table import Group
from topom.cluster.ledger import Ledger
from topom.cluster.state import Promotion
from topom.proxies.barrier import Barrier
from topom.reasons import Reasons
from topom.servers.lastcopy import As, NotToFollow, ServerFailed
from topom.servers.replication import ServerReplication

log = structlog.get_logger(__name__)


class Followers:
    """The servers of one topom's groups, after changes of masters."""

    def __init__(self, ledger: Ledger, barrier: Barrier, replication: ServerReplication) -> None:
        self._ledger = ledger
        self._replication = replication
        self._barrier = barrier
        self.reasons = Reasons[str]("server_not_told_to_follow")
        """By address: why a server is not told to follow its group's master."""

    async def all_follow(self, group_id: int, promotion: Promotion) -> bool:
        """Have a group's servers follow its master; whether all of them do, and the master follows nobody.

        A server that says that it is a master is only made a replica, and the master only a master, if it is one of
        those that the promotion was about.
        """
        group = self._ledger.table.groups.get(group_id)
        if group is None or group.master is None:
            return True
        outcomes = await asyncio.gather(
            self._leads(group, promotion),
            *(self._follows(group, server, promotion) for server in group.replicas),
        )
        if not all(outcomes):
            return False
        try:
            for server in group.servers:
                await self._replication.keep(server)
        except ServerFailed:
            return False
        return True

    async def _leads(self, group: Group, promotion: Promotion) -> bool:
        """Whether a group's master is one; it is made one again if it is not."""
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

    async def _follows(self, group: Group, server: str, promotion: Promotion) -> bool:
        """Whether a server is a replica of its master with its link up; it is told to be one if it is not."""
        master = group.servers[0]
        sure = promotion.run_id if promotion.server == master else ""
        reason: NotToFollow | None = None
        try:
            reading = await self._replication.read(server)
            said = reading.replication
            if said.is_master and server not in promotion.concerned:
                return True
            if said.follows(master):
                # Not before: what was sent to it earlier, and that it may still have to read, is done by then.
                return said.link_up
            async with self._barrier.locking():
                if self._holds(group, server):
                    # run-id: what is thought of one process is not done to another.
                    await self._replication.follow(server, master, As.MEMBER, sure, decided=reading.run_id)
                    log.info("server_told_to_follow", server=server, master=master)
        except NotToFollow as error:
            reason = error
        except ServerFailed as error:
            log.debug("server_does_not_follow", server=server, reason=str(error))
        finally:
            if reason is not None:
                self.reasons.waits(server, reason, server=server, master=master)
            else:
                self.reasons.over(server)
        return False

    def _holds(self, group: Group, server: str) -> bool:
        """Whether the group still has the server and the master that it had, and nobody is giving it another one.

        A server that has left it meanwhile may be the master of another group.
        """
        now = self._ledger.table.groups.get(group.id)
        return now is not None and not now.locked and now.master == group.master and server in now.servers
