"""What is said of a user whom clients may log in as: in the settings of a proxy, and to topom.

One model, one check. What a user may do by it is decided in :mod:`proxy.users`.
"""

import ipaddress
import re
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from slots import prefixes
from slots.rights import parse

DEFAULT = "default"
NAME = re.compile(r"[!-~]{1,128}")
MOST_PER_SECOND = 1_000_000_000_000
MOST_CONNECTIONS = 1_000_000_000
"""**bounded**: what workers and proxies say of a limit has to fit their messages."""
LIMITS = ("requests_per_second", "bytes_per_second", "worker_percent")
"""Fields that say how much a user may ask for in a second."""
DIGEST = re.compile(r"[0-9a-fA-F]{64}")


class UserSettings(BaseModel):
    """One entry of the setting ``users`` of a proxy."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: str
    password: SecretStr = SecretStr("")
    password_sha256: SecretStr = SecretStr("")
    """The password's SHA-256 in hexadecimal, as ACL SETUSER of Redis takes it after ``#``."""
    no_password: bool = False
    """Whether any password logs in; ``default`` then needs none at all."""
    databases: list[Annotated[int, Field(ge=0)]] | None = Field(default=None, min_length=1)
    read_only: bool = False
    sheddable: bool | str = False
    """Whether its requests are refused while their server is slow, so that those of other users are served; or which of
    them, in words of ``rules`` about commands."""
    cached_reads: bool = False
    """Whether the proxy may answer its GETs of hot keys by itself."""
    admin: bool | None = None
    """Whether it may see and change other clients' work. By default, unless databases, read_only or a prefix
    limit it."""
    rules: str | None = None
    """What it may do, in Redis's ACL language. By default, everything."""
    prefix: str | None = None
    """What the proxy puts before its keys and channels, and takes off again, so that it sees only these."""
    addresses: list[str] | None = Field(default=None, min_length=1)
    """Addresses and networks that it may come from. By default, any."""
    connections: int | None = Field(default=None, ge=1, le=MOST_CONNECTIONS)
    """The most connections that it may have at a time, at all proxies together. By default, any number."""
    requests_per_second: int | None = Field(default=None, ge=1, le=MOST_PER_SECOND)
    """Requests a second that it may ask for, at all proxies together. By default, any number."""
    bytes_per_second: int | None = Field(default=None, ge=1, le=MOST_PER_SECOND)
    """Bytes a second of its requests and their replies, at all proxies together. By default, any number."""
    worker_percent: int | None = Field(default=None, ge=1, le=100)
    """Per cent of the time of each worker that its requests may take. By default, any."""
    over_limit: Literal["delay", "refuse"] = "delay"
    """What becomes of requests above these three limits: they wait, or get an error at once."""

    @property
    def has_limits(self) -> bool:
        """Whether it may only ask for so much a second."""
        return any(getattr(self, field) is not None for field in LIMITS)

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

    @field_validator("sheddable")
    @classmethod
    def _check_sheddable(cls, value: bool | str) -> bool | str:
        if isinstance(value, str):
            rights = parse(value)
            if rights.keys != () or rights.channels != ():
                raise ValueError("it has words about commands only, such as +@slow or -get")
            if not any(word.startswith("+") for word in rights.words):
                raise ValueError("it names no command; write false, true, or words such as +@slow -get")
        return value

    @field_validator("prefix")
    @classmethod
    def _check_prefix(cls, value: str | None) -> str | None:
        if value is not None:
            prefixes.check(value)
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
