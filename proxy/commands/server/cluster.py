"""CLUSTER and ASKING in cluster mode: they show the proxies as a Redis Cluster without replicas
(:mod:`proxy.clusterview`).

Without cluster mode, the command table has Redis's own refusals. In both modes, READONLY and READWRITE mean what they
mean at a proxy: whether reads may go to replicas.
"""

from collections.abc import Callable, Iterable
from typing import Any

from proxy.clusterview import FUNCTION, SLOTS, ClusterView, Node, Share
from proxy.commands import replies
from proxy.commands.family import Family, Handler
from proxy.commands.services import Services
from proxy.engine.outcomes import Outcome
from proxy.engine.session import Session
from slots import address, commands, functions

NOT_READY = b"-CLUSTERDOWN this proxy does not know of the others yet; try again\r\n"
SPREAD = (
    "its keys are spread over all servers. 'slotferry sizing run' counts the keys of the slots that servers own, "
    "DBSIZE counts all keys"
)
HELP = (
    "CLUSTER <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "INFO",
    "    Return information about the cluster of proxies.",
    "KEYSLOT <key>",
    "    Return the cluster slot of <key>.",
    "MYID, MYSHARDID",
    "    Return the ids of this proxy and of its shard, which it is alone in.",
    "NODES, SHARDS, SLOTS",
    "    Return the proxies with the slots that clients should use each for. Every proxy serves every key.",
    "HELP",
    "    Print this help.",
)


class ClusterCommands(Family):
    """The family's handlers.

    Args:
        services: the worker's parts.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name; none but in cluster mode."""
        if not self._services.settings.cluster_mode:
            return {}
        return {
            **{name: _refuse for name in commands.table() if name.startswith("CLUSTER|")},
            "ASKING": lambda session, argv: replies.OK,
            "CLUSTER|COUNTKEYSINSLOT": _refuse_keys,
            "CLUSTER|COUNT-FAILURE-REPORTS": self._of_a_node(lambda session: replies.integer(0)),
            "CLUSTER|GETKEYSINSLOT": _refuse_keys,
            "CLUSTER|HELP": lambda session, argv: replies.array(b"+%b\r\n" % line.encode() for line in HELP),
            "CLUSTER|INFO": self._of_all(info),
            "CLUSTER|KEYSLOT": lambda session, argv: replies.integer(functions.slot(FUNCTION, argv[2], SLOTS)),
            "CLUSTER|LINKS": lambda session, argv: replies.array([]),
            "CLUSTER|MYID": self._of_all(lambda view, tls, protocol: replies.bulk(view.own.name)),
            "CLUSTER|MYSHARDID": self._of_all(lambda view, tls, protocol: replies.bulk(view.own.name)),
            "CLUSTER|NODES": self._of_all(nodes),
            "CLUSTER|REPLICAS": self._of_a_node(lambda session: replies.array([])),
            "CLUSTER|SHARDS": self._of_all(shards),
            "CLUSTER|SLAVES": self._of_a_node(lambda session: replies.array([])),
            "CLUSTER|SLOTS": self._of_all(slots),
        }

    # -- about the proxies ---------------------------------------------------------------------------------

    def _of_all(self, answer: Callable[[ClusterView, bool, int], bytes]) -> Handler:
        """Gives ``answer`` the proxies known here, whether the client uses TLS, and its version of RESP."""

        def handle(session: Session, argv: list[bytes]) -> Outcome:
            view = self._services.cluster()
            return NOT_READY if view is None else answer(view, self._uses_tls(session), session.protocol)

        return handle

    def _of_a_node(self, answer: Callable[[Session], bytes]) -> Handler:
        """The answer about a named node, if it is known."""

        def handle(session: Session, argv: list[bytes]) -> Outcome:
            view = self._services.cluster()
            if view is None:
                return NOT_READY
            if all(share.node.name.encode() != argv[2] for share in view.known(self._uses_tls(session))):
                return replies.error(f"ERR Unknown node {replies.shown(argv[2])}")
            return answer(session)

        return handle

    def _uses_tls(self, session: Session) -> bool:
        """Whether the client uses ``tls_listen``; for a client at the Unix socket, whether there is no ``listen``."""
        settings = self._services.settings
        if not settings.tls_listen or not settings.listen:
            return not settings.listen
        port = address.split(settings.tls_listen)[1]
        local = session.local_address()
        if port != address.split(settings.listen)[1]:
            return local.endswith(f":{port}")
        return local == settings.tls_listen


