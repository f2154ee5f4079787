"""Looks at keys: reads the wanted columns of all keys of one call, column by column.

One script at the server does it all: it scans, and looks at the keys it finds. So a call costs one round trip, and the
reply is one array for each column. Types and encodings come as numbers, because a reply of small integers is small and
fast to read. For users who may not run scripts there are pipelines, which give the same and cost more.

Only wanted columns are read. Nothing here counts as use of a key, except ``elements`` on servers before Redis 7.2 (HLEN
and similar); so ``idle_s`` is read before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import hiredis

from sizing.connection import Argument, Connection
from sizing.errors import CommandRefused, ServerFailed
from slots.scripts import LENGTH_COMMANDS, load

ASKED = ("type", "bytes", "ttl_ms", "encoding", "idle_s", "elements")
"""Columns that need a look at the server, in the order of the look."""
NAMES = {
    "type": tuple(LENGTH_COMMANDS),
    "encoding": (
        *("int", "embstr", "raw", "listpack", "quicklist", "hashtable", "intset", "skiplist", "stream", "ziplist"),
        *("listpackex",),
    ),
}
"""Names that are sent as their place in this list. A name that is not in it (a module's type) comes with the reply."""
DEFAULT_SAMPLES = 5
"""The default of MEMORY USAGE."""
_SCRIPT = load("size_keys", TYPES=NAMES["type"], ENCODINGS=NAMES["encoding"])
ABSENT_TTL = -2
KEYS_PER_PIPELINE = 1000
"""Commands that are sent before replies are read: fewer than would fill both sockets' buffers."""


@dataclass(slots=True)
class Found:
    """Keys that one call gave.

    Attributes:
        cursor: SCAN's next.
        keys: names.
        columns: for each column, a value for each key, or None. For columns in :data:`NAMES` it is a place in that
            list.
        more: for each column, further names, numbered on from the list in :data:`NAMES`.
    """

    cursor: int
    keys: list[bytes]
    columns: dict[str, list[Any]] = field(default_factory=dict)
    more: dict[str, list[str]] = field(default_factory=dict)

    def keep(self, places: Sequence[int]) -> None:
        """Keep only the keys at these places."""
        self.keys = [self.keys[place] for place in places]
        self.columns = {name: [values[place] for place in places] for name, values in self.columns.items()}

    def without(self, keys: Collection[bytes]) -> None:
        """Leave these keys out."""
        if not set(keys).isdisjoint(self.keys):
            self.keep([place for place, key in enumerate(self.keys) if key not in keys])

    def drop_vanished(self) -> None:
        """Leave out keys that were gone when they were looked at. Only for columns that show it."""
        columns = self.columns
        if "type" in columns and "none" in self.more.get("type", ()):
            none = len(NAMES["type"]) + self.more["type"].index("none")
            self.keep([place for place, kind in enumerate(columns["type"]) if kind != none])
        elif "bytes" in columns and None in columns["bytes"]:
            self.keep([place for place, size in enumerate(columns["bytes"]) if size is not None])
        elif "ttl_ms" in columns and ABSENT_TTL in columns["ttl_ms"]:
            self.keep([place for place, left in enumerate(columns["ttl_ms"]) if left != ABSENT_TTL])
        elif "encoding" in columns and None in columns["encoding"]:
            self.keep([place for place, name in enumerate(columns["encoding"]) if name is not None])


class ScriptsRefused(Exception):
    """The server runs no scripts for this user. ``reason`` is its own text."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Look(Protocol):
    """A way to scan and look. :meth:`receive` and :meth:`at` may raise ServerFailed and ScriptsRefused."""

    def ask(self, cursor: int, count: int) -> None:
        """Have the server scan on from a cursor, ``count`` keys or so, and look at what it finds."""

    def receive(self) -> Found:
        """The keys that the server found."""

    def at(self, keys: list[bytes]) -> Found:
        """Look at named keys; those that are gone are left out."""


class ScanLook:
    """For columns that need no look: only SCAN."""

    def __init__(self, connection: Connection, types: Sequence[str]) -> None:
        self._connection = connection
        self._options = scan_options(types)

    def ask(self, cursor: int, count: int) -> None:
        self._connection.send(("SCAN", cursor, "COUNT", count, *self._options))

    def receive(self) -> Found:
        try:
            cursor, keys = self._connection.receive()
        except CommandRefused as error:
            raise refused(self._connection, "SCAN", error) from None
        return Found(int(cursor), keys)

    def at(self, keys: list[bytes]) -> Found:
        return Found(0, keys)


class ScriptLook:
    """By a script. ``columns`` are some of :data:`ASKED`. ``types`` are the types to look at; all if empty."""

    def __init__(self, connection: Connection, columns: Collection[str], types: Sequence[str], samples: int) -> None:
        self._connection = connection
        self._columns = [column for column in ASKED if column in columns]
        self._scan_options = scan_options(types)
        sifted = () if self._scan_options else types
        sampled = "" if samples == DEFAULT_SAMPLES else samples
        self._wanted: tuple[Argument, ...] = (" ".join(self._columns), sampled, len(sifted), *sifted)
        self._asked: tuple[Argument, ...] = ()

    def ask(self, cursor: int, count: int) -> None:
        self._send("SCAN", cursor, "COUNT", count, *self._scan_options)

    def at(self, keys: list[bytes]) -> Found:
        self._send("KEYS", *keys)
        return self.receive()

    def _send(self, *way: Argument) -> None:
        self._asked = (0, *self._wanted, *way)
        self._connection.send(("EVALSHA", _SCRIPT.digest, *self._asked))

    def receive(self) -> Found:
        try:
            try:
                reply = self._connection.receive()
            except CommandRefused as error:
                if not error.text.startswith("NOSCRIPT"):
                    raise
                reply = self._connection.call("EVAL", _SCRIPT.text, *self._asked)
        except CommandRefused as error:
            if _is_forbidden(error.text):
                raise ScriptsRefused(error.text) from None
            raise refused(self._connection, "a script that looks at keys", error) from None
        found = Found(int(reply[0]), reply[1])
        rest = iter(reply[2:])
        for column in self._columns:
            found.columns[column] = next(rest)
            if column in NAMES:
                more = next(rest)
                if more:
                    found.more[column] = [name.decode(errors="replace") for name in more]
        found.drop_vanished()
        return found


class PipelineLook:
    """By pipelines of plain commands. ``columns`` and ``types`` are as in :class:`ScriptLook`."""

    def __init__(self, connection: Connection, columns: Collection[str], types: Sequence[str], samples: int) -> None:
        self._connection = connection
        self._columns = [column for column in ASKED if column in columns]
        self._types = () if scan_options(types) else types
        self._samples = () if samples == DEFAULT_SAMPLES else ("SAMPLES", samples)
        self._scan = ScanLook(connection, types)

    def ask(self, cursor: int, count: int) -> None:
        self._scan.ask(cursor, count)

    def receive(self) -> Found:
        scanned = self._scan.receive()
        found = self.at(scanned.keys)
        found.cursor = scanned.cursor
        return found

    def at(self, keys: list[bytes]) -> Found:
        found = Found(0, keys)
        by_type = bool(self._types)
        kinds: list[str] = []
        if by_type or not {"type", "elements"}.isdisjoint(self._columns):
            kinds = [kind.decode(errors="replace") for kind in self._each("TYPE", [("TYPE", key) for key in keys])]
            places = [
                place
                for place, kind in enumerate(kinds)
                if kind != "none" and (not by_type or kind in self._types)
            ]  # fmt: skip
            found.keys = keys = [keys[place] for place in places]
            kinds = [kinds[place] for place in places]
        for column in self._columns:
            found.columns[column] = self._column(found, column, kinds)
        found.drop_vanished()
        return found

    def _column(self, found: Found, column: str, kinds: list[str]) -> list[Any]:
        keys = found.keys
        if column == "type":
            return _coded(found, column, kinds)
        if column == "bytes":
            return self._each("MEMORY USAGE", [("MEMORY", "USAGE", key, *self._samples) for key in keys])
        if column == "ttl_ms":
            return self._each("PTTL", [("PTTL", key) for key in keys])
        if column == "idle_s":
            return self._each("OBJECT IDLETIME", [("OBJECT", "IDLETIME", key) for key in keys])
        if column == "encoding":
            said = self._each("OBJECT ENCODING", [("OBJECT", "ENCODING", key) for key in keys])
            return _coded(found, column, [name and name.decode(errors="replace") for name in said])
        asked = [(LENGTH_COMMANDS[kind], key) for kind, key in zip(kinds, keys, strict=True) if kind in LENGTH_COMMANDS]
        lengths = iter(self._each("a key's length", asked))
        return [next(lengths) if kind in LENGTH_COMMANDS else None for kind in kinds]

    def _each(self, what: str, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        """One reply for each command; None for an error, which means that the key is gone or that the server keeps no
        such value."""
        replies: list[Any] = []
        for first in range(0, len(commands), KEYS_PER_PIPELINE):
            part = commands[first : first + KEYS_PER_PIPELINE]
            self._connection.send(*part)
            said = [self._connection.receive_any() for _ in part]
            for reply in said:
                if isinstance(reply, hiredis.ReplyError) and _is_forbidden(str(reply)):
                    raise refused(self._connection, what, CommandRefused(str(reply)))
            replies.extend(None if isinstance(reply, hiredis.ReplyError) else reply for reply in said)
        return replies


def scan_options(types: Sequence[str]) -> tuple[Argument, ...]:
    """The options of SCAN for keys of these types only; none if SCAN cannot do it, so that keys have to be filtered.

    SCAN takes one type. For a module's type it is not certain that SCAN respects upper and lower case.
    """
    return ("TYPE", types[0]) if len(types) == 1 and types[0] in LENGTH_COMMANDS else ()


def refused(connection: Connection, what: str, error: CommandRefused) -> ServerFailed:
    """The exception for a refused command."""
    return ServerFailed(connection.server, f"refuses {what}: {error.text}")


def _is_forbidden(text: str) -> bool:
    return text.startswith("NOPERM") or "unknown command" in text or "ACL failure" in text or "can't run this" in text


def _coded(found: Found, column: str, names: Iterable[str | None]) -> list[int | None]:
    places = {name: place for place, name in enumerate(NAMES[column])}
    known = len(places)
    coded = [None if name is None else places.setdefault(name, len(places)) for name in names]
    if len(places) > known:
        found.more[column] = list(places)[known:]
    return coded
