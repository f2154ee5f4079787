"""How many files a worker may have open: raised to what its clients need, or fewer clients let in (**bounded**).

Each client is an open file, and so is each connection to a server. A worker that ran out of them could not connect
to servers any more. As Redis does, it asks the system for enough when it starts; where the system allows less, it
takes fewer clients than it was told to, and says so.
"""

import structlog

from proxy.settings import ProxySettings
from slots.openfiles import raise_limit

OTHERS = 256
"""Files beside clients and what these wait on: shared connections to servers, listening sockets, logs."""

log = structlog.get_logger()


def most_clients(settings: ProxySettings) -> int:
    """How many clients a worker may have, once the limit of open files was raised as far as is needed and allowed."""
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
    # A connection of its own is one client's, so there are never more of those than clients.
    return max(1, min(settings.max_clients, max(left - settings.own_connections, left // 2)))
