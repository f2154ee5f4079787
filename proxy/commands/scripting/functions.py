"""Functions: every master has the same libraries, so a client finds them at the server of any key.

FCALL goes to the server of its keys, or to any server. Libraries change at every master or at none: FUNCTION LOAD,
DELETE, FLUSH and RESTORE are refused while a master cannot be reached. If one master fails, the others are put back as
they were. That includes the masters of groups without slots. Otherwise a deleted library would come back with their
next slots.

A server that joined later, or that lost its libraries, gets the missing ones before the first FCALL there, once for
each connection to it. Its libraries are compared with those of a master that is known to have all, else with those of
all masters. **A library that any master has is one that every master should have**: the comparison never deletes
anything. That undoes no FUNCTION DELETE, because none runs while a master is away. A library that was changed at one
server past the proxy is spread, or comes back; use the proxy for both.
"""

import asyncio
import math
from collections.abc import Iterable
from typing import Any

import hiredis
import structlog

from proxy.commands import replies
from proxy.commands.family import Family, Handler, to_its_end
from proxy.commands.scripting import unnamed
from proxy.commands.scripting.killing import ask_busy, verdict
from proxy.commands.services import Services
from proxy.engine.backend import Backend, command
from proxy.engine.outcomes import Outcome, Unit, clear, settled
from proxy.engine.refusals import NO_SERVER
from proxy.engine.session import Session
from proxy.servers.everywhere import ask, ask_each, unheard, words
from proxy.servers.whileconnected import WhileConnected
from slots import commands
from slots.commands import Code, CodeRequests
from slots.table import SlotTable

log = structlog.get_logger()

RETRY_SECONDS = 1.0
"""Seconds for which a server that may lack libraries counts as complete: not all others said what they have, or it
refused one."""
PING = command(("PING",))
PAUSE_SECONDS = 0.05
"""Pause before a server that is up is asked again."""


