"""The keys of the BY and GET patterns of SORT: for each element, the pattern with the element in place of the ``*``.

These keys are not known before the list has been read. But their slot is known if a pattern has a hash tag before its
``*``: then all its keys have that tag, for any elements. It is known, too, if a slot rule gives one slot to all keys
that begin as the pattern does. As Redis Cluster does since 7.4, SORT is served where the slot of every pattern is that
of the key that is sorted (**one-owner**).
"""

from __future__ import annotations

from collections.abc import Sequence

from slots.reserved import RESERVED
from slots.rules import SlotRule

ARGUMENTS = {b"LIMIT": 2, b"STORE": 1, b"BY": 1, b"GET": 1}
"""How many arguments each option takes; an option that is not named here takes none."""

Pattern = tuple[bytes, bytes]
"""The option, BY or GET, and its pattern."""


def patterns(argv: Sequence[bytes]) -> list[Pattern]:
    """The patterns of a SORT whose options are known to be consistent, in their order.

    BY without a ``*`` means not to sort. GET without one gives the element (``#``) or nothing. Neither names a key.
    """
    return [(option, pattern) for option, pattern in options(argv) if b"*" in pattern]


def options(argv: Sequence[bytes]) -> list[Pattern]:
    """The options BY and GET of a SORT whose options are known to be consistent, in their order."""
    return [(argv[place - 1].upper(), argv[place]) for place in _places(argv)]


def with_prefix(prefix: bytes, argv: Sequence[bytes]) -> list[bytes]:
    """A SORT whose options are known to be consistent, with a prefix before each of its patterns."""
    places = frozenset(place for place in _places(argv) if b"*" in argv[place])
    return [prefix + word if place in places else word for place, word in enumerate(argv)]


def _places(argv: Sequence[bytes]) -> list[int]:
    """Where the arguments of BY and GET are."""
    found: list[int] = []
    index = 2
    while index < len(argv):
        option = argv[index].upper()
        if option in (b"BY", b"GET"):
            found.append(index + 1)
        index += 1 + ARGUMENTS.get(option, 0)
    return found


def tag_is_fixed(pattern: bytes) -> bool:
    """Whether all keys of a pattern share a hash tag: the tag ends before the element's place, and is not empty."""
    before = pattern.partition(b"*")[0]
    begin = before.find(b"{")
    return begin >= 0 and before.find(b"}", begin + 1) > begin + 1


def may_have_several_slots(pattern: bytes, database: int, rules: Sequence[SlotRule]) -> bool:
    """Whether the keys of a pattern may have other slots than the pattern has itself.

    Keys of one pattern have the same beginning. A rule that begins otherwise matches none of them. A rule that asks
    for no more than a beginning matches all. Of any other rule it is not known before the list has been read.

    Slotferry's own keys have no slot that a client may use. So a pattern that may name them has several.
    """
    before = pattern.partition(b"*")[0]
    if RESERVED.startswith(before):
        return True
    for rule in rules:
        first = rule.literals[0]
        common = min(len(first), len(before))
        if rule.database not in (None, database) or first[:common] != before[:common]:
            continue
        if rule.literals[1:] != (b"",) or len(first) > len(before):
            return True
        # What is hashed is the rule's tag, or has to have one: all from the part's beginning on.
        return rule.part is not None and not tag_is_fixed(pattern[rule.part[1] :])
    return not tag_is_fixed(pattern)


def denial(option: bytes) -> str:
    """Redis Cluster's error for a pattern whose keys may be in several slots."""
    return (
        f"ERR {option.decode()} option of SORT denied in cluster mode when keys formed by the pattern may be in "
        "different slots."
    )
