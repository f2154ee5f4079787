"""The keys that the BY and GET patterns of SORT stand for: for each element, the pattern with it in place of the ``*``.

They are not known before the list has been read. What can be known is their slot, if a pattern has a hash tag before
its ``*``: then all its keys have that tag, whatever the elements are. As Redis Cluster does since 7.4, SORT is served
where the slot of every pattern is that of the key that is sorted (**one-owner**).
"""

from __future__ import annotations

from collections.abc import Sequence

ARGUMENTS = {b"LIMIT": 2, b"STORE": 1, b"BY": 1, b"GET": 1}
"""How many arguments an option takes; none where nothing is said."""

Pattern = tuple[bytes, bytes]
"""The option, BY or GET, and its pattern."""


def patterns(argv: Sequence[bytes]) -> list[Pattern]:
    """The patterns of a SORT whose options are known to hold together, in their order.

    BY without a ``*`` means not to sort, GET without one gives the element (``#``) or nothing: they name no key.
    """
    found: list[Pattern] = []
    index = 2
    while index < len(argv):
        option = argv[index].upper()
        if option in (b"BY", b"GET") and b"*" in argv[index + 1]:
            found.append((option, argv[index + 1]))
        index += 1 + ARGUMENTS.get(option, 0)
    return found


def tag_is_fixed(pattern: bytes) -> bool:
    """Whether all keys of a pattern share a hash tag: it ends before the element's place, and is not empty."""
    before = pattern.partition(b"*")[0]
    begin = before.find(b"{")
    return begin >= 0 and before.find(b"}", begin + 1) > begin + 1


def denial(option: bytes) -> str:
    """What Redis Cluster says to a pattern whose keys may be of several slots."""
    return (
        f"ERR {option.decode()} option of SORT denied in cluster mode when keys formed by the pattern may be in "
        "different slots."
    )
