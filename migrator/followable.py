"""Whether, and how, a source would let itself be followed, as far as it says so before anything is tried.

What a server does not tell, or tells as no server does, is None here: then it is tried, and slots that cannot be copied
by the stream move key by key. So nothing that a server answers raises here; only a lost connection does.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from migrator.connection import Connection
from migrator.errors import Refused

NEEDED = ("psync", "replconf")
"""The commands by which a source is followed."""
CATEGORIES = frozenset({"all", "admin", "dangerous", "slow"})
"""The categories of both commands in every version of the servers."""
LONGEST_DELAY_SECONDS = 86_400
MOST_RULES = 100_000
"""Characters of a user's rules that are read."""


@dataclass(frozen=True, slots=True)
class Followable:
    """What is known about following a source. None is not known.

    Attributes:
        permitted: whether our user may.
        delay_seconds: how long the source waits before it begins a snapshot.
        by_replica: whether there is a replica of the source that may be followed in its place, and would fork then.
            Whether it can be is seen when a copy begins.
        disk_bytes: free on the disk that keeps what the source sends.
        on_disk: whether the source writes its snapshots to its own disk before it sends them.
    """

    permitted: bool | None = None
    delay_seconds: float | None = None
    by_replica: bool = False
    disk_bytes: int | None = None
    on_disk: bool | None = None

    def with_replica(self) -> Followable:
        """What is known of a source if one of its replicas may be followed in its place. What the source lets our user
        do, and how long it waits, is not said of its replicas. If they refuse, the source is followed, so it is enough
        that it permits it, and that it has made snapshots for them in the same way."""
        return replace(self, permitted=self.permitted or None, delay_seconds=None, by_replica=True, on_disk=None)


async def followable_of(source: Connection) -> Followable:
    """Ask a source. Raises what :meth:`migrator.connection.Connection.call` does if the connection is lost."""
    delay, on_disk = await _snapshots(source)
    return Followable(await _permitted(source), delay, on_disk=on_disk)


def disk_of(folder: Path) -> int | None:
    """Bytes that are free where this folder is or would be made; None if that is not known."""
    try:
        there = next(one for one in (folder, *folder.absolute().parents) if one.exists())
        found = os.statvfs(there)
    except (OSError, StopIteration):
        return None
    return found.f_bavail * found.f_frsize


def may(rules: str, command: str, categories: Collection[str] = CATEGORIES) -> bool:
    """Whether a user with these rules may run a command, such as ``psync`` or ``client|kill``, by its categories; those
    of :data:`NEEDED` if none are given. The last rule about it counts."""
    allowed = False
    names = command, command.partition("|")[0]
    for rule in rules[:MOST_RULES].lower().split():
        sign, name = rule[0], rule[1:]
        if rule in ("allcommands", "nocommands"):
            allowed = rule == "allcommands"
        elif sign in "+-" and (name in names or (name.startswith("@") and name[1:] in categories)):
            allowed = sign == "+"
    return allowed


async def _permitted(source: Connection) -> bool | None:
    user = await _asked(source, "ACL", "WHOAMI")
    if not isinstance(user, bytes):
        return None
    about = _fields(await _asked(source, "ACL", "GETUSER", user))
    rules = about.get(b"commands")
    if isinstance(rules, bytes):
        if all(may(rules.decode(errors="replace"), command) for command in NEEDED):
            return True
        # Selectors are further rules, of which one may allow it.
        return None if about.get(b"selectors") else False
    dry_runs = [
        await _asked(source, "ACL", "DRYRUN", user, *one) for one in (("PSYNC", "?", "-1"), ("REPLCONF", "ACK", "0"))
    ]
    if all(isinstance(one, bytes) for one in dry_runs):
        return all(one == b"OK" for one in dry_runs)
    return None


async def _snapshots(source: Connection) -> tuple[float | None, bool | None]:
    """How long it waits before it makes one for a replica, and whether it writes it to its own disk."""
    about = _fields(await _asked(source, "CONFIG", "GET", "repl-diskless-sync*"))
    said = about.get(b"repl-diskless-sync")
    if said == b"no":
        return 0.0, True
    on_disk = False if said == b"yes" else None
    delay = about.get(b"repl-diskless-sync-delay")
    if isinstance(delay, bytes) and delay.isdigit() and len(delay) <= len(str(LONGEST_DELAY_SECONDS)):
        return float(min(int(delay), LONGEST_DELAY_SECONDS)), on_disk
    return None, on_disk


async def _asked(source: Connection, *command: str | bytes) -> object:
    """A reply; None for an error reply."""
    try:
        return await source.call(*command)
    except Refused:
        return None


def _fields(reply: object) -> dict[bytes, object]:
    """A list of names and values as a mapping; empty for anything else."""
    if not isinstance(reply, Iterable) or isinstance(reply, bytes | str):
        return {}
    listed = list(reply)
    return {name: value for name, value in zip(listed[::2], listed[1::2], strict=False) if isinstance(name, bytes)}
