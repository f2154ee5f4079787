"""The supervisor's list of the other proxies in cluster mode: it tells topom its own place, and receives the others'.

While topom is away, the last list holds. A list is never wrong for clients, only older: see :mod:`proxy.clusterview`.
"""

from collections.abc import Callable, Mapping

import structlog

from proxy.clusterview import Node
from proxy.settings import ProxySettings
from slots import address
from slots.messages import channel
from slots.messages.control import ClusterAddress, News, Proxies, Registered

log = structlog.get_logger()


class Announcements:
    """The proxies that cluster clients are told of (:class:`proxy.supervisor.control.Listener`).

    Args:
        settings: of the proxy.
        places: the true addresses where it listens, by the setting that names the place.
        changed: called when workers have to get another list.
    """

    def __init__(
        self, settings: ProxySettings, places: Callable[[], Mapping[str, str]], changed: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._places = places
        self._changed = changed
        self._proxy_id = 0
        self._nodes: list[Node] = []

    @property
    def own(self) -> Node:
        """This proxy."""
        settings, places = self._settings, self._places()
        hosts = [address.split(places[place])[0] for place in ("listen", "tls_listen") if place in places]
        ports = {
            place: announced or address.split(places[place])[1] if place in places else 0
            for place, announced in (
                ("listen", settings.cluster_announce_port),
                ("tls_listen", settings.cluster_announce_tls_port),
            )
        }
        return Node(self._proxy_id, settings.cluster_announce_host or hosts[0], ports["listen"], ports["tls_listen"])

    def message(self) -> channel.Proxies | None:
        """The message to workers; None if this proxy is no node of a cluster."""
        if not self._settings.cluster_mode:
            return None
        return channel.Proxies(own=self.own.listed, nodes=[node.listed for node in self._nodes])

    # -- messages of topom (proxy.supervisor.control.Listener)

    def registration(self) -> ClusterAddress | None:
        """Where cluster clients connect, for the registration; None if this proxy is no node of a cluster."""
        if not self._settings.cluster_mode:
            return None
        own = self.own
        return ClusterAddress(host=own.host, port=own.port, tls_port=own.tls_port)

    def registered(self, answer: Registered) -> None:
        """topom has registered the proxy under this id."""
        if answer.proxy_id != self._proxy_id:
            self._proxy_id = answer.proxy_id
            self._changed()

    def heard(self, message: News) -> None:
        """Take a list of proxies."""
        if not isinstance(message, Proxies):
            return
        nodes = [Node.of(proxy) for proxy in message.proxies]
        if nodes != self._nodes:
            self._nodes = nodes
            log.debug("proxies_heard", proxies=len(nodes))
            self._changed()

    def lost(self) -> None:
        """The stream has ended; the last list holds."""
