"""The users that clients may log in as, with constant-time password checks, and what each user may do.

What a user may do is decided once, when the user is made: it is one :class:`~slots.rights.Rights`, and a set of the
commands that these refuse. The fields ``read_only``, ``admin`` and ``databases`` of :class:`~slots.users.UserSettings`
are words of it like those of ``rules``. Only the database of a session is looked at besides.

As in Redis, there is a user ``default``. A client is that user before it logs in, if the user needs no password. AUTH
with only a password also means that user. If there are other users, every client has to log in, unless ``default`` is
among them with ``no_password``, or has the password of the setting ``password``.
"""

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Collection, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any

from pydantic import SecretStr

from slots import commands, prefixes
from slots.commands import Command, Right
from slots.rights import EVERYTHING, Refusal, Rights, parse
from slots.users import DEFAULT, UserSettings


def check_entries(given: Any, settings: Collection[str]) -> None:
    """Raise ValueError for what TOML's form of a list leads to: one entry instead of a list, and a setting of the proxy
    that stands below an entry and so in it.

    Args:
        given: the value of the setting ``users``.
        settings: names of the proxy's settings.
    """
    if isinstance(given, dict):
        raise ValueError("it has to be a list: in a file, each entry begins with [[users]]")
    for number, entry in enumerate(given if isinstance(given, list) else (), 1):
        if isinstance(entry, dict):
            for name in entry.keys() & (set(settings) - UserSettings.model_fields.keys()):
                raise ValueError(
                    f"entry {number} has {name}, which is a setting; in a file, write it above the first [[users]]"
                )


class User:
    """A user, in the form for its sessions."""

    __slots__ = (
        "bytes_per_second",
        "cached_reads",
        "connections",
        "databases",
        "digest",
        "name",
        "networks",
        "over_limit",
        "prefix",
        "proves_scripts",
        "refused",
        "requests_per_second",
        "rights",
        "sheddable",
        "worker_percent",
    )

    def __init__(self, settings: UserSettings) -> None:
        self.name = settings.name
        self.sheddable = (
            parse("+@all" if settings.sheddable is True else settings.sheddable) if settings.sheddable else None
        )
        """The commands that it may be refused while their server is slow, as rights; None for none."""
        self.cached_reads = settings.cached_reads
        self.databases = frozenset(settings.databases) if settings.databases is not None else None
        """The databases it may use; None for all."""
        self.prefix = settings.prefix.encode() if settings.prefix is not None else b""
        """What stands before its keys and channels; empty for nothing."""
        given = parse(settings.rules if settings.rules is not None else EVERYTHING)
        if self.prefix:
            given = given.within(self.prefix)
        self.proves_scripts = not given.whole
        """Whether it may run only scripts whose text shows that they stay within its rights: at the server they have
        the rights of the proxy."""
        self.rights = given.without(_withheld(settings, self.proves_scripts))
        self.refused = _refused(self.rights.words) | (prefixes.refused() if self.prefix else frozenset())
        """The names of the commands of the table that it may not run."""
        self.networks = tuple(map(ipaddress.ip_network, settings.addresses)) if settings.addresses else ()
        """Where it may come from; empty for anywhere."""
        self.connections = settings.connections
        """The most that it may have at all proxies together; None for any number."""
        self.requests_per_second = settings.requests_per_second or 0
        """At all proxies together; 0 for any number."""
        self.bytes_per_second = settings.bytes_per_second or 0
        """Likewise, of requests and replies."""
        self.worker_percent = settings.worker_percent or 0
        """Of each worker's time; 0 for any."""
        self.over_limit = settings.over_limit
        """``delay`` or ``refuse``."""
        self.digest: bytes | None = None
        """SHA-256 of the password; None if any will do."""
        if settings.password_sha256.get_secret_value():
            self.digest = bytes.fromhex(settings.password_sha256.get_secret_value())
        elif not settings.no_password:
            self.digest = _digest(settings.password.get_secret_value().encode())

    def may_as_much(self, other: "User") -> bool:
        """Whether it may do what ``other`` may, and needs a password if ``other`` does."""
        return (self.rights, self.sheddable, self.cached_reads, self.databases, self.digest is None) == (
            other.rights,
            other.sheddable,
            other.cached_reads,
            other.databases,
            other.digest is None,
        )

    @property
    def unlimited(self) -> bool:
        """Whether it may do everything, at any time."""
        return self.databases is None and not self.sheddable and self.rights.whole

    def refusal(self, command: Command, argv: Sequence[bytes]) -> Refusal | None:
        """Why it may not send a request, whatever the session's database; None if it may.

        Raises:
            KeysError: the arguments are inconsistent.
        """
        why = prefixes.refusal(command) if self.prefix else None
        if why is not None and self.rights.allows(command):
            return Refusal("prefix", command.name.replace("|", " "), why)
        if command.name in self.refused:
            return Refusal("command", command.name.lower())
        return self.rights.refusal(command, argv, known=not command.learned)

    def may_come_from(self, peer: str) -> bool:
        """Whether a client with this address may log in. A client of a Unix socket has none."""
        if not self.networks:
            return True
        try:
            address = ipaddress.ip_address(peer.rpartition(":")[0].strip("[]"))
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self.networks)

    def may_use(self, database: int) -> bool:
        """Whether it may use this database."""
        return self.databases is None or database in self.databases


