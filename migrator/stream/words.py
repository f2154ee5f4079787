"""What a target of an older version can be told. Pure rules, but for :func:`words_of`.

A server reads no payload of a newer format. So all values go there as commands, and commands of the stream in the words
that it knows. What cannot be said in them makes its keys late (:mod:`migrator.stream.changes`): their values are read
within the lock. What the target has no idea of, such as deadlines of fields, ends the copy. A word that is not known
here is refused by the target, and that voids the copy; no older server takes a newer word for another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from migrator.connection import Connection
from migrator.pieces.abilities import Abilities
from migrator.pieces.field_deadlines import no_deadlines
from migrator.stream.changes import UNITS, Change, end_of_options
from slots.commands import find, keys_of
from slots.scripts import load

FIELDS_EXPIRE = frozenset({b"HEXPIRE", b"HPEXPIRE", b"HEXPIREAT", b"HPEXPIREAT"})
BIT_OPERATIONS = frozenset({b"AND", b"OR", b"XOR", b"NOT"})
"""Those of BITOP that every server has."""
OF_GROUPS = frozenset({b"DELREF", b"ACKED"})
"""How XADD and XTRIM treat pending entries of what they delete, from Redis 8.2 on. KEEPREF is what they did before."""
CLAIM = load("claim_there")


@dataclass(frozen=True, slots=True)
class Words:
    """Those of one target.

    Attributes:
        target: how errors name it.
        abilities: the target's.
        commands: the names of its commands, in upper case.
    """

    target: str
    abilities: Abilities
    commands: frozenset[bytes]

    def change(self, change: Change, argv: Sequence[bytes], database: int) -> Change:
        """A change as this target can be told of it.

        Args:
            argv: the source's command.
            database: in which it ran.

        Raises:
            CannotBeCut: fields of a hash of the copy get deadlines, and the target has none.
        """
        if change.late and not self.abilities.field_deadlines and _fields_expire(argv):
            raise no_deadlines(change.late[0][1], self.target)
        said = []
        for command in change.commands:
            words = self.said(command)
            if words is None:
                return Change(late=tuple((database, key) for key in keys_of(find(command), command)))
            said.append(words)
        return replace(change, commands=tuple(said))

    def said(self, argv: list[bytes]) -> list[bytes] | None:
        """A command that does at this target what the given one did at the source; None if there is none."""
        name = argv[0].upper()
        if name not in self.commands:
            return None
        other = _OTHERWISE.get(name)
        return argv if other is None else other(self, argv)

    @property
    def deletes_references(self) -> bool:
        """Whether its streams know what becomes of pending entries that are deleted (Redis 8.2)."""
        return b"XDELEX" in self.commands


async def words_of(target: Connection, abilities: Abilities) -> Words:
    """Ask a target. Raises as :meth:`migrator.connection.Connection.call` does."""
    rows = await target.call("COMMAND")
    with target.understood("COMMAND"):
        names = frozenset(row[0].upper() for row in rows)
        if not all(isinstance(name, bytes) for name in names):
            raise TypeError("the name of a command is no text")
    return Words(f"target {target.address}", abilities, names)


def _fields_expire(argv: Sequence[bytes]) -> bool:
    """Whether fields of a hash get deadlines: also by HSETEX, whose options end with FIELDS."""
    name = argv[0].upper()
    options = takewhile(lambda word: word != b"FIELDS", (word.upper() for word in argv[2:]))
    return name in FIELDS_EXPIRE or (name == b"HSETEX" and not UNITS.keys().isdisjoint(options))


def _bit_operation(words: Words, argv: list[bytes]) -> list[bytes] | None:
    return argv if words.deletes_references or argv[1].upper() in BIT_OPERATIONS else None


def _within(words: Words, argv: list[bytes]) -> list[bytes] | None:
    """GEOSEARCHSTORE, which has polygons from Valkey 9 on."""
    return None if any(word.upper() == b"BYPOLYGON" for word in argv[3:]) else argv


def _added(words: Words, argv: list[bytes]) -> list[bytes] | None:
    """XADD, whose options end with the entry's id."""
    return _referring(words, argv, end_of_options(argv))


def _trimmed(words: Words, argv: list[bytes]) -> list[bytes] | None:
    return _referring(words, argv, len(argv))


def _referring(words: Words, argv: list[bytes], end: int) -> list[bytes] | None:
    """A command whose options stand before ``end``."""
    if words.deletes_references:
        return argv
    options = [word.upper() for word in argv[2:end]]
    if not OF_GROUPS.isdisjoint(options):
        return None
    kept = [word for word, option in zip(argv[2:end], options, strict=True) if option != b"KEEPREF"]
    return [*argv[:2], *kept, *argv[end:]]


def _last_id_set(words: Words, argv: list[bytes]) -> list[bytes] | None:
    """XSETID, behind which the counters stand."""
    return argv if words.abilities.counts_entries else argv[:3]


def _group_changed(words: Words, argv: list[bytes]) -> list[bytes] | None:
    """XGROUP, with what a group has read behind its id."""
    if argv[1].upper() not in (b"CREATE", b"SETID") or words.abilities.counts_entries:
        return argv
    options = [word.upper() for word in argv[5:]]
    if b"ENTRIESREAD" not in options:
        return argv
    at = 5 + options.index(b"ENTRIESREAD")
    return [*argv[:at], *argv[at + 2 :]]


def _claimed(words: Words, argv: list[bytes]) -> list[bytes] | None:
    """XCLAIM of one entry, as a stream has it. Redis 7.0 lets go of an entry that was deleted."""
    if words.abilities.counts_entries:
        return argv
    return [b"EVAL", CLAIM.text.encode(), b"1", argv[1], *argv[2:]]


def _restored(words: Words, argv: list[bytes]) -> list[bytes] | None:
    """RESTORE, of a payload that the target does not read."""
    return None


_OTHERWISE: dict[bytes, Callable[[Words, list[bytes]], list[bytes] | None]] = {
    b"BITOP": _bit_operation,
    b"GEOSEARCHSTORE": _within,
    b"RESTORE": _restored,
    b"XADD": _added,
    b"XCLAIM": _claimed,
    b"XGROUP": _group_changed,
    b"XSETID": _last_id_set,
    b"XTRIM": _trimmed,
}
"""Commands that have newer words, or mean something else at an older server."""
