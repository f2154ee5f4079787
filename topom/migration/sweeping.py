"""Sweeps delete keys of slots that a server does not own (**owned**): when, and by whose word.

Which keys these are is said in :mod:`topom.migration.foreignkeys`.

A master is swept if it is another process, has other data, or became master anew since its last sweep
(:mod:`migrator.sweep` says how that is seen). A target of a move is also swept before it is touched. If it is another
process at the time of the lock, the move begins anew.

**By the same mark.** Before the first key is deleted, it is stored that the server is being swept. That stays stored
until it is known that nothing late can delete there. Meanwhile no slot is locked for the server or assigned to it.
"""

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Protocol

import structlog
from redis.asyncio import Redis

from migrator.errors import ForeignKeys, KeysRemain, MigrationError, SweepOvertaken
from migrator.sweep import SweepRecord, Swept, Warrant, look
from slots.backoff import Backoff
from slots.counting import counted
from slots.slot import OFFLINE
from topom.cluster import leftovers
from topom.cluster.events import Said, What
from topom.cluster.hands_off import HandsOff
from topom.cluster.ledger import Ledger, LostPlace
from topom.cluster.state import ClusterState
from topom.cluster.topology import group_of
from topom.errors import Conflict, ServersUnreachable, TopomError
from topom.migration.foreignkeys import SweepBrokenOff, SweepWarrant, masters_at_rest
from topom.periodic import Look, Loop
from topom.reasons import Reason, Reasons
from topom.servers.detector import Condition, Judgement
from topom.servers.redis_servers import RedisServers

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
"""Seconds between two looks at the masters."""
SAID = 3
"""How many masters' reasons are in one sentence."""
LOOKS = 50
"""How many masters one look is at; if there are more, they take turns."""
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 1.0, 600.0
"""Seconds between two attempts to sweep a server, even if the first succeeded: the server may evict its mark."""
FAILED_WAIT_SECONDS = 10.0
"""The longest wait if an attempt was stopped by something that passes by itself: a restart, a broken link."""
ALLOW_SECONDS = 15.0
"""How long an operator's request waits for a sweep; the sweep goes on after that."""


class NotMaster(Conflict):
    """Only masters are swept; replicas have what their master has."""


class Conditions(Protocol):
    """What is needed of :class:`topom.servers.health.Health`."""

    def of(self, server: str) -> Judgement:
        """The judgement of a server."""


class Sweeper(Protocol):
    """What is needed of the migrator."""

    async def sweep(self, server: str, data: str, warrant: Warrant) -> Swept:
        """Return once a server is swept, and its data known by this id. Raises MigrationError, and as ``warrant``."""

    async def stop_sweeping(self, server: str) -> None:
        """Return once no earlier sweep can delete anything there. Raises MigrationError."""

    async def withdraw(self, source: str | None, target: str | None) -> None:
        """Return once nothing can be taken or dropped at the source by an earlier permit. Raises MigrationError."""

    async def confirm(self, target: str, replicas: int | None) -> None:
        """Return once all replicas that are online have all that a server has, if ``replicas`` is None.

        Raises MigrationError.
        """