def _withheld(settings: UserSettings, proves_scripts: bool) -> list[str]:
    """What the other fields take from the rules of a user, as rules."""
    limited = settings.read_only or settings.databases is not None or settings.prefix is not None
    admin = settings.admin if settings.admin is not None else not limited
    found: list[str] = []
    if settings.read_only:
        found += ["-@write", *_without(Right.WRITES)]
    if not admin:
        # Those two are of the category, and show nothing of others. Clients send ROLE when they connect.
        found += ["-@admin", "+lastsave", "+role", *_without(Right.ADMIN)]
    if settings.databases is not None:
        found += _without(Right.DATABASES)
    if proves_scripts:
        # Nothing can be told of a function from the request that calls it. Others call what this user would load.
        found += ["-fcall", "-fcall_ro", *(f"-function|{word}" for word in ("delete", "flush", "load", "restore"))]
    return list(dict.fromkeys(found))


@cache
def _without(right: Right) -> tuple[str, ...]:
    """Rules that take away all commands with this property."""
    rows = commands.table().values()
    names = {row.name for row in rows if right in row.rights}
    whole = {name for name in names if all(row.name in names for row in rows if row.name.startswith(f"{name}|"))}
    return tuple(f"-{name.lower()}" for name in sorted(names) if name.partition("|")[0] not in whole - {name})


@lru_cache(maxsize=1024)  # bounded: users may change often
def _refused(words: tuple[str, ...]) -> frozenset[str]:
    rights = Rights(words, None, None)
    return frozenset(name for name, row in commands.table().items() if not rights.allows(row))


class Users:
    """All users of a proxy.

    Args:
        default_password: the setting ``password``: that of the user ``default``, unless it is empty.
    """

    def __init__(self, users: Sequence[UserSettings], default_password: SecretStr) -> None:
        self._users = {user.name.encode(): User(user) for user in users}
        password = default_password.get_secret_value()
        if password or not self._users:
            user = UserSettings(name=DEFAULT, password=SecretStr(password), no_password=not password)
            self._users[DEFAULT.encode()] = User(user)
        self.default = self._users.get(DEFAULT.encode())
        """The user ``default``; None if it is off."""
        self.anonymous = self.default if self.default is not None and self.default.digest is None else None
        """The user of a client that has not logged in; None if clients have to log in."""
        # The digest for unknown users: no password has it.
        self._nobody = secrets.token_bytes(hashlib.sha256().digest_size)

    @property
    def wants_default_password(self) -> bool:
        """Whether AUTH with nothing but a password makes sense."""
        return self.default is not None and self.default.digest is not None

    def __iter__(self) -> Iterator[User]:
        return iter(self._users.values())

    def find(self, name: str) -> User | None:
        """The user of that name; None if there is none."""
        return self._users.get(name.encode())

    def authenticate(self, name: bytes, password: bytes) -> User | None:
        """The user of that name if the password is its own, else None.

        The time it takes shows neither how much of the password is right nor whether the user exists.
        """
        user = self._users.get(name)
        expected = user.digest if user is not None else self._nobody
        right = hmac.compare_digest(_digest(password), self._nobody if expected is None else expected)
        if user is not None and (right or expected is None):
            return user
        return None


def _digest(password: bytes) -> bytes:
    return hashlib.sha256(password).digest()
