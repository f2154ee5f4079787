"""Commands about the server that the proxy answers for itself: TIME, ROLE and ACL WHOAMI."""

import time

from proxy.commands import replies
from proxy.commands.clients.clientlist import user_name
from proxy.commands.family import Family, Handler
from proxy.engine.outcomes import Outcome
from proxy.engine.session import Session


class ServerCommands(Family):
    """The family's handlers."""

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name."""
        return {"TIME": self.time, "ROLE": self.role, "ACL|WHOAMI": self.whoami}

    def time(self, session: Session, argv: list[bytes]) -> Outcome:
        """TIME."""
        seconds, microseconds = divmod(time.time_ns() // 1000, 1_000_000)
        return replies.array([replies.bulk(str(seconds)), replies.bulk(str(microseconds))])

    def role(self, session: Session, argv: list[bytes]) -> Outcome:
        """ROLE: a master without replicas. Clients do not see how the servers replicate among themselves."""
        return replies.array([replies.bulk("master"), replies.integer(0), replies.array([])])

    def whoami(self, session: Session, argv: list[bytes]) -> Outcome:
        """ACL WHOAMI."""
        return replies.bulk(user_name(session))
