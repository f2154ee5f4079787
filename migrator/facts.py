"""A server's figures about itself that matter for moving keys from it or to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from migrator.connection import Connection
from migrator.errors import Refused
from slots.replies import LARGEST, Info

FORMATS = (((7, 4), 12), ((7, 2), 11), ((7, 0), 10), ((5, 0), 9))
"""Of payloads, by the version of Redis that brought each."""
SHARED, VALKEY_9 = 11, 80
"""The last format that Redis and Valkey have in common, and the first of Valkey's own."""


@dataclass(frozen=True, slots=True)
class Facts:
    """One server.

    Attributes:
        address: ``host:port``.
        run_id: of the process that runs there; another one after each start.
        version: for the operator, such as ``7.0.15``.
        role: ``master`` or ``slave``.
        follows: ``host:port`` of its master, if it is a replica.
        loading: whether it is reading its data from disk.
        used_bytes: memory that counts against ``maximum_bytes``.
        dataset_bytes: memory that its keys take.
        maximum_bytes: its maxmemory; 0 is no limit.
        policy: its maxmemory-policy.
        keys: the number of keys of each database that is not empty.
        modules: the version of each loaded module, by name.
        replicas_online: how many replicas follow it and receive its stream (state ``online``).
        resident_bytes: memory that its process has; None if it does not say.
        machine_bytes: memory of its machine; None if it does not say.
        counts_replicas: whether it takes writes only while it has some replicas (``min-replicas-to-write``).
        payloads: the format in which it writes and reads payloads, as RDB numbers them; None if that is not known.
        copied_bytes: memory that its last save, or snapshot for a replica, had copied; None if there was none.
    """

    address: str
    run_id: str = ""
    version: str = ""
    role: str = "master"
    follows: str = ""
    loading: bool = False
    used_bytes: int = 0
    dataset_bytes: int = 0
    maximum_bytes: int = 0
    policy: str = "noeviction"
    keys: Mapping[int, int] = field(default_factory=dict)
    modules: Mapping[str, int] = field(default_factory=dict)
    replicas_online: int = 0
    resident_bytes: int | None = None
    machine_bytes: int | None = None
    counts_replicas: bool = False
    copied_bytes: int | None = None
    payloads: int | None = None

    def reads_payloads_of(self, source: Facts) -> bool:
        """Whether it reads what the source writes, by their versions. It is for a forecast: a trial key knows it."""
        if self.payloads is None or source.payloads is None:
            return True
        if self.payloads >= VALKEY_9:
            return source.payloads <= SHARED or VALKEY_9 <= source.payloads <= self.payloads
        return source.payloads <= self.payloads

    @property
    def all_keys(self) -> int:
        """The number of keys of all databases."""
        return sum(self.keys.values())

    @property
    def evicts(self) -> bool:
        """Whether it evicts keys when its memory is used up."""
        return self.maximum_bytes > 0 and self.policy != "noeviction"

    @classmethod
    def from_info(cls, address: str, info: Info, modules: Mapping[str, int] | None = None) -> Facts:
        """From the reply to INFO. A field that the server does not give counts as usual.

        Raises:
            NotUnderstood: the reply is not one that a Redis server gives.
        """
        master = info.following if "role" in info else None
        used = info.number("used_memory", 0)
        return cls(
            address=address,
            run_id=info.text("run_id", ""),
            version=info.text("valkey_version", info.text("redis_version", "")),
            role="master" if master is None else "slave",
            follows="" if master is None else f"{master[0]}:{master[1]}",
            loading=bool(info.number("loading", 0) or info.number("async_loading", 0)),
            # maxmemory does not count the buffers for replicas and for the append-only file either.
            used_bytes=max(0, used - info.number("mem_not_counted_for_evict", 0)),
            dataset_bytes=info.number("used_memory_dataset", used),
            maximum_bytes=info.number("maxmemory", 0),
            policy=info.text("maxmemory_policy", "noeviction"),
            keys=info.keys_of_databases,
            modules=modules or {},
            replicas_online=sum(one.get("state") == "online" for one in info.replicas),
            resident_bytes=_told(info, "used_memory_rss"),
            machine_bytes=_told(info, "total_system_memory"),
            counts_replicas="min_slaves_good_slaves" in info,
            copied_bytes=_told(info, "rdb_last_cow_size"),
            payloads=_format(info),
        )


def _format(info: Info) -> int | None:
    found = re.match(r"(\d{1,4})\.(\d{1,4})", info.text("valkey_version", info.text("redis_version", "")))
    if found is None:
        return None
    version = int(found[1]), int(found[2])
    if "valkey_version" in info:
        return VALKEY_9 if version >= (9, 0) else SHARED
    return next((number for first, number in FORMATS if version >= first), None)


def _told(info: Info, name: str) -> int | None:
    """A number that only serves a forecast: an odd one counts as not told."""
    value = info.get(name)
    return value if type(value) is int and 0 < value <= LARGEST else None


def shown(size: float) -> str:
    """Bytes as text for a person."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


async def facts_of(connection: Connection) -> Facts:
    """Ask a server. Errors are those of :meth:`migrator.connection.Connection.call`."""
    info = await connection.info()
    try:
        listed = await connection.call("MODULE", "LIST")
    except Refused:
        listed = []  # the command is forbidden or renamed: the first key that needs a module will tell
    with connection.understood("MODULE LIST"):
        modules = {}
        for entry in listed:
            pairs = dict(zip(entry[::2], entry[1::2], strict=False))
            name, version = pairs.get(b"name"), pairs.get(b"ver")
            if isinstance(name, bytes):
                modules[name.decode(errors="replace")] = version if isinstance(version, int) else 0
        return Facts.from_info(connection.address, info, modules)
