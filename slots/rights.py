"""What a user may do, in the words of Redis's ACL: commands, keys and channels.

All limits of a user are such words in the end, also the fields ``read_only``, ``admin`` and ``databases``
(:mod:`proxy.users`). So one decision holds for all of them, and ACL LIST can say it: of the words that concern a
command, the last one counts.

As in Redis, a user with rules begins with nothing. Who has a key has it under every command that the user may run,
and a channel likewise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from slots import commands, prefixes
from slots.commands import Command
from slots.keyaccess import READS, WRITES, needs
from slots.requests.glob import match
from slots.sorting import options

EVERYTHING = "~* &* +@all"
"""The rights of a user without rules."""
FREE = "no_auth"
"""The flag of commands that everybody may run: AUTH, HELLO, QUIT and RESET."""
FIELDS = {
    "on": "leave the user out to turn it off",
    "off": "leave the user out to turn it off",
    "nopass": "use no_password = true",
    "resetpass": "use password",
    "reset": "rules begin with nothing",
    "clearselectors": "selectors are not known here",
    "sanitize-payload": "it is always so at the servers",
    "skip-sanitize-payload": "it cannot be turned off here",
}
"""Words of ACL SETUSER that are no rules here, and what to do."""
ALIASES = {
    "allkeys": "~*",
    "allchannels": "&*",
    "allcommands": "+@all",
    "nocommands": "-@all",
}
CHANNELS = {"SUBSCRIBE": (1, None), "SSUBSCRIBE": (1, None), "PUBLISH": (1, 2), "SPUBLISH": (1, 2)}
"""The first and the last place of the channels of a command."""


class RulesError(ValueError):
    """A word is no rule. The message says which, and why."""


@dataclass(frozen=True, slots=True)
class KeyPattern:
    """Keys that a user may read, write, or both."""

    pattern: bytes
    allows: int
    """READS, WRITES or both."""

    def __str__(self) -> str:
        prefix = {READS: "%R", WRITES: "%W"}.get(self.allows, "")
        return f"{prefix}~{self.pattern.decode('utf-8', 'surrogateescape')}"


@dataclass(frozen=True, slots=True)
class Rights:
    """What a user may do. :func:`parse` makes it from words.

    Attributes:
        words: about commands, in their order: ``+get``, ``-config|set``, ``+@read``.
        keys: patterns of keys; None for all keys.
        channels: patterns of channels; None for all channels.
        prefix: what all keys and channels begin with, as far as the user may see; the patterns have it, too.
    """

    words: tuple[str, ...]
    keys: tuple[KeyPattern, ...] | None
    channels: tuple[bytes, ...] | None
    prefix: bytes = b""

    @property
    def whole(self) -> bool:
        """Whether nothing is left out."""
        return self.keys is None and self.channels is None and self.words == ("+@all",)

    def without(self, words: Iterable[str]) -> Rights:
        """These rights without some commands, given as words. ``+name`` leaves a command of a category, if it was
        allowed. A name about which nothing changes is left out."""
        found = self.words
        for word in words:
            named = _named(word[1:])
            before = self.words if word[0] == "+" else found
            if word.startswith("-@") or any(_allows(before, row) for row in named):
                found = (*found, word)
        return replace(self, words=found)

    def within(self, prefix: bytes) -> Rights:
        """These rights to the keys and channels with a prefix, without the prefix, and to no others."""
        everything = (KeyPattern(b"*", READS | WRITES),)
        keys = (
            KeyPattern(prefix + one.pattern, one.allows) for one in (everything if self.keys is None else self.keys)
        )
        if self.channels is None:
            return Rights(self.words, tuple(keys), prefixes.all_channels(prefix), prefix)
        channels = tuple(prefixes.channel(prefix, pattern) for pattern in self.channels)
        return Rights(self.words, tuple(keys), channels, prefix)

    def allows(self, command: Command) -> bool:
        """Whether a command may be run, with some keys and channels."""
        return FREE in command.flags or _allows(self.words, command)

    def allows_key(self, key: bytes, need: int) -> bool:
        """Whether a key may be used for this: READS, WRITES, both or neither."""
        return self.keys is None or any(one.allows & need == need and match(one.pattern, key) for one in self.keys)

    def allows_any_key(self, need: int) -> bool:
        """Whether every key may be used for this, as far as the user may see."""
        everything = self.prefix + b"*"
        return self.keys is None or any(one.allows & need == need and one.pattern == everything for one in self.keys)

    def allows_channel(self, name: bytes) -> bool:
        """Whether a channel may be used."""
        return self.channels is None or any(match(pattern, name) for pattern in self.channels)

    def allows_pattern(self, pattern: bytes) -> bool:
        """Whether a pattern of channels may be used. As in Redis, it has to be among the user's, letter by letter."""
        if self.channels is None or pattern in self.channels:
            return True
        # All channels of the prefix.
        return bool(self.prefix) and self.prefix + b"*" in self.channels and prefixes.is_within(self.prefix, pattern)

    def refusal(self, command: Command, argv: Sequence[bytes], known: bool = False) -> Refusal | None:
        """Why a request is refused; None if it is not. ``known``: the command is known to be allowed.

        Raises:
            KeysError: its arguments are inconsistent.
        """
        if not known and not self.allows(command):
            return Refusal("command", command.name.lower())
        if self.keys is not None and command.access:
            refused = self._key_refusal(command, argv)
            if refused is not None:
                return refused
        if self.channels is None:
            return None
        if command.name == "PSUBSCRIBE":
            wanted = [name for name in argv[1:] if not self.allows_pattern(name)]
        else:
            first, last = CHANNELS.get(command.name, (0, 0))
            wanted = [name for name in argv[first:last] if not self.allows_channel(name)]
        return Refusal("channel", _shown(wanted[0])) if wanted else None

    def _key_refusal(self, command: Command, argv: Sequence[bytes]) -> Refusal | None:
        if command.keys == "asked":
            # Only a server can tell its keys.
            return Refusal("key", "")
        keys = commands.keys_of(command, argv)
        for key, need in zip(keys, needs(command, argv, len(keys)), strict=True):
            if not self.allows_key(key, need):
                return Refusal("key", _shown(key))
        if command.name in ("SORT", "SORT_RO"):
            any_key = self.allows_any_key(READS)
            for option, pattern in options(argv):
                names_keys = b"*" in pattern
                if (names_keys or option == b"GET") and not any_key:
                    return Refusal("option", option.decode())
                if names_keys and not pattern.startswith(self.prefix):
                    return Refusal("option", option.decode())
        return None

    @property
    def commands_shown(self) -> str:
        """The words about commands, as ACL GETUSER shows them."""
        return " ".join(self.words if self.words[0] in ("+@all", "-@all") else ("-@all", *self.words))

    @property
    def keys_shown(self) -> str:
        """The patterns of keys, likewise."""
        return "~*" if self.keys is None else " ".join(map(str, self.keys))

    @property
    def channels_shown(self) -> str:
        """The patterns of channels, likewise."""
        patterns = (b"*",) if self.channels is None else self.channels
        return " ".join(f"&{pattern.decode('utf-8', 'surrogateescape')}" for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is refused.

    Attributes:
        of: ``command``, ``key``, ``channel``, ``option`` of SORT, or ``prefix``.
        name: the one that is not allowed.
        why: of ``prefix``: why no user with a prefix may run the command.
    """

    of: str
    name: str
    why: str = ""

    @property
    def error(self) -> str:
        """The reply to the request."""
        match self.of:
            case "command":
                return f"NOPERM this user has no permissions to run the '{self.name}' command"
            case "option":
                return f"ERR {self.name} option of SORT denied due to insufficient ACL permissions."
            case "prefix":
                return f"NOPERM {self.name} is refused to users with a prefix: {self.why}"
        return f"NOPERM this user has no permissions to access one of the {self.of}s used as arguments"

    @property
    def verdict(self) -> str | None:
        """What ACL DRYRUN says; None if it says OK."""
        match self.of:
            case "command":
                return f"This user has no permissions to run the '{self.name}' command"
            case "prefix":
                return f"{self.name} is refused to users with a prefix: {self.why}"
            case "option":
                return None  # Redis looks at it when SORT runs
        return f"This user has no permissions to access the '{self.name}' {self.of}"


@cache
def _names() -> dict[str, Command]:
    """The table, by names as rules give them."""
    return {name.lower(): row for name, row in commands.table().items()}


@cache
def _named(name: str) -> tuple[Command, ...]:
    """The commands that a name stands for: itself, and its subcommands."""
    return tuple(row for known, row in _names().items() if known == name or known.startswith(f"{name}|"))


@cache
def known_categories() -> tuple[str, ...]:
    """All categories of commands, in Redis's order."""
    order = (
        *("keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "bitmap", "hyperloglog", "geo"),
        *("stream", "pubsub", "admin", "fast", "slow", "blocking", "dangerous", "connection", "transaction"),
        "scripting",
    )
    found = {category for row in commands.table().values() for category in row.categories}
    return (*(name for name in order if name in found), *sorted(found - set(order)))


def _allows(words: tuple[str, ...], command: Command) -> bool:
    last = _last(words)
    name = command.name.lower()
    concerned = ("@all", name, name.partition("|")[0], *(f"@{category}" for category in command.categories))
    return max((last[what] for what in concerned if what in last), default=(0, False))[1]


@lru_cache(maxsize=4)  # bounded: they may be very many, and whoever asks does so for one command after another
def _last(words: tuple[str, ...]) -> dict[str, tuple[int, bool]]:
    """By what words are about, where the last one of these stands, and whether it allows that."""
    return {word[1:]: (place, word[0] == "+") for place, word in enumerate(words)}


def parse(text: str) -> Rights:
    """The rights that rules give, in one line of Redis's ACL language. The time grows with the text and no faster: one
    user may have very many words.

    Raises:
        RulesError: a word is no rule.
    """
    words: dict[str, str] = {}  # by what they are about, the last one last
    keys: dict[bytes, int] | None = {}  # what patterns allow
    channels: dict[bytes, None] | None = {}
    for word in text.split():
        word = ALIASES.get(word.lower(), word)
        match word[0]:
            case "~" | "%":
                if keys is None:
                    raise RulesError(f"{word!r} follows ~* or allkeys, and has no effect; leave one out")
                one = _key_pattern(word)
                keys[one.pattern] = keys.get(one.pattern, 0) | one.allows
                keys = None if word == "~*" else keys
            case "&":
                if channels is None:
                    raise RulesError(f"{word!r} follows &* or allchannels, and has no effect; leave one out")
                channels[_bytes(word[1:])] = None
                channels = None if word == "&*" else channels
            case "+" | "-":
                word = _command_word(word.lower())
                # Those before it that say nothing any more go.
                if word[1:] == "@all":
                    words.clear()
                words.pop(word[1:], None)
                words[word[1:]] = word
            case _ if word.lower() == "resetkeys":
                keys = {}
            case _ if word.lower() == "resetchannels":
                channels = {}
            case "(":
                raise RulesError(f"{word!r} begins a selector, and selectors are not known here; make another user")
            case ">" | "#" | "<" | "!":
                raise RulesError("passwords are no rules; use password or password_sha256")
            case _ if word.lower() in FIELDS:
                raise RulesError(f"{word!r} is not one of the rules; {FIELDS[word.lower()]}")
            case _:
                raise RulesError(f"{word!r} is no rule of Redis's ACL")
    return Rights(
        tuple(words.values()) or ("-@all",),
        tuple(KeyPattern(*one) for one in keys.items()) if keys is not None else None,
        tuple(channels) if channels is not None else None,
    )


def _key_pattern(word: str) -> KeyPattern:
    if word[0] == "~":
        return KeyPattern(_bytes(word[1:]), READS | WRITES)
    letters, tilde, pattern = word[1:].partition("~")
    allows = {"R": READS, "W": WRITES, "RW": READS | WRITES, "WR": READS | WRITES}.get(letters.upper())
    if not tilde or allows is None:
        raise RulesError(f"{word!r} is no pattern of keys: use %R~pattern, %W~pattern or %RW~pattern")
    return KeyPattern(_bytes(pattern), allows)


def _command_word(word: str) -> str:
    what = word[1:]
    if what.startswith("@"):
        if what != "@all" and what[1:] not in known_categories():
            raise RulesError(f"{word!r} names no category of commands; ACL CAT lists them")
        return word
    if what in _names() or "." in what:
        # The commands of modules have names with a dot. They are not known before a server was asked.
        return word
    name, bar, _ = what.partition("|")
    if bar and name in _names() and not _names()[name].container:
        hint = "; use databases" if name == "select" else ""
        raise RulesError(f"{word!r} limits an argument, which is not known here{hint}")
    raise RulesError(f"{word!r} names no command")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _shown(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape").replace("\r", " ").replace("\n", " ")
