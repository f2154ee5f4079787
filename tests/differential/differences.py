"""Where two replies may differ, and why. Everywhere else they are equal byte for byte.

There are three reasons. The order depends on Redis's hash tables, which every server seeds at random (compared
without order). The command chooses at random (compared in type and number). The reply has a time, an address, the
number of a client or an amount of memory (compared in type). While slots move, a key's encoding may differ, too.
"""

from collections import Counter
from collections.abc import Callable
from itertools import groupby

from tests.differential.wire import Node, decode

Command = tuple[bytes, ...]
Same = Callable[[Command, Node, Node], bool]

CLOCK_SLACK = 3000
"""Milliseconds that may lie between the two sides' clocks being read, and between a key's leaving and arriving."""


def _kinds(node: Node) -> object:
    """A value without what it says: types and lengths."""
    if node.items:
        return (node.kind, tuple(map(_kinds, node.items)))
    return node.kind, node.held is None


def any_order(command: Command, ours: Node, theirs: Node) -> bool:
    """The same elements, in any order."""
    return ours.kind == theirs.kind and Counter(ours.items) == Counter(theirs.items)


def _pairs(node: Node) -> Counter[tuple[Node, ...]]:
    return Counter(zip(node.items[::2], node.items[1::2], strict=True))


def pairs_any_order(command: Command, ours: Node, theirs: Node) -> bool:
    """The same pairs of a name and a value, in any order."""
    if len(ours.items) % 2 or len(theirs.items) % 2:
        return False
    return ours.kind == theirs.kind and _pairs(ours) == _pairs(theirs)


def scanned(command: Command, ours: Node, theirs: Node) -> bool:
    """For a walk over one key: cursor and elements of one step, which for a small key are all."""
    if len(ours.items) != 2 or len(theirs.items) != 2:
        return False
    small = ours.items[0] == theirs.items[0] and ours.items[0].text == b"0"
    same = any_order if command[0].upper() == b"SSCAN" else pairs_any_order
    # Those of a large key are walked over as a whole elsewhere.
    return same(command, ours.items[1], theirs.items[1]) if small else ours.kind == theirs.kind


def by_chance(command: Command, ours: Node, theirs: Node) -> bool:
    """As many elements, of the same types."""
    return _kinds(ours) == _kinds(theirs)


def some_time(command: Command, ours: Node, theirs: Node) -> bool:
    """A number of (milli)seconds that is about the same."""
    if ours.kind != theirs.kind or ours.kind != ":":
        return False
    one, other = int(ours.text), int(theirs.text)
    return (one < 0) == (other < 0) and abs(one - other) <= CLOCK_SLACK


def same_kind(command: Command, ours: Node, theirs: Node) -> bool:
    """A value of the same type: both null or both not null, and both errors or both not errors."""
    return ours.kind == theirs.kind and (ours.held is None) == (theirs.held is None) and ours.kind != "-"


def without(*names: bytes) -> Same:
    """The same fields; the values of these only have to be of the same type."""

    def same(command: Command, ours: Node, theirs: Node) -> bool:
        if ours.kind != theirs.kind or len(ours.items) != len(theirs.items):
            return False
        if not ours.items:
            return ours == theirs
        before = b""
        for one, other in zip(ours.items, theirs.items, strict=True):
            if before in names and one.kind == other.kind and not one.items:
                continue
            before = one.text
            if not same(command, one, other):
                return False
        return True

    return same


def pending_entries(command: Command, ours: Node, theirs: Node) -> bool:
    """XPENDING with a range: all but the milliseconds each entry has been waiting."""
    if len(ours.items) != len(theirs.items) or len(command) == 3:
        return False
    return all(
        len(one.items) == len(other.items) == 4 and one.items[:2] + one.items[3:] == other.items[:2] + other.items[3:]
        for one, other in zip(ours.items, theirs.items, strict=True)
    )


def some_receivers(command: Command, ours: Node, theirs: Node) -> bool:
    """PUBLISH counts the connections to the server that have subscribed, and the clients of a worker share one. With
    ``publish_counts_clients``, it does so within EXEC."""
    return ours.kind == theirs.kind == ":" and (int(ours.text) > 0) == (int(theirs.text) > 0)


def unsorted(command: Command, ours: Node, theirs: Node) -> bool:
    """SORT by nothing gives a set's members in the order of its hash table."""
    return b"NOSORT" in [word.upper() for word in command] and any_order(command, ours, theirs)


def documented(command: Command, ours: Node, theirs: Node) -> bool:
    """COMMAND INFO and the like: their elements' flags and categories are sets."""
    return Counter(_unordered(ours).items()) == Counter(_unordered(theirs).items())


