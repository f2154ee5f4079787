"""A session that waits at servers, and how it is told to come back."""

import asyncio
from typing import Protocol

from proxy.commands.blocking.blockingrequest import BlockingRequest
from proxy.engine.outcomes import Reply
from proxy.engine.session import Session
from proxy.servers.ownconnections import OwnConnection

NO_SLOT = -1
UNBLOCKED = b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"


class Running(Protocol):
    """Something that is under way for a session that waits."""

    @property
    def over(self) -> bool:
        """Whether it has come to its end."""

    def stop(self, reason: bytes) -> None:
        """Have it come to its end. ``reason`` is the argument of CLIENT UNBLOCK."""

    async def unblocked(self) -> bool:
        """Whether it was ended by :meth:`stop`, and not by its own reply. Waits until that is known."""


class Waiter:
    """A session whose request at the front waits at one or more servers."""

    __slots__ = (
        "asked",
        "closing",
        "commands",
        "followed",
        "leaving",
        "making",
        "parked",
        "request",
        "session",
        "slot",
        "stopped",
    )

    def __init__(self, session: Session, request: BlockingRequest) -> None:
        self.session = session
        self.slot = NO_SLOT
        self.followed = False
        """Whether a handler follows it. If not, the engine goes on when its reply comes."""
        self.request = request
        self.making: set[asyncio.Task[OwnConnection]] = set()
        """Its connections that have yet to be made."""
        self.commands: list[Running] = []
        self.leaving = False
        """Whether its slot is leaving the server."""
        self.asked: bytes | None = None
        """The reason that another client gave with CLIENT UNBLOCK: TIMEOUT or ERROR."""
        self.closing = False
        """Whether its session is closed instead of getting the reply that nothing came."""
        self.stopped = False
        """Whether it was to come back from its servers."""
        self.parked: Reply[bool] | None = None
        """While it waits in the proxy for its slot to be unlocked: what becomes of that. False when its time is
        over."""

    @property
    def waits(self) -> bool:
        """Whether there is something to come back from."""
        return self.parked is not None or bool(self.making) or any(not command.over for command in self.commands)

    def stop(self, reason: bytes) -> None:
        """Have it come back from the servers."""
        self.stopped = True
        if self.parked is not None:
            self.parked.give(True)
        for task in self.making:
            task.cancel()
        for command in self.commands:
            command.stop(reason)
