"""What SUNION, ZINTERCARD and their like ask for.

Only what surely has a meaning is understood. For all else the server of a key says what is wrong with it, in its own
words: see :mod:`proxy.commands.sets.setcommands`.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from proxy.commands.arguments import integer
from slots import commands
from slots.commands import Command

_DECIMAL = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INFINITY = re.compile(rb"[+-]?inf(?:inity)?", re.IGNORECASE)
_ONLY_ZEROS = re.compile(rb"[+-]?[0.]+(?:[eE].*)?")
AGGREGATES = frozenset({b"SUM", b"MIN", b"MAX"})


@dataclass(slots=True)
class SetRequest:
    """One request, understood.

    ``weights`` has one for each key. ``limit`` is 0 where there is none.
    """

    operation: str
    """``UNION``, ``INTER`` or ``DIFF``."""
    is_sorted: bool
    """Whether it is about sorted sets: each key may have a set, too, whose scores are 1."""
    counts: bool
    """Whether the reply is the number of elements."""
    keys: list[bytes]
    weights: list[float] = field(default_factory=list)
    aggregate: bytes = b"SUM"
    with_scores: bool = False
    limit: int = 0


def understand(command: Command, argv: Sequence[bytes]) -> SetRequest | None:
    """What a request asks for; None if its options are not understood.

    Raises:
        KeysError: see :func:`slots.commands.keys_of`.
    """
    places = commands.key_positions(command, argv)
    is_sorted = command.name.startswith("Z")
    counts = command.name.endswith("CARD")
    name = command.name.removesuffix("CARD")
    asked = SetRequest(name[1:], is_sorted, counts, [argv[place] for place in places])
    asked.weights = [1.0] * len(places)
    options = argv[places[-1] + 1 :]
    return asked if _take_options(asked, options) else None


def _take_options(asked: SetRequest, options: Sequence[bytes]) -> bool:
    """Whether all options have a meaning. The last of several counts, as in Redis."""
    has_weights = asked.is_sorted and not asked.counts and asked.operation != "DIFF"
    index = 0
    while index < len(options):
        word = options[index].upper()
        left = len(options) - index - 1
        if word == b"WEIGHTS" and has_weights and left >= len(asked.keys):
            weights = [_weight(text) for text in options[index + 1 : index + 1 + len(asked.keys)]]
            known = [weight for weight in weights if weight is not None]
            if len(known) < len(weights):
                return False
            asked.weights = known
            index += 1 + len(weights)
        elif word == b"AGGREGATE" and has_weights and left:
            asked.aggregate = options[index + 1].upper()
            if asked.aggregate not in AGGREGATES:
                return False
            index += 2
        elif word == b"WITHSCORES" and asked.is_sorted and not asked.counts:
            asked.with_scores = True
            index += 1
        elif word == b"LIMIT" and asked.counts and left:
            limit = integer(options[index + 1])
            if limit is None or limit < 0:
                return False
            asked.limit = limit
            index += 2
        else:
            return False
    return True


def _weight(text: bytes) -> float | None:
    """A number as Redis reads it; None for what it refuses, and for what few write, such as hexadecimal digits."""
    if _INFINITY.fullmatch(text):
        return float(text)
    if not _DECIMAL.fullmatch(text):
        return None
    value = float(text)
    # What is too large or too small for a number is refused.
    return None if math.isinf(value) or (value == 0 and not _ONLY_ZEROS.fullmatch(text)) else value
