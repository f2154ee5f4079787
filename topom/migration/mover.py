"""The migrator as topom uses it: with one product's functions and secrets, and one pace for all batches together.

Keys that move one by one do so in this process. Copies by the replication stream are made by migrators
(:mod:`topom.migrators`). The limits of the pace are divided among all that goes on.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import gettempdir

from migrator.checks import Findings, Watch, check, look, watch
from migrator.errors import NotApart, ServerUnavailable, UsedByOthers
from migrator.facts import Facts
from migrator.followable import Followable, disk_of
from migrator.move import migrate
from migrator.options import Confirmation, MoveOptions
from migrator.pace import Pace, PaceSettings
from migrator.progress import Progress
from migrator.replicas import confirm
from migrator.stream.running import make_ready
from migrator.sweep import Swept, Warrant, stop, sweep
from migrator.withdrawing import withdraw
from slots.access import ServerAccess
from slots.beginning import Beginning
from slots.keyslots import KeySlots
from topom.cluster.state import MigrationSettings
from topom.errors import NotLeading
from topom.migration.ways import AUTO, Way
from topom.migrators.copies import RemoteCopy
from topom.migrators.gathering import Place
from topom.migrators.members import Migrators
from topom.reasons import Reason
from topom.store.leading import OVER


async def no_strangers(server: str) -> Reason | None:
    """No proxy is looked for."""
    return None


async def no_mark(servers: Iterable[str]) -> Mapping[str, str]:
    """No mark is left."""
    return {}


class _LooksAgain:
    """A warrant that asks ``look`` before the first key is deleted. Its errors are those of both."""

    def __init__(self, warrant: Warrant, look: Callable[[], Awaitable[None]]) -> None:
        self._warrant = warrant
        self._look = look
        self.foreign = warrant.foreign
        self.hold = warrant.hold

    async def begin(self, keys: int, known: bool) -> bytes:
        await self._look()
        return await self._warrant.begin(keys, known)


class RedisMover:
    """Moves slots between Redis servers. It is the :class:`topom.migration.interfaces.Mover` of a real topom."""

    def __init__(
        self,
        databases: int,
        key_slots: Callable[[], KeySlots],
        access: ServerAccess,
        instance: str,
        leads: Callable[[], bool] = lambda: True,
        term: int = 0,
        conflict: Callable[[str], Reason | None] = lambda server: None,
        doubt: Callable[[str], Reason | None] = lambda server: None,
        strangers: Callable[[str], Awaitable[Reason | None]] = no_strangers,
        use: Callable[[Iterable[str]], Awaitable[Mapping[str, str]]] = no_mark,
        migrators: Migrators | None = None,
        spool: Path | None = None,
    ) -> None:
        """
        Args:
            databases: of the product.
            key_slots: which slot each key has, by the newest table.
            migrators: make copies by the replication stream; by default, there are none.
            spool: where the migrator that topom starts itself keeps what replication streams bring; by default, in the
                system's folder for temporary files.
            leads, term: as :class:`topom.term.service.Topom` has them.
            conflict: why nothing may be done to a server; None if anything may be done
                (:mod:`topom.servers.identities`).
            doubt: why nothing may be begun at a server; None if anything may.
            strangers: the same because of proxies that use it (:mod:`topom.proxies.strangers`).
            use: leaves the mark of a topom that moves slots at these; gives those that have none, and why.
        """
        self._spool = spool or Path(gettempdir(), "slotferry")
        self._migrators = migrators or Migrators()
        self._migrators.listen(self._divide_pace)
        self._doubt = doubt
        self._strangers = strangers
        self._use = use
        self._conflict = conflict
        self._leads = leads
        self._term = term
        self._databases = databases
        self._key_slots = key_slots
        self._access = access
        self._instance = instance
        self._pace = Pace()
        self._set = PaceSettings()
        self._paused = False
        self._moves = 0
        self._min_replicas = 0
        self._may_follow = self._may_copy = False

    async def check(self, source: str | None, target: str, share: float) -> Findings:
        """What to know before a move. Raises :class:`migrator.errors.MigrationError` if it cannot be made."""
        self._require()
        await self._require_known(source, target)
        found = await check(
            source,
            target,
            share=share,
            databases=self._databases,
            access=self._access,
            instance=self._instance,
            min_replicas=self._min_replicas,
            may_follow=self._may_follow,
            may_copy=self._may_copy,
        )
        return replace(found, followable=await self._with_disk(source, found.followable))

    async def look(self, server: str) -> tuple[Facts, Followable]:
        """What a server says of itself; nothing is written there. Raises MigrationError."""
        self._require()
        facts, followable = await look(server, access=self._access, instance=self._instance)
        return facts, await self._with_disk(server, followable) or followable

    async def _with_disk(self, source: str | None, known: Followable | None) -> Followable | None:
        if known is None or source is None:
            return known
        one = self._migrators.nearest(source)
        disk = await asyncio.to_thread(disk_of, self._spool) if one is None else one.disk
        return replace(known, disk_bytes=disk)

    @asynccontextmanager
    async def watch(self, source: str | None, target: str) -> AsyncIterator[Watch]:
        """Which processes both servers are, and remain. Raises :class:`migrator.errors.MigrationError`."""
        self._require()
        # Slots are about to be locked, perhaps long after the check.
        await self._require_no_strangers(source, target)
        await self._leave_mark(source, target)
        async with watch(source, target, access=self._access, instance=self._instance) as watched:
            yield watched

    def copy(
        self,
        source: str,
        target: str,
        run_ids: tuple[str, str],
        slots: Sequence[int],
        id: str,
        progress: Progress,
        replicas: Sequence[str],
        place: Place,
    ) -> RemoteCopy:
        """A copy of these slots by the replication stream of one of these replicas, or of the source."""

        async def ready() -> tuple[str, str]:
            self._require(source, target)
            return await make_ready(
                source,
                target,
                id,
                stream=place.stream_id,
                replicas=replicas,
                access=self._access,
                instance=self._instance,
                term=self._term,
                run_ids=run_ids,
            )

        return RemoteCopy(
            self._migrators,
            source,
            target,
            slots,
            id,
            progress,
            replicas,
            place,
            key_slots=self._key_slots(),
            instance=self._instance,
            term=self._term,
            make_ready=ready,
        )

    async def confirm(self, target: str, replicas: int | None) -> None:
        """Return once so many replicas of a server, or all that are online, have all that it has. Raises
        MigrationError."""
        self._require(target)
        await confirm(target, replicas, access=self._access, instance=self._instance)

    async def withdraw(self, source: str | None, target: str | None) -> None:
        """Return once nothing that was taken can still be placed. Raises :class:`migrator.errors.MigrationError`."""
        self._require(*(server for server in (source, target) if server is not None))
        await withdraw(source, target, access=self._access, instance=self._instance, term=self._term)

    async def move(
        self,
        source: str,
        target: str,
        slots: Sequence[int],
        progress: Progress,
        beginning: Beginning,
        require: Callable[[], None],
    ) -> None:
        """Return once **complete** holds for these slots. Raises MigrationError, and as ``require``."""

        def still() -> None:
            self._require(source, target)
            require()

        self._require(source, target)
        # A topom that goes on with a stored move has not checked it.
        await self._require_no_strangers(source, target)
        # Its state is newer than it was before the lock.
        await self._leave_mark(source, target)
        self._moves += 1
        self._divide_pace()
        try:
            await migrate(
                source,
                target,
                slots,
                key_slots=self._key_slots(),
                access=self._access,
                pace=self._pace,
                progress=progress,
                instance=self._instance,
                term=self._term,
                options=MoveOptions(beginning=beginning, confirmation=Confirmation(self._min_replicas), require=still),
            )
        finally:
            self._moves -= 1
            self._divide_pace()

    async def sweep(self, server: str, data: str, warrant: Warrant) -> Swept:
        """Return once a server has no keys of slots that it does not own. Raises MigrationError, and as ``warrant``."""
        self._require()
        await self._require_known(server)
        return await sweep(
            server,
            data,
            _LooksAgain(warrant, partial(self._require_no_strangers, server)),
            key_slots=self._key_slots(),
            access=self._access,
            pace=self._pace,
            instance=self._instance,
            term=self._term,
        )

    async def stop_sweeping(self, server: str) -> None:
        """Return once no earlier sweep can delete anything there. Raises MigrationError."""
        self._require()
        await stop(server, access=self._access, instance=self._instance, term=self._term)

    def _require(self, *servers: str) -> None:
        if not self._leads():
            raise NotLeading(OVER)
        # run-id: it is not known which slots a server with two names has, and keys that a server moves to itself are
        # gone.
        for server in servers:
            if reason := self._conflict(server):
                raise reason.to(NotApart)

    async def _require_known(self, *servers: str | None) -> None:
        # run-id: work begins only at a server that was compared with all others.
        for server in filter(None, servers):
            if reason := self._doubt(server):
                raise reason.to(NotApart)
        await self._require_no_strangers(*servers)

    async def _leave_mark(self, source: str | None, target: str) -> None:
        # newest-store: a source that is full takes no mark, and its keys have to leave it all the same.
        unmarked = await self._use([server for server in (source, target) if server is not None])
        if why := unmarked.get(target):
            raise ServerUnavailable(f"{target} does not take the mark of the topom that moves slots to it: {why}")

    async def _require_no_strangers(self, *servers: str | None) -> None:
        # one-owner: whoever uses it would not hear of the change.
        for server in filter(None, servers):
            if reason := await self._strangers(server):
                raise reason.to(UsedByOthers)

    def set_pace(self, settings: MigrationSettings) -> None:
        """Let these settings hold from the next batch of keys on; that for replicas from the next call on.

        Raises :class:`ValueError` if one is out of range.
        """
        self._min_replicas = settings.min_replicas
        self._may_follow = settings.way == AUTO
        self._may_copy = settings.way != Way.KEYS
        self._set = PaceSettings(
            keys_per_second=settings.keys_per_second,
            bytes_per_second=settings.bytes_per_second,
            latency_goal_milliseconds=settings.latency_goal_milliseconds,
        )
        self._paused = settings.paused
        if settings.way == Way.STREAM:
            # The first copy need not wait until a process has started. With AUTO there may never be one.
            self._migrators.wanted.set()
        self._divide_pace()

    def _divide_pace(self) -> None:
        # What moves key by key shares one pace here.
        parts = self._moves + self._migrators.copies
        self._pace.change(self._set.part(self._moves, parts) if self._moves else self._set)
        if self._paused:
            self._pace.pause()
        else:
            self._pace.resume()
        self._migrators.set_pace(self._set, self._paused, max(1, parts))
