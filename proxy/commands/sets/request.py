"""What SUNION, ZINTERCARD, ZUNIONSTORE and their like ask for.

Only what surely has a meaning is understood. What is wrong with all else, a key's server says in its own words if the
command reads: see :mod:`proxy.commands.sets.setcommands`. Of a command that stores, the error is given here, for if it
had a meaning to a server, it would write there.
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
SYNTAX = "ERR syntax error"
NO_WEIGHT = "ERR weight value is not a float"


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
    destination: bytes | None = None
    """The key that gets the elements, if there is one."""


def understand(command: Command, argv: Sequence[bytes]) -> SetRequest | str:
    """What a request asks for; an error in Redis's words if its options are not understood.

    Raises:
        KeysError: see :func:`slots.commands.keys_of`.
    """
    places = commands.key_positions(command, argv)
    keys = [argv[place] for place in places]
    is_sorted = command.name.startswith("Z")
    counts = command.name.endswith("CARD")
    name = command.name.removesuffix("CARD").removesuffix("STORE")
    asked = SetRequest(name[1:], is_sorted, counts, keys)
    if command.stored:
        asked.destination, *asked.keys = keys
    asked.weights = [1.0] * len(asked.keys)
    wrong = _take_options(asked, argv[places[-1] + 1 :])
    return asked if wrong is None else wrong


def sources(command: Command, keys: list[bytes]) -> list[bytes]:
    """Those of a request's keys that are read: one that stores names the key that it writes first."""
    return keys[1:] if command.stored else keys


def _take_options(asked: SetRequest, options: Sequence[bytes]) -> str | None:
    """What is wrong with the options; None if all have a meaning. The last of several counts, as in Redis."""
    has_weights = asked.is_sorted and not asked.counts and asked.operation != "DIFF"
    has_scores = asked.is_sorted and not asked.counts and asked.destination is None
    index = 0
    while index < len(options):
        word = options[index].upper()
        left = len(options) - index - 1
        if word == b"WEIGHTS" and has_weights and left >= len(asked.keys):
            weights = [_weight(text) for text in options[index + 1 : index + 1 + len(asked.keys)]]
            known = [weight for weight in weights if weight is not None]
            if len(known) < len(weights):
                return NO_WEIGHT
            asked.weights = known
            index += 1 + len(weights)
        elif word == b"AGGREGATE" and has_weights and left:
            asked.aggregate = options[index + 1].upper()
            if asked.aggregate not in AGGREGATES:
                return SYNTAX
            index += 2
        elif word == b"WITHSCORES" and has_scores:
            asked.with_scores = True
            index += 1
        elif word == b"LIMIT" and asked.counts and left:
            limit = integer(options[index + 1])
            if limit is None or limit < 0:
                return SYNTAX
            asked.limit = limit
            index += 2
        else:
            return SYNTAX
    return None


def _weight(text: bytes) -> float | None:
    """A number as Redis reads it; None for what it refuses, and for what few write, such as hexadecimal digits."""
    if _INFINITY.fullmatch(text):
        return float(text)
    if not _DECIMAL.fullmatch(text):
        return None
    value = float(text)
    # What is too large or too small for a number is refused.
    return None if math.isinf(value) or (value == 0 and not _ONLY_ZEROS.fullmatch(text)) else value
