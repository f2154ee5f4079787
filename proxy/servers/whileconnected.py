"""Knowledge about a server holds only as long as the connection by which it was learned.

A server that was restarted, or replaced behind its address, has lost every connection. So a worker's knowledge of a
server's memory (the scripts and functions loaded there) is kept together with the connection of that moment. It no
longer holds once that connection is gone.
"""

from proxy.engine.backend import Backend


class WhileConnected:
    """A connection in its present state."""

    __slots__ = ("_backend", "_name")

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._name = backend.name

    @property
    def holds(self) -> bool:
        """Whether the connection has been up all the time since."""
        return self._backend.is_ready and self._backend.name == self._name

    @property
    def backend(self) -> Backend:
        """The backend of the connection."""
        return self._backend
