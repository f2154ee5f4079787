"""Digest checks of one topom: started, shown, cancelled; what they find is remembered while it leads.

**bounded**: one check or resync a group at a time; the last check of each group is kept, with bounded lists; a check
ends after :data:`MOST_SECONDS`, and is no verdict then.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import structlog

from migrator.connection import Connection, Timeouts
from migrator.errors import MigrationError
from slots.access import ServerAccess
from slots.table import Group
from topom import topology
from topom.batches import all_servers
from topom.digests import resyncing
from topom.digests.differing import Differing, Mark
from topom.digests.errors import (
    CheckFailed,
    CheckRuns,
    NoCheck,
    NothingToCheck,
    NotResynced,
    ServerRefuses,
    ServerSilent,
)
from topom.digests.sums import Tally
from topom.digests.throttle import Throttle
from topom.digests.walk import Walk
from topom.errors import GroupLocked, ServerNotFound, TopomError
from topom.events import Said, What, actor
from topom.ledger import Ledger
from topom.replication import ServerReplication, Servers

log = structlog.get_logger(__name__)

KEYS_PER_SECOND = 20_000
STEP_SECONDS = 0.002
MOST_SECONDS = 86_400.0
RESYNC_SECONDS = 3600.0
"""How long a replica may take to be filled anew before that counts as failed."""
NAME = "slotferry.digest"


class Stage(StrEnum):
    """Where a check is."""

    RUNNING = "running"
    SAME = "same"
    DIFFERENT = "different"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(slots=True)
class Check:
    """One replica's check; ``reason`` says why it failed, ``total`` how many keys the master had at its beginning."""

    server: str
    master: str
    keys_per_second: int
    began_at: float
    stage: Stage = Stage.RUNNING
    reason: str = ""
    seconds: float = 0.0
    total: int = 0
    tally: Tally = field(default_factory=Tally)


