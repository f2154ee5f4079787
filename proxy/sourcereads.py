"""Reads of keys that go in pieces: until the copy is whole the source owns the key, and reads run there.

**absent-first**, the other way round: a read may run at the source only while the key is there. So it goes as a
transaction that looks for its keys first, in the same step; if one has left meanwhile, what was read is thrown away,
and the session goes on waiting for the move, which then is over. Whatever may write waits in any case.

**bounded**: a reply is kept whole, up to the session's output limit.
"""

from collections.abc import Callable
from functools import partial

from proxy.engine.backend import Backend, command
from proxy.engine.router import Router
from proxy.engine.session import Session
from proxy.settings import ProxySettings
from slots import commands
from slots.commands import CommandError
from slots.keys import KeysError

MULTI = command(("MULTI",))
EXEC = command(("EXEC",))


class SourceReads:
    """The reads of one worker's sessions at sources, over connections that carry nothing else.

    Args:
        router: tells the slot of a key.
        settings: limits.
    """

    def __init__(self, router: Router, settings: ProxySettings) -> None:
        self._router = router
        self._settings = settings
        self._backends: dict[tuple[str, int, int], Backend] = {}

    def begin(
        self, session: Session, source: str, leave: Callable[[], bool], otherwise: Callable[[], None] = lambda: None
    ) -> None:
        """Read at the source, if the request at the front of ``session`` is a read of keys of one slot.

        Args:
            leave: takes the session off those who wait for the move; false if it does not wait there any more.
            otherwise: called where the source was asked and the session has no reply by that.
        """
        front = session.front()
        if front is None:
            return
        argv, request = front
        keys = read_keys(argv)
        if not keys or len({self._router.slot_of_key(key) for key in keys}) != 1:
            return
        backend = self.backend(source, session.database, session.protocol)
        said: list[bytes] = []
        for payload in (MULTI, command(("EXISTS", *keys)), request):
            backend.call(payload, said.append)
        backend.call(EXEC, partial(self._answered, session, leave, otherwise, len(keys), said))

    def _answered(
        self,
        session: Session,
        leave: Callable[[], bool],
        otherwise: Callable[[], None],
        keys: int,
        said: list[bytes],
        reply: bytes,
    ) -> None:
        header, _, rest = reply.partition(b"\r\n")
        there, _, answer = rest.partition(b"\r\n")
        if header == b"*2" and there == b":%d" % keys:
            if leave():
                session.complete(answer)
        elif reply.startswith(b"-EXECABORT") and said[2].startswith(b"-"):
            if leave():
                session.complete(said[2])
        else:
            otherwise()

    def backend(self, source: str, database: int, protocol: int) -> Backend:
        """The connection to a source for what runs there in a database."""
        backend = self._backends.get((source, database, protocol))
        if backend is None:
            backend = self._backends[source, database, protocol] = Backend(
                self._router.loop,
                source,
                database,
                protocol,
                self._router.options,
                self._settings.backend_reply_seconds,
            )
        return backend

    def keep(self, sources: set[str]) -> None:
        """Close the connections to all other sources."""
        for name, backend in list(self._backends.items()):
            if name[0] not in sources:
                backend.close()
                del self._backends[name]

    def check_time(self) -> None:
        """Let the connections give up replies that are overdue."""
        for backend in list(self._backends.values()):
            backend.check_time()

    def reset(self, reason: str) -> None:
        """End every connection; who waits for a reply goes on waiting for the move."""
        for backend in list(self._backends.values()):
            backend.reset(reason)


def read_keys(argv: list[bytes]) -> list[bytes]:
    """The keys that a request reads, if it may be read at a source; else none."""
    try:
        row = commands.find(argv)
        # absent-first: the table names what is safe here; that a server calls a command a read does not make it so.
        return commands.keys_of(row, argv) if row.at_source else []
    except (CommandError, KeysError):
        return []
