"""The copies by the replication stream that one topom has under way: one a batch, in its memory alone.

A stored action names its copy. If this process does not have that copy, or a master has changed since, the copy is
worth nothing, and all begins anew (**level**). What cannot be copied, or was lost several times, moves key by key.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import structlog

from migrator.checks import Findings
from migrator.errors import MigrationError
from migrator.progress import Progress
from slots import ranges
from slots.kinds import Explained
from slots.slot import Action
from topom.errors import TopomError, Unavailable
from topom.migration.batches import Batch
from topom.migration.ways import Choice, Way
from topom.migrators.gathering import OutOfTurn, Place
from topom.reasons import Kind

log = structlog.get_logger(__name__)

MOST_COPIES = 3
"""So many copies of a batch may be lost before its keys move one by one."""


class NotLevel(Unavailable):
    """A copy took too long to become level while its slots were locked."""

    kind = Kind.SERVER
    of_followed = False
    """As of :class:`~migrator.errors.MigrationError`."""


class NoWay(Unavailable):
    """A target takes keys only by a copy, and a copy cannot be made."""

    kind = Kind.SERVER


class Copy(Protocol):
    """A copy of a batch's slots. It goes on until it is closed, or fails."""

    @property
    def lag(self) -> int | None:
        """Bytes of the source's stream that are missing at the target; None while the snapshot was not written."""

    async def nearly_level(self) -> None:
        """Return once little is missing at the target. Raises MigrationError if the copy is void, and OutOfTurn if it
        cannot begin any more."""

    async def settle(self, slots: Sequence[int]) -> None:
        """Return once **level** holds for these slots, which are locked. Raises MigrationError."""

    def keep_only(self, slots: Collection[int]) -> None:
        """Copy no other slots from now on."""

    async def close(self) -> None:
        """End the copy. It raises nothing."""


class Copier(Protocol):
    """What is needed of the migrator."""

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
    ) -> Copy:
        """Begin a copy between these masters, which has this id. It fails if they do not have these run ids. One of
        these replicas of the source is followed in its place if it can be. ``progress`` tells which server that is.
        ``place`` is the one among the copies with which it shares a stream."""

    async def confirm(self, target: str, replicas: int | None) -> None:
        """Return once so many replicas of a server, or if None all that are online, have all that it has.

        Raises :class:`~migrator.errors.TooFewReplicas` after a time that is enough for what they have to get, and other
        MigrationErrors.
        """


