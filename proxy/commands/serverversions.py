"""The versions of the servers: the lowest is what clients are told, for by it they choose what they use.

HELLO came with Redis 6. While a server without it has slots, RESP3 is refused, in the words of such a server. A client
that already speaks RESP3 is closed between two requests, so that it comes back with RESP2. SUBSCRIBE is refused, for
the workers' subscriptions need the pushes of RESP3. All that ends by itself when no such server has slots any more.

Each master is asked for its HELLO once, and again when a connection to it was lost: another server may be there.
**bounded**: a HELLO waits for the answers until :data:`WAIT_SECONDS` after a server appeared in the table, and later
not at all.
"""

import asyncio
import re
from functools import partial

import structlog

from proxy.commands.arguments import TABLE_VERSION
from proxy.commands.family import Family
from proxy.commands.services import Services
from proxy.engine.backend import command
from proxy.servers import everywhere
from slots.table import SlotTable

HELLO = command(("HELLO",))
INFO = command(("INFO", "server"))
_VERSION = rb"(\d{1,9}(?:\.\d{1,9}){1,3})\r\n"
_IN_HELLO = re.compile(rb"\$6\r\nserver\r\n\$\d+\r\n(\w+)\r\n\$7\r\nversion\r\n\$\d+\r\n" + _VERSION)
_IN_INFO = re.compile(rb"redis_version:" + _VERSION)
VALKEY = "7.2.4"
"""The version of Redis that a Valkey calls itself compatible with in its INFO. Its HELLO has Valkey's own number."""
WAIT_SECONDS = 1.0
LOOK_SECONDS = 0.02
AGAIN_SECONDS = 1.0
"""Seconds before a server that did not answer is asked again."""

log = structlog.get_logger()


class ServerVersions(Family):
    """Knows the version of each master, and which of them have no HELLO."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._router = services.router
        self._old: dict[str, bool] = {}
        self._versions: dict[str, str] = {}
        self._asked: dict[str, float] = {}  # the time of the question, for servers that have not answered
        self._wait_until = 0.0
        self.old: list[str] = []
        """Addresses of masters with slots that have no HELLO."""
        self._closing = False

    @property
    def lowest(self) -> str:
        """The lowest version of the masters with slots; that of the command table until one is known."""
        known = [version for address in self._services.masters() if (version := self._versions.get(address))]
        return min(known, key=_parts, default=TABLE_VERSION)

    @property
    def lowest_server(self) -> str | None:
        """The address of a master of the lowest version; None if none is known."""
        wanted = self.lowest
        return next((address for address in self._services.masters() if self._versions.get(address) == wanted), None)

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
        for known in (self._old, self._asked, self._versions):
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
        if told := _IN_HELLO.search(reply):
            self._versions[address] = VALKEY if told[1] == b"valkey" else told[2].decode()
        elif old:
            self._router.shared_backend(address).call(INFO, partial(self._told, address))
        self._look()

    def _told(self, address: str, reply: bytes) -> None:
        if address in self._old and (told := _IN_INFO.search(reply)):
            self._versions[address] = told[1].decode()

    def _look(self) -> None:
        self.old = [address for address in self._services.masters() if self._old.get(address)]
        self._closing = bool(self.old)


def _parts(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
