"""The copies that a placement makes: servers of the pool that are filled, and then taken into their groups.

A server is taken into its group in the write that finds its copy whole. Before that no proxy knows the server, so
nobody reads from it. What it replaces goes to the pool in the same write, and is told afterwards to follow nobody.

:mod:`topom.copies.filling` has the servers filled. This module answers what that asks.
:mod:`topom.placement.stepping` decides when a copy begins, and when it is given up.
"""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress

import structlog

from slots.group import Group
from topom.cluster import topology
from topom.cluster.hands_off import HandsOff
from topom.cluster.ledger import Ledger, LostPlace
from topom.cluster.placement_run import Step
from topom.cluster.state import ClusterState
from topom.copies.wanted import Asker, Wanted
from topom.errors import NotLeading, NotReady, TopomError
from topom.placement import changes
from topom.placement.detaching import Detaching
from topom.reasons import Kind, Reason, Reasons
from topom.servers.lastcopy import As, ServerFailed
from topom.servers.replication import ServerReplication, look_at_all
from topom.store import StoreError

log = structlog.get_logger(__name__)


class PlacedCopies(Asker):
    """The copies of one topom's placements.

    Args:
        detaching: has servers of the pool follow nobody.
        lag_bytes: how far a replica may be behind its master to count as whole.
    """

    def __init__(
        self,
        ledger: Ledger,
        replication: ServerReplication,
        hands_off: HandsOff,
        detaching: Detaching,
        lag_bytes: int,
    ) -> None:
        super().__init__(Reasons[str]())
        self._ledger = ledger
        self._replication = replication
        self._hands_off = hands_off
        self._detach = detaching.detach
        self._lag_bytes = lag_bytes
        self._failures: dict[str, TopomError] = {}

    def wanted(self, state: ClusterState) -> Sequence[Wanted]:
        """A copy for each step whose server is to be filled now."""
        run = state.placement.run
        steps = [step for step in run.steps if step.state == "copying"] if run is not None else []
        found = [self.copy_of(state, step) for step in steps if not changes.leaves(state, step)]
        return [copy for copy in found if copy is not None]

    def copy_of(self, state: ClusterState, step: Step) -> Wanted | None:
        """The copy that a step is about; None if its server is not in the pool, or its group has no master."""
        group = state.table.groups.get(step.group)
        entry = state.pool.get(step.server)
        if entry is None or group is None or group.master is None:
            return None
        return Wanted(
            server=step.server,
            master=group.master,
            group=group.id,
            told_as=As.SPARE if entry.wipe else As.POOL,
            nodes=nodes_of(group, step),
            takes_nodes=True,
            near=self._lag_bytes,
            copy_of=entry.copy_of,
            entry=entry,
        )

    def held(self) -> Reason | None:
        """Copies are held when the whole placement is."""
        return self._hands_off.reason()

    def failure(self, server: str) -> TopomError | None:
        """What keeps a copy from being made; None if it only takes time."""
        return self._failures.get(server) if server in self.reasons else None

    def waits(self, copy: Wanted, why: Reason | TopomError) -> None:
        """Note why a copy is not whole yet."""
        super().waits(copy, why)
        self._failures = {server: known for server, known in self._failures.items() if server in self.reasons}
        if isinstance(why, TopomError):
            self._failures[copy.server] = why
        else:
            self._failures.pop(copy.server, None)

    async def told(self, copy: Wanted, run_id: str) -> None:
        """Store that what the server held may be lost."""
        await super().told(copy, run_id)
        await self._store_told(copy)

    async def being_filled(self, copy: Wanted, why: Reason | TopomError) -> None:
        """As :meth:`told`: the topom that told it may have ended before it stored that."""
        await super().being_filled(copy, why)
        await self._store_told(copy)

    async def whole(self, copies: Sequence[Wanted]) -> None:
        """Take these servers into their groups."""
        await asyncio.gather(*(self._join(copy) for copy in copies))

    async def _store_told(self, copy: Wanted) -> None:
        state = self._ledger.state
        if changes.told(state, copy.server, copy.group) is not state:
            await self._ledger.change(lambda state, epoch: changes.told(state, copy.server, copy.group))

    async def _join(self, copy: Wanted) -> None:
        joined: list[Step] = []

        def join(state: ClusterState, epoch: int) -> ClusterState:
            joined[:] = [changes.step_of(state, copy.server, copy.group)]
            return changes.joined(state, epoch, joined[0], copy.master, held_back)

        try:
            step = changes.step_of(self._ledger.state, copy.server, copy.group)
            group = topology.group_of(self._ledger.table, copy.group)
            leaving = [server for server in step.instead_of if server in group.replicas]
            held_back = await may_hold_more(self._replication, copy.master, leaving)
            await self._ledger.change(join)
        except (StoreError, LostPlace, NotLeading):
            raise
        except TopomError as error:
            self.waits(copy, error)
            return
        with suppress(ServerFailed):
            await self._replication.keep(copy.server)
        log.info("placement_copy_whole", server=copy.server, group=copy.group)
        await self._detach([one for one in joined[0].instead_of if one in self._ledger.state.pool])


class CannotBeJudged(NotReady):
    """It is not known now whether a server that is to leave its group holds what the group's master lacks."""

    kind = Kind.BUSY


async def may_hold_more(replication: ServerReplication, master: str, servers: Collection[str]) -> set[str]:
    """Which of these servers of a group may hold what its master lacks: masters, and replicas in another stream.

    A server that follows the master with its link up holds nothing else. Neither does one that has failed: a failover
    has counted what it may have had (**last-copy**).

    Raises:
        CannotBeJudged: one of them is being filled, has no link just now, or does not answer.
    """
    asked = [server for server in servers if not replication.has_failed(server)]
    said = await look_at_all(replication, [master, *asked])
    ahead = said[master]
    if isinstance(ahead, ServerFailed):
        raise CannotBeJudged(ahead.what)
    found = set()
    for server in asked:
        mine = said[server]
        if isinstance(mine, ServerFailed):
            raise CannotBeJudged(mine.what)
        if not mine.is_master and not mine.link_up:
            raise CannotBeJudged(f"{server} is being filled, or has no link to its master just now")
        # It may know the master by another name, or follow through another replica.
        if mine.is_master or not (mine.follows(master) or mine.stream == ahead.stream):
            found.add(server)
    return found


def nodes_of(group: Group, step: Step) -> frozenset[str]:
    """The nodes that a copy concerns: that of its server, and that of the master."""
    masters = {group.node_of(group.master)} if group.master is not None else set()
    return frozenset({step.node, *masters})
