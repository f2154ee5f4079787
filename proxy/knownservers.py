"""Of which processes of servers a worker knows that they cannot have forgotten a fence of the proxy.

**final-fence**: that a server has no mark of a fence says nothing if it was started anew since the mark was set. So
the supervisor tells its workers which process of each server (its run id) was there before topom last answered the
proxy (:mod:`proxy.unfenced`), and a connection to any other process is not used before that is known of it, too. While
topom is away, a server that was not started anew is used on as before.
"""

import math
from collections.abc import Mapping
from typing import Any

from proxy.engine.allowance import clock


class KnownServers:
    """The processes that one worker may take at their word. All are, before :meth:`take` is told otherwise."""

    def __init__(self) -> None:
        self._processes: dict[str, str] = {}
        self._until = math.inf
        self._all = True

    def knows(self, server: str, process: str) -> bool:
        """Whether that process of a server would know of a fence."""
        return self._all or (self._processes.get(server) == process and clock() < self._until)

    def take(self, told: Mapping[str, Any] | None) -> None:
        """Hear of all that are known: ``processes`` by server, and ``until`` when that holds; None for everybody."""
        self._all = told is None
        if told is not None:
            self._processes = dict(told["processes"])
            self._until = float(told["until"])
