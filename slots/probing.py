"""Asks servers again and again which process they are, and measures how long each has been silent.

topom and every proxy do so, each over its own links. :mod:`topom.servers.detector` combines the answers.
A connection leads to one process for as long as it lasts. So a process is asked once which one it is (``INFO``), and
then only whether it is there (``PING``), which costs both sides little.

**bounded**: there is one connection to each server, and one question at a time, which is given up after
``limit_seconds``.
"""

import asyncio
import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, cast

import hiredis

from slots.access import ServerAccess
from slots.connections import PREFIX
from slots.failures import FAILURES
from slots.replies import Info, NotUnderstood, one_of, text_of

NAME = f"{PREFIX}.probing"
"""Name of these connections. They send nothing but INFO and PING, and no process ends them by this name."""
ASK_SECONDS = 0.5
"""Between two questions to a server. One that dies is found silent at most so much later, and a question costs it some
microseconds."""
TICK_SECONDS = 0.02
"""Between two looks at which servers are due. One look asks all that are."""
MOST_A_SECOND = 3000
"""Questions that one process asks in a second. Of more servers than it can ask so often, each is asked less often.
While a server owes no answer it is not silent, however rarely it is asked."""
FIRST_A_SECOND = 2000
"""Servers that are asked for the first time in a second: each needs a connection."""
UNANSWERED_SECONDS = 5.0
"""How long a proxy asks a server that has never answered it before it reports the silence: the server may be slow to
start."""

Seen = Callable[[str, str], object]
"""Called with a server, ``host:port``, and the run id of its process."""


