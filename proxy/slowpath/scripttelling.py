"""A worker tells its supervisor of the scripts that its clients run, so that other proxies hear of them.

Nobody waits for it, and nothing is told twice. **bounded**: one batch is under way at a time, of
:data:`BATCH_BYTES` or a single script, ten times a second at most; of what waits the oldest goes.
"""

import asyncio
from collections import OrderedDict

from proxy.channel import Message
from proxy.slowpath.services import AskAll
from slots.scripts import KnownScripts

BATCH_BYTES = 256 * 1024
MOST_WAITING = 10_000
"""Scripts that may wait to be told; beyond them the oldest is not told."""


class ScriptTelling:
    """What is yet to be told.

    Args:
        scripts: what the worker remembers.
        flushes: how often the proxy had forgotten its scripts when the worker was started.
        ask_all: reaches the supervisor.
    """

    def __init__(self, scripts: KnownScripts, flushes: int, ask_all: AskAll) -> None:
        self.flushes = flushes
        """How often the proxy has forgotten its scripts, as far as this worker has heard."""
        self._scripts = scripts
        self._ask_all = ask_all
        self._waiting: OrderedDict[bytes, None] = OrderedDict()
        self._telling: asyncio.Task[None] | None = None

    def note(self, name: bytes) -> None:
        """A client has run a script that was not known before."""
        self._waiting[name] = None
        if len(self._waiting) > MOST_WAITING:
            self._waiting.popitem(last=False)

    def tick(self) -> None:
        """Called ten times a second."""
        if self._waiting and (self._telling is None or self._telling.done()):
            self._telling = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        scripts: list[Message] = []
        size = 0
        while self._waiting and size < BATCH_BYTES:
            name, _ = self._waiting.popitem(last=False)
            body = self._scripts.peek(name)
            if body is not None:
                scripts.append({"body": body.decode("latin-1"), "loaded": False})
                size += len(body)
        if scripts:
            await self._ask_all("scripts_seen", scripts=scripts, flushes=self.flushes)

    def is_current(self, message: Message) -> bool:
        """Whether another worker speaks of a script that was loaded since the last flush this one has heard of."""
        return bool(message.get("flushes", self.flushes) == self.flushes)

    def forget(self, message: Message) -> None:
        """The proxy has forgotten its scripts."""
        self.flushes = int(message.get("flushes", self.flushes))
        self._waiting.clear()

    async def close(self) -> None:
        """The worker ends."""
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)
