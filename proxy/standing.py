"""How long something learned of a server holds: as long as the connection that it was learned over.

A server that was restarted, or replaced behind its address, has lost every connection. So what a worker knows of a
server's memory (the scripts and functions loaded there) is kept together with the connection that stood when it was
learned, and is worth nothing once that one is gone.
"""

from proxy.engine.backend import Backend


class Standing:
    """A connection as it is now."""

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
        """Whose connection it is."""
        return self._backend
