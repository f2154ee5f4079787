"""CONFIG GET: one server's reply, without the passwords between the proxy and the servers.

A client that knows such a password can bypass the proxy, its users and their limits, and **one-owner**.
"""

import re

import hiredis

from proxy.commands import replies
from proxy.commands.family import Family, Handler
from proxy.commands.services import Services
from proxy.engine.backend import command
from proxy.engine.outcomes import Outcome
from proxy.engine.refusals import NO_SERVER
from proxy.engine.session import Session
from proxy.servers import everywhere

SECRET = re.compile(rb"pass|auth$|secret", re.IGNORECASE)
"""Names of secret parameters: requirepass, masterauth (primaryauth), tls-key-file-pass, ..."""
DATABASES = b"databases"


class ConfigurationCommands(Family):
    """The family's handler.

    Args:
        services: the worker's parts.
    """

    def __init__(self, services: Services) -> None:
        self._router = services.router
        self._databases = services.databases

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {"CONFIG|GET": self.get}

    async def get(self, session: Session, argv: list[bytes]) -> Outcome:
        """CONFIG GET pattern [pattern ...]."""
        address = self._router.any_address()
        if address is None:
            return NO_SERVER
        said = await everywhere.ask(self._router.shared(session, address), command(tuple(argv)))
        return for_clients(said, self._databases, session.protocol)


def for_clients(reply: bytes, databases: int, protocol: int) -> bytes:
    """A server's reply to CONFIG GET: secrets look unset, and the number of databases is the product's."""
    reader = hiredis.Reader()
    reader.feed(reply)
    found = reader.gets()
    if isinstance(found, list):
        found = dict(zip(found[::2], found[1::2], strict=True))
    if not isinstance(found, dict):
        return reply
    # A server repeats a name as it was asked for: CONFIG GET RequirePass finds it, too.
    shown = {
        name: b"" if SECRET.search(name) else b"%d" % databases if name.lower() == DATABASES else value
        for name, value in found.items()
    }
    if shown == found:
        return reply
    return replies.mapping({name.decode(): replies.bulk(value) for name, value in shown.items()}, protocol)
