"""Which server of a group a Sentinel means: it may say an IP address where the slot table says a host's name."""

import asyncio
import ipaddress
from collections.abc import Collection, Iterable

from topom.cluster.topology import parse_address

RESOLVE_SECONDS = 1.0
"""How long a name may take to be resolved; what was known of it before is used otherwise."""
FRESH_SECONDS = 30.0
"""For how long what a name was resolved to is used without another look."""

Ends = frozenset[tuple[str, int]]
"""IP addresses, each with the port."""


class Resolver:
    """Resolves addresses and remembers them. **bounded**: as many as :meth:`keep` was last given, and a few."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Ends]] = {}

    async def ends(self, address: str) -> Ends:
        """Where ``host:port`` is; empty when nobody knows. Does not raise for a proper address."""
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
        except (OSError, UnicodeError):  # TimeoutError is the former; a name that cannot be one is the latter
            pass
        self._known[address] = now, known
        return known

    async def same(self, named: str, servers: Iterable[str]) -> str | None:
        """That of ``servers`` which ``named`` is, by its text or by where it is; None if it is none of them."""
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