def _refuse(session: Session, argv: list[bytes]) -> Outcome:
    return replies.error(
        f"ERR CLUSTER {replies.shown(argv[1]).upper()} is not for this cluster: its nodes are proxies, which come and "
        "go by themselves. Slots are moved with 'slotferry slot move'"
    )


def _refuse_keys(session: Session, argv: list[bytes]) -> Outcome:
    name, slot = (replies.shown(word) for word in argv[1:3])
    return replies.error(f"ERR CLUSTER {name.upper()} is not for this cluster: slot {slot} is a proxy's; {SPREAD}")


# -- replies -----------------------------------------------------------------------------------------------


def slots(view: ClusterView, tls: bool, protocol: int) -> bytes:
    """CLUSTER SLOTS."""
    return replies.array(
        replies.array(
            [
                replies.integer(share.first),
                replies.integer(share.last),
                replies.array(
                    [
                        replies.bulk(share.node.host),
                        replies.integer(share.node.port_for(tls)),
                        replies.bulk(share.node.name),
                        replies.mapping({}, protocol),
                    ]
                ),
            ]
        )
        for share in view.shares(tls)
    )


def shards(view: ClusterView, tls: bool, protocol: int) -> bytes:
    """CLUSTER SHARDS."""
    return replies.array(
        replies.mapping(
            {
                "slots": replies.array(map(replies.integer, _range(share))),
                "nodes": replies.array([_shard_node(share.node, protocol)]),
            },
            protocol,
        )
        for share in view.known(tls)
    )


def _shard_node(node: Node, protocol: int) -> bytes:
    ports = {"port": node.port, "tls-port": node.tls_port}
    return replies.mapping(
        {
            "id": replies.bulk(node.name),
            **{name: replies.integer(port) for name, port in ports.items() if port},
            "ip": replies.bulk(node.host),
            "endpoint": replies.bulk(node.host),
            "role": replies.bulk("master"),
            "replication-offset": replies.integer(0),
            "health": replies.bulk("online"),
        },
        protocol,
    )


def nodes(view: ClusterView, tls: bool, protocol: int) -> bytes:
    """CLUSTER NODES. There is no cluster bus: its port is 0."""
    return replies.verbatim("".join(_lines(view, tls)), protocol)


def _lines(view: ClusterView, tls: bool) -> Iterable[str]:
    for share in view.known(tls):
        node = share.node
        flags = "myself,master" if node.proxy_id == view.own.proxy_id else "master"
        owned = "".join(f" {share.first}-{share.last}" if share.last > share.first else f" {share.first}")
        yield (
            f"{node.name} {node.host}:{node.port_for(tls)}@0 {flags} - 0 0 {node.proxy_id} connected"
            f"{owned if _range(share) else ''}\n"
        )


def info(view: ClusterView, tls: bool, protocol: int) -> bytes:
    """CLUSTER INFO: the cluster of proxies is up, whatever state the servers are in."""
    epoch = max(share.node.proxy_id for share in view.known(tls))
    fields: dict[str, Any] = {
        "cluster_state": "ok",
        "cluster_slots_assigned": SLOTS,
        "cluster_slots_ok": SLOTS,
        "cluster_slots_pfail": 0,
        "cluster_slots_fail": 0,
        "cluster_known_nodes": len(view.known(tls)),
        "cluster_size": len(view.shares(tls)),
        "cluster_current_epoch": epoch,
        "cluster_my_epoch": view.own.proxy_id,
        "cluster_stats_messages_sent": 0,
        "cluster_stats_messages_received": 0,
        "total_cluster_links_buffer_limit_exceeded": 0,
    }
    return replies.verbatim("".join(f"{name}:{value}\r\n" for name, value in fields.items()), protocol)


def _range(share: Share) -> list[int]:
    return [share.first, share.last] if share.last >= share.first else []
