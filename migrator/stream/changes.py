"""What a command of the replication stream means for a copy. Pure rules; nothing is sent here.

A source sends the effects of its writes, one command each. Most of them do at the copy what they did at the source:
both have the same data. The others are of these kinds:

- Those that set a deadline are written in another way, so that a copy never expires by itself
  (:mod:`migrator.stream.deadlines`).
- Those that replace a key by what they find in another one come behind one that deletes it. If there is no other one, a
  server before Redis 6.2.6 does nothing, and a newer one deletes the key that it would replace.
- Those whose effect cannot be repeated from the copy alone make their keys *late*: what happens to such a key is not
  followed any more, and its value is read from the source within the lock, when nothing writes it.
- Those of which it is not known what they change end the copy: :class:`CannotFollow`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from migrator.errors import MigrationError
from slots.commands import CommandError, Route, UnknownCommandError, find, keys_of, table
from slots.keys import KeysError
from slots.kinds import Kind

IGNORED = frozenset({b"PING", b"REPLCONF", b"PUBLISH", b"SPUBLISH", b"SCRIPT", b"FUNCTION"})
"""They change no key."""

DELETING = frozenset({"DEL", "UNLINK"})
CARRYING = frozenset({"RENAME", "RENAMENX", "COPY"})
"""A key gets the deadline of another one."""
REPLACING = {"GEORADIUS": (0, -1), "GEORADIUSBYMEMBER": (0, -1), "GEOSEARCHSTORE": (1, 0), "ZRANGESTORE": (1, 0)}
"""A key is replaced by what is found in another one: where among the keys of the command the two stand, the other one
first."""
DEADLINES = frozenset({"SET", "SETEX", "PSETEX", "EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT", "RESTORE"})
"""They may set a deadline."""
LATE = frozenset(
    {
        # Deadlines of fields.
        *("HEXPIRE", "HPEXPIRE", "HEXPIREAT", "HPEXPIREAT", "HPERSIST"),
        # Servers send what came of these; how they are to be read otherwise is not known.
        *("GETEX", "SPOP", "XREADGROUP", "XAUTOCLAIM", "RESTORE-ASKING", "MIGRATE", "PFDEBUG"),
        # The order of a set, and keys that patterns name, may be others at the copy.
        "SORT",
        # Another database.
        "MOVE",
    }
)
PLAIN = frozenset(
    {
        *("APPEND", "BITFIELD", "BITOP", "DECR", "DECRBY", "GETDEL", "GETSET", "INCR", "INCRBY", "INCRBYFLOAT"),
        *("MSET", "MSETNX", "PERSIST", "PFADD", "PFCOUNT", "PFMERGE", "SETBIT", "SETNX", "SETRANGE"),
        *("BLMOVE", "BLMPOP", "BLPOP", "BRPOP", "BRPOPLPUSH", "LINSERT", "LMOVE", "LMPOP", "LPOP", "LPUSH", "LPUSHX"),
        *("LREM", "LSET", "LTRIM", "RPOP", "RPOPLPUSH", "RPUSH", "RPUSHX"),
        *("SADD", "SDIFFSTORE", "SINTERSTORE", "SMOVE", "SREM", "SUNIONSTORE"),
        *("BZMPOP", "BZPOPMAX", "BZPOPMIN", "GEOADD", "GEORADIUS", "GEORADIUSBYMEMBER", "GEOSEARCHSTORE"),
        *("ZADD", "ZDIFFSTORE", "ZINCRBY", "ZINTERSTORE", "ZMPOP", "ZPOPMAX", "ZPOPMIN", "ZRANGESTORE", "ZREM"),
        *("ZREMRANGEBYLEX", "ZREMRANGEBYRANK", "ZREMRANGEBYSCORE", "ZUNIONSTORE"),
        *("HDEL", "HINCRBY", "HINCRBYFLOAT", "HMSET", "HSET", "HSETNX"),
        *("XACK", "XADD", "XCLAIM", "XDEL", "XSETID", "XTRIM"),
        *("XGROUP|CREATE", "XGROUP|CREATECONSUMER", "XGROUP|DELCONSUMER", "XGROUP|DESTROY", "XGROUP|SETID"),
    }
)
"""On the same data they do the same, whenever they run."""

ALONE = frozenset(
    name.encode()
    for name in PLAIN
    if "|" not in name and not (row := table()[name]).keys and (row.first, row.last) == (1, 1)
)
"""Plain commands with one key, the second word."""

TRIMMING = frozenset({b"XADD", b"XTRIM"})

NEWER = frozenset({b"HGETDEL", b"HGETEX", b"HSETEX", b"MSETEX", b"XACKDEL", b"XDELEX"})
"""Commands of Redis 8 and Valkey 9 that the command table does not have. A server of Redis 8 sends HSETEX for each
HINCRBYFLOAT."""

EMPTYING = frozenset({b"FLUSHALL", b"FLUSHDB", b"SWAPDB"})
UNITS = {b"EX": 1000, b"PX": 1, b"EXAT": 1000, b"PXAT": 1}
"""Options of SET with a number, and how many milliseconds one of it is."""
COMPARING = frozenset({b"IFEQ", b"IFNE", b"IFDEQ", b"IFDNE"})
"""Options of SET with a value."""
FIELD_DEADLINES = frozenset({22, 23, 24, 25})
"""Types of payloads: hashes whose fields have deadlines."""


class CannotFollow(MigrationError):
    """The stream has a command after which it is not known what the copy has to be; the copy is given up."""

    kind = Kind.DATA
    passing = False


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be done at the target.

    Attributes:
        commands: to run there, in this order.
        deadline: the key that gets a deadline, and when that is, in milliseconds since 1970. None of the commands sets
            it.
        inexact: whether the deadline counts from when the command came, which may be long after the source ran it.
        carried: two keys, of which the second may have got the deadline of the first.
        late: databases and keys that become late. None of the commands is about them.
    """

    commands: tuple[list[bytes], ...] = ()
    deadline: tuple[bytes, int] | None = None
    inexact: bool = False
    carried: tuple[bytes, bytes] | None = None
    late: tuple[tuple[int, bytes], ...] = ()