class FunctionCommands(Family):
    """The family's handlers.

    Args:
        services: the worker's parts.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._router = services.router
        self._row = commands.table()["FCALL"]
        # For servers that have every library: the connection by which that is known, and until when it holds.
        self._level: dict[str, tuple[WhileConnected, float]] = {}
        # Libraries are compared and changed one after the other.
        self._changing = asyncio.Lock()

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {
            "FCALL": self.fcall,
            "FCALL_RO": self.fcall,
            "FUNCTION|LIST": self.function_any,
            "FUNCTION|DUMP": self.function_any,
            "FUNCTION|LOAD": self.function_change,
            "FUNCTION|DELETE": self.function_change,
            "FUNCTION|FLUSH": self.function_change,
            "FUNCTION|RESTORE": self.function_change,
            "FUNCTION|KILL": self.function_kill,
            "FUNCTION|STATS": self.function_stats,
        }

    def table_applied(self, table: SlotTable) -> None:
        """A server that comes back as a master may be another one."""
        for address in self._level.keys() - set(self._services.every_master()):
            del self._level[address]
            self._router.loaded.forget_libraries()

    # -- running -------------------------------------------------------------------------------------------

    async def fcall(self, session: Session, argv: list[bytes]) -> Outcome:
        """FCALL and FCALL_RO."""
        try:
            keys = commands.keys_of(self._row, argv)
        except commands.KeysError:
            # The server looks for the function first, so it gives the right error.
            keys = []

        def refused() -> bytes | None:
            # absent-first: the request does not tell which keys a function touches.
            return unnamed.FUNCTION_REFUSED if unnamed.moves(self._router, session.database, keys) else None

        while True:
            await settled(refused)
            slot, address = await clear(keys)
            if refused() is not None:
                continue
            if self._is_ready(session, address):
                return Unit(slot, address, command(tuple(argv)))
            error = await self._make_ready(session, address)
            if error is not None:
                return error

    async def function_any(self, session: Session, argv: list[bytes]) -> Outcome:
        """FUNCTION LIST and FUNCTION DUMP: any server that has every library answers."""
        while True:
            slot, address = await clear([])
            if self._is_ready(session, address):
                return Unit(slot, address, command(tuple(argv)))
            error = await self._make_ready(session, address)
            if error is not None:
                return error

    def _is_ready(self, session: Session, address: str) -> bool:
        """Whether a session's next request finds every library at a server."""
        # run-id: a connection that is not up yet may lead to another process.
        return self.is_level(address) and self._router.shared(session, address).is_ready

    async def _make_ready(self, session: Session, address: str) -> bytes | None:
        """Connect the session to a server, and give the server the libraries that it lacks. Returns the error of a
        server that cannot be reached, else None."""
        backend = self._router.shared(session, address)
        if not backend.is_ready:
            reply = await backend.ask(PING)
            if reply.startswith(b"-"):
                return reply
        return await self.level(address)

    # -- comparing -----------------------------------------------------------------------------------------

    def is_level(self, address: str) -> bool:
        """Whether a server is known to have every library."""
        known = self._level.get(address)
        if known is None or not known[0].holds or asyncio.get_running_loop().time() >= known[1]:
            return False
        if known[1] == math.inf:
            # The engine need not ask any more.
            self._router.loaded.note_libraries(self._router.server_index(address))
        return True

    async def level(self, address: str) -> bytes | None:
        """Give a server the libraries that it lacks. Returns the error of a server that cannot be reached, else
        None."""
        async with self._changing:
            return await self._make_level(address)

    async def look_for(self, requests: CodeRequests) -> None:
        """If ``requests`` call functions, give every reachable master the libraries that it lacks."""
        if any(code is Code.FUNCTION for code, _ in requests):
            for address in self._services.every_master():
                if not self.is_level(address):
                    await self._level_if_up(address)

    async def _level_if_up(self, address: str) -> None:
        """Make a server level. Try again if the server can be reached and only the connection for this is in its pause.

        **bounded**: by the longest pause between two attempts to connect.
        """
        limit = self._services.now() + self._services.settings.backend_retry_seconds_max
        while await self.level(address) is not None and self._is_up(address) and self._services.now() < limit:
            await asyncio.sleep(PAUSE_SECONDS)

    def _is_up(self, address: str) -> bool:
        return any(backend.is_ready for backend in self._router.shared_backends if backend.address == address)

    async def _make_level(self, address: str) -> bytes | None:
        if self.is_level(address):
            return None
        backend = self._router.shared_backend(address)
        here = await _libraries(backend)
        standing = WhileConnected(backend)
        if isinstance(here, bytes):
            if not _has_none(here):
                return here
            # Its own errors say so to whoever calls a function there.
            self._level[address] = (standing, math.inf)
            return None
        wanted, complete = await self._libraries_elsewhere(address)
        for name, code in wanted.items():
            if name not in here:
                reply = await ask(backend, command(("FUNCTION", "LOAD", code)))
                if reply.startswith(b"-"):
                    complete = False
                    log.warning("library_not_loaded", server=address, library=name.decode(), reason=words(reply))
            elif here[name] != code:
                log.warning("libraries_differ", server=address, library=name.decode())
        # What it may lack is looked for again.
        until = math.inf if complete else asyncio.get_running_loop().time() + RETRY_SECONDS
        self._level[address] = (standing, until)
        return None

    async def _libraries_elsewhere(self, address: str) -> tuple[dict[bytes, bytes], bool]:
        """The libraries of the other masters, and whether these are all: one that has all was asked, or every one."""
        others = [master for master in self._services.every_master() if master != address]
        level = [master for master in others if self.is_level(master)]
        asked = [self._router.shared_backend(master) for master in (level[:1] or others)]
        given = await asyncio.gather(*map(_libraries, asked))
        found: dict[bytes, bytes] = {}
        for libraries in given:
            if isinstance(libraries, dict):
                found = libraries | found
        return found, all(isinstance(libraries, dict) or _has_none(libraries) for libraries in given)

    # -- changing ------------------------------------------------------------------------------------------

    async def function_change(self, session: Session, argv: list[bytes]) -> Outcome:
        """FUNCTION LOAD, DELETE, FLUSH and RESTORE, at every master or at none."""
        return await to_its_end(self._router, self._change(session, argv))

    async def _change(self, session: Session, argv: list[bytes]) -> bytes:
        async with self._changing:
            masters = self._services.every_master()
            if not masters:
                return NO_SERVER
            what = f"FUNCTION {argv[1].decode(errors='replace').upper()}"
            for address in masters:
                missing = await self._make_level(address)
                if missing is not None:
                    return _not_begun(what, missing)
            shared = [self._router.shared(session, address) for address in masters]
            before = await ask_each(shared, command(("FUNCTION", "DUMP")))
            for address, dump in before.items():
                if unheard(address, dump):
                    return _not_begun(what, dump)
            return await self._change_each(shared, before, command(tuple(argv)))

    async def _change_each(self, shared: list[Backend], before: dict[str, bytes], request: bytes) -> bytes:
        """Change one master and, if it agrees, the others; if one fails, put all back as they were."""
        first, *others = shared
        reply = await ask(first, request)
        if reply.startswith(b"-") and not unheard(first.address, reply):
            return reply
        said = {first.address: reply}
        if not reply.startswith(b"-"):
            said |= await ask_each(others, request)
        errors = {address: reply for address, reply in said.items() if reply.startswith(b"-")}
        if not errors:
            return reply
        # A server that gave no answer may have changed all the same.
        changed = [
            backend
            for backend in shared
            if backend.address in said
            and (backend.address not in errors or unheard(backend.address, errors[backend.address]))
        ]
        different = [backend.address for backend in changed if not await _restore(backend, before[backend.address])]
        address, error = next(iter(errors.items()))
        text = words(error) if unheard(address, error) else f"{words(error)} (at server {address}"
        text += "; " if not unheard(address, error) else " ("
        if different:
            text += f"not undone at {', '.join(different)}: libraries differ between servers, repeat the command)"
        else:
            text += "undone at the others: nothing was changed)"
        return replies.error(text)

    # -- what runs -----------------------------------------------------------------------------------------

    async def function_kill(self, session: Session, argv: list[bytes]) -> Outcome:
        """FUNCTION KILL, at every master."""
        said = await self._ask_busy([command(tuple(argv))])
        return verdict(said) if said else NO_SERVER

    async def function_stats(self, session: Session, argv: list[bytes]) -> Outcome:
        """FUNCTION STATS: of a master at which something runs, else of any."""
        hello = [command(("HELLO", "3"))] if session.protocol == 3 else []
        said = await self._ask_busy([*hello, command(tuple(argv))])
        if not said:
            return NO_SERVER
        # Redis gives the running script first, as null if there is none.
        idle = b"running_script\r\n" + replies.null(session.protocol)
        good = [reply for reply in said.values() if not reply.startswith(b"-")]
        running = [reply for reply in good if idle not in reply[:64]]
        return (running or good or list(said.values()))[0]

    async def _ask_busy(self, requests: list[bytes]) -> dict[str, bytes]:
        services = self._services
        masters = services.masters()
        seconds = services.settings.backend_reply_seconds
        said = await asyncio.gather(*(ask_busy(address, services.options, requests, seconds) for address in masters))
        return dict(zip(masters, said, strict=True))


