"""What a target of another version can be told. Pure rules, but for :func:`words_of`.

Commands of the stream go there in the words that it knows. What cannot be said in them makes its keys late
(:mod:`migrator.stream.changes`): their values are read within the lock. What the target has no idea of, such as
deadlines of fields, ends the copy. A word that is not known here is refused by the target, and that voids the copy; no
older server takes a newer word for another one.

A server reads no payload of a newer format. So all values, too, go to such a target as commands. That says nothing of
its words: Redis 7.4, 8.0 and 8.2 have one format.

Redis 7.0 lets go of a pending entry that was deleted when it is claimed. Before, it stays pending. Where the source is
on one side of that and the target on the other, a script claims as the source did. An entry that has to stay pending
without being there cannot be claimed at all: the script says so, and its key becomes late
(:meth:`migrator.stream.copying.Copy.write`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from migrator.connection import Connection
from migrator.pieces.abilities import Abilities, counts_entries
from migrator.pieces.field_deadlines import no_deadlines
from migrator.stream.changes import UNITS, Change, end_of_options
from migrator.trial import reads_payloads
from slots.commands import find, keys_of
from slots.scripts import load

FIELDS_EXPIRE = frozenset({b"HEXPIRE", b"HPEXPIRE", b"HEXPIREAT", b"HPEXPIREAT"})
BIT_OPERATIONS = frozenset({b"AND", b"OR", b"XOR", b"NOT"})
"""Those of BITOP that every server has."""
OF_GROUPS = frozenset({b"DELREF", b"ACKED"})
"""How XADD and XTRIM treat pending entries of what they delete, from Redis 8.2 on. KEEPREF is what they did before."""
OF_6_2 = {
    b"GEOADD": frozenset({b"NX", b"XX", b"CH"}),
    b"XADD": frozenset({b"NOMKSTREAM", b"MINID"}),
    b"XTRIM": frozenset({b"MINID"}),
    b"ZADD": frozenset({b"GT", b"LT"}),
}
"""Options that Redis 6.2 brought; before it, the server refuses them."""
CONDITIONS = frozenset({b"NX", b"XX", b"GT", b"LT", b"CH", b"INCR"})
"""The options of ZADD, and of GEOADD, which stand behind the key."""
CLAIM = load("claim_there")
CLAIM_KEPT = load("claim_kept")
GONE = b"gone"
"""The reply of :data:`CLAIM_KEPT` if only the source knows what the key has to be."""


@dataclass(frozen=True, slots=True)
class Words:
    """Those of one target.

    Attributes:
        target: how errors name it.
        abilities: the target's.
        commands: the names of its commands, in upper case.
        payloads: whether it reads the source's payloads.
        counts_entries: as of :class:`Abilities`, of the source.
    """

    target: str
    abilities: Abilities
    commands: frozenset[bytes]
    payloads: bool = False
    counts_entries: bool = True

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
        same = all(words is command for words, command in zip(said, change.commands, strict=True))
        return change if same else replace(change, commands=tuple(said))

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

    @property
    def is_of_6_2(self) -> bool:
        """Whether it knows the options that Redis 6.2 brought."""
        return self.abilities.makes_consumers


def key_in_doubt(command: Sequence[bytes]) -> bytes | None:
    """The key of a command whose reply may be :data:`GONE`; None for any other command."""
    return command[3] if command[0] == b"EVAL" and command[1] == _CLAIM_KEPT else None


async def words_of(source: Connection, target: Connection, abilities: Abilities) -> Words:
    """Ask both servers, and try a key.

    Args:
        abilities: the target's.

    Raises:
        MigrationError: as :func:`migrator.trial.try_a_key`, but for a target that reads no payloads of the source.
    """
    payloads = await reads_payloads(source, target)
    rows = await target.call("COMMAND")
    with target.understood("COMMAND"):
        names = frozenset(row[0].upper() for row in rows)
        if not all(isinstance(name, bytes) for name in names):
            raise TypeError("the name of a command is no text")
    return Words(f"target {target.address}", abilities, names, payloads, await counts_entries(source))


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


def _under_conditions(words: Words, argv: list[bytes]) -> list[bytes] | None:
    """ZADD and GEOADD."""
    if words.is_of_6_2:
        return argv
    options = takewhile(CONDITIONS.__contains__, (word.upper() for word in argv[2:]))
    return argv if OF_6_2[argv[0].upper()].isdisjoint(options) else None


def _popped(words: Words, argv: list[bytes]) -> list[bytes] | None:
    """LPOP and RPOP, of several elements from Redis 6.2 on."""
    if words.is_of_6_2 or len(argv) != 3 or not argv[2].isdigit():
        return argv
    left = [argv[2], b"-1"] if argv[0].upper() == b"LPOP" else [b"0", b"%d" % -(int(argv[2]) + 1)]
    return [b"LTRIM", argv[1], *left]


def _set(words: Words, argv: list[bytes]) -> list[bytes] | None:
    """SET, which keeps deadlines from Redis 6.0 on, as ACL came."""
    return argv if len(argv) == 3 or b"ACL" in words.commands else None


def _added(words: Words, argv: list[bytes]) -> list[bytes] | None:
    """XADD, whose options end with the entry's id."""
    return _of_streams(words, argv, end_of_options(argv))


