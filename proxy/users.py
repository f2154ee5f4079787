"""The users that clients may log in as, with constant-time password checks, and what each user may do.

What a user may do is decided once, when the user is made: it is one :class:`~proxy.rights.Rights`, and a set of the
commands that these refuse. The fields ``read_only``, ``admin`` and ``databases`` are words of it like those of
``rules``. Only the database of a session is looked at besides.

As in Redis, there is a user ``default``. A client is that user before it logs in, if the user needs no password. AUTH
with only a password also means that user. If there are other users, every client has to log in, unless ``default`` is
among them with ``no_password``, or has the password of the setting ``password``.
"""

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Collection, Iterator, Sequence
from functools import cache, lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from proxy.rights import EVERYTHING, Refusal, Rights, parse
from slots import commands
from slots.commands import Command, Right

DEFAULT = "default"
NAME = re.compile(r"[!-~]{1,128}")
MOST_PER_SECOND = 1_000_000_000_000
DIGEST = re.compile(r"[0-9a-fA-F]{64}")


class UserSettings(BaseModel):
    """One entry of the setting ``users``."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: str
    password: SecretStr = SecretStr("")
    password_sha256: SecretStr = SecretStr("")
    """The password's SHA-256 in hexadecimal, as ACL SETUSER of Redis takes it after ``#``."""
    no_password: bool = False
    """Whether any password logs in; ``default`` then needs none at all."""
    databases: list[Annotated[int, Field(ge=0)]] | None = Field(default=None, min_length=1)
    read_only: bool = False
    sheddable: bool = False
    """Whether its requests are refused while their server is slow, so that those of other users are served."""
    cached_reads: bool = False
    """Whether the proxy may answer its GETs of hot keys by itself."""
    admin: bool | None = None
    """Whether it may see and change other clients' work. By default, unless databases or read_only limit it."""
    rules: str | None = None
    """What it may do, in Redis's ACL language. By default, everything."""
    addresses: list[str] | None = Field(default=None, min_length=1)
    """Addresses and networks that it may come from. By default, any."""
    connections: int | None = Field(default=None, ge=1)
    """The most connections that it may have at a time, at each worker. By default, any number."""
    requests_per_second: int | None = Field(default=None, ge=1, le=MOST_PER_SECOND)
    """Requests a second that it may ask for, at all proxies together. By default, any number."""
    bytes_per_second: int | None = Field(default=None, ge=1, le=MOST_PER_SECOND)
    """Bytes a second of its requests and their replies, at all proxies together. By default, any number."""
    over_limit: Literal["delay", "refuse"] = "delay"
    """What becomes of requests above these two limits: they wait, or get an error at once."""

    @property
    def has_limits(self) -> bool:
        """Whether it may only ask for so much a second."""
        return self.requests_per_second is not None or self.bytes_per_second is not None

    @field_validator("name")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if not NAME.fullmatch(value):
            raise ValueError("it consists of 1 to 128 printable ASCII characters without blanks")
        return value

    @field_validator("password_sha256")
    @classmethod
    def _check_digest(cls, value: SecretStr) -> SecretStr:
        if value.get_secret_value() and not DIGEST.fullmatch(value.get_secret_value()):
            raise ValueError("it has to be 64 hexadecimal digits")
        return value

    @field_validator("rules")
    @classmethod
    def _check_rules(cls, value: str | None) -> str | None:
        if value is not None:
            parse(value)
        return value

    @field_validator("addresses")
    @classmethod
    def _check_addresses(cls, value: list[str] | None) -> list[str] | None:
        for text in value or ():
            try:
                network = ipaddress.ip_network(text)
            except ValueError as error:
                raise ValueError(f"{text!r} is neither an IP address nor a network such as 10.1.0.0/16") from error
            if isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped is not None:
                raise ValueError(f"{text!r} is of addresses of IPv4; write it as one of those")
        return value

    @model_validator(mode="after")
    def _check_one_way_in(self) -> Self:
        given = (self.password.get_secret_value(), self.password_sha256.get_secret_value(), self.no_password)
        if sum(map(bool, given)) != 1:
            raise ValueError(f"user {self.name}: give one of password, password_sha256 and no_password = true")
        return self


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
        "proves_scripts",
        "refused",
        "requests_per_second",
        "rights",
        "sheddable",
    )

    def __init__(self, settings: UserSettings) -> None:
        self.name = settings.name
        self.sheddable = settings.sheddable
        self.cached_reads = settings.cached_reads
        self.databases = frozenset(settings.databases) if settings.databases is not None else None
        """The databases it may use; None for all."""
        given = parse(settings.rules if settings.rules is not None else EVERYTHING)
        self.proves_scripts = not given.whole
        """Whether it may run only scripts whose text shows that they stay within its rights: at the server they have
        the rights of the proxy."""
        self.rights = given.without(_withheld(settings, self.proves_scripts))
        self.refused = _refused(self.rights.words)
        """The names of the commands of the table that it may not run."""
        self.networks = tuple(map(ipaddress.ip_network, settings.addresses)) if settings.addresses else ()
        """Where it may come from; empty for anywhere."""
        self.connections = settings.connections
        """The most that it may have; None for any number."""
        self.requests_per_second = settings.requests_per_second or 0
        """At all proxies together; 0 for any number."""
        self.bytes_per_second = settings.bytes_per_second or 0
        """Likewise, of requests and replies."""
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
    limited = settings.read_only or settings.databases is not None
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