NOTHING = Change()


def passes(argv: Sequence[bytes]) -> bool:
    """Whether a command has one key, the second word, and means just itself for a copy that follows this key. It is
    asked of most commands of a stream, and so it is cheap: :func:`change_of` says the same of them."""
    name = argv[0].upper()
    if name in TRIMMING and trims_at_most(argv):
        return False
    return name in ALONE or (name == b"SET" and len(argv) == 3) or (name in (b"DEL", b"UNLINK") and len(argv) == 2)


def change_of(
    argv: list[bytes],
    database: int,
    arrived_ms: int,
    moves: Callable[[int, bytes], bool],
    is_late: Callable[[int, bytes], bool],
) -> Change:
    """What a command of the stream means for one copy.

    Args:
        argv: the command, with its name.
        database: in which it ran.
        arrived_ms: when it came, in milliseconds since 1970. Servers before Redis 7 send how long a key lives, and not
            its deadline.
        moves: whether the copy has the slot of a key of a database.
        is_late: whether a key of a database is late.

    Raises:
        CannotFollow: it is not known what the command changes.
    """
    name = argv[0].upper()
    if name in IGNORED:
        return NOTHING
    if name in EMPTYING:
        raise CannotFollow(f"databases of the source were emptied or exchanged ({name.decode()})")
    if name in NEWER:
        return _newer(argv, name, database, moves, is_late)
    try:
        command = find(argv)
        keys = keys_of(command, argv)
    except (UnknownCommandError, CommandError, KeysError):
        raise _cannot(argv) from None
    if not keys or not (command.name in PLAIN or command.name in DEADLINES | DELETING | CARRYING | LATE):
        raise _cannot(argv)
    if command.name == "MOVE" or (command.name == "COPY" and len(argv) > 3):
        return Change(late=tuple(place for place in _everywhere(argv, database, keys) if moves(*place)))
    mine = [key for key in keys if moves(database, key)]
    if not mine:
        return NOTHING
    if command.route is Route.SPLIT:
        return _split(argv, command.name, command.step, lambda key: moves(database, key) and not is_late(database, key))
    if len(mine) < len(keys) or command.name in LATE or any(is_late(database, key) for key in mine):
        return Change(late=tuple((database, key) for key in mine))
    if command.name in DEADLINES:
        return _with_deadline(argv, command.name, database, arrived_ms)
    if name in TRIMMING and (at := trims_at_most(argv)):
        return Change(([*argv[:at], *argv[at + 2 :]],))
    if command.name in REPLACING:
        searched, replaced = (keys[place] for place in REPLACING[command.name])
        return Change((argv,) if searched == replaced else ([b"UNLINK", replaced], argv))
    return Change((argv,), carried=(keys[0], keys[1]) if command.name in CARRYING else None)


def end_of_options(argv: Sequence[bytes]) -> int:
    """Where the options of XADD end, behind which the entry's id stands, or those of XTRIM."""
    end = 2
    while end < len(argv) and argv[end][:1].isalpha():
        end += 1
        if argv[end - 1].upper() in (b"MAXLEN", b"MINID", b"LIMIT"):
            end += 2 if argv[end : end + 1] in ([b"="], [b"~"]) else 1
    return end


def trims_at_most(argv: Sequence[bytes]) -> int:
    """Where XADD or XTRIM has LIMIT; 0 if it does not.

    How much the source has trimmed stands in a stream without ``~``. LIMIT stays there beside it, which only replicas
    take and pass over.
    """
    if len(argv) < 7:
        return 0
    return next((at for at in range(2, end_of_options(argv)) if argv[at].upper() == b"LIMIT"), 0)


