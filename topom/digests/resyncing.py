"""Has replicas that differ be given a whole new copy by their masters: by itself where that is safe, or when told to.

By itself it is done to a replica that a check found to differ, if the setting says so and the replica has no key that
its master lacks (it may be the master that has lost it), while its group has a master that is alive, the cluster is not
in protection mode, and nobody said that it is not to be done; and only :data:`~topom.digests.differing.RESYNCS_MAX`
times in a row. Until a replica is filled, its link is down: proxies do not
read from it, and topom does not promote it. If its master fails meanwhile, the group has one copy less to go on with.

That a replica is being filled is stored before it is told. So whoever leads next goes on: it has the replica told
again, unless that is just being filled, for nobody knows whether it was told. **bounded**: of the replicas of a node,
or of a master's node, one at a time (:mod:`topom.filling`), for :data:`RESYNC_SECONDS` at most.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from slots.table import Group
from topom import topology
from topom.digests import differing
from topom.digests.checks import Digests
from topom.digests.differing import RESYNCS_MAX, Differing
from topom.digests.errors import CheckRuns, NothingToCheck, NotResynced
from topom.errors import GroupLocked, TopomError
from topom.events import Said, What, actor
from topom.filling import Filling, FillingOvertaken
from topom.joining import nodes_of
from topom.ledger import Ledger
from topom.looking import keep_looking
from topom.protection import Protection
from topom.replication import Replication, ServerFailed, ServerReplication
from topom.state import ClusterState, Differs, leaving_servers

log = structlog.get_logger(__name__)

LOOK_SECONDS = 5.0
"""Between two looks at what is to be filled and cannot be now."""
POLL_SECONDS = 0.1
RESYNC_SECONDS = 3600.0
"""How long a replica may take to be filled anew before that counts as failed."""


class Resyncs:
    """The replicas that one topom has filled anew.

    Args:
        digests: checks; a group that is being checked is left alone.
        by_itself: whether replicas that differ are filled without anybody saying so.
        has_failed: whether a server counts as failed.
    """

    def __init__(
        self,
        ledger: Ledger,
        replication: ServerReplication,
        filling: Filling,
        digests: Digests,
        protection: Protection,
        has_failed: Callable[[str], bool],
        by_itself: bool,
    ) -> None:
        self._ledger = ledger
        self._replication = replication
        self._filling = filling
        self._digests = digests
        self._protection = protection
        self._has_failed = has_failed
        self._by_itself = by_itself
        self._differing = Differing(lambda: ledger.state)
        self._news = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._asking: set[str] = set()
        self._said: dict[str, str] = {}

    async def run(self) -> None:
        """Fill what is to be filled, until cancelled; what is under way then is gone on with by whoever leads next."""
        self._ledger.listen(self._changed)
        self._digests.on_over = self._news.set
        try:
            await keep_looking(self._news, self.look, "resyncs_wait")
        finally:
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        if old.differing is not new.differing:
            self._news.set()

    async def resync(self, group_id: int, server: str | None) -> list[str]:
        """Have a replica, or all that are known to differ, filled anew; which ones.

        Returns when the first was told to; the others follow one by one.

        Raises:
            GroupNotFound, ServerNotFound: there is none.
            CheckRuns: they are being checked, or filled anew already.
            NothingToCheck: no replica is known to differ; the one that is named was not checked.
            GroupLocked: another server is being made the master.
            TopomError: it could not be told, or that could not be stored.
        """
        group = topology.group_of(self._ledger.table, group_id)
        self._digests.require_free(group_id)
        replicas = list(self._digests.replicas(group, server))
        if server is None:
            replicas = [address for address in replicas if self._differing.of(address) is not None]
        if not replicas or not all(self._is_known(group_id, address) for address in replicas):
            raise NothingToCheck(
                f"no replica of group {group_id} is known to differ, or the one named was not checked yet"
            )
        if any(address in self._tasks or address in self._asking for address in replicas):
            raise CheckRuns(f"group {group_id} is being filled anew already; see slotferry digest {group_id} --show")
        self._asking.update(replicas)
        try:
            text = f"{', '.join(replicas)} of group {group_id}: to forget what they have, and be filled anew"
            begun = [Said(What.RESYNC_BEGUN, text)]
            await self._ledger.change(lambda state, epoch: _all_filling(state, group_id, replicas), begun)
            await self._tell(replicas[0], by_itself=False)
            self._follow(replicas[0])
        except TopomError as error:
            failed = [Said(What.RESYNC_FAILED, f"{', '.join(replicas)}: not filled anew: {error}")]
            await self._ledger.change(lambda state, epoch: _none_filling(state, replicas), failed)
            raise
        finally:
            self._asking.difference_update(replicas)
            self._news.set()
        return replicas

    async def look(self) -> float | None:
        """Begin to fill what is to be filled now; in how many seconds it is looked again, None if nothing waits."""
        waiting = False
        due: list[tuple[str, Differs]] = []
        for server, entry in self._ledger.state.differing.items():
            if not self._is_taken(server) and (entry.stage == "filling" or self.is_due(entry)):
                waiting = True
                if not self._protection.active and not self._digests.runs(entry.group):
                    due.append((server, entry))
        # Before anybody is told: what a topom before this one has begun is in the way of others, too.
        begun = [server for server, entry in due if entry.stage == "filling" and await self._is_begun(server)]
        for server, entry in due:
            if not self._is_taken(server):
                self._follow(server, entry, server in begun)
        return LOOK_SECONDS if waiting else None

    def is_due(self, entry: Differs) -> bool:
        """Whether a replica is to be filled without anybody saying so, once that is safe."""
        return self._by_itself and entry.stage == "differs" and not entry.held and entry.resyncs < RESYNCS_MAX

    # -- inner ---------------------------------------------------------------------------------------------

    def _is_known(self, group_id: int, server: str) -> bool:
        return self._differing.of(server) is not None or self._digests.was_checked(group_id, server)

    def _is_taken(self, server: str) -> bool:
        """Whether it is seen to already."""
        return server in self._tasks or server in self._asking

    async def _is_begun(self, server: str) -> bool:
        try:
            return await self._is_being_filled(server)
        except TopomError:
            return False

    def _follow(self, server: str, entry: Differs | None = None, begun: bool = False) -> None:
        """Begin to have a replica filled; it was told to if there is no ``entry``, and is being filled if ``begun``."""
        if begun:
            with suppress(NotResynced):  # it has left its group meanwhile
                self._filling.note(server, nodes_of(self._group_of(server), server))
        task = asyncio.create_task(self._fill(server, entry), name=f"resync of {server}")
        self._tasks[server] = task
        task.add_done_callback(lambda over: self._over(server, over))

    def _over(self, server: str, over: asyncio.Task[None]) -> None:
        self._tasks.pop(server, None)
        self._filling.over(server)
        if not over.cancelled() and (error := over.exception()) is not None:
            log.error("replica_not_resynced", server=server, reason=str(error) or type(error).__name__)

    async def _fill(self, server: str, entry: Differs | None) -> None:
        if entry is not None:
            actor.set("")  # of this task alone: nobody asked for this now
            try:
                if entry.stage == "differs" or not await self._is_being_filled(server):
                    await self._tell(server, entry.stage == "differs")
            except TopomError as error:
                if self._said.get(server) != str(error):
                    log.warning("replica_resync_waits", server=server, reason=str(error))
                self._said[server] = str(error)
                return
            self._said.pop(server, None)
        if await self._is_filled(server):
            said = [
                Said(What.REPLICA_RESYNCED, f"replica {server} was filled anew by its master, and holds a whole copy")
            ]
            await self._ledger.change(lambda state, epoch: differing.filled(state, server), said)
            log.info("replica_resynced", server=server)
        else:
            reason = f"not filled within {RESYNC_SECONDS:g} s"
            failed = [Said(What.RESYNC_FAILED, f"{server}: {reason}")]
            await self._ledger.change(lambda state, epoch: differing.not_filling(state, server), failed)
            log.error("replica_not_resynced", server=server, reason=reason)

    async def _tell(self, server: str, by_itself: bool) -> None:
        """Have a replica told to be filled anew. Raises TopomError."""
        group = self._group_of(server)
        master = group.servers[0]
        nodes = nodes_of(group, server)

        def require() -> None:
            now = self._group_of(server)
            if now.locked:
                raise GroupLocked(f"group {now.id} is locked; fill {server} anew when it has its master")
            if other := self._filling.in_the_way(server, nodes):
                raise FillingOvertaken(f"another server of its node, or of its master's, is being filled: {other}")
            if by_itself:
                self._require_safe(server, now)

        async def look() -> None:
            require()
            ahead, behind = await self._replication.look(master), await self._replication.look(server)
            if not ahead.is_master or behind.is_master or not behind.follows(master):
                raise NotResynced(f"{server} does not follow {master}, so it is not filled anew; look at its group")
            if by_itself and not behind.link_up:
                raise NotResynced(f"{server} has no link to {master}")
            text = f"{server} of group {group.id}, which differs: to forget what it has, and be filled anew by {master}"
            said = [Said(What.RESYNC_BEGUN, text)] if by_itself else []
            await self._ledger.change(lambda state, epoch: differing.filling(state, group.id, server, by_itself), said)
            self._filling.note(server, nodes)

        try:
            await self._filling.tell(server, master, group.id, look, require, anew=True)
        except TopomError:
            self._filling.over(server)
            raise
        log.info("replica_told_to_resync", server=server, master=master, by_itself=by_itself)

    def _require_safe(self, server: str, group: Group) -> None:
        """Raises NotResynced unless a replica may be filled without anybody saying so."""
        entry = self._differing.of(server)
        if entry is None or entry.held or self._protection.active:
            raise NotResynced(f"{server} is not to be filled by itself now")
        if group.lost or self._has_failed(group.servers[0]):
            raise NotResynced(f"{group.servers[0]}, its master, has failed")
        if server in leaving_servers(self._ledger.state):
            raise NotResynced(f"{server} is on its way out")

    def _group_of(self, server: str) -> Group:
        for group in self._ledger.table.groups.values():
            if server in group.replicas:
                return group
        raise NotResynced(f"{server} is no replica any more")

    async def _is_being_filled(self, server: str) -> bool:
        group = self._group_of(server)
        behind = await self._replication.look(server)
        return behind.filling and behind.follows(group.servers[0])

    async def _is_filled(self, server: str) -> bool:
        """Wait until a replica holds a whole new copy; False if it does not in time, or is no replica any more."""
        end = time.monotonic() + RESYNC_SECONDS
        while time.monotonic() < end:
            try:
                # Its group may have another master meanwhile: one without a history is filled by whoever it follows.
                master = self._group_of(server).servers[0]
                ahead, behind = await self._replication.look(master), await self._replication.look(server)
                if is_filled(ahead, behind):
                    return True
            except NotResynced:
                return False
            except ServerFailed:
                pass
            await asyncio.sleep(POLL_SECONDS)
        return False


def _all_filling(state: ClusterState, group_id: int, servers: Sequence[str]) -> ClusterState:
    for server in servers:
        state = differing.filling(state, group_id, server, by_itself=False)
    return state


def _none_filling(state: ClusterState, servers: Sequence[str]) -> ClusterState:
    for server in servers:
        state = differing.not_filling(state, server)
    return state


def is_filled(ahead: Replication, behind: Replication) -> bool:
    """Whether a replica whose history was cut has been given that of its master, which comes with a whole copy."""
    return ahead.is_master and not behind.is_master and behind.link_up and behind.stream == ahead.stream
