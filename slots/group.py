"""A group: a master and its replicas, where they stand, and whether proxies may use them now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slots import fields
from slots.slot import WRONG, TableError


def host_of(address: str) -> str:
    """The host of ``host:port``, an IPv6 one without its brackets."""
    return address.rpartition(":")[0].removeprefix("[").removesuffix("]")


@dataclass(frozen=True, slots=True)
class Group:
    """A master and its replicas. ``servers`` are ``host:port``, the master first; it may be empty.

    ``datacenters`` gives the datacenter of a server by its address, if it has one. ``nodes`` gives its node, the host
    that it runs on. While it is ``locked``, another of its servers is being made its master, and proxies hold requests
    for the slots it owns (**drained**). If its master is ``lost``, proxies do not wait for the replies that it owes
    them. ``unread`` are the replicas that no proxy may read from, because they are known to differ from their master.
    """

    id: int
    servers: tuple[str, ...] = ()
    datacenters: Mapping[str, str] = field(default_factory=dict, hash=False)
    locked: bool = False
    lost: bool = False
    nodes: Mapping[str, str] = field(default_factory=dict, hash=False)
    unread: frozenset[str] = frozenset()

    @property
    def master(self) -> str | None:
        """``host:port`` of the server that takes the writes."""
        return self.servers[0] if self.servers else None

    @property
    def replicas(self) -> tuple[str, ...]:
        """``host:port`` of the servers that follow the master."""
        return self.servers[1:]

    def datacenter_of(self, server: str) -> str:
        """Name of the datacenter of a server; empty if none was given."""
        return self.datacenters.get(server, "")

    def node_of(self, server: str) -> str:
        """Name of the node of a server; the host of its address if none was given."""
        return self.nodes.get(server) or host_of(server)

    def to_wire(self) -> dict[str, Any]:
        """``{"id", "servers": ["host:port", ...], "datacenters": {"host:port": name}, "nodes", "locked", "lost"}``.

        The master comes first. ``datacenters`` and ``nodes`` are left out where no server was given one, ``locked`` and
        ``lost`` where they are false, ``unread`` (a list of addresses) where it is empty.
        """
        wire: dict[str, Any] = {"id": self.id, "servers": list(self.servers)}
        if self.datacenters:
            wire["datacenters"] = dict(self.datacenters)
        if self.nodes:
            wire["nodes"] = dict(self.nodes)
        if self.locked:
            wire["locked"] = True
        if self.lost:
            wire["lost"] = True
        if self.unread:
            wire["unread"] = sorted(self.unread)
        return wire

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Group:
        """The reverse of :meth:`to_wire`. Raises :class:`TableError` for a field that is missing or is not what it has
        to be (:mod:`slots.fields`)."""
        try:
            datacenters, nodes = (fields.names(wire.get(key) or {}) for key in ("datacenters", "nodes"))
            locked, lost = (fields.flag(wire.get(name, False)) for name in ("locked", "lost"))
            servers = tuple(map(fields.server, fields.listed(wire["servers"])))
            unread = frozenset(map(fields.server, fields.listed(wire.get("unread") or [])))
            return cls(fields.group_id(wire["id"]), servers, datacenters, locked, lost, nodes, unread)
        except WRONG as error:
            raise TableError(f"not a group: {wire!r:.300} ({error})") from error
