"""Commands about the server that the proxy answers for itself: TIME and ROLE, and LOLWUT."""

import time

from proxy.commands import replies
from proxy.commands.family import Family, Handler
from proxy.commands.serverversions import ServerVersions
from proxy.commands.services import Services
from proxy.engine.backend import command
from proxy.engine.outcomes import ANY_SERVER, Outcome
from proxy.engine.session import Session
from proxy.servers import everywhere


class ServerCommands(Family):
    """The family's handlers.

    Args:
        services: the worker's parts.
        versions: of the servers.
    """

    def __init__(self, services: Services, versions: ServerVersions) -> None:
        self._services = services
        self._versions = versions

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {"TIME": self.time, "ROLE": self.role, "LOLWUT": self.lolwut}

    def time(self, session: Session, argv: list[bytes]) -> Outcome:
        """TIME."""
        seconds, microseconds = divmod(time.time_ns() // 1000, 1_000_000)
        return replies.array([replies.bulk(str(seconds)), replies.bulk(str(microseconds))])

    def role(self, session: Session, argv: list[bytes]) -> Outcome:
        """ROLE: a master without replicas. Clients do not see how the servers replicate among themselves."""
        return replies.array([replies.bulk("master"), replies.integer(0), replies.array([])])

    async def lolwut(self, session: Session, argv: list[bytes]) -> Outcome:
        """LOLWUT: a server of the lowest version draws, and tells its version."""
        address = self._versions.lowest_server
        if address is None:
            return ANY_SERVER
        return await everywhere.ask(self._services.router.shared(session, address), command(tuple(argv)))
