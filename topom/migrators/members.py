"""The migrators that hold a stream to this topom, and their copies.

A migrator is registered for as long as its stream stands, and each copy belongs to one stream. If the stream ends, or
brings nothing for :data:`SILENT_SECONDS`, every wait of its copies raises :class:`MigratorLost`: the copies are void,
and begin anew, perhaps elsewhere.

**bounded**: no wait is longer than the stream of the migrator stands, and :data:`LONGEST_SECONDS`.

**applied-once**: a migrator that was cut off may go on. Its copy is not the one that the target knows then
(:func:`migrator.stream.running.make_ready`), so it writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from migrator.errors import MigrationError
from migrator.pace import PaceSettings
from slots.kinds import Kind
from slots.messages.copies import (
    CopyRequest,
    CopyState,
    Done,
    Failed,
    MigratorMessage,
    RegisterMigrator,
    Report,
    SetPace,
    ToMigrator,
)
from topom.migrators.choosing import choose

REPORT_SECONDS = 0.5
"""Between two reports of a migrator."""
SILENT_SECONDS = 10.0
"""How long the stream of a migrator may bring nothing: longer than a busy machine takes, for its end costs all copies.
Within a lock less is waited for an answer."""
LONGEST_SECONDS = 5 * 3600.0
"""How long one answer may take. A copy takes less, or fails."""
WAIT_SECONDS = 20.0
"""How long a copy waits for a migrator to register."""
MOST_MIGRATORS = 1000

log = structlog.get_logger(__name__)


class MigratorLost(MigrationError):
    """The process that made a copy, or the stream to it, is lost. The copy is void."""

    kind = Kind.BUSY


class NoMigrator(MigrationError):
    """No process that makes copies is registered."""


class CopyFailed(MigrationError):
    """A migrator says why it cannot go on with a copy."""

    def __init__(self, failed: Failed) -> None:
        known = set(Kind)
        super().__init__(failed.what, failed.to_do, kind=Kind(failed.kind) if failed.kind in known else Kind.SERVER)
        self.passing = failed.passing
        self.of_followed = failed.of_followed


class Refused(Exception):
    """A migrator may not register, or what it says cannot be used."""


class Link(Protocol):
    """A migrator's connection. No method blocks or raises."""

    def say(self, message: ToMigrator) -> None:
        """Send a message soon."""

    def end(self) -> None:
        """Close the connection."""


class Reported(Protocol):
    """A copy, as it hears what its migrator says of it."""

    def reported(self, state: CopyState) -> None:
        """It is so far."""


@dataclass(eq=False)
class Migrator:
    """A migrator that is registered. It is a :class:`topom.migrators.choosing.Candidate`.

    Attributes:
        own: whether it is topom's child.
        copies: by their ids.
        gone: whether its stream has ended.
        disk: bytes that are free for its spools; None if that is not known.
    """

    id: int
    registration: RegisterMigrator
    own: bool
    link: Link
    copies: dict[str, Reported] = field(default_factory=dict)
    gone: bool = False
    disk: int | None = None
    _answers: dict[int, asyncio.Future[None]] = field(default_factory=dict)
    _number: int = 0

    @property
    def node(self) -> str:
        """The node that it runs on; empty if nobody said."""
        return self.registration.node

    @property
    def datacenter(self) -> str:
        """Its datacenter; empty if nobody said."""
        return self.registration.datacenter

    @property
    def load(self) -> int:
        """How many copies it has."""
        return len(self.copies)

    @property
    def named(self) -> str:
        """How messages name it."""
        return f"migrator {self.id} (process {self.registration.pid} on {self.registration.hostname})"

    def tell(self, message: CopyRequest | SetPace) -> None:
        """Say something that is not answered."""
        if not self.gone:
            self.link.say(message)

    async def ask(self, request: Callable[[int], CopyRequest]) -> None:
        """Return once the migrator has done this.

        Args:
            request: makes it, with a number.

        Raises:
            CopyFailed: the migrator cannot.
            MigratorLost: it is lost, or does not answer.
        """
        self._number += 1
        number = self._number
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            if self.gone:
                raise self.lost()
            self.link.say(request(number))
            async with asyncio.timeout(LONGEST_SECONDS):
                await answer
        except TimeoutError:
            raise self.lost() from None
        finally:
            self._answers.pop(number, None)

    def take(self, message: MigratorMessage) -> None:
        """What it says. Late answers, and reports of copies that it no longer has to make, count for nothing.

        Raises :class:`Refused`.
        """
        match message:
            case Report():
                self.disk = message.disk
                for state in message.copies:
                    if (copy := self.copies.get(state.copy_id)) is not None:
                        copy.reported(state)
            case Done() | Failed():
                answer = self._answers.pop(message.number, None)
                if answer is not None and not answer.done():
                    if isinstance(message, Done):
                        answer.set_result(None)
                    else:
                        answer.set_exception(CopyFailed(message))
            case RegisterMigrator():
                raise Refused("the migrator is registered already")

    def leave(self) -> None:
        """Its stream has ended."""
        self.gone = True
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(self.lost())
        self.link.end()

    def lost(self) -> MigratorLost:
        """The error for whoever waits for it."""
        return MigratorLost(f"{self.named} is lost, so its copy is void; it begins anew")


