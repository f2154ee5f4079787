"""The file in which a proxy keeps its last table, with the identity that the table was given to.

A proxy that starts while topom is away may serve by it (:mod:`proxy.supervisor.kept_table.coldstart` says when). These
rules make that safe:

1. **The identity is in the file.** A process that starts from it is the member that topom knows. When slots move, topom
   waits for this member, or fences it off the servers first. No barrier would care about a file without a member.
2. **Written before acknowledged.** An epoch is acknowledged only once the file has its table or a newer one, or there
   is no file. So topom's knowledge of this member is also true for the table in the file. A barrier of a newer epoch
   has passed without this member only after it was fenced (**drained**, **one-owner**).
3. **Gone before the proxy leaves.** A member that leaves is neither waited for nor fenced, so the file goes first.
4. **The rule is in the file** by which the proxy stands down while topom is silent, or a stricter rule than the one
   that topom relies on.
5. **The processes are in the file** of the servers that know of every fence of this identity, by topom's answers
   (:mod:`proxy.supervisor.standdown.evidence`). A server that was restarted since may have forgotten one. No time of
   day shows that.
6. **One at a time.** The process that uses the file holds a lock on the file beside it, and so do its workers. A worker
   of a former process could connect under the same identity. While one lives, no process starts from the file.

While a slot is about to be locked, or is locked, there is no file: to write one would make the lock last longer. There
is none while slot rules change, either: an earlier version would not read of that.
"""

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import structlog

from slots.formats import TABLE_FILE
from slots.messages.control import KnownTable, KnownUsers
from slots.messages.message import Product
from slots.slot import TableError
from slots.table import SlotTable

HEAD = "slotferry-table"
"""The beginning of the file; the number of its format follows, then the SHA-256 of all behind its first line."""
MOST_BYTES = 64 * 1024 * 1024

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Kept:
    """The content of the file."""

    instance: str
    product: Product
    table: SlotTable
    stand_down: float | None = None
    """The allowance from topom in seconds (:mod:`proxy.supervisor.standdown.standdown`); None for no rule."""
    processes: Mapping[str, str] = field(default_factory=dict)
    """By server, the run id of the process that cannot have forgotten a fence
    (:mod:`proxy.supervisor.standdown.evidence`).
    """
    known: KnownTable | None = None
    """Where the table came from."""
    users: KnownUsers | None = None
    """The users of topom (:mod:`proxy.supervisor.keptusers`)."""


class TableFile:
    """The file at ``path``, and the lock on it. Methods raise OSError where the file system does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[bytes] | None = None

    def lock(self) -> IO[bytes] | None:
        """Take the lock, for the life of this process and of those that inherit it; None if another has it."""
        file = self.path.with_name(self.path.name + ".lock").open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        self._lock = file
        return file

    def unlock(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def read(self) -> Kept | None:
        """The content of the file. None, with a log event, if it is damaged or of another format; None without one if
        there is no file."""
        try:
            with self.path.open("rb") as file:
                data = file.read(MOST_BYTES)
        except FileNotFoundError:
            return None
        head, _, body = data.partition(b"\n")
        words = head.decode(errors="replace").split(" ")
        if len(words) > 1 and words[0] == HEAD and words[1].isdecimal() and not TABLE_FILE.reads(int(words[1])):
            reason = f"{TABLE_FILE.refusal('the table file', words[1])}; it is not used, and topom gives a table"
            log.error("table_file_of_another_format", path=str(self.path), reason=reason)
            return None
        if head != _head(body):
            log.error("table_file_damaged", path=str(self.path), reason="its checksum is wrong; it is not used")
            return None
        try:
            return _from_wire(json.loads(body))
        except (KeyError, TypeError, ValueError) as error:
            log.error("table_file_damaged", path=str(self.path), reason=f"{error!r}; it is not used")
            return None

    def age(self) -> float:
        """Seconds since the table was last known to be topom's newest."""
        return time.time() - self.path.stat().st_mtime

    def write(self, kept: Kept) -> None:
        """Replace the file, all of it or nothing. When this returns, the new one survives a power failure."""
        body = json.dumps(
            {
                "instance": kept.instance,
                "product": kept.product.model_dump(),
                "table": kept.table.to_wire(),
                "stand_down": kept.stand_down,
                "processes": dict(kept.processes),
                "known": kept.known and kept.known.model_dump(),
                "users": kept.users and kept.users.model_dump(),
            },
            separators=(",", ":"),
        ).encode()
        new = self.path.with_name(self.path.name + ".new")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(_head(body) + b"\n" + body)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)
        self._sync_folder()

    def touch(self) -> None:
        """Record that the table in the file is the newest as of now."""
        os.utime(self.path)

    def remove(self) -> None:
        """Remove the file. When this returns, that survives a power failure."""
        self.path.unlink(missing_ok=True)
        self._sync_folder()

    def _sync_folder(self) -> None:
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _head(body: bytes) -> bytes:
    return f"{HEAD} {TABLE_FILE.number} {hashlib.sha256(body).hexdigest()}".encode()


def _from_wire(wire: Mapping[str, Any]) -> Kept:
    product = Product.model_validate(wire["product"])
    table = SlotTable.from_wire(wire["table"])
    if len(table.slots) != product.number_of_slots:
        raise TableError(f"it has {len(table.slots)} slots, the product has {product.number_of_slots}")
    rule = wire["stand_down"]
    processes = {str(server): str(process) for server, process in dict(wire["processes"]).items()}
    known = wire["known"] and KnownTable.model_validate(wire["known"])
    users = KnownUsers.model_validate(wire["users"]) if wire.get("users") else None  # earlier versions have none
    return Kept(
        str(wire["instance"]), product, table, None if rule is None else float(rule), processes, known or None, users
    )
