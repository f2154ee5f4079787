"""The options of the data source ``slotferry``, each with its name, its unit, its default and its limits.

Spark writes options into plans and logs, so no secret is one: credentials and TLS come from the environment of the
process that connects (:mod:`sizing.access`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from sizing.errors import OptionError
from slots import address, functions
from slots.rules import SlotRule, rules_from_wire

Parsed = TypeVar("Parsed")

MOST_SLOTS = 16384
MOST_PARTITIONS = 64
SECRETS = ("password", "token", "user", "username", "tls_key", "ssl_key")
"""Names of options that would hold a secret, which belongs in the environment."""


def _option(default: Any, doc: str) -> Any:
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read. Either ``topom`` or ``servers`` is given."""

    topom: str = _option("", "Where topom's API is, as http://host:port; of several topoms, each: URL,URL.")
    servers: tuple[str, ...] = _option((), "Without topom: the servers, host:port,host:port.")
    function: str = _option("crc32", "Without topom: the slot function.")
    number_of_slots: int = _option(1024, "Without topom: how many slots there are, a power of two up to 16384.")
    rules: tuple[SlotRule, ...] = _option((), "Without topom: the slot rules, as a JSON list; topom's status has them.")
    read: Literal["replica-first", "master"] = _option(
        "replica-first", "With topom: where a group is read: at a replica whose link is up if it has one, or always "
        "at its master."
    )  # fmt: skip
    mode: Literal["FAILFAST", "PERMISSIVE"] = _option(
        "FAILFAST", "What happens if a server cannot be read: FAILFAST fails the query, PERMISSIVE goes on without it."
    )
    columns: tuple[str, ...] = _option((), "Columns to ask the servers for, by name; all when empty.")
    types: tuple[str, ...] = _option((), "Types of keys to read; all when empty.")
    slots: frozenset[int] | None = _option(None, "Slots to read, as in 0-99,700; all by default.")
    databases: frozenset[int] | None = _option(None, "Databases to read, as in 0,3-5; all by default.")
    samples: int = _option(5, "Elements that MEMORY USAGE looks at to estimate the size of a key. 0: all of them.")
    sample_fraction: float = _option(
        1.0, "The share of the keys to read, above 0 up to 1. Which ones depends on their names alone."
    )
    scan_count: int = _option(500, "Most keys in one call of a server.")
    milliseconds_per_call: float = _option(
        0.1,
        "Milliseconds that a call should hold up its server, all partitions together: what another client waits for. "
        "Calls are made as small as that takes.",
    )
    max_keys_per_second: float = _option(0.0, "Most keys a second of one server, all partitions together. 0: no limit.")
    partitions_per_server: int = _option(
        2, "Most partitions that one server is read in, by ranges of cursors: a power of two up to 64."
    )
    connect_timeout_seconds: float = _option(5.0, "Seconds that connecting to a server or to topom may take.")
    timeout_seconds: float = _option(30.0, "Seconds that a server or topom may take to answer.")

    @classmethod
    def of(cls, given: Mapping[str, str]) -> ReadOptions:
        """Read options in the form in which Spark gives them: text, names in any case.

        Raises:
            OptionError: an option is unknown, or its value cannot be used.
        """
        known = {each.name for each in fields(cls)}
        values: dict[str, Any] = {}
        for name, text in given.items():
            name = name.lower()
            if name in SECRETS:
                raise OptionError(
                    f"{name} is no option, for Spark shows options in plans and logs; set the environment instead: "
                    "SLOTFERRY_TOKEN for topom, SLOTFERRY_SIZING_REDIS_USER and SLOTFERRY_SIZING_REDIS_PASSWORD for "
                    "the servers, SLOTFERRY_SIZING_REDIS_TLS for TLS with them"
                )
            if name not in known:
                raise OptionError(f"{name} is no option of slotferry; there are {', '.join(sorted(known))}")
            try:
                values[name] = _READERS[name](text)
            except ValueError as error:
                # A URL may hold a password.
                shown = "not usable" if "@" in text else repr(text)
                raise OptionError(f"{name} is {shown}, but has to be {error}") from None
        options = cls(**values)
        if bool(options.topom) == bool(options.servers):
            raise OptionError("give either topom, the URL of its API, or servers, as host:port,host:port")
        return options


def parse_numbers(text: str, most: int) -> frozenset[int]:
    """Numbers and ranges with commas between them. Raises ValueError with the expected form."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            low, high = int(first), int(last if dash else first)
        except ValueError:
            raise ValueError("numbers and ranges, as in 0-99,700") from None
        if not 0 <= low <= high < most:
            raise ValueError(f"numbers and ranges from 0 to {most - 1}, as in 0-99,700")
        found.update(range(low, high + 1))
    return frozenset(found)


def _number(low: float, high: float, what: str, above: bool = False) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(what) from None
        if not (low < value if above else low <= value) or not value <= high or not math.isfinite(value):
            raise ValueError(what)
        return value

    return read


def _whole(low: int, high: int, power: bool = False) -> Callable[[str], int]:
    what = f"{'a power of two' if power else 'a whole number'} from {low} to {high}"

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(what) from None
        if not low <= value <= high or (power and value & (value - 1)):
            raise ValueError(what)
        return value

    return read


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        for choice in choices:
            if text.lower() == choice.lower():
                return choice
        raise ValueError(" or ".join(choices))

    return read


def read_rules(text: str) -> tuple[SlotRule, ...]:
    """Slot rules as JSON. Raises ValueError with the expected form."""
    try:
        return rules_from_wire(json.loads(text))
    except ValueError as error:
        raise ValueError(f"a JSON list of slot rules ({error})") from None


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _servers(text: str) -> tuple[str, ...]:
    found = _names(text)
    for server in found:
        try:
            address.split(server, lowest_port=1)
        except address.AddressError:
            raise ValueError("servers with their ports, as in host:port,host:port") from None
    return found


def _url(text: str) -> str:
    found = [part.strip().rstrip("/") for part in text.split(",")]
    for url in found:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise ValueError("a URL without credentials, as in http://host:port, or several, separated by commas")
    return ",".join(found)


_SECONDS = _number(0, 86_400, "a number of seconds above 0", above=True)
_READERS: dict[str, Callable[[str], Any]] = {
    "topom": _url,
    "servers": _servers,
    "function": _one_of(*functions.names()),
    "number_of_slots": _whole(1, MOST_SLOTS, power=True),
    "rules": read_rules,
    "read": _one_of("replica-first", "master"),
    "mode": _one_of("FAILFAST", "PERMISSIVE"),
    "columns": _names,
    "types": _names,
    "slots": lambda text: parse_numbers(text, MOST_SLOTS),
    "databases": lambda text: parse_numbers(text, 1_000_000),
    "samples": _whole(0, 1_000_000),
    "sample_fraction": _number(0, 1, "a number above 0 up to 1", above=True),
    "scan_count": _whole(10, 100_000),
    "milliseconds_per_call": _number(0, 10_000, "a number of milliseconds above 0", above=True),
    "max_keys_per_second": _number(0, 1e12, "a number of keys a second, 0 or more"),
    "partitions_per_server": _whole(1, MOST_PARTITIONS, power=True),
    "connect_timeout_seconds": _SECONDS,
    "timeout_seconds": _SECONDS,
}
