"""Learns commands that only servers know: servers are asked in the background, and the worker's command table grows.

Each master is asked COMMAND once for each connection to it, one after another. An unknown command has them asked again
from time to time: a module may have been loaded since. **bounded**: one question at a time, and a request waits for
answers for :data:`WAIT_SECONDS` at most. A row of the command table is never replaced.
"""

import asyncio
from collections.abc import Callable, Mapping

import hiredis
import structlog

from proxy.engine.backend import command
from proxy.engine.router import Router
from proxy.servers.everywhere import ask, words
from proxy.servers.whileconnected import WhileConnected
from slots import learned
from slots.commands import Command

log = structlog.get_logger()

CHECK_SECONDS = 1.0
WAIT_SECONDS = 2.0
ASK_AGAIN_SECONDS = 60.0
"""Least seconds between two rounds of questions for unknown commands."""


class Learning:
    """The worker's command table, with its learned rows.

    Args:
        known: the command table.
        any_server: commands without keys that any server may answer.
        router: gives the connections, and gets new tables.
        masters: gives the addresses of the masters.
    """

    def __init__(
        self,
        known: Mapping[str, Command],
        any_server: list[str],
        router: Router,
        masters: Callable[[], list[str]],
    ) -> None:
        self._known = dict(known)
        self._any_server = frozenset(name.strip().upper().replace(" ", "|") for name in any_server)
        self._router = router
        self._masters = masters
        self.commands: Mapping[str, Command] = self._known
        """All commands by name."""
        self._rows: dict[str, tuple[str, Command]] = {}
        self._asked: dict[str, WhileConnected] = {}
        self._asking: asyncio.Task[None] | None = None
        self._next_check = 0.0
        self._next_again = 0.0

    def tick(self) -> None:
        """Called a few times a second."""
        now = asyncio.get_running_loop().time()
        if now >= self._next_check:
            self._next_check = now + CHECK_SECONDS
            self.begin()

    def begin(self) -> None:
        """Ask the masters that have not been asked over their present connection."""
        if not self._is_asking():
            unasked = [address for address in self._masters() if not self._is_asked(address)]
            if unasked:
                self._asking = asyncio.create_task(self._ask(unasked))

    def _is_asked(self, address: str) -> bool:
        standing = self._asked.get(address)
        return standing is not None and standing.holds

    async def _ask(self, addresses: list[str]) -> None:
        for address in addresses:
            await self._ask_one(address)

    async def _ask_one(self, address: str) -> None:
        backend = self._router.shared_backend(address)
        reply = await ask(backend, command(("COMMAND",)))
        if reply.startswith(b"-"):
            if backend.is_ready:
                log.warning("commands_not_learned", server=address, reason=words(reply))
                self._asked[address] = WhileConnected(backend)
            return
        self._asked[address] = WhileConnected(backend)
        parser = hiredis.Reader(encoding="utf-8", errors="replace")
        parser.feed(reply)
        self._take(address, learned.missing(self._known, learned.rows(parser.gets(), self._any_server)))

    def _take(self, address: str, rows: dict[str, Command]) -> None:
        """Add the rows of a server to the table. If two servers differ, the first one counts."""
        changed: dict[str, Command] = {}
        for name, row in rows.items():
            source, present = self._rows.get(name, (address, None))
            if present == row:
                continue
            if source != address:
                log.warning("commands_differ", command=name, server=address, other=source)
                continue
            changed[name] = row
            self._rows[name] = (address, row)
        if changed:
            self.commands = {**self._known, **{name: row for name, (_, row) in self._rows.items()}}
            self._router.learn(self.commands)
            log.info("commands_learned", server=address, commands=len(changed), some=sorted(changed)[:10])

    def source(self, name: str) -> str | None:
        """A master that knows a learned command; None if it has gone."""
        address = self._rows[name][0] if name in self._rows else None
        return address if address in self._masters() else None

    def may_help(self) -> bool:
        """Whether a question may make a command known; if so, the question is under way."""
        now = asyncio.get_running_loop().time()
        if not self._is_asking() and now >= self._next_again:
            self._next_again = now + ASK_AGAIN_SECONDS
            self._asked.clear()
            self.begin()
        return self._is_asking()

    def _is_asking(self) -> bool:
        return self._asking is not None and not self._asking.done()

    async def wait(self) -> None:
        """Wait for the question under way, but not for long."""
        if self._asking is not None:
            await asyncio.wait([self._asking], timeout=WAIT_SECONDS)

    def keep_servers(self) -> None:
        """Forget servers that are no longer masters. Their commands stay: another may have the same module."""
        for address in self._asked.keys() - set(self._masters()):
            del self._asked[address]

    async def close(self) -> None:
        """Stop asking."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