def _not_begun(what: str, error: bytes) -> bytes:
    return replies.error(f"{words(error)} ({what} has to be done at every master; nothing was changed)")


async def _libraries(backend: Backend) -> dict[bytes, bytes] | bytes:
    """The code of a server's libraries by their names, or the server's error."""
    reply = await ask(backend, command(("FUNCTION", "LIST", "WITHCODE")))
    if reply.startswith(b"-"):
        return reply
    parser = hiredis.Reader()
    parser.feed(reply)
    libraries: Iterable[list[Any]] = parser.gets()
    described = [dict(zip(library[::2], library[1::2], strict=True)) for library in libraries]
    return {library[b"library_name"]: library[b"library_code"] for library in described}


def _has_none(error: bytes) -> bool:
    """Whether a server that answers so has no functions, or hides them from this proxy; else it may have some."""
    return error.startswith((b"-ERR unknown command", b"-NOPERM"))


async def _restore(backend: Backend, dump: bytes) -> bool:
    """Put a server's libraries back as they were."""
    if not dump.startswith(b"$"):
        return False
    header, _, payload = dump.partition(b"\r\n")
    restore = command(("FUNCTION", "RESTORE", payload[: int(header[1:])], "FLUSH"))
    return await ask(backend, restore) == replies.OK
