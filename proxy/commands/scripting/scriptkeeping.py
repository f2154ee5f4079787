"""Checks once a second that servers still have the scripts they should have, and that new servers get them.

A server that was restarted, or has just become a master, gets the scripts that clients loaded through this proxy. It
gets them before a client needs them, through this proxy or another. If a server's scripts were flushed past the proxy,
that is noticed, and it gets them again as they are used. **bounded**: one question about a few scripts at a time.
"""

import asyncio
import random
from collections.abc import Callable
from functools import partial

from proxy.commands import replies
from proxy.commands.scripting.seenscripts import Scripts
from proxy.engine.backend import Backend, command
from proxy.engine.router import Router
from proxy.servers.everywhere import ask
from proxy.servers.whileconnected import WhileConnected

CHECK_SECONDS = 1.0
AT_ONCE = 100
"""The most scripts in one question."""


class ScriptKeeping:
    """Keeps the servers' scripts complete.

    Args:
        scripts: the scripts that this worker remembers.
        router: gives the connections.
        masters: gives the addresses of all masters.
    """

    def __init__(self, scripts: Scripts, router: Router, masters: Callable[[], list[str]]) -> None:
        self._scripts = scripts
        self._router = router
        self._masters = masters
        # Servers that have all scripts that clients loaded, with the connections by which that is known.
        self._complete: dict[str, WhileConnected] = {}
        self._filling: asyncio.Task[None] | None = None
        # So workers that start together do not ask together.
        self._next = asyncio.get_running_loop().time() + random.uniform(0.0, CHECK_SECONDS)

    def tick(self) -> None:
        """Called a few times a second."""
        now = asyncio.get_running_loop().time()
        if now < self._next:
            return
        self._next = now + CHECK_SECONDS
        for backend, names in self._scripts.to_check(AT_ONCE).items():
            backend.call(_exist(names), partial(self._checked, backend, len(names)))
        if self._filling is None or self._filling.done():
            incomplete = [address for address in self._masters() if not self._is_complete(address)]
            if incomplete and self._scripts.loaded():
                self._filling = asyncio.create_task(self._fill(incomplete))

    def _checked(self, backend: Backend, count: int, reply: bytes) -> None:
        if reply != replies.array([replies.integer(1)] * count):
            self._scripts.forget_server(backend.address)

    def complete(self, backend: Backend) -> None:
        """A server has just said over ``backend`` that it took the only script that clients loaded."""
        self._complete[backend.address] = WhileConnected(backend)

    def incomplete(self, address: str) -> None:
        """A server did not take a script."""
        self._complete.pop(address, None)

    def _is_complete(self, address: str) -> bool:
        standing = self._complete.get(address)
        return standing is not None and standing.holds

    async def _fill(self, addresses: list[str]) -> None:
        for address in addresses:
            await self._fill_one(self._router.shared_backend(address))

    async def _fill_one(self, backend: Backend) -> None:
        """Load a server's missing scripts, one at a time. If that fails, the next tick tries again."""
        names = self._scripts.loaded()
        standing: WhileConnected | None = None
        for start in range(0, len(names), AT_ONCE):
            some = names[start : start + AT_ONCE]
            reply = await ask(backend, _exist(some))
            if reply.startswith(b"-"):
                return
            standing = standing or WhileConnected(backend)
            for name, found in zip(some, reply.split(b"\r\n")[1:], strict=False):
                body = self._scripts.body(name) if found == b":0" else None
                if body is not None and (await ask(backend, command(("SCRIPT", "LOAD", body)))).startswith(b"-"):
                    return
        if standing is not None:
            self._complete[backend.address] = standing

    def keep_servers(self) -> None:
        """Forget servers that are no longer masters."""
        for address in self._complete.keys() - set(self._masters()):
            del self._complete[address]

    async def close(self) -> None:
        """Stop."""
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.gather(self._filling, return_exceptions=True)


def _exist(names: list[bytes]) -> bytes:
    return command(("SCRIPT", "EXISTS", *names))
