"""Which server of a group a Sentinel means: it may give an IP address for a server that has a host name in the slot
table.
"""

import asyncio
import ipaddress
from collections.abc import Collection, Iterable

from topom.cluster.topology import parse_address

RESOLVE_SECONDS = 1.0
"""How long a name may take to be resolved; after that, its former addresses are used."""
FRESH_SECONDS = 30.0
"""How long the addresses of a name are used without another look."""

Ends = frozenset[tuple[str, int]]
"""IP addresses, each with the port."""


class Resolver:
    """Resolves addresses and remembers them. **bounded**: as many as the last call of :meth:`keep` got, and a few."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Ends]] = {}

    async def ends(self, address: str) -> Ends:
        """Where ``host:port`` is; empty if that is not known. Does not raise for a valid address."""
        host, port = parse_address(address)
        try:
            return frozenset({(str(ipaddress.ip_address(host)), port)})
        except ValueError:
            pass  # a name
        now = asyncio.get_running_loop().time()
        at, known = self._known.get(address, (now - FRESH_SECONDS, frozenset()))
        if now - at < FRESH_SECONDS:
            return known
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                found = await asyncio.get_running_loop().getaddrinfo(host, port)
            known = frozenset((str(entry[4][0]), port) for entry in found)
        except (OSError, UnicodeError):  # TimeoutError is an OSError; an impossible name is a UnicodeError
            pass
        self._known[address] = now, known
        return known

    async def same(self, named: str, servers: Iterable[str]) -> str | None:
        """The one of ``servers`` that ``named`` is, by its text or by where it is; None if it is none of them."""
        servers = list(servers)
        if named in servers:
            return named
        ends = await self.ends(named)
        for server in servers:
            if ends & await self.ends(server):
                return server
        return None

    def keep(self, addresses: Collection[str]) -> None:
        """Forget all other addresses."""
        self._known = {address: known for address, known in self._known.items() if address in addresses}


def first(ends: Ends) -> tuple[str, int] | None:
    """One of the places, always the same: IPv4 before IPv6."""
    return min(ends, key=lambda end: (":" in end[0], end), default=None)


def text(host: str, port: str | int) -> str:
    """``host:port``, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
