"""Which slot rule would give two keys one slot: said to whoever sends both in one request."""

from __future__ import annotations

import re

from slots.rules import MOST_BYTES, RuleError, SlotRule

_WORD = re.compile(rb"(.*[:./|_-])?[^:./|_-]+([:./|_-])", re.DOTALL)
"""Up to the last word that has a separator behind it: what stands before that word, and the separator."""
_SEPARATORS = (b":", b".", b"/", b"|", b"_", b"-")
_SPECIAL = re.compile(r"([*()\\])")


def helpful(one: bytes, other: bytes) -> SlotRule | None:
    """A rule that gives two keys one slot if it is the first to match them; None if their names suggest none.

    Of ``bull:mail:wait`` and ``bull:mail:id`` it is ``bull:(*):*``: such keys go by the last word that both begin with.
    If that is their first one, as of ``friends:1`` and ``friends:2``, ``friends:*`` gives all such keys one slot.
    """
    # A pattern is no longer than that.
    one, other = sorted((one[: MOST_BYTES + 1], other[: MOST_BYTES + 1]), key=len)
    same = next((place for place, byte in enumerate(one) if byte != other[place]), len(one))
    begin = one[:same]
    if one and begin == one and other[len(one) :].startswith(_SEPARATORS):
        return _rule(begin, "", b"")
    word = _WORD.match(begin)
    if word is None:
        return None
    before, separator = word.groups()
    return _rule(before, "(*)", separator) if before else _rule(word[0], "", b"")


def _rule(before: bytes, part: str, separator: bytes) -> SlotRule | None:
    try:
        literal = before.decode()
        pattern = _SPECIAL.sub(r"\\\1", literal) + part + separator.decode() + "*"
        return SlotRule(pattern) if literal.isprintable() else None
    except (UnicodeDecodeError, RuleError):
        return None