class Digests:
    """Checks and resyncs of the groups' replicas.

    Args:
        locking: held while slots or a group are locked; a replica is not told to be filled anew meanwhile.
    """

    def __init__(
        self,
        ledger: Ledger,
        access: ServerAccess,
        servers: Servers,
        replication: ServerReplication,
        locking: asyncio.Lock,
        differing: Differing,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ledger = ledger
        self._access = access
        self._servers = servers
        self._replication = replication
        self._locking = locking
        self._clock = clock
        self.differing = differing
        self._checks: dict[int, dict[str, Check]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._resyncing: set[str] = set()

    async def run(self) -> None:
        """Wait until cancelled; whatever is under way then ends."""
        try:
            await asyncio.Event().wait()
        finally:
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def start(self, group_id: int, server: str | None, keys_per_second: int) -> list[Check]:
        """Begin to check one replica of a group, or all of them one after the other.

        Raises:
            GroupNotFound, ServerNotFound: there is none.
            NothingToCheck, CheckRuns: it has no replica; it is being checked already, or filled anew.
        """
        group = self._free(group_id)
        replicas = self._replicas(group, server)
        checks = [Check(address, group.servers[0], keys_per_second, self._clock()) for address in replicas]
        self._checks = {known: found for known, found in self._checks.items() if known in self._ledger.table.groups}
        before = self._checks.get(group_id, {})
        self._checks[group_id] = {one: check for one, check in before.items() if one in group.servers}
        self._checks[group_id].update({check.server: check for check in checks})
        text = f"the digest check of {', '.join(replicas)} against {group.servers[0]}, group {group_id}, began"
        self._ledger.note(What.DIGEST_BEGUN, text, actor.get())
        self._begin(group_id, self._check_all(checks))
        return checks

    def of(self, group_id: int) -> list[Check]:
        """The last check of each replica of a group. Raises GroupNotFound, NoCheck."""
        topology.group_of(self._ledger.table, group_id)
        found = self._checks.get(group_id)
        if found is None:
            raise NoCheck(f"group {group_id} was not checked since this topom leads; slotferry digest {group_id} does")
        return list(found.values())

    async def cancel(self, group_id: int) -> list[Check]:
        """End the check that is under way, if one is. Raises as :meth:`of`."""
        found = self.of(group_id)
        task = self._tasks.get(group_id)
        if task is not None and any(check.stage is Stage.RUNNING for check in found):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        return found

    def is_resyncing(self, server: str) -> bool:
        """Whether a replica is being filled anew because an operator said so."""
        return server in self._resyncing

    async def resync(self, group_id: int, server: str | None) -> list[str]:
        """Have a replica, or all that were found to differ, filled anew, one after the other; which ones.

        Returns when the first was told to; :meth:`is_resyncing` says until when it goes on.

        Raises:
            GroupNotFound, ServerNotFound, CheckRuns: as :meth:`start`.
            NothingToCheck: no replica is known to differ; the one that is named was not checked.
            GroupLocked: another server is being made the master.
            NotResynced, ServerFailed: it could not be told.
        """
        group = self._free(group_id)
        replicas = self._replicas(group, server)
        if server is None:
            replicas = [address for address in replicas if self.differing.of(address) is not None]
        checked = self._checks.get(group_id, {})
        if not replicas or not all(address in checked for address in replicas):
            raise NothingToCheck(
                f"no replica of group {group_id} is known to differ, or the one named was not checked yet"
            )
        began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._resyncing.update(replicas)
        self._begin(group_id, self._resync_all(group_id, replicas, began))
        await began
        return list(replicas)

    # -- inner ---------------------------------------------------------------------------------------------

    def _free(self, group_id: int) -> Group:
        group = topology.group_of(self._ledger.table, group_id)
        task = self._tasks.get(group_id)
        if task is not None and not task.done():
            raise CheckRuns(f"group {group_id} is being checked or filled anew already; see slotferry digest --show")
        return group

    def _replicas(self, group: Group, server: str | None) -> Sequence[str]:
        if not group.replicas:
            raise NothingToCheck(f"group {group.id} has no replica")
        if server is None:
            return group.replicas
        if server not in group.replicas:
            raise ServerNotFound(f"group {group.id} has no replica {server}; it has {', '.join(group.replicas)}")
        return [server]

    def _begin(self, group_id: int, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=f"digest of group {group_id}")
        self._tasks[group_id] = task
        task.add_done_callback(lambda over: self._forget(group_id, over))

    def _forget(self, group_id: int, over: asyncio.Task[None]) -> None:
        if self._tasks.get(group_id) is over:
            del self._tasks[group_id]
        if not over.cancelled() and (error := over.exception()) is not None:
            log.error("digest_failed", group=group_id, reason=str(error) or type(error).__name__)

    async def _check_all(self, checks: Sequence[Check]) -> None:
        try:
            for check in checks:
                await self._check(check)
        finally:
            for check in checks:
                if check.stage is Stage.RUNNING:
                    check.stage = Stage.CANCELLED
                    check.reason = "it was cancelled"
                    self._note(check)

    async def _check(self, check: Check) -> None:
        began = time.monotonic()
        try:
            async with asyncio.timeout(MOST_SECONDS):
                await self._walk(check, began)
            check.stage = Stage.DIFFERENT if check.tally.differences else Stage.SAME
        except TimeoutError:
            check.stage, check.reason = Stage.FAILED, f"it took longer than {MOST_SECONDS:g} s"
        except (MigrationError, CheckFailed) as error:
            check.stage, check.reason = Stage.FAILED, str(error)
        except Exception as error:
            check.stage, check.reason = Stage.FAILED, f"it broke off: {error!r}"
            raise
        check.seconds = time.monotonic() - began
        self._note(check)

    async def _walk(self, check: Check, began: float) -> None:
        product = self._ledger.state.product
        connections: list[Connection] = []
        try:
            for address in (check.master, check.server):
                connections.append(
                    await Connection.open(
                        address,
                        name=NAME,
                        access=self._access,
                        unavailable=ServerSilent,
                        refused=ServerRefuses,
                        timeouts=Timeouts(),
                    )
                )
            throttle = Throttle(check.keys_per_second, STEP_SECONDS)
            master, replica = connections
            walk = Walk(master, replica, product.slot_function, product.number_of_slots, throttle, check.tally)
            shown = asyncio.create_task(self._show(check, walk, began))
            try:
                await walk.run()
            finally:
                shown.cancel()
                check.total = walk.total
        finally:
            for connection in connections:
                connection.close()

    async def _show(self, check: Check, walk: Walk, began: float) -> None:
        while True:
            check.total, check.seconds = walk.total, time.monotonic() - began
            await asyncio.sleep(0.1)

    def _note(self, check: Check) -> None:
        """What was found counts even of a check that did not come to its end; only a whole one can clear a replica."""
        if check.tally.differences:
            mark = Mark(check.server, check.tally.differences, self._clock())
            self.differing.mark(mark, all_servers(self._ledger.table))
            log.error("replica_differs", server=check.server, master=check.master, keys=check.tally.differences)
        elif check.stage is Stage.SAME and not check.tally.uncompared:
            self.differing.clear(check.server)
        log.info("digest_checked", server=check.server, stage=check.stage, keys=check.tally.keys, reason=check.reason)
        found = f"{check.tally.differences} of {check.tally.keys} keys differ, {check.tally.uncompared} not compared"
        text = f"the digest check of {check.server} against {check.master} is over, {check.stage}: {found}"
        self._ledger.note(What.DIGEST_ENDED, f"{text}; {check.reason}" if check.reason else text)

    async def _resync_all(self, group_id: int, replicas: Sequence[str], began: "asyncio.Future[None]") -> None:
        try:
            for server in replicas:
                try:
                    master = await self._tell(group_id, server)
                except TopomError as error:
                    self._not_resynced(server, str(error))
                    if not began.done():
                        began.set_exception(error)
                    return
                if not began.done():
                    began.set_result(None)
                if not await resyncing.done(self._replication, server, master, RESYNC_SECONDS):
                    self._not_resynced(server, f"not filled within {RESYNC_SECONDS:g} s")
                    return
                self.differing.clear(server)
                self._resyncing.discard(server)
                log.info("replica_resynced", server=server, master=master)
                self._ledger.note(What.RESYNC_ENDED, f"{server} holds a new whole copy of {master}")
        finally:
            self._resyncing.difference_update(replicas)
            if not began.done():
                began.set_exception(NotResynced("topom ended, or leads no more; ask again"))

    def _not_resynced(self, server: str, reason: str) -> None:
        log.error("replica_not_resynced", server=server, reason=reason)
        self._ledger.note(What.RESYNC_ENDED, f"{server} was not filled anew: {reason}")

    async def _tell(self, group_id: int, server: str) -> str:
        # While a group is locked, or about to be, a replica of it may be about to be its master.
        async with self._locking:
            master = self._master_to_copy(group_id, server)
            text = f"{server} of group {group_id} is to forget what it has, and to be filled anew by {master}"
            # Stored first: what wipes a replica is never without its event.
            await self._ledger.change(lambda state, epoch: replace(state), [Said(What.RESYNC_BEGUN, text)])
            master = self._master_to_copy(group_id, server)
            await resyncing.begin(self._servers, self._replication, server, master)
            return master

    def _master_to_copy(self, group_id: int, server: str) -> str:
        group = topology.group_of(self._ledger.table, group_id)
        if group.locked:
            raise GroupLocked(f"group {group_id} is locked; fill {server} anew when it has its master")
        if server not in group.replicas:
            raise ServerNotFound(f"{server} is not a replica of group {group_id} any more")
        return group.servers[0]
