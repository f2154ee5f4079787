"""Raises the limit of a worker's open files to the need of its clients, or lets fewer clients in (**bounded**).

Each client is an open file, and so is each connection to a server. A worker that ran out of them could not connect
to servers any more. As Redis does, it asks the system for enough when it starts; where the system allows less, it
takes fewer clients than it was told to, and says so.
"""

import structlog

from proxy.settings import ProxySettings
from slots.openfiles import raise_limit

OTHERS = 256
"""Files for other purposes than clients and their waits: shared connections to servers, listening sockets, logs."""

log = structlog.get_logger()


def most_clients(settings: ProxySettings) -> int:
    """How many clients a worker may have, after the limit of open files was raised as far as needed and allowed."""
    wanted = settings.max_clients + settings.own_connections + OTHERS
    allowed = raise_limit(wanted)
    clients = _fitting(settings, allowed)
    if clients < settings.max_clients:
        log.warning(
            "fewer_clients",
            max_clients=settings.max_clients,
            clients=clients,
            reason=f"{wanted} open files are needed, and the system allows {allowed}: raise that (ulimit -n, or "
            "LimitNOFILE in a unit of systemd), or set a smaller max_clients",
        )
    return clients


def _fitting(settings: ProxySettings, files: int) -> int:
    left = files - OTHERS
    # Each connection of a session's own belongs to one client, so there are never more of them than clients.
    return max(1, min(settings.max_clients, max(left - settings.own_connections, left // 2)))
