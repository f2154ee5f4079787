"""A worker's list of server processes that cannot have forgotten a fence of the proxy.

**final-fence**: the absence of a fence's mark means nothing if the server was restarted since the mark was set. So the
supervisor tells its workers which process of each server (by its run id) was there before topom last answered the proxy
(:mod:`proxy.supervisor.standdown.evidence`). A connection to any other process is not used before that process is
known, too. While topom is away, a server that was not restarted is used as before.
"""

import math
from collections.abc import Mapping

from proxy.engine.allowance import clock
from slots.messages.channel import Known


class KnownServers:
    """The processes that one worker may believe. Before the first :meth:`take`, these are all."""

    def __init__(self) -> None:
        self._processes: Mapping[str, str] = {}
        self._until = math.inf
        self._all = True

    def knows(self, server: str, process: str) -> bool:
        """Whether that process of a server would know of any fence."""
        return self._all or (self._processes.get(server) == process and clock() < self._until)

    def take(self, told: Known | None) -> None:
        """Take the known processes; None means that all are known."""
        self._all = told is None
        if told is not None:
            self._processes = told.processes
            self._until = told.until
