"""Finds the servers to read: one for each group, preferably a replica, with the number of keys in each database.

Usable without Spark: ``Cluster.of(options)`` tells a progress bar how much there is to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sizing import events, topom
from sizing.access import server_access
from sizing.connection import Connection
from sizing.errors import CommandRefused, ServerFailed
from sizing.options import ReadOptions
from slots.access import ServerAccess
from slots.reserved import RESERVED_KEYS
from slots.rules import SlotRule

AT_ONCE = 32
"""Servers that are asked at the same time."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server to read.

    Attributes:
        address: host:port.
        group_id: the group it stands for; None without topom.
        is_replica: whether it is a replica.
        keys: how many keys each database has, by its number. Expired keys count, Slotferry's own do not.
        counts_by_position: whether its cursors count as :mod:`sizing.cursors` says.
        in_cluster_mode: whether it is a node of a Redis Cluster.
    """

    address: str
    group_id: int | None
    is_replica: bool
    keys: dict[int, int]
    counts_by_position: bool
    in_cluster_mode: bool

    @property
    def total(self) -> int:
        """Keys of all its databases."""
        return sum(self.keys.values())


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A group, or a server without topom, that cannot be read. ``reason`` is a sentence that names the server."""

    address: str
    group_id: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Cluster:
    """The servers to read.

    Attributes:
        product: name of the product; None without topom.
        function, number_of_slots, rules: how a key's slot is found.
        servers: those to read, by group id, or as they were named.
        unreadable: what is left out. It is always empty in mode FAILFAST.
    """

    product: str | None
    function: str
    number_of_slots: int
    servers: tuple[Server, ...]
    unreadable: tuple[Unreadable, ...] = ()
    rules: tuple[SlotRule, ...] = ()

    @classmethod
    def of(cls, options: ReadOptions, access: ServerAccess | None = None) -> Cluster:
        """Ask topom, then the servers.

        Raises:
            TopomFailed: topom does not say.
            ServerFailed: in mode FAILFAST, a group that has no server to be read.
        """
        access = access or server_access()
        if options.topom:
            product = topom.ask(options.topom, options.timeout_seconds)
            name, function, number_of_slots = product.name, product.function, product.number_of_slots
            rules = product.rules
            wanted: list[tuple[int | None, Sequence[str]]] = [
                (group_id, servers) for group_id, servers in sorted(product.groups.items()) if servers
            ]
        else:
            name, function, number_of_slots = None, options.function, options.number_of_slots
            rules = options.rules
            wanted = [(None, (server,)) for server in options.servers]
        with ThreadPoolExecutor(AT_ONCE, "sizing-servers") as pool:
            found = list(pool.map(lambda group: choose(group[0], group[1], options, access), wanted))
        unreadable = tuple(each for each in found if isinstance(each, Unreadable))
        if unreadable and options.mode == "FAILFAST":
            raise ServerFailed(unreadable[0].address, unreadable[0].reason)
        for each in unreadable:
            events.error("server_unreadable", server=each.address, group_id=each.group_id, reason=each.reason)
        servers = tuple(each for each in found if isinstance(each, Server))
        return cls(name, function, number_of_slots, servers, unreadable, rules)

    @property
    def total(self) -> int:
        """Keys of all servers that are read."""
        return sum(server.total for server in self.servers)


def choose(
    group_id: int | None, addresses: Sequence[str], options: ReadOptions, access: ServerAccess
) -> Server | Unreadable:
    """The server to read for a group with these servers, the master first. Without topom the group is None."""
    master, *replicas = addresses
    for address in replicas if options.read == "replica-first" else ():
        try:
            server = look_at(address, group_id, options, access)
        except ServerFailed as error:
            events.warning("replica_left_out", server=address, group_id=group_id, reason=error.reason)
            continue
        if server.is_replica:
            return server
    try:
        return look_at(master, group_id, options, access)
    except ServerFailed as error:
        return Unreadable(master, group_id, error.reason)


def look_at(address: str, group_id: int | None, options: ReadOptions, access: ServerAccess) -> Server:
    """A server's description of itself.

    Raises:
        ServerFailed: it does not answer, is loading its data, or is a replica whose link is down.
    """
    with Connection(address, access, options.connect_timeout_seconds, options.timeout_seconds) as connection:
        try:
            info = _parsed(connection.call("INFO"))
        except CommandRefused as error:
            raise ServerFailed(address, f"refuses INFO: {error.text}") from None
        try:
            own_keys = int(connection.call("EXISTS", *RESERVED_KEYS))
        except CommandRefused:  # a node of a Redis Cluster, which has none of ours, or a loading server
            own_keys = 0
    if info.get("loading", "0") != "0" or info.get("async_loading", "0") != "0":
        raise ServerFailed(address, "is loading its data; try again when it has")
    is_replica = info.get("role") == "slave"
    if is_replica and info.get("master_link_status") != "up":
        raise ServerFailed(address, "is a replica whose link to its master is down")
    in_cluster_mode = info.get("cluster_enabled", "0") != "0" or info.get("redis_mode") == "cluster"
    # Other programs that speak the protocol have other kinds of cursors.
    is_known = "redis_version" in info and not any(
        name.endswith("_version") and name not in ("redis_version", "valkey_version", "gcc_version")
        for name in info
    )  # fmt: skip
    keys = {
        int(name[2:]): int(dict(part.split("=") for part in said.split(","))["keys"])
        for name, said in info.items()
        if name.startswith("db") and name[2:].isdecimal() and "keys=" in said
    }
    if keys.get(0):
        keys[0] = max(0, keys[0] - own_keys)
    return Server(address, group_id, is_replica, keys, is_known and not in_cluster_mode, in_cluster_mode)


def _parsed(info: bytes) -> dict[str, str]:
    return dict(line.split(":", 1) for line in info.decode(errors="replace").splitlines() if ":" in line)