class Probing:
    """The servers of one process.

    Args:
        access: how to log in at the servers.
        limit_seconds: how long an answer may take.
        seen: called at each answer of a process with a known run id, with the server's address and the run id.
        question: what a process with a known run id is asked. The answer is kept if the question is INFO.
    """

    def __init__(
        self,
        access: ServerAccess,
        limit_seconds: float,
        seen: Seen = lambda server, process: None,
        question: tuple[str, ...] = ("PING",),
    ) -> None:
        self._question = question
        self._access = access
        self._limit = limit_seconds
        self._seen = seen
        self._links: dict[str, _Link] = {}
        self._due: list[tuple[float, str]] = []
        """A heap: when each server is asked next."""
        self._asking: asyncio.Task[None] | None = None
        self._looked_at = math.inf
        """When :meth:`_allow_for_absence` last ran. Infinity while nobody is asked."""
        self._closed = False

    def keep(self, servers: Iterable[str]) -> None:
        """Ask these servers, ``host:port`` each, and no others. Within a running event loop."""
        wanted = set() if self._closed else set(servers)
        for server in self._links.keys() - wanted:
            self._links.pop(server).close()
        now = asyncio.get_running_loop().time()
        new = wanted - self._links.keys()
        for server in new:
            self._links[server] = _Link(server, self._access, self._limit, self._seen, self._question, now)
        if new:
            # A new server is asked at once; many new servers are asked one after the other.
            self._due = [(at, server) for at, server in self._due if server in self._links and server not in new]
            self._due += [(now + place / FIRST_A_SECOND, server) for place, server in enumerate(new)]
            heapq.heapify(self._due)
        if self._links and self._asking is None:
            self._looked_at = now
            self._asking = asyncio.create_task(self._ask_in_turn(), name="probing")

    def silent(self, seconds: float, unanswered_seconds: float) -> tuple[dict[str, float], list[str]]:
        """The servers that are not well: by silent server, the seconds since its latest answer; and a list of the
        servers that have never answered.

        Args:
            seconds: a server counts as silent after this time without an answer.
            unanswered_seconds: the same for a server that has never answered, counted from the first question to it.
        """
        now = asyncio.get_running_loop().time()
        # The event loop may come here first after this process was stopped.
        self._allow_for_absence(now)
        silent, unanswered = {}, []
        for server, link in self._links.items():
            if not link.answered:
                unanswered.append(server)
            silence = link.silence(now, ASK_SECONDS)
            if silence >= (seconds if link.answered else unanswered_seconds):
                silent[server] = round(silence, 3)
        return silent, unanswered

    def said(self, server: str, seconds: float) -> bytes | None:
        """A server's answer to a question that was asked at most so many seconds ago; None if there is none."""
        link = self._links.get(server)
        if link is None or link.said is None:
            return None
        asked_at, said = link.said
        return said if asked_at >= asyncio.get_running_loop().time() - seconds else None

    async def close(self) -> None:
        """Stop asking, whatever :meth:`keep` is told from now on."""
        self.keep(())
        self._closed = True
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask_in_turn(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = loop.time()
            self._allow_for_absence(now)
            between = max(ASK_SECONDS, len(self._links) / MOST_A_SECOND)
            while self._due and self._due[0][0] <= now:
                _, server = heapq.heappop(self._due)
                if (asked := self._links.get(server)) is not None:
                    asked.ask(now)
                    heapq.heappush(self._due, (now + between * random.uniform(0.8, 1.2), server))

    def _allow_for_absence(self, now: float) -> None:
        """While this process was stopped, the silence was its own, not the servers'."""
        late, self._looked_at = now - self._looked_at - TICK_SECONDS, now
        if late > self._limit:
            for link in self._links.values():
                link.held_up(late, now)


class _Link:
    """One server, and the connection to it whenever there is one."""

    def __init__(
        self, server: str, access: ServerAccess, limit: float, seen: Seen, question: tuple[str, ...], now: float
    ) -> None:
        self.heard = now
        """When it answered last, or was first asked, by the event loop's clock."""
        self.answered = False
        self.said: tuple[float, bytes] | None = None
        """When the question was asked that it has answered last, and the answer."""
        self.question = question
        self._server = server
        self._access = access
        self._limit = limit
        self._seen = seen
        self._stream: _Stream | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._asked_at = -math.inf
        self._owes_since = math.inf
        """When the first question after the latest answer was asked; infinity if none was."""

    def silence(self, now: float, seconds: float) -> float:
        """Seconds since its latest answer, or since it was first asked; 0 if nothing was asked since.

        The time before the first question without an answer counts for ``seconds`` at most, which is the usual time
        between two questions.
        """
        return max(0.0, now - max(self.heard, self._owes_since - seconds))

    def ask(self, now: float) -> None:
        """Ask, unless a question is under way that may still be answered."""
        stream = self._stream
        if self._connecting is not None or (stream is not None and stream.owed):
            if now - self._asked_at < self._limit:
                return
            self.close()
        if self._asked_at == -math.inf:
            self.heard = now
        self._asked_at = now
        self._owes_since = min(self._owes_since, now)
        if self._stream is None:
            self._connecting = asyncio.create_task(self._connect(), name=f"probing {self._server}")
        else:
            self._stream.question()

    def held_up(self, seconds: float, now: float) -> None:
        """This process was stopped for ``seconds`` until ``now``."""
        self.heard = min(now, self.heard + seconds)
        if self._owes_since < math.inf:
            self._owes_since = min(now, self._owes_since + seconds)

    def close(self) -> None:
        """End the connection, or the attempt to have one."""
        self.said = None
        if self._connecting is not None:
            self._connecting.cancel()
        if self._stream is not None:
            self._stream.abort()
        self._connecting = self._stream = None

    def answers(self, run_id: str, said: bytes | None) -> None:
        """The server has answered every question. ``run_id``: of its process; empty if it did not say it."""
        now = asyncio.get_running_loop().time()
        if now - self._asked_at > self._limit:
            # The answer may have lain here while this process was stopped, and the server may have ended since.
            return
        self.said = (self._asked_at, said) if said is not None else None
        self.heard = now
        self._owes_since = math.inf
        self.answered = True
        if run_id:
            self._seen(self._server, run_id)

    def lost(self, stream: "_Stream") -> None:
        """A connection has ended."""
        if self._stream is stream:
            self._stream = self.said = None

    async def _connect(self) -> None:
        host, _, port = self._server.rpartition(":")
        try:
            async with asyncio.timeout(self._limit):
                _, stream = await asyncio.get_running_loop().create_connection(
                    lambda: _Stream(self), host.strip("[]"), int(port), ssl=self._access.tls
                )
        except (*FAILURES, ValueError):
            return
        finally:
            if self._connecting is asyncio.current_task():
                self._connecting = None
        self._stream = stream
        stream.begin(self._access.login)


class _Stream(asyncio.Protocol):
    """One connection to a server."""

    def __init__(self, link: _Link) -> None:
        self.owed: deque[str] = deque()
        """What has been asked and not been answered, in order."""
        self._link = link
        self._reader = hiredis.Reader()
        self._transport: asyncio.Transport | None = None
        self._run_id = ""

    def begin(self, login: tuple[str, ...]) -> None:
        """Log in, and ask for the first time."""
        if login:
            self._send(*login)
        self._send("CLIENT", "SETNAME", NAME)
        self.question()

    def question(self) -> None:
        """Ask whether it is there, and which process it is while that is not known."""
        if self._run_id:
            self._send(*self._link.question)
        else:
            self._send("INFO", "server")

    def abort(self) -> None:
        """End the connection at once."""
        self._link.lost(self)
        if self._transport is not None:
            with suppress(RuntimeError):
                self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                self._take(reply)
        except (*FAILURES, hiredis.ProtocolError):
            # A process that says something else is not a Redis server that could be used.
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.lost(self)

    def _send(self, *command: str) -> None:
        assert self._transport is not None
        self.owed.append(command[0])
        with suppress(RuntimeError):
            # The function's type hints say that a command is one word.
            self._transport.write(hiredis.pack_command(cast(Any, command)))

    def _take(self, reply: object) -> None:
        if not self.owed:
            raise NotUnderstood("it says something that it was not asked")
        asked = self.owed.popleft()
        said = None
        # An error is an answer, too: only a server that is there can give one.
        if not isinstance(reply, hiredis.ReplyError):
            if asked == "PING":
                one_of(reply, b"PONG")
            elif asked == "INFO" and not self._run_id:
                self._run_id = Info.parse(reply).run_id
            elif asked == "INFO":
                said = text_of(reply)
        if not self.owed:
            self._link.answers(self._run_id, said)