class Sweeps(Loop):
    """The sweeps of one topom.

    Args:
        conflict: why nothing may be done to a server; None if anything may be done (:mod:`topom.servers.identities`).
        doubt: likewise, and also why it is not known yet. It is asked before a sweep deletes its first key.
    """

    name = "sweeps"

    def __init__(
        self,
        ledger: Ledger,
        sweeper: Sweeper,
        servers: RedisServers,
        health: Conditions,
        hands_off: HandsOff,
        conflict: Callable[[str], Reason | None] = lambda server: None,
        doubt: Callable[[str], Reason | None] = lambda server: None,
    ) -> None:
        super().__init__(hands_off.reason)
        self._conflict = conflict
        self._doubt = doubt
        self._ledger = ledger
        self._sweeper = sweeper
        self._servers = servers
        self._health = health
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._asked_for: set[asyncio.Task[int]] = set()
        self._backoffs: dict[str, tuple[tuple[str, str], Backoff]] = {}
        self._due: dict[str, float] = {}
        self._turn = 0
        self.reasons = Reasons[str]("server_not_swept")
        """For each master: why it is not swept."""

    async def ensure(self, group_id: int) -> None:
        """Return once a group's master is swept; at once if it is swept already.

        Raises:
            ForeignKeys: it has keys that only the operator can judge.
            MigrationError: it cannot be swept now.
            TopomError: which of its keys may be swept has changed, or the store cannot be written.
        """
        await self._sweep(group_id)

    async def allow(self, group_id: int, server: str) -> int | None:
        """Sweep a group's master, whatever its data; gives how many keys were removed, None if that goes on for longer.

        Raises:
            GroupNotFound, NotMaster: as they say.
            Unavailable: it cannot be swept now. The operator must ask again: later it may be another server than the
                operator meant, or have other data.
        """
        if server != group_of(self._ledger.table, group_id).master:
            raise NotMaster(f"{server} is not the master of group {group_id}; replicas are swept with their master")
        task = asyncio.create_task(self._sweep(group_id, allowed=True), name=f"sweeping {server}")
        self._asked_for.add(task)
        task.add_done_callback(self._forget)
        await asyncio.wait((task,), timeout=ALLOW_SECONDS)
        if not task.done():
            return None
        try:
            return task.result()
        except MigrationError as error:
            raise SweepBrokenOff(error.what, error.to_do, kind=error.kind) from error

    async def stop(self, server: str | None) -> None:
        """Return once no sweep deletes anything at a server, unless another sweep begins meanwhile.

        Raises ServersUnreachable, and StoreError.
        """
        under_way = self._ledger.state.sweeping.get(server or "")
        if server is None or under_way is None:
            return
        try:
            # owned: the sweep's token is gone, so it deletes nothing from here on, and a late command does not either.
            await self._sweeper.stop_sweeping(server)
        except MigrationError as error:
            what = f"keys of other slots are being removed at {server}: {error.what}"
            raise ServersUnreachable(what, error.to_do, kind=error.kind) from error
        await self._over(server, under_way)

    async def run(self) -> None:
        """As :meth:`topom.periodic.Loop.run`; sweeps that an operator has asked for end with it."""
        try:
            await super().run()
        finally:
            for task in list(self._asked_for):
                task.cancel()

    def _forget(self, task: asyncio.Task[int]) -> None:
        self._asked_for.discard(task)
        if not task.cancelled():
            task.exception()  # the request may be over; the error is in the log, and the sweep is tried again

    async def look(self) -> Look:
        """Look at the masters, and sweep those that are not swept, one after the other."""
        masters = masters_at_rest(self._ledger.table, self._ledger.state.leftovers.keys())
        self._forget_others()
        alive = [entry for entry in masters.items() if self._health.of(entry[1]).condition is Condition.ALIVE]
        first = self._turn % len(alive) if len(alive) > LOOKS else 0
        self._turn = first + LOOKS
        chosen = [*alive, *alive][first : first + min(LOOKS, len(alive))]
        records = await asyncio.gather(*(self._record(server) for _, server in chosen))
        for (group_id, server), record in zip(chosen, records, strict=True):
            if self.held:
                break
            if record is None:
                continue
            data = self._ledger.state.data_ids.get(group_id, "")
            if record.is_swept(data) and not self._is_noted(group_id, server):
                self._found_swept(server)
            elif self._is_due(server, record.life, data):
                await self._try(group_id, server)
        waiting = "; ".join(f"{server}: {reason.what}" for server, reason in sorted(self.reasons.items())[:SAID])
        return Look(
            f"{counted(len(self.reasons), 'master is', 'masters are')} not swept yet: {waiting}" if waiting else "",
            LOOK_SECONDS,
        )

    def _forget_others(self) -> None:
        """Forget what is known of servers that are not masters now."""
        masters = {group.master for group in self._ledger.table.groups.values()}
        books: list[dict[str, Any]] = [self._due, self._backoffs, self._turns]
        kept = {server for server in {*self.reasons, *self._turns} if server in masters or self._turns[server].locked()}
        self.reasons.keep_only(kept)
        for book in books:
            for server in [server for server in book if server not in masters and server not in kept]:
                book.pop(server, None)

    def _found_swept(self, server: str) -> None:
        self.reasons.over(server)
        if asyncio.get_running_loop().time() > self._due.get(server, 0.0) + LONGEST_WAIT_SECONDS:
            self._backoffs.pop(server, None)

    async def _record(self, server: str) -> SweepRecord | None:
        found: list[SweepRecord] = []

        async def ask(client: Redis) -> None:
            found.append(await look(client))

        await self._servers.guarded(server, ask)
        return found[0] if found else None

    def _is_due(self, server: str, life: str, data: str) -> bool:
        known = self._backoffs.get(server)
        if known is None or known[0] != (life, data):
            # It is another process, or has other data: earlier attempts say nothing of it.
            self._backoffs[server] = (life, data), Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)
            return True
        return asyncio.get_running_loop().time() >= self._due.get(server, 0.0)

    async def _try(self, group_id: int, server: str) -> None:
        seconds = self._backoffs[server][1].next()
        try:
            await self._sweep(group_id)
        except LostPlace:
            raise
        except (MigrationError, TopomError) as error:
            if not isinstance(error, (ForeignKeys, KeysRemain)):  # those end only when an operator does something
                seconds = min(seconds, FAILED_WAIT_SECONDS)
        self._due[server] = asyncio.get_running_loop().time() + seconds

    async def _sweep(self, group_id: int, allowed: bool = False) -> int:
        server = group_of(self._ledger.table, group_id).master
        if server is None:
            return 0
        async with self._turns[server]:
            data = await self._data_id(group_id)
            left = self._ledger.state.leftovers.get(group_id, {})
            warrant = SweepWarrant(
                self._ledger, self.reasons, self._conflict, self._doubt, group_id, server, data, allowed
            )
            try:
                swept = await self._sweeper.sweep(server, data, warrant)
                if left:
                    # one-way: a move's late step is not to touch keys of slots that come back.
                    await self._sweeper.withdraw(server, None)
                    # owned: nor are old keys that a replica still has to come back with it.
                    await self._sweeper.confirm(server, None)
                    await self._require_swept(server, data, warrant)
            except (MigrationError, TopomError) as error:
                self._note(group_id, server, error)
                raise
            if self._is_noted(group_id, server):
                text = (
                    f"{counted(swept.removed, 'key')} of slots that it does not own "
                    f"{'was' if swept.removed == 1 else 'were'} removed from {server} of group {group_id}"
                )
                said = [Said(What.SERVER_SWEPT, text)] if swept.removed else ()
                await self._over(server, self._ledger.state.sweeping.get(server), said, group_id, left)
            self.reasons.over(server)
            return swept.removed

    async def _require_swept(self, server: str, data: str, warrant: Warrant) -> None:
        """Raises SweepOvertaken if a server that was swept had foreign keys again.

        owned: it may have been restarted since with older data, or have followed another one that had them.
        """
        again = await self._sweeper.sweep(server, data, warrant)
        if again.removed:
            raise SweepOvertaken(f"{server} had keys again that were removed before; it is looked at again")

    def _note(self, group_id: int, server: str, error: Exception) -> None:
        before = self.reasons.get(server)
        reason = self.reasons.waits(server, error, server=server, group=group_id)
        if isinstance(error, ForeignKeys) and not reason.says(before):
            self._ledger.note(What.FOREIGN_KEYS, str(reason), reason=reason)

    async def _data_id(self, group_id: int) -> str:
        if group_id not in self._ledger.state.data_ids:

            def give(state: ClusterState, epoch: int) -> ClusterState:
                missing = state.table.groups.keys() - state.data_ids.keys()
                new = {id: secrets.token_hex(16) for id in sorted(missing)}
                return replace(state, data_ids={**state.data_ids, **new}) if new else state

            await self._ledger.change(give)
        return self._ledger.state.data_ids.get(group_id, "")

    def _is_noted(self, group_id: int, server: str) -> bool:
        """Whether it is stored that the server is being swept, or has to be."""
        state = self._ledger.state
        return server in state.sweeping or group_id in state.leftovers

    async def _over(
        self,
        server: str,
        under_way: str | None,
        said: Sequence[Said] = (),
        group_id: int = OFFLINE,
        left: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """Store that a sweep is over, and that a group has none of the leftovers that it had when it began."""

        def over(state: ClusterState, epoch: int) -> ClusterState:
            if under_way is not None and state.sweeping.get(server) == under_way:
                others = {name: sweep for name, sweep in state.sweeping.items() if name != server}
                state = replace(state, sweeping=others)
            # owned: another master, such as a replica that was behind, may have them again.
            return leftovers.without(state, group_id, left) if state.table.master_of(group_id) == server else state

        await self._ledger.change(over, said)