class StreamedCopies:
    """The copies of one topom.

    Args:
        choose: the way of a batch that begins, by what was found at its servers.

    Attributes:
        hidden_at: groups that may have counted their keys of a copy as hidden (**hidden**). If it did not switch, that
            is wrong until they are swept.
    """

    def __init__(self, copier: Copier, choose: Callable[[Batch, Findings], Choice]) -> None:
        self._copier = copier
        self._choose = choose
        self._copies: dict[Batch, tuple[str, Copy]] = {}
        self._void: dict[Batch, str] = {}
        self.hidden_at: set[int] = set()

    def id_for(self, batch: Batch, found: Findings) -> str:
        """The id of the copy by which a batch is to move that begins; empty if its keys move one by one. Its notes say
        why. Raises NoWay."""
        choice = self._choose(batch, found)
        if choice.way is not Way.STREAM and not found.reads_payloads:
            raise NoWay(
                "the target is of an older version and reads no payloads of the source, so it takes keys only by the "
                f"replication stream, as commands; that is not done: {choice.reason}",
                "see to that, or upgrade the target",
            )
        batch.notes = (*batch.notes, str(choice))
        log.info("way_chosen", slots=ranges.show(batch.slots), way=choice.way.value, reason=choice.reason)
        return secrets.token_hex(16) if choice.way is Way.STREAM else ""

    async def begin(self, batch: Batch, source: str, target: str, run_ids: tuple[str, str], id: str) -> None:
        """Begin a batch's copy, between the processes with these run ids; one that it had ends."""
        await self.leave(batch)
        place = Place(batch.gathering, batch, id)
        copy = self._copier.copy(source, target, run_ids, batch.slots, id, batch.progress, batch.replicas, place)
        self._copies[batch] = id, copy

    def of(self, batch: Batch) -> Copy | None:
        """The copy of a batch; None if it has none."""
        return self._copies.get(batch, ("", None))[1]

    def why_void(self, batch: Batch, actions: Collection[Action]) -> str:
        """Why a batch does not have the copy that its actions name, with the masters of its beginning; empty if it has,
        and if it neither has nor needs one."""
        id, _ = self._copies.get(batch, ("", None))
        if any(one.copy != id for one in actions):
            return self._void.get(batch) or "the topom that made their copy has ended"
        if id and not all(one.source_run_id and one.target_run_id for one in actions):
            return "a group has another master than their copy began with"
        return ""

    def keep_only_slots(self, batch: Batch) -> None:
        """The batch has lost slots, perhaps: they are copied no longer."""
        if (copy := self.of(batch)) is not None:
            copy.keep_only(batch.slots)

    async def leave(self, batch: Batch) -> None:
        """End a batch's copy, if it has one."""
        _, copy = self._copies.pop(batch, ("", None))
        self._void.pop(batch, None)
        if copy is not None:
            await copy.close()
        batch.progress.followed = ""

    async def nearly_level(self, batch: Batch) -> None:
        """Return once little is missing at the target. Whatever it raises, the copy is void."""
        _, copy = self._copies[batch]
        try:
            await copy.nearly_level()
        except OutOfTurn:
            raise  # it has not begun
        except Exception as error:
            self._lost(batch, error)
            raise

    async def confirm(self, target: str, actions: Collection[Action]) -> None:
        """Return once as many replicas of the target have all that it has as have to have the keys of these actions.

        Raises MigrationError; the copy goes on.
        """
        if replicas := max((action.min_replicas for action in actions), default=0):
            await self._copier.confirm(target, replicas)

    async def settle(self, batch: Batch, target: str, actions: Collection[Action], seconds: float) -> None:
        """Return once **level** holds for the batch's slots, which are locked, and :meth:`confirm` returns.

        The copy cannot go on after that. What follows is that the target becomes the owner, or that all begins anew.

        Whatever it raises, the copy is void: NotLevel if that takes longer than ``seconds``.
        """
        _, copy = self._copies[batch]
        self._copies[batch] = "", copy
        self.hidden_at.add(batch.source_id)
        # The followed server may stand still; what comes behind that is not its fault.
        late = NotLevel(
            f"the target was not level with the source within {seconds:g} s of the lock; the slots are unlocked, and "
            "it is tried again"
        )
        late.of_followed = True
        try:
            async with asyncio.timeout(seconds):
                await copy.settle(batch.slots)
                late = NotLevel(
                    f"target {target} was level with the source, but not as many of its replicas as "
                    f"migration_min_replicas says within {seconds:g} s of the lock; the slots are unlocked, and it is "
                    "tried again",
                    "look how far the replicas are behind",
                )
                await self.confirm(target, actions)
        except TimeoutError:
            self._lost(batch, late)
            raise late from None
        except Exception as error:
            self._lost(batch, error)
            raise

    def _lost(self, batch: Batch, error: Exception) -> None:
        """After an error that does not pass by itself, or several others, the batch goes on key by key."""
        batch.copies_lost += 1
        self._void[batch] = str(error)
        if isinstance(error, MigrationError | NotLevel) and error.of_followed:
            batch.avoided.add(batch.progress.followed)
        if isinstance(error, MigrationError | TopomError | OSError):
            what = error.what if isinstance(error, Explained) else str(error) or type(error).__name__
            passes = not isinstance(error, MigrationError) or error.passing
        else:
            # A fault in the program would come again, and each copy costs the source a snapshot.
            log.error("copy_broke", slots=ranges.show(batch.slots), exc_info=error)
            what, passes = f"the copy ended by a fault ({type(error).__name__}), of which topom's log says more", False
        if not passes or batch.copies_lost >= MOST_COPIES:
            batch.by_keys = what
            log.warning("copy_given_up", slots=ranges.show(batch.slots), reason=str(error))