def _unordered(node: Node) -> Counter[object]:
    return Counter(frozenset(_unordered(item).items()) if item.items else item for item in node.items)


def in_redis_order(values: list[bytes]) -> list[bytes]:
    """Messages and confirmations, those sorted that Redis takes from a hash table: patterns, channels that are left."""
    found: list[bytes] = []
    for kind, group in groupby(values, key=_told_together):
        same = list(group)
        if isinstance(kind, bytes):
            # What is left goes by chance; how many are left then does not.
            counts = [value[value.rindex(b":") :] for value in same]
            names = sorted(value[: value.rindex(b":")] for value in same)
            found += [name + count for name, count in zip(names, counts, strict=True)]
        else:
            found += sorted(same) if kind else same
    return found


def _told_together(value: bytes) -> object:
    """The common part of values that Redis sends in any order; None for all others."""
    items = decode(value).items
    kind = items[0].text if items else b""
    if kind in (b"unsubscribe", b"punsubscribe", b"sunsubscribe"):
        return kind
    return items[2:] if kind == b"pmessage" else ()


COUNTING = ("PUBLISH", "SPUBLISH")
ALLOWED: dict[str, Same] = {
    # Order of a hash table.
    **dict.fromkeys(("SMEMBERS", "SINTER", "SUNION", "SDIFF", "HKEYS", "HVALS", "KEYS", "SPOP"), any_order),
    **dict.fromkeys(("HGETALL", "CONFIG|GET"), pairs_any_order),
    **dict.fromkeys(("HSCAN", "SSCAN", "ZSCAN"), scanned),
    **dict.fromkeys(("SORT", "SORT_RO"), unsorted),
    "PUBSUB|CHANNELS": any_order,
    "PUBSUB|SHARDCHANNELS": any_order,
    **dict.fromkeys(("COMMAND", "COMMAND|INFO"), documented),
    "FUNCTION|LIST": documented,
    "COMMAND|LIST": any_order,
    # Chance.
    **dict.fromkeys(("SRANDMEMBER", "HRANDFIELD", "ZRANDMEMBER", "RANDOMKEY"), by_chance),
    # Time, addresses, numbers of clients, memory.
    **dict.fromkeys(("TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"), some_time),
    **dict.fromkeys(("TIME", "DUMP", "CLIENT|ID", "CLIENT|INFO", "CLIENT|LIST", "INFO", "MEMORY|USAGE"), same_kind),
    "OBJECT|IDLETIME": same_kind,
    **dict.fromkeys(COUNTING, some_receivers),
    "HELLO": without(b"id"),
    "XINFO|STREAM": without(b"radix-tree-keys", b"radix-tree-nodes"),
    "XINFO|CONSUMERS": without(b"idle", b"inactive"),
    "XPENDING": pending_entries,
}
WHILE_SLOTS_MOVE: dict[str, Same] = {
    # A key that was moved is stored as one that was just loaded.
    "OBJECT|ENCODING": same_kind,
    "OBJECT|REFCOUNT": same_kind,
}


def name_of(command: Command) -> str:
    """The command's name, with the subcommand's where one of the rules is for that."""
    name = command[0].decode(errors="replace").upper()
    if len(command) > 1:
        with_subcommand = f"{name}|{command[1].decode(errors='replace').upper()}"
        if with_subcommand in ALLOWED or with_subcommand in WHILE_SLOTS_MOVE:
            return with_subcommand
    return name


def same_reply(
    command: Command,
    ours: bytes,
    theirs: bytes,
    moving: bool,
    queued: tuple[Command, ...] = (),
    counted: bool = False,
) -> bool:
    """Whether the proxy's reply to a command will do, given Redis's.

    Args:
        queued: of EXEC, the commands whose replies it gives.
        counted: whether PUBLISH counts clients, outside of EXEC.
    """
    if counted and name_of(command) in COUNTING:
        return ours == theirs
    return ours == theirs or _same(command, decode(ours), decode(theirs), moving, queued)


def _same(command: Command, ours: Node, theirs: Node, moving: bool, queued: tuple[Command, ...]) -> bool:
    if ours == theirs:
        return True
    name = name_of(command)
    if name == "EXEC" and len(ours.items) == len(theirs.items) == len(queued):
        both = zip(queued, ours.items, theirs.items, strict=True)
        return all(_same(inner, one, other, moving, ()) for inner, one, other in both)
    rule = ALLOWED.get(name) or (WHILE_SLOTS_MOVE.get(name) if moving else None)
    return rule is not None and rule(command, ours, theirs)
