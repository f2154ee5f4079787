"""The proxies as the nodes of a Redis Cluster, for clients that want one.

Every proxy serves every key. So a client may ask any node, the age of its view does not matter, and no client ever gets
MOVED. Clients compute the 16,384 cluster slots by themselves (CRC-16, ``{tag}``). The slots only say which proxy a
client prefers for a key. They are unrelated to the product's slots.

Each proxy has one range of cluster slots, by ascending id; the sizes differ by at most one. Every proxy computes the
same ranges from the same list, and a proxy that joins comes last.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from slots import address
from slots.messages.message import ListedProxy

SLOTS = 16_384
"""The number of slots of a Redis Cluster, for any product."""
FUNCTION = "crc16"
"""The slot function of a Redis Cluster."""


@dataclass(frozen=True, slots=True)
class Node:
    """A proxy in the form for clients. ``proxy_id`` is 0 for a proxy that topom does not know yet; a port of 0 means
    none."""

    proxy_id: int
    host: str
    port: int
    tls_port: int

    @classmethod
    def of(cls, listed: ListedProxy) -> Self:
        """The node of a message."""
        return cls(*listed)

    @property
    def listed(self) -> ListedProxy:
        """The reverse of :meth:`of`."""
        return ListedProxy(self.proxy_id, self.host, self.port, self.tls_port)

    @property
    def name(self) -> str:
        """Redis's id of the node: 40 hex digits, the same at every proxy."""
        return hashlib.sha1(f"slotferry proxy {self.proxy_id}".encode(), usedforsecurity=False).hexdigest()

    def port_for(self, tls: bool) -> int:
        """The port for a client with TLS, or without; 0 if there is none."""
        return self.tls_port if tls else self.port


@dataclass(frozen=True, slots=True)
class Share:
    """A node and its cluster slots, from ``first`` to ``last``; ``last`` is below ``first`` if it has none."""

    node: Node
    first: int = 0
    last: int = -1


class ClusterView:
    """One proxy's view of all proxies.

    Args:
        own: this proxy.
        nodes: all proxies that clients may be sent to, by topom's word. This proxy need not be among them: it may be
            about to end. Without any, it stands alone.
    """

    def __init__(self, own: Node, nodes: Iterable[Node] = ()) -> None:
        self.own = own
        self._nodes = sorted(nodes, key=lambda node: node.proxy_id)

    def shares(self, tls: bool) -> list[Share]:
        """The nodes for a client with TLS, or without it, in the order of their slots."""
        nodes = [node for node in self._nodes if node.port_for(tls)] or [self.own]
        # bounded: a node without a slot is of no use to a client.
        nodes = nodes[:SLOTS]
        bounds = [SLOTS * place // len(nodes) for place in range(len(nodes) + 1)]
        return [Share(node, bounds[place], bounds[place + 1] - 1) for place, node in enumerate(nodes)]

    def known(self, tls: bool) -> list[Share]:
        """As :meth:`shares`, and this proxy without slots if it is not among them."""
        shares = self.shares(tls)
        return (
            shares if any(share.node.proxy_id == self.own.proxy_id for share in shares) else [*shares, Share(self.own)]
        )


def why_not_announced(listen: str, announced_host: str) -> str:
    """Why clients could not be told the place of a proxy that listens at ``listen``; empty if they can.

    It begins with the name of the setting to change, as :class:`proxy.settings.ProxySettings` needs it.
    """
    if not listen:
        return "cluster_mode: needs listen or tls_listen, for cluster clients connect to a host and a port"
    if not announced_host and address.split(listen)[0] in ("0.0.0.0", "::"):
        return (
            "cluster_announce_host: is needed with cluster_mode where the proxy listens at every address; give the "
            "host name or the address under which clients reach this proxy"
        )
    return ""