def _newer(
    argv: list[bytes],
    name: bytes,
    database: int,
    moves: Callable[[int, bytes], bool],
    is_late: Callable[[int, bytes], bool],
) -> Change:
    try:
        keys = argv[2 : 2 + 2 * int(argv[1]) : 2] if name == b"MSETEX" else [argv[1]]
        late = tuple((database, key) for key in keys if moves(database, key))
        if late and name == b"HSETEX" and not is_late(*late[0]) and (fields := _fields_without_deadlines(argv)):
            return Change(([b"HSET", argv[1], *fields],))
    except (ValueError, IndexError):
        raise _cannot(argv) from None
    return Change(late=late)


def _fields_without_deadlines(argv: list[bytes]) -> list[bytes]:
    """What HSETEX sets, if no field gets a deadline. No field has one: then the hash would be late. Raises
    ValueError."""
    options, place = [option.upper() for option in argv[2:5]], 2
    while options[place - 2] in (b"FNX", b"FXX", b"KEEPTTL"):
        place += 1
    if options[place - 2] != b"FIELDS":
        return []
    fields = argv[place + 2 :]
    if len(fields) != 2 * int(argv[place + 1]):
        raise ValueError
    return fields


def _split(argv: list[bytes], name: str, step: int, follows: Callable[[bytes], bool]) -> Change:
    """A command about each of its keys by itself: only the keys that are followed stay."""
    parts = [argv[place : place + step] for place in range(1, len(argv), step)]
    kept = [part for part in parts if follows(part[0])]
    return Change(([name.encode(), *(item for part in kept for item in part)],)) if kept else NOTHING


def _everywhere(argv: list[bytes], database: int, keys: Sequence[bytes]) -> tuple[tuple[int, bytes], ...]:
    """The keys in this database, and in the other one that the command names."""
    options = [option.upper() for option in argv[3:]]
    named = argv[2] if argv[0].upper() == b"MOVE" else argv[4 + options.index(b"DB")] if b"DB" in options else b""
    if named and not named.isdigit():
        raise _cannot(argv)
    databases = {database, int(named)} if named else {database}
    return tuple((one, key) for one in sorted(databases) for key in keys)


def _with_deadline(argv: list[bytes], name: str, database: int, arrived_ms: int) -> Change:
    """A command that may set a deadline, in which its options are not needed: it has run at the source."""
    key = argv[1]
    try:
        match name:
            case "SET":
                return _set(argv, arrived_ms)
            case "SETEX" | "PSETEX":
                milliseconds = int(argv[2]) * (1000 if name == "SETEX" else 1)
                return Change(([b"SET", key, argv[3]],), (key, arrived_ms + milliseconds), True)
            case "RESTORE":
                return _restore(argv, database, arrived_ms)
            case _:
                at = int(argv[2]) * (1 if name.startswith("P") else 1000)
                exact = name.endswith("AT")
                return Change(deadline=(key, at if exact else arrived_ms + at), inexact=not exact)
    except (ValueError, IndexError):
        raise _cannot(argv) from None


def _set(argv: list[bytes], arrived_ms: int) -> Change:
    kept: list[bytes] = []
    deadline = None
    inexact = False
    options = iter(argv[3:])
    for option in options:
        word = option.upper()
        if word in UNITS:
            at = int(next(options, b"")) * UNITS[word]
            inexact = not word.endswith(b"AT")
            deadline = (argv[1], arrived_ms + at if inexact else at)
        elif word == b"KEEPTTL":
            kept.append(word)
        elif word in COMPARING:
            if next(options, None) is None:
                raise _cannot(argv)
        elif word not in (b"NX", b"XX", b"GET"):
            raise _cannot(argv)
    return Change(([b"SET", argv[1], argv[2], *kept],), deadline, inexact)


def _restore(argv: list[bytes], database: int, arrived_ms: int) -> Change:
    _, key, lives, payload, *options = argv
    words = [option.upper() for option in options]
    if not payload or payload[0] in FIELD_DEADLINES:
        return Change(late=((database, key),))
    kept = [
        option
        for place, option in enumerate(options)
        if words[place] != b"ABSTTL" and words[place] != b"REPLACE" and option
    ]
    milliseconds = int(lives)
    command = [b"RESTORE", key, b"0", payload, b"REPLACE", *kept]
    if not milliseconds:
        return Change((command,))
    exact = b"ABSTTL" in words
    return Change((command,), (key, milliseconds if exact else arrived_ms + milliseconds), not exact)


def _cannot(argv: Sequence[bytes]) -> CannotFollow:
    name = argv[0][:64].decode("ascii", "replace").upper()
    return CannotFollow(
        f"the source runs {name}, and what that changes is not known well enough to follow it",
        "these slots move in another way",
    )
