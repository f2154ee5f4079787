"""Keeps the file with the proxy's last table up to date, and says what may be acknowledged
(:mod:`proxy.supervisor.kept_table.tablefile`).

Files are written in a thread: the supervisor's event loop has to send heartbeats while a disk is slow.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Literal

import structlog

from proxy.supervisor.kept_table.tablefile import Kept, TableFile
from slots.messages.control import KnownTable, KnownUsers
from slots.messages.message import Product
from slots.states import SlotState
from slots.table import SlotTable

RETRY_SECONDS = 1.0
LOCK_SECONDS = 3.0
"""How long the workers of a proxy that has just died may take to end."""
LOCK_RETRY_SECONDS = 0.05
EVERYTHING = sys.maxsize

log = structlog.get_logger()


def has_locks(table: SlotTable) -> bool:
    """Whether a slot is locked, or about to be, or the slot rules change."""
    return table.locks or any(
        slot.action is not None and slot.action.state is SlotState.PREPARING for slot in table.slots
    )


class TableKeeping:
    """Manages the file.

    Args:
        path: of the file; "" for none.
        changed: called when more may be acknowledged.
        refused: called with an epoch and the reason, when the file can be neither written nor removed for it.
    """

    def __init__(self, path: str, changed: Callable[[], None], refused: Callable[[int, str], None]) -> None:
        self._file = TableFile(Path(path)) if path else None
        self._changed = changed
        self._refused = refused
        self._instance = ""
        self._wanted: Kept | Literal["nothing"] | None = None  # "nothing": there has to be no file, see :meth:`over`
        self._working: asyncio.Task[None] | None = None
        self._removed = False
        self._stand_down: float | None = None
        self._processes: Mapping[str, str] = {}
        self._users: KnownUsers | None = None
        self._disk: Kept | None = None  # the content on the disk, while no write is under way
        self.covered = 0 if path else EVERYTHING
        """The newest epoch that may be acknowledged, by the content on the disk."""
        self.lock: IO[bytes] | None = None
        """The descriptors that workers have to inherit."""

    async def open(self) -> Kept | None:
        """Take the file, and give its content. If that fails, it is logged, and there is no file."""
        deadline = asyncio.get_running_loop().time() + LOCK_SECONDS
        if self._file is None:
            return None
        try:
            self.lock = self._file.lock()
            while self.lock is None and asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(LOCK_RETRY_SECONDS)
                self.lock = self._file.lock()
            if self.lock is not None:
                self._disk = self._file.read()
                return self._disk
            reason = "another proxy, or a worker of one that has just ended, uses it"
        except OSError as error:
            reason = str(error)
        log.error("table_file_not_used", path=str(self._file.path), reason=reason)
        self._file.unlock()
        self._file = self.lock = None
        self.covered = EVERYTHING
        return None

    def age(self) -> float:
        """Seconds since the table in the file was last known to be topom's newest. Raises OSError."""
        assert self._file is not None
        return self._file.age()

    def served(self, kept: Kept) -> None:
        """The proxy serves by the content of the file, under the identity there."""
        self._instance = kept.instance
        self._stand_down = kept.stand_down
        self._processes = kept.processes
        self._users = kept.users
        self.covered = kept.table.epoch

    def received(self, instance: str, product: Product, table: SlotTable, known: KnownTable | None = None) -> None:
        """A table came. It is written to the disk before it may be acknowledged."""
        if self._file is None or self._removed:
            return
        if instance != self._instance:
            # The content on the disk belongs to another member, and says nothing about this one's acknowledgements.
            self._instance = instance
            self._processes = {}
            self.covered = 0
        self._wanted = Kept(instance, product, table, self._stand_down, self._processes, known, self._users)
        if self._working is None:
            self._working = asyncio.create_task(self._work())

    def keeps_rule(self, stand_down: float | None) -> bool:
        """Have a rule kept with the table from now on; say whether the disk has no laxer one, for this identity."""
        self._stand_down = stand_down
        disk = self._disk
        if self._file is None or self._removed:
            return True
        if self._working is not None:
            return False
        if disk is None or disk.instance != self._instance:
            return True
        if disk.stand_down != stand_down:
            self.received(disk.instance, disk.product, disk.table, disk.known)
        return stand_down is None or (disk.stand_down is not None and disk.stand_down <= stand_down)

    def keeps_users(self, users: KnownUsers | None) -> None:
        """Have the users of topom kept with the table from now on."""
        self._users = users
        disk = self._disk
        if isinstance(self._wanted, Kept):
            self._wanted = replace(self._wanted, users=users)
        elif self._working is None and disk is not None and disk.instance == self._instance:
            self.received(disk.instance, disk.product, disk.table, disk.known)

    def has_users(self, users: KnownUsers | None) -> bool:
        """Whether no process can start from a file with users before these."""
        if self._file is None or self._removed:
            return True
        return self._working is None if self._disk is None else self._disk.users == users

    def over(self) -> None:
        """final-fence: the identity in the file has ended, and no process may start under it. A new one gets a new
        file."""
        if self._file is not None and not self._removed and self._instance:
            self._wanted = "nothing"
            if self._working is None:
                self._working = asyncio.create_task(self._work())

    def confirmed(self, instance: str, processes: Mapping[str, str]) -> None:
        """topom is there, and has no newer table than the one in the file.

        Args:
            processes: of servers that know of every fence of this ``instance``.
        """
        if self._disk is not None and self._file and self._working is None and 0 < self.covered < EVERYTHING:
            if instance == self._instance == self._disk.instance and processes != self._disk.processes:
                self._processes = dict(processes)
                self.received(instance, self._disk.product, self._disk.table, self._disk.known)
                return
            try:
                self._file.touch()
            except OSError as error:
                log.warning("table_file_not_touched", path=str(self._file.path), reason=str(error))

    async def remove(self) -> bool:
        """Remove the file; say whether that is certain. After this nothing is written."""
        if self._file is None:
            return True
        self._removed = True
        await self._stop()
        try:
            await asyncio.to_thread(self._file.remove)
        except OSError as error:
            log.error("table_file_not_removed", path=str(self._file.path), reason=str(error))
            return False
        self.covered = EVERYTHING
        return True

    async def close(self) -> None:
        """Write nothing more, and let other processes have the file."""
        await self._stop()
        if self._file is not None:
            self._file.unlock()

    async def _stop(self) -> None:
        self._wanted = None
        if self._working is not None:
            # A write under way must not end after the next step.
            await asyncio.gather(self._working, return_exceptions=True)

    async def _work(self) -> None:
        try:
            while (kept := self._wanted) is not None:
                if await self._put(kept) and self._wanted is kept:
                    self._wanted = None
        finally:
            self._working = None

    async def _put(self, kept: Kept | Literal["nothing"]) -> bool:
        """Bring the disk to this table; False if it has to be tried again."""
        assert self._file is not None
        if kept == "nothing":
            return await self._put_nothing()
        try:
            if not has_locks(kept.table):
                # Without a file, any epoch could be acknowledged; from now on this file may appear at any time.
                self.covered = min(self.covered, kept.table.epoch)
                await asyncio.to_thread(self._file.write, kept)
                covered = kept.table.epoch
                self._disk = kept
            elif self.covered == EVERYTHING:
                return True
            else:
                await asyncio.to_thread(self._file.remove)
                covered = EVERYTHING
                self._disk = None
        except OSError as error:
            log.error("table_not_kept", path=str(self._file.path), epoch=kept.table.epoch, reason=str(error))
            self._refused(kept.table.epoch, f"the proxy's table_file cannot be written: {error}")
            await asyncio.sleep(RETRY_SECONDS)
            return False
        if self._instance == kept.instance:
            self.covered = covered
            self._changed()
        return True

    async def _put_nothing(self) -> bool:
        assert self._file is not None
        try:
            await asyncio.to_thread(self._file.remove)
        except OSError as error:
            log.error("table_file_not_removed", path=str(self._file.path), reason=str(error))
            await asyncio.sleep(RETRY_SECONDS)
            return False
        self._disk = None
        return True