class Migrators:
    """All that are registered.

    Args:
        labels: gives node and datacenter of a server by its address.
        note: has an event stored: a sentence about a migrator that came (True) or went.
    """

    def __init__(
        self,
        labels: Callable[[str], tuple[str, str]] = lambda server: ("", ""),
        note: Callable[[bool, str], None] = lambda came, says: None,
    ) -> None:
        self._labels = labels
        self._note = note
        self._members: dict[int, Migrator] = {}
        self._next_id = 1
        self._came = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []
        self.wanted = asyncio.Event()
        """Set once slots are to move by copies, or a copy has found no migrator."""

    def all(self) -> list[Migrator]:
        """Every migrator, by id."""
        return list(self._members.values())

    @property
    def copies(self) -> int:
        """How many copies all of them have."""
        return sum(one.load for one in self._members.values())

    def listen(self, listener: Callable[[], None]) -> None:
        """Call this whenever the number of copies may have changed."""
        self._listeners.append(listener)

    def register(self, registration: RegisterMigrator, own: bool, link: Link) -> Migrator:
        """Take a migrator's connection. A former one of the same process ends. Raises :class:`Refused`."""
        for former in self.all():
            if former.registration.instance == registration.instance:
                self.disconnected(former)
        if len(self._members) >= MOST_MIGRATORS:
            raise Refused(f"{MOST_MIGRATORS} migrators are registered already, and there may not be more")
        one = self._members[self._next_id] = Migrator(self._next_id, registration, own, link)
        self._next_id += 1
        log.info("migrator_registered", migrator=one.id, hostname=registration.hostname, pid=registration.pid, own=own)
        self._note(True, f"{one.named} registered")
        self._came.set()
        self._came = asyncio.Event()
        self.changed()
        return one

    def disconnected(self, one: Migrator) -> None:
        """Its connection has ended: it is registered no longer, and its copies are void."""
        if self._members.pop(one.id, None) is not None:
            log.info("migrator_gone", migrator=one.id, copies=one.load)
            self._note(False, f"{one.named} is gone; it had {one.load} copies")
            one.leave()
            self.changed()

    def nearest(self, source: str) -> Migrator | None:
        """The migrator for a copy from this server; None if there is none."""
        return choose(self.all(), *self._labels(source))

    async def near(self, source: str) -> Migrator:
        """As :meth:`nearest`, once there is one. Raises :class:`NoMigrator`."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while (found := self.nearest(source)) is None:
                    self.wanted.set()
                    await self._came.wait()
                return found
        except TimeoutError:
            raise NoMigrator(
                f"no migrator has registered within {WAIT_SECONDS:g} s",
                "see topom's log, or start `slotferry migrator`",
            ) from None

    def set_pace(self, settings: PaceSettings, paused: bool, parts: int) -> None:
        """Let all copies go by these limits.

        Args:
            parts: into how many equal parts they are divided; each copy has one.
        """
        for one in self._members.values():
            mine = settings.part(one.load, parts)
            one.tell(
                SetPace(
                    keys_per_second=mine.keys_per_second,
                    bytes_per_second=mine.bytes_per_second,
                    latency_goal_milliseconds=mine.latency_goal_milliseconds,
                    paused=paused,
                )
            )

    def changed(self) -> None:
        """The number of copies, or of migrators, may have changed."""
        for hear in self._listeners:
            hear()
