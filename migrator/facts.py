"""What a server says of itself that matters to who wants to move keys from it or to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from migrator.connection import Connection
from migrator.errors import Refused


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
        keys: how many keys each database holds that holds any.
        modules: version of each module that is loaded, by name.
        replicas_online: how many replicas follow it and take what it sends.
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

    @property
    def evicts(self) -> bool:
        """Whether it deletes keys by itself when its memory is used up."""
        return self.maximum_bytes > 0 and self.policy != "noeviction"

    @classmethod
    def from_info(cls, address: str, text: str, modules: Mapping[str, int] | None = None) -> Facts:
        """From the reply to INFO. What a server does not say counts as what is usual."""
        fields = dict(line.partition(":")[::2] for line in text.splitlines() if line and not line.startswith("#"))

        def number(name: str, otherwise: int = 0) -> int:
            value = fields.get(name, "").strip()
            return int(value) if value.isdigit() else otherwise

        used = number("used_memory")
        return cls(
            address=address,
            run_id=fields.get("run_id", "").strip(),
            version=fields.get("valkey_version", fields.get("redis_version", "")),
            role=fields.get("role", "master"),
            follows=f"{fields['master_host']}:{fields.get('master_port', '')}" if "master_host" in fields else "",
            loading=bool(number("loading") or number("async_loading")),
            # What goes to replicas and to the append-only file is not counted by maxmemory either.
            used_bytes=max(0, used - number("mem_not_counted_for_evict")),
            dataset_bytes=number("used_memory_dataset", used),
            maximum_bytes=number("maxmemory"),
            policy=fields.get("maxmemory_policy", "noeviction"),
            keys={int(name[2:]): _keys(value) for name, value in fields.items() if _is_database(name)},
            modules=modules or {},
            replicas_online=sum(
                re.fullmatch(r"slave\d+", name) is not None and "state=online" in value
                for name, value in fields.items()
            ),
        )


async def facts_of(connection: Connection) -> Facts:
    """Ask a server. Errors are those of :meth:`migrator.connection.Connection.call`."""
    info: bytes = await connection.call("INFO")
    try:
        listed: list[list[object]] = await connection.call("MODULE", "LIST")
    except Refused:
        listed = []  # not for this user, or renamed: then the first key that needs one tells
    modules = {}
    for entry in listed:
        pairs = dict(zip(entry[::2], entry[1::2], strict=False))
        name, version = pairs.get(b"name"), pairs.get(b"ver")
        if isinstance(name, bytes):
            modules[name.decode(errors="replace")] = version if isinstance(version, int) else 0
    return Facts.from_info(connection.address, info.decode(errors="replace"), modules)


def _is_database(name: str) -> bool:
    return name.startswith("db") and name[2:].isdigit()


def _keys(value: str) -> int:
    counts = dict(part.partition("=")[::2] for part in value.split(","))
    return int(counts.get("keys", 0))
