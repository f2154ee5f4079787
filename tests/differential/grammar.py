"""Commands written as Redis's own manual writes their syntax, made into random commands.

``word`` stands for itself, ``<name>`` for a word of :data:`tests.differential.vocabulary.WORDS` or a key of that type,
``[x]`` for x or nothing, ``(x | y)`` and ``[x | y]`` for one of several, ``x...`` for x once or more. ``#<set>`` is a
number and as many keys; ``@float`` then as many words. ``<x->`` means many words in one command, ``<key>`` a key of any
type, ``<any>`` one of any slot as well, ``<any-set>`` a set of any slot: all other keys of a command share a slot,
unless all keys do. ``<named>`` stands for keys by a pattern with the command's tag.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import strategies as st

from tests.differential.vocabulary import KEYS_PER_KIND, KINDS, TAGS, WORDS, many

_TOKEN = re.compile(r"\s+|(#?<[a-z-]+>|@[a-z]+|\.\.\.|[\[\]()|]|[^\s\[\]()|]+?(?=\.\.\.|[\s\[\]()|]|$))")
MOST_REPEATED = 3
NAMED = (b"string*", b"hash*->a", b"hash*->1", b"*", b"list*", b"zset*->", b"string1*")
ANOTHER_TYPE = 10
"""One key in so many is of another type than the command is for."""


@dataclass
class Scope:
    """The common choices for all words of one command."""

    draw: st.DrawFn
    tag: bytes
    tags: tuple[bytes, ...] = ()
    """Where the product has one slot: each key has one of these, whatever it has."""
    counted: int = 1
    words: list[bytes] = field(default_factory=list)

    def next_tag(self, anywhere: bool = False) -> bytes:
        """The tag of the next key."""
        if self.tags or anywhere:
            self.tag = self.draw(st.sampled_from(self.tags or TAGS))
        return self.tag


Emit = Callable[[Scope], None]


def key(scope: Scope, kind: str) -> bytes:
    """The name of a key that usually is of this type."""
    tag = scope.next_tag(anywhere=kind.startswith("any"))
    kind = kind.removeprefix("any-")
    if kind in ("key", "any") or scope.draw(st.integers(1, ANOTHER_TYPE)) == ANOTHER_TYPE:
        kind = scope.draw(st.sampled_from(KINDS))
    return b"%b%b%d" % (tag, kind.encode(), scope.draw(st.integers(1, KEYS_PER_KIND)))


def _word(text: str) -> Emit:
    return lambda scope: scope.words.append(text.encode())


def _placeholder(name: str) -> Emit:
    if name.endswith("-") and name[:-1] in WORDS:
        return lambda scope: scope.words.extend(scope.draw(many(name[:1].encode())))
    if name == "named":
        return lambda scope: scope.words.append(scope.next_tag() + scope.draw(st.sampled_from(NAMED)))
    if name in (*KINDS, "key", "any") or name.startswith("any-"):
        return lambda scope: scope.words.append(key(scope, name))
    return lambda scope: scope.words.append(scope.draw(WORDS[name]))


def _counted(name: str) -> Emit:
    def emit(scope: Scope) -> None:
        scope.counted = scope.draw(st.integers(1, MOST_REPEATED))
        stated = scope.draw(st.sampled_from([0] * 15 + [1, -1, -4]))
        scope.words.append(b"%d" % (scope.counted + stated))
        scope.words.extend(key(scope, name) for _ in range(scope.counted))

    return emit


def _as_many(name: str) -> Emit:
    return lambda scope: scope.words.extend(scope.draw(WORDS[name]) for _ in range(scope.counted))


def _choice(options: list[Emit], optional: bool) -> Emit:
    def emit(scope: Scope) -> None:
        if not optional or scope.draw(st.booleans()):
            options[scope.draw(st.integers(0, len(options) - 1)) if len(options) > 1 else 0](scope)

    return emit


def _repeated(item: Emit) -> Emit:
    def emit(scope: Scope) -> None:
        for _ in range(scope.draw(st.integers(1, MOST_REPEATED))):
            item(scope)

    return emit


def _sequence(items: list[Emit]) -> Emit:
    def emit(scope: Scope) -> None:
        for item in items:
            item(scope)

    return emit


def _alternatives(tokens: list[str], closing: str) -> list[Emit]:
    options: list[list[Emit]] = [[]]
    while tokens:
        token = tokens.pop(0)
        if token == closing:
            return [_sequence(items) for items in options]
        items = options[-1]
        if token == "|":
            options.append([])
        elif token == "...":
            items.append(_repeated(items.pop()))
        elif token in "([":
            items.append(_choice(_alternatives(tokens, ")" if token == "(" else "]"), token == "["))
        elif token.startswith("<"):
            items.append(_placeholder(token[1:-1]))
        elif token.startswith("#"):
            items.append(_counted(token[2:-1]))
        elif token.startswith("@"):
            items.append(_as_many(token[1:]))
        else:
            items.append(_word(token))
    if closing:
        raise ValueError(f"{closing} is missing")
    return [_sequence(items) for items in options]


def template(syntax: str) -> Emit:
    """Makes commands of one form."""
    tokens = [token for token in _TOKEN.findall(syntax) if token]
    (emit,) = _alternatives(tokens, "")
    return emit
