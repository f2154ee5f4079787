"""The events that a family of slow commands can handle."""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from proxy.engine.outcomes import Outcome
from proxy.engine.router import Router
from proxy.engine.session import Session
from slots.messages.questions import Asked
from slots.table import SlotTable

Steps = Coroutine[Any, Any, Outcome]
"""A handler that has to wait before it decides: see :mod:`proxy.engine.outcomes`."""
Decided = Outcome | Steps
Handler = Callable[[Session, list[bytes]], Decided]
Answer = Callable[[Any], Any]
"""Gets the question, and gives its answer, or waits for it."""


async def to_its_end(router: Router, steps: Coroutine[Any, Any, bytes]) -> bytes:
    """The reply that ``steps`` give. Even if the client leaves, they go on to their end, in a task of their own."""
    task = asyncio.create_task(router.loop.work_time.task(steps))
    router.slow_path.keep(task)
    return await asyncio.shield(task)


class Family:
    """A family of commands. It overrides the events that it needs."""

    def handlers(self) -> dict[str, Handler]:
        """Handlers by the command's name, a subcommand's as ``CLIENT|LIST``."""
        return {}

    def answers(self) -> dict[type[Asked], Answer]:
        """Answers to other workers' questions, by the kind of the question."""
        return {}

    def table_applied(self, table: SlotTable) -> None:
        """A table was put in force."""

    def slots_leaving(self, slots: Collection[int]) -> None:
        """Slots were locked, or go to another server. drained: commands that wait at their servers have to come
        back."""

    def server_lost(self, address: str) -> None:
        """A shared connection to a server was lost; the server may have been restarted."""

    def session_closed(self, session: Session) -> None:
        """A session that has a state was closed."""

    def retiring(self, session: Session) -> None:
        """A waiting session has to end: its wait without a limit is over. Called again until it is closed."""

    def tick(self) -> None:
        """Called ten times a second."""

    async def close(self) -> None:
        """The worker ends."""
