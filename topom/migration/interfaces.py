"""What the steps of a batch need of the migrator, and of those who watch them."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from migrator.checks import Findings, Watch
from migrator.progress import Progress
from migrator.sweep import Swept, Warrant
from slots.beginning import Beginning
from topom.cluster.state import MigrationSettings
from topom.migration.choosing import Looker
from topom.migration.streamed import Copier

Observer = Callable[[str], Awaitable[None]]
"""Is called with the name of each step of a batch, before the next one. The batch handles what it raises."""
Sweep = Callable[[int], Awaitable[None]]
"""Returns once a group's master is swept (:mod:`topom.migration.sweeping`). Raises MigrationError and TopomError."""


class Mover(Copier, Looker, Protocol):
    """What is needed of the migrator."""

    async def check(self, source: str | None, target: str, share: float) -> Findings:
        """See whether the target can take ``share`` of the source's keys, and touch no slot. ``source`` is None if
        there are no keys.

        Raises :class:`~migrator.errors.MigrationError`.
        """

    def watch(self, source: str | None, target: str) -> AbstractAsyncContextManager[Watch]:
        """Which processes these servers are now, and whether they stay so (None: there is no source).

        Entering raises :class:`~migrator.errors.MigrationError`.
        """

    async def move(
        self,
        source: str,
        target: str,
        slots: Sequence[int],
        progress: Progress,
        beginning: Beginning,
        require: Callable[[], None],
    ) -> None:
        """Move every key of ``slots`` between these masters; return once **complete** holds. May be cancelled.

        ``beginning`` is the one of :class:`slots.slot.Action`. ``require`` is called right before keys are dropped at
        the source, and what it raises ends the move.
        """

    async def withdraw(self, source: str | None, target: str | None) -> None:
        """Return once nothing that any mover took from the source can still be placed at the target, or dropped.

        If the source is None, something may still be dropped there; if the target is, placed.

        Called while no migrator and no proxy moves keys this way, except proxies that do so for skipped slots; these
        get themselves another permit. Raises :class:`~migrator.errors.MigrationError`.
        """

    async def sweep(self, server: str, data: str, warrant: Warrant) -> Swept:
        """Return once a server has no keys of slots that it does not own, and its data is known by this id.

        Raises :class:`~migrator.errors.MigrationError`, and what ``warrant`` raises.
        """

    async def stop_sweeping(self, server: str) -> None:
        """Return once no earlier sweep can delete anything there. Raises MigrationError."""

    def set_pace(self, settings: MigrationSettings) -> None:
        """Let these settings hold from now on."""
