"""Slot rules: what a product says about the slots of some of its keys, instead of their hash tags.

Libraries for queues use several keys in one command or transaction, and give them no hash tag. A rule names such keys
by a pattern, and says what is hashed in place of the whole key.

A pattern has to match the whole key. ``*`` matches any bytes, also none, and as few as possible. A part in parentheses
is what is hashed: ``bull:(*):*`` gives all keys of one queue the slot of the queue's name. A pattern without such a
part gives all keys that match it one slot, that of a *tag*. ``\\`` before ``*``, ``(``, ``)`` or ``\\`` takes the
character as it is. What is hashed is taken like a key, so ``{tag}`` within it counts.

The first rule that matches a key decides. A rule whose part in parentheses would be empty does not match. A key that no
rule matches goes by its hash tag. This module holds what a rule is; :mod:`slots.keyslots` goes by rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

MOST_RULES = 64
"""The most rules of a product: one bit of a word each, in the engine."""
MOST_STARS = 8
"""The most stars in a pattern."""
MOST_BYTES = 200
"""The most bytes of a pattern and of a tag, in UTF-8."""
_SPECIAL = "*()\\"


class RuleError(ValueError):
    """A slot rule says nothing, or cannot be understood."""


@dataclass(frozen=True, slots=True)
class SlotRule:
    """One rule: the keys that match ``pattern``, in one ``database`` or, with ``None``, in all.

    ``tag`` is hashed in place of the key; ``None`` if the pattern has a part in parentheses.

    Raises:
        RuleError: for a pattern or a tag that cannot be understood.
    """

    pattern: str
    database: int | None = None
    tag: str | None = None
    literals: tuple[bytes, ...] = field(init=False, repr=False, compare=False)
    """The texts between the pattern's stars, the first and the last of which may be empty. There is one more than there
    are stars."""
    part: tuple[int, int, int, int] | None = field(init=False, repr=False, compare=False)
    """Where the part in parentheses begins and ends: the index of a literal, and an offset in it, of each."""

    def __post_init__(self) -> None:
        literals, part = _read(self.pattern)
        if part is not None and self.tag is not None:
            raise RuleError(f"{self}: a pattern with a part in parentheses has no tag, for that part is hashed")
        if part is None and self.tag is None:
            tag = b"".join(literals).decode()
            if not tag:
                raise RuleError(f"{self}: give a tag, for the pattern has no text that could be hashed")
            object.__setattr__(self, "tag", tag)
        if self.tag is not None and not 1 <= len(_encoded(self.tag, "tag")) <= MOST_BYTES:
            raise RuleError(f"{self}: a tag has 1 to {MOST_BYTES} bytes")
        if self.database is not None and not 0 <= self.database < 2**31:
            raise RuleError(f"{self}: there is no database {self.database}")
        object.__setattr__(self, "literals", literals)
        object.__setattr__(self, "part", part)

    def __str__(self) -> str:
        return f"slot rule {self.pattern!r}"

    @property
    def named(self) -> str:
        """It in a list of rules, for people."""
        where = "" if self.database is None else f" in database {self.database}"
        return f"{self.pattern}{where}" + ("" if self.part else f" as {self.tag}")

    def to_wire(self) -> dict[str, Any]:
        """As JSON has it: the fields that say something."""
        wire: dict[str, Any] = {"pattern": self.pattern}
        if self.database is not None:
            wire["database"] = self.database
        if self.tag is not None:
            wire["tag"] = self.tag
        return wire

    @classmethod
    def from_wire(cls, wire: Any) -> SlotRule:
        """The reverse of :meth:`to_wire`. Raises :class:`RuleError`."""
        if not isinstance(wire, dict):
            raise RuleError(f"{wire!r:.100} is no slot rule")
        pattern, database, tag = wire.get("pattern"), wire.get("database"), wire.get("tag")
        if (
            not isinstance(pattern, str)
            or not (database is None or type(database) is int)
            or not (tag is None or isinstance(tag, str))
        ):
            raise RuleError("a slot rule has a pattern, and may have the number of a database, and a tag")
        return cls(pattern, database, tag)


def rules_to_wire(rules: Iterable[SlotRule]) -> list[dict[str, Any]]:
    """Rules as JSON has them."""
    return [rule.to_wire() for rule in rules]


def rules_from_wire(wire: Any) -> tuple[SlotRule, ...]:
    """The reverse of :func:`rules_to_wire`. Raises :class:`RuleError`."""
    if not isinstance(wire, list):
        raise RuleError("slot rules are a list")
    return checked(SlotRule.from_wire(one) for one in wire)


def coming_from_wire(wire: Any) -> tuple[SlotRule, ...] | None:
    """The rules to come (:class:`slots.table.SlotTable`); None for None. Raises :class:`RuleError`."""
    return None if wire is None else rules_from_wire(wire)


def checked(rules: Iterable[SlotRule]) -> tuple[SlotRule, ...]:
    """The rules of a product. Raises :class:`RuleError` if they are too many, or one says the same keys as another."""
    found = tuple(rules)
    if len(found) > MOST_RULES:
        raise RuleError(f"there are {len(found)} slot rules; {MOST_RULES} is the most")
    said: set[tuple[str, int | None]] = set()
    for rule in found:
        if (rule.pattern, rule.database) in said:
            raise RuleError(f"{rule} is there twice")
        said.add((rule.pattern, rule.database))
    return found


def _encoded(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise RuleError(f"the {what} {text!r} of a slot rule is not UTF-8") from None


def _read(pattern: str) -> tuple[tuple[bytes, ...], tuple[int, int, int, int] | None]:
    """A pattern's literals, and where its part in parentheses is."""
    if not 1 <= len(_encoded(pattern, "pattern")) <= MOST_BYTES:
        raise RuleError(f"slot rule {pattern!r}: a pattern has 1 to {MOST_BYTES} bytes")
    literals = [bytearray()]
    marks: list[tuple[str, int, int]] = []
    letters = iter(pattern)
    for letter in letters:
        if letter == "*":
            literals.append(bytearray())
        elif letter in "()":
            marks.append((letter, len(literals) - 1, len(literals[-1])))
        elif letter == "\\":
            escaped = next(letters, "")
            if not escaped or escaped not in _SPECIAL:
                raise RuleError(f"slot rule {pattern!r}: a backslash stands before one of {' '.join(_SPECIAL)}")
            literals[-1] += escaped.encode()
        else:
            literals[-1] += letter.encode()
    if any(not literal for literal in literals[1:-1]):
        raise RuleError(f"slot rule {pattern!r}: two stars in a row say no more than one")
    if len(literals) - 1 > MOST_STARS:
        raise RuleError(f"slot rule {pattern!r}: there are {len(literals) - 1} stars; {MOST_STARS} is the most")
    texts = tuple(bytes(literal) for literal in literals)
    if not marks:
        return texts, None
    if [letter for letter, _, _ in marks] != ["(", ")"]:
        raise RuleError(f"slot rule {pattern!r}: one part may stand in parentheses")
    (_, opened, opened_at), (_, closed, closed_at) = marks
    if opened == closed:
        raise RuleError(f"slot rule {pattern!r}: the part in parentheses needs a star; for one text, give a tag")
    return texts, (opened, opened_at, closed, closed_at)
