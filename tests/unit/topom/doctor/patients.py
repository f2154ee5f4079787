"""A cluster in good health, which a test makes ill in one way."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from slots.replies import Info
from topom.doctor.examining import examined
from topom.doctor.facts import ClusterFacts, ProxyFacts, ServerFacts, TopomFacts
from topom.doctor.findings import Finding

GIB = 1 << 30
INFO: Mapping[str, Any] = {
    "redis_version": "7.2.4",
    "role": "master",
    "connected_slaves": 1,
    "cluster_enabled": 0,
    "connected_clients": 10,
    "maxclients": 10_000,
    "slave_read_only": 1,
    "master_link_status": "up",
    "used_memory": GIB,
    "used_memory_rss": GIB,
    "total_system_memory": 16 * GIB,
    "rdb_last_cow_size": 0,
    "maxmemory": 4 * GIB,
    "maxmemory_policy": "noeviction",
    "rdb_last_bgsave_status": "ok",
    "aof_last_bgrewrite_status": "ok",
    "aof_last_write_status": "ok",
}
SETTINGS: Mapping[str, str] = {
    "appendfsync": "everysec",
    "appendonly": "yes",
    "client-output-buffer-limit": "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
    "databases": "16",
    "disable-thp": "yes",
    "min-replicas-to-write": "0",
    "repl-backlog-size": "67108864",
    "repl-diskless-sync": "yes",
    "repl-timeout": "60",
    "replica-ignore-maxmemory": "yes",
    "save": "3600 1",
    "tcp-backlog": "511",
}
REPLICA = {"role": "slave", "master_host": "10.0.0.1", "master_port": 6379, "connected_slaves": 0}


def server(number: int = 1, config: Mapping[str, str] | None = None, **changes: Any) -> ServerFacts:
    """A server: 1 is the master of group 1, 2 its replica, 3 and 4 those of group 2. ``changes`` are fields of INFO,
    or of the facts; None for an INFO that lacks the field."""
    facts = {name: changes.pop(name) for name in [*changes] if name in ServerFacts.__dataclass_fields__}
    master = bool(number % 2)
    told = {**INFO, **({} if master else REPLICA), **changes}
    known = ServerFacts(
        address=f"10.0.0.{number}:6379",
        group=(number + 1) // 2,
        master=master,
        info=Info({name: value for name, value in told.items() if value is not None}),
        config={**SETTINGS, **(config or {})},
        ahead=(0.0, 0.001),
        open=False,
    )
    return replace(known, **facts)


def proxy(number: int = 1, **changes: Any) -> ProxyFacts:
    """A proxy."""
    known = ProxyFacts(number, f"10.0.1.{number}:6380", "here", version="1.0", acked=7, counters={"refused": 0})
    return replace(known, **changes)


TOPOM = TopomFacts(
    version="1.0", shared=True, followers={"http://b": "1.0"}, free=64 * GIB, ha="topom", server_tls=True
)


def cluster(*servers: ServerFacts, **changes: Any) -> ClusterFacts:
    """Two groups of two servers, two proxies and two topoms; the servers given replace those with their addresses."""
    given = {one.address: one for one in servers}
    usual = {one.address: one for one in map(server, (1, 2, 3, 4))}
    known = ClusterFacts(servers=tuple({**usual, **given}.values()), proxies=(proxy(1), proxy(2)), topom=TOPOM, epoch=7)
    return replace(known, **changes)


def found(*servers: ServerFacts, **changes: Any) -> list[Finding]:
    """What is found of a cluster, made as :func:`cluster` does."""
    return examined(cluster(*servers, **changes))


def names(*servers: ServerFacts, **changes: Any) -> list[str]:
    """The names of the rules of :func:`found`."""
    return [finding.rule for finding in found(*servers, **changes)]
