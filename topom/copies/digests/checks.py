"""Digest checks of one topom: started, shown, cancelled. It is stored that a replica differs before the check is over.

**bounded**: one check a group at a time, and none while its replicas are filled anew. The last check of each group is
kept, with bounded lists, while this topom leads. A check ends after :data:`MOST_SECONDS`, and then has no verdict.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

import structlog

from migrator.connection import Connection, Timeouts
from migrator.errors import MigrationError
from slots.access import ServerAccess
from slots.backoff import Backoff
from slots.counting import counted
from slots.group import Group
from slots.ranges import show
from topom.cluster import differing, topology
from topom.cluster.differing import Differing
from topom.cluster.events import Said, What, actor
from topom.cluster.ledger import Change, Ledger, LostPlace
from topom.cluster.state import ClusterState
from topom.copies.digests.errors import CheckFailed, CheckRuns, NoCheck, NothingToCheck, ServerRefuses, ServerSilent
from topom.copies.digests.sums import Tally
from topom.copies.digests.throttle import Throttle
from topom.copies.digests.walk import Walk
from topom.errors import NotLeading, ServerNotFound, TopomError
from topom.periodic import Look, Loop
from topom.reasons import Kind, Reason

log = structlog.get_logger(__name__)

KEYS_PER_SECOND = 20_000
STEP_SECONDS = 0.002
MOST_SECONDS = 86_400.0
SHOW_SECONDS = 0.1
"""Between two updates of how far a check is, and two attempts to store that it has found something."""
STORE_SECONDS, STORE_SECONDS_MAX = 0.5, 10.0
"""Between tries to store what was found: the first wait, and the longest."""
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

    group: int
    server: str
    master: str
    keys_per_second: int
    began_at: float
    stage: Stage = Stage.RUNNING
    reason: Reason | None = None
    seconds: float = 0.0
    total: int = 0
    tally: Tally = field(default_factory=Tally)


class Digests(Loop):
    """Checks of the groups' replicas."""

    name = "digests"

    def __init__(self, ledger: Ledger, access: ServerAccess, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._ledger = ledger
        self._access = access
        self._clock = clock
        self._checks: dict[int, dict[str, Check]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self.differing = Differing(lambda: ledger.state)
        """What is known against replicas."""

    async def run(self) -> None:
        """As :meth:`topom.periodic.Loop.run`; the checks that are under way end with it."""
        try:
            await super().run()
        finally:
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def look(self) -> Look:
        """See which groups are being checked; their checks are tasks of their own."""
        return Look(f"replicas are compared in groups {show(self._tasks)}" if self._tasks else "")

    def start(self, group_id: int, server: str | None, keys_per_second: int) -> list[Check]:
        """Begin to check one replica of a group, or all of them one after the other.

        Raises:
            GroupNotFound, ServerNotFound: there is none.
            NothingToCheck, CheckRuns: it has no replica; it is being checked already, or filled anew.
        """
        group = topology.group_of(self._ledger.table, group_id)
        self._require_free(group_id)
        replicas = self._replicas(group, server)
        if filling := [address for address in replicas if self.differing.is_filled(address)]:
            raise CheckRuns(f"{', '.join(filling)} is being filled anew; check it when it is")
        now = self._clock()
        checks = [Check(group_id, address, group.servers[0], keys_per_second, now) for address in replicas]
        self._checks = {known: found for known, found in self._checks.items() if known in self._ledger.table.groups}
        before = self._checks.get(group_id, {})
        self._checks[group_id] = {one: check for one, check in before.items() if one in group.servers}
        self._checks[group_id].update({check.server: check for check in checks})
        text = f"the digest check of {', '.join(replicas)} against {group.servers[0]}, group {group_id}, began"
        self._ledger.note(What.DIGEST_BEGUN, text, actor.get())
        task = asyncio.create_task(self._check_all(checks), name=f"digest of group {group_id}")
        self._tasks[group_id] = task
        self.wake()
        task.add_done_callback(lambda over: self._forget(group_id, over))
        return checks

    def of(self, group_id: int) -> list[Check]:
        """The last check of each replica of a group. Raises GroupNotFound, NoCheck."""
        topology.group_of(self._ledger.table, group_id)
        found = self._checks.get(group_id)
        if found is None and not any(one.group == group_id for one in self._ledger.state.differing.values()):
            raise NoCheck(
                f"group {group_id} was not checked since this topom leads; slotferry digest run {group_id} does"
            )
        return list((found or {}).values())

    async def cancel(self, group_id: int) -> list[Check]:
        """End the check that is under way, if one is. Raises as :meth:`of`."""
        found = self.of(group_id)
        task = self._tasks.get(group_id)
        if task is not None and any(check.stage is Stage.RUNNING for check in found):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        return found

    async def resync(self, group_id: int, server: str | None) -> list[str]:
        """Have a replica, or all that are known to differ, forget what they have and be filled anew; gives which ones.

        The order is stored here; :class:`topom.copies.joining.Joins` carries it out, one replica after the other.

        Raises:
            GroupNotFound, ServerNotFound: there is none.
            CheckRuns: they are being checked, or filled anew already.
            NothingToCheck: no replica is known to differ, or the one that is named was not checked.
            TopomError: the order could not be stored.
        """
        group = topology.group_of(self._ledger.table, group_id)
        replicas = list(self._replicas(group, server))
        if server is None:
            replicas = [address for address in replicas if self.differing.of(address) is not None]
        known = self._checks.get(group_id, {})
        if not replicas or any(self.differing.of(one) is None and one not in known for one in replicas):
            raise NothingToCheck(
                f"no replica of group {group_id} is known to differ, or the one named was not checked yet"
            )

        def change(state: ClusterState, epoch: int) -> ClusterState:
            self._require_free(group_id)
            if taken := [address for address in replicas if address in state.joining]:
                raise CheckRuns(f"{', '.join(taken)} is being filled already; see slotferry digest show {group_id}")
            now = state.table.groups.get(group_id)
            if now is None or not {*replicas} <= {*now.replicas}:
                raise CheckRuns(f"group {group_id} was changed just now; look at it, and try again")
            return differing.to_fill(state, replicas)

        text = f"{', '.join(replicas)} of group {group_id}: to forget what they have, and be filled anew"
        await self._ledger.change(change, [Said(What.RESYNC_BEGUN, text)])
        return replicas

    # -- inner ---------------------------------------------------------------------------------------------

    def _require_free(self, group_id: int) -> None:
        """Raises CheckRuns while a group is being checked."""
        if group_id in self._tasks:
            raise CheckRuns(f"group {group_id} is being checked already; see slotferry digest show {group_id}")

    def _replicas(self, group: Group, server: str | None) -> Sequence[str]:
        """All replicas of a group, or the one that is named. Raises NothingToCheck, ServerNotFound."""
        if not group.replicas:
            raise NothingToCheck(f"group {group.id} has no replica")
        if server is None:
            return group.replicas
        if server not in group.replicas:
            raise ServerNotFound(f"group {group.id} has no replica {server}; it has {', '.join(group.replicas)}")
        return [server]

    def _forget(self, group_id: int, over: asyncio.Task[None]) -> None:
        del self._tasks[group_id]
        self.wake()
        if not over.cancelled() and (error := over.exception()) is not None:
            log.error("digest_failed", group=group_id, reason=str(error) or type(error).__name__)

    async def _check_all(self, checks: Sequence[Check]) -> None:
        try:
            for check in checks:
                await self._check(check)
        finally:
            for check in checks:
                if check.stage is Stage.RUNNING:
                    with suppress(TopomError):
                        await self._ledger.change(self._outcome(check, Stage.CANCELLED))
                    self._end(check, Stage.CANCELLED, Reason.now(Kind.OPERATOR, "it was cancelled"))

    async def _check(self, check: Check) -> None:
        began = time.monotonic()
        reason: Reason | None = None
        broken: Exception | None = None
        try:
            async with asyncio.timeout(MOST_SECONDS):
                await self._walk(check, began)
            stage = Stage.DIFFERENT if check.tally.differences else Stage.SAME
        except TimeoutError:
            stage, reason = Stage.FAILED, Reason.now(Kind.SERVER, f"it took longer than {MOST_SECONDS:g} s")
        except (MigrationError, CheckFailed) as error:
            stage, reason = Stage.FAILED, Reason.of(error)
        except Exception as error:
            stage, reason, broken = Stage.FAILED, Reason.now(Kind.FAULT, f"it broke off: {error!r}"), error
        check.seconds = time.monotonic() - began
        # Stored first: once an operator sees that a replica differs, nobody promotes it.
        if not await self._store(check, stage):
            stage = Stage.FAILED
            reason = Reason.now(Kind.STORE, "this topom leads no more, and what was found is not stored", "check again")
        self._end(check, stage, reason)
        if broken is not None:
            raise broken

    async def _walk(self, check: Check, began: float) -> None:
        key_slots = self._ledger.state.key_slots
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
            walk = Walk(master, replica, key_slots, throttle, check.tally)
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
        stored = False
        while True:
            check.total, check.seconds = walk.total, time.monotonic() - began
            if check.tally.differences and not stored:
                # The end may be far off. Nobody should promote the replica before it, and topom may end earlier.
                with suppress(TopomError):
                    await self._ledger.change(self._outcome(check, Stage.RUNNING))
                    stored = True
            await asyncio.sleep(SHOW_SECONDS)

    async def _store(self, check: Check, stage: Stage) -> bool:
        """Store what was found, however long the store is away; False if this topom does not lead any more."""
        backoff = Backoff(STORE_SECONDS, STORE_SECONDS_MAX)
        while True:
            try:
                await self._ledger.change(self._outcome(check, stage))
            except (NotLeading, LostPlace):
                return False
            except TopomError as error:
                since = check.reason.since if check.reason is not None else time.time()
                what = f"what was found could not be stored yet: {error.what}"
                check.reason = Reason(error.kind, what, since, error.to_do)
                log.warning("digest_not_stored", server=check.server, kind=error.kind, reason=str(error))
                await asyncio.sleep(backoff.next())
            else:
                return True

    def _outcome(self, check: Check, stage: Stage) -> Change:
        """Stores what is known of the replica now. Differences count even if there may be more.

        Only a check of all keys clears the replica.
        """
        now = self._clock()

        def change(state: ClusterState, epoch: int) -> ClusterState:
            tally = check.tally
            if tally.differences:
                new = differing.found(check.server, check.group, tally.differences, tally.slots, now)
                return differing.marked(state, new)
            return differing.cleared(state, check.server, not tally.uncompared) if stage is Stage.SAME else state

        return change

    def _end(self, check: Check, stage: Stage, reason: Reason | None) -> None:
        check.stage, check.reason = stage, reason
        keys = check.tally.differences
        if keys:
            log.error("replica_differs", server=check.server, master=check.master, keys=keys)
        log.info("digest_checked", server=check.server, stage=stage, keys=check.tally.keys, reason=str(reason or ""))
        differ = "differs" if keys == 1 else "differ"
        found = f"{keys} of {counted(check.tally.keys, 'key')} {differ}, {check.tally.uncompared} not compared"
        if check.tally.extra:
            only = "is" if check.tally.extra == 1 else "are"
            found += f"; {check.tally.extra} {only} only at the replica, so it may be the master that lost them"
        text = f"the digest check of {check.server} against {check.master} is over, {stage}: {found}"
        self._ledger.note(What.DIGEST_ENDED, f"{text}; {reason}" if reason else text, reason=reason)
