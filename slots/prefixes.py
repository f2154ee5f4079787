"""The prefix of a user: which commands it may run, and where the prefix stands in requests.

Every key and channel that such a user names is sent with the prefix before it. :mod:`proxy.engine.prefixing` has the
frequent commands by itself. A command without keys may concern the whole database. So those that are harmless are
listed here, and those that are right for a prefix; any other is refused, also one that is new.
"""

import re
from collections.abc import Callable
from functools import cache, partial

from slots import commands, sorting
from slots.commands import Command, CommandError, KeysError, Route
from slots.reserved import RESERVED

FORM = re.compile(r"[A-Za-z0-9_.:/@#{}-]{1,64}")
"""A prefix has no character that means something in a pattern."""
HARMLESS = frozenset(
    {"ACL|CAT", "ACL|GENPASS", "ACL|WHOAMI", "AUTH", "CLIENT|CACHING", "CLIENT|GETNAME", "CLIENT|GETREDIR"}
    | {"CLIENT|ID", "CLIENT|INFO", "CLIENT|NO-TOUCH", "CLIENT|REPLY", "CLIENT|SETINFO", "CLIENT|SETNAME"}
    | {"CLIENT|TRACKING", "CLIENT|TRACKINGINFO", "COMMAND", "COMMAND|COUNT", "COMMAND|DOCS", "COMMAND|GETKEYS"}
    | {"COMMAND|GETKEYSANDFLAGS", "COMMAND|INFO", "COMMAND|LIST", "DISCARD", "ECHO", "EXEC", "HELLO", "INFO"}
    | {"LASTSAVE", "LOLWUT", "MULTI", "PING", "QUIT", "READONLY", "READWRITE", "RESET", "ROLE", "SCRIPT|EXISTS"}
    | {"SCRIPT|LOAD", "SELECT", "TIME", "UNWATCH", "WAIT", "WAITAOF"}
)
"""Commands without keys that show and change nothing of other users."""
NAME_FIRST = frozenset({"BLMPOP", "BLPOP", "BRPOP", "BZMPOP", "BZPOPMAX", "BZPOPMIN", "LMPOP", "ZMPOP"})
"""Commands whose reply begins with a key."""
NAME_STREAMS = frozenset({"XREAD", "XREADGROUP"})
"""Commands whose reply names streams."""
NAME_IN_ERROR = frozenset(
    {"XAUTOCLAIM", "XCLAIM", "XGROUP|CREATE", "XGROUP|CREATECONSUMER", "XGROUP|DELCONSUMER", "XGROUP|DESTROY"}
    | {"XGROUP|SETID", "XINFO|CONSUMERS", "XPENDING"}
)
"""Commands of which an error names a stream."""
NAMING = NAME_FIRST | NAME_STREAMS | NAME_IN_ERROR
_SHARED = "scripts and functions are shared by all users"
WHY = {
    "DBSIZE": "it counts the keys of all users; count your own with SCAN",
    "FLUSHALL": "it would delete the keys of all users; delete your own with SCAN and UNLINK",
    "FLUSHDB": "it would delete the keys of all users; delete your own with SCAN and UNLINK",
    "FUNCTION": _SHARED,
    "PUBSUB|NUMPAT": "it counts the patterns of all users",
    "RANDOMKEY": "it chooses from the keys of all users; choose from those that SCAN gives",
    "SCRIPT": _SHARED,
}
"""Why a command, or all of a container, is refused; if it is not among these, because it concerns all users."""
LEARNED = "only commands of Redis are known to keep to the prefix"

EVENTS = re.compile(rb"__key(?P<of>space|event)@[^_]*__:|__key\*__:(?=\*$)")
"""The beginning of a name, or of a pattern, of keyspace events; the second form hears all."""
LIKE_EVENTS = b"__key"
"""Other names that begin so are refused to a user with a prefix: it has no right to them."""

Change = Callable[[bytes, list[bytes]], list[bytes]]


def channel(prefix: bytes, name: bytes) -> bytes:
    """A channel to subscribe to, or a pattern of channels, with the prefix. In the name of the events of a key, it
    stands before the key. The events of one kind are all heard, and only those of the user's keys are passed on."""
    events = EVENTS.match(name)
    if events is None:
        return name if name.startswith(LIKE_EVENTS) else prefix + name
    return name[: events.end()] + prefix + name[events.end() :] if events["of"] == b"space" else name


