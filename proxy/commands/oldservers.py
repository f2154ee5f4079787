"""Servers without HELLO, which came with Redis 6: what a proxy does not offer while such a server has slots.

RESP3 is refused, in the words of such a server. A client that already speaks RESP3 is closed between two requests, so
that it comes back with RESP2. SUBSCRIBE is refused, for the workers' subscriptions need the pushes of RESP3. All that
ends by itself when no such server has slots any more.

Each master is asked once, and again when a connection to it was lost: another server may be there. **bounded**: a HELLO
waits for the answers until :data:`WAIT_SECONDS` after a server appeared in the table, and later not at all.
"""

import asyncio
from functools import partial

import structlog

from proxy.commands.family import Family
from proxy.commands.services import Services
from proxy.engine.backend import command
from proxy.servers import everywhere
from slots.table import SlotTable

HELLO = command(("HELLO",))
WAIT_SECONDS = 1.0
LOOK_SECONDS = 0.02
AGAIN_SECONDS = 1.0
"""Seconds before a server that did not answer is asked again."""

log = structlog.get_logger()


class OldServers(Family):
    """Knows which masters with slots are that old."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._router = services.router
        self._old: dict[str, bool] = {}
        self._asked: dict[str, float] = {}  # the time of the question, for servers that have not answered
        self._wait_until = 0.0
        self.found: list[str] = []
        """Addresses of old masters that have slots."""
        self._closing = False

    @property
    def unsure(self) -> bool:
        """Whether servers that are new to the table may still answer soon."""
        return self._services.now() < self._wait_until and any(
            address not in self._old for address in self._services.masters()
        )

    async def sure(self) -> None:
        """Wait while :attr:`unsure`."""
        while self.unsure:
            await asyncio.sleep(LOOK_SECONDS)

    def table_applied(self, table: SlotTable) -> None:
        """Ask servers that are new to the table; forget servers that have left it."""
        present = set(self._services.every_master())
        for known in (self._old, self._asked):
            for address in known.keys() - present:
                del known[address]
        new = present - self._old.keys() - self._asked.keys()
        if new:
            self._wait_until = self._services.now() + WAIT_SECONDS
        for address in new:
            self._ask(address)
        self._look()

    def server_lost(self, address: str) -> None:
        """Another server may come back. The old answer holds until there is a new one."""
        if address in self._old:
            self._asked[address] = self._services.now()

    def tick(self) -> None:
        """Ask servers again that did not answer, and close clients that speak RESP3 while there is an old server."""
        now = self._services.now()
        for address in [address for address, at in self._asked.items() if now - at > AGAIN_SECONDS]:
            self._ask(address)
        if self._closing:
            left = [session for session in self._router.sessions if session.protocol == 3]
            for session in left:
                session.drain()
            self._closing = bool(left)

    def _ask(self, address: str) -> None:
        self._asked[address] = self._services.now()
        self._router.shared_backend(address).call(HELLO, partial(self._answered, address))

    def _answered(self, address: str, reply: bytes) -> None:
        if address not in self._asked or everywhere.unheard(address, reply):
            return
        del self._asked[address]
        old = reply.startswith(b"-ERR unknown command")
        if old and not self._old.get(address):
            log.warning("old_server", server=address, reason="it knows no HELLO; clients get no RESP3 and no SUBSCRIBE")
        self._old[address] = old
        self._look()

    def _look(self) -> None:
        self.found = [address for address in self._services.masters() if self._old.get(address)]
        self._closing = bool(self.found)