def _trimmed(words: Words, argv: list[bytes]) -> list[bytes] | None:
    return _of_streams(words, argv, len(argv))


def _of_streams(words: Words, argv: list[bytes], end: int) -> list[bytes] | None:
    """A command whose options stand before ``end``."""
    if words.deletes_references:
        return argv
    options = [word.upper() for word in argv[2:end]]
    if not OF_GROUPS.isdisjoint(options) or not (words.is_of_6_2 or OF_6_2[argv[0].upper()].isdisjoint(options)):
        return None
    kept = [word for word, option in zip(argv[2:end], options, strict=True) if option != b"KEEPREF"]
    return [*argv[:2], *kept, *argv[end:]]


def _last_id_set(words: Words, argv: list[bytes]) -> list[bytes] | None:
    """XSETID, behind which the counters stand."""
    return argv if words.abilities.counts_entries else argv[:3]


def _group_changed(words: Words, argv: list[bytes]) -> list[bytes] | None:
    """XGROUP, with what a group has read behind its id. It makes consumers from Redis 6.2 on."""
    if argv[1].upper() == b"CREATECONSUMER":
        return argv if words.abilities.makes_consumers else None
    if argv[1].upper() not in (b"CREATE", b"SETID") or words.abilities.counts_entries:
        return argv
    options = [word.upper() for word in argv[5:]]
    if b"ENTRIESREAD" not in options:
        return argv
    at = 5 + options.index(b"ENTRIESREAD")
    return [*argv[:at], *argv[at + 2 :]]


def _claimed(words: Words, argv: list[bytes]) -> list[bytes] | None:
    """XCLAIM of one entry, as a stream has it. Redis 7.0, which counts entries, lets go of one that was deleted."""
    if words.abilities.counts_entries == words.counts_entries:
        return argv
    return [b"EVAL", _CLAIM_KEPT if words.abilities.counts_entries else _CLAIM, b"1", *argv[1:]]


def _restored(words: Words, argv: list[bytes]) -> list[bytes] | None:
    return argv if words.payloads else None


_CLAIM, _CLAIM_KEPT = CLAIM.text.encode(), CLAIM_KEPT.text.encode()
_OTHERWISE: dict[bytes, Callable[[Words, list[bytes]], list[bytes] | None]] = {
    b"BITOP": _bit_operation,
    b"GEOADD": _under_conditions,
    b"GEOSEARCHSTORE": _within,
    b"LPOP": _popped,
    b"RESTORE": _restored,
    b"RPOP": _popped,
    b"SET": _set,
    b"XADD": _added,
    b"XCLAIM": _claimed,
    b"XGROUP": _group_changed,
    b"XSETID": _last_id_set,
    b"XTRIM": _trimmed,
    b"ZADD": _under_conditions,
}
"""Commands that have newer words, or mean something else at an older server."""