def without(prefix: bytes, name: bytes) -> bytes:
    """A channel, or a pattern of channels, as its user named it."""
    events = EVENTS.match(name) if prefix else None
    if events is None:
        return name.removeprefix(prefix)
    return name[: events.end()] + name[events.end() :].removeprefix(prefix) if events["of"] == b"space" else name


def all_channels(prefix: bytes) -> tuple[bytes, ...]:
    """Patterns of all channels of a user with a prefix."""
    return (
        prefix + b"*",
        *(channel(prefix, name) for name in (b"__keyspace@*__:*", b"__keyevent@*__:*", b"__key*__:*")),
    )


def is_within(prefix: bytes, pattern: bytes) -> bool:
    """Whether a pattern of channels is one that :func:`channel` gives."""
    events = EVENTS.match(pattern)
    if events is None or events["of"] != b"space":
        return events is not None or pattern.startswith(prefix)
    return pattern.startswith(prefix, events.end())


def _names(change: Callable[[bytes, bytes], bytes], prefix: bytes, argv: list[bytes]) -> list[bytes]:
    return [argv[0], *(change(prefix, name) for name in argv[1:])]


def _scan(prefix: bytes, argv: list[bytes]) -> list[bytes]:
    patterns = [place for place in range(3, len(argv), 2) if argv[place - 1].upper() == b"MATCH"]
    changed = [prefix + word if place in patterns else word for place, word in enumerate(argv)]
    return changed if patterns or len(argv) % 2 else [*changed, b"MATCH", prefix + b"*"]


def _listed_channels(prefix: bytes, argv: list[bytes]) -> list[bytes]:
    return [*argv[:2], *(prefix + pattern for pattern in argv[2:] or [b"*"])]


def _asked_channels(prefix: bytes, argv: list[bytes]) -> list[bytes]:
    return [*argv[:2], *(prefix + name for name in argv[2:])]


CHANGES: dict[str, Change] = {
    "KEYS": partial(_names, bytes.__add__),
    "SCAN": _scan,
    **dict.fromkeys(("SUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE"), partial(_names, channel)),
    **dict.fromkeys(("PUBSUB|CHANNELS", "PUBSUB|SHARDCHANNELS"), _listed_channels),
    **dict.fromkeys(("PUBSUB|NUMSUB", "PUBSUB|SHARDNUMSUB"), _asked_channels),
}
"""How requests get the prefix that have none of the table's keys."""
CHANNELS = frozenset({"PUBLISH", "SPUBLISH", "SSUBSCRIBE", "SUNSUBSCRIBE"})
"""Commands whose channels the table has for keys."""


def changed(prefix: bytes, argv: list[bytes]) -> list[bytes]:
    """A request with the prefix before each key, channel and pattern that it names. A request that is not understood
    stays as it is; it is refused."""
    try:
        command = commands.find(argv)
        change = CHANGES.get(command.name)
        if change is not None:
            return change(prefix, argv)
        places = frozenset(commands.key_positions(command, argv))
    except (CommandError, KeysError):
        return argv
    if command.name in ("SORT", "SORT_RO"):
        argv = sorting.with_prefix(prefix, argv)
    return [prefix + word if place in places else word for place, word in enumerate(argv)]


@cache
def refused() -> frozenset[str]:
    """The commands of the table that no user with a prefix may run, beside those that nobody may."""
    return frozenset(row.name for row in commands.table().values() if not _is_right(row))


def _is_right(row: Command) -> bool:
    if row.route is Route.REFUSED or row.access:
        return True
    known = row.name in HARMLESS or row.name in CHANGES or row.name in CHANNELS
    return known or row.container or row.name.endswith("|HELP")


def refusal(command: Command) -> str | None:
    """Why no user with a prefix may run a command; None if some may."""
    if command.learned:
        return LEARNED
    if command.name not in refused():
        return None
    return WHY.get(command.name) or WHY.get(command.name.partition("|")[0], "it concerns all users")


def check(text: str) -> None:
    """Raise ValueError if a user cannot have this prefix."""
    if not FORM.fullmatch(text):
        raise ValueError("it consists of 1 to 64 letters, digits and characters of _.:/@#{}-")
    if text.startswith("__") or RESERVED.startswith(text.encode()):
        raise ValueError("names that begin so are Slotferry's own, or of keyspace events")
