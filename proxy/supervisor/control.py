"""The control stream: one WebSocket to topom, over which the proxy registers and gets its tables.

The data plane serves without it. When the stream is lost, the proxy goes on with the table it has. This module then
tries each of topom's addresses in turn until one answers. Of several topoms, only the leader keeps streams. Another one
says so, and the next address is tried at once.
"""

import asyncio
import json
import math
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any, Protocol, Self

import structlog
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from slots.backoff import Backoff

PATH = "/api/v1/control"
CONNECT_SECONDS = 3.0
REGISTER_SECONDS = 5.0
SEND_SECONDS = 5.0
LEAVE_SECONDS = 2.0
HEARTBEAT_SECONDS_MIN = 0.01
PING_SECONDS = 1.0
"""How often the link is tested; it is given up when there is no answer for twice as long.

Together that is less than a proxy's lease with topom. So the proxy leaves a paused topom before the next leader
fences."""
RETRY_SECONDS_MIN = 0.1
RETRY_SECONDS_MAX = 2.0
MESSAGE_LIMIT_BYTES = 64 * 1024 * 1024
QUEUE_LIMIT = 256
"""The most messages that may wait to be sent. With more, the stream is given up; a new one begins from the present
state."""

log = structlog.get_logger()

Message = dict[str, Any]


class ControlError(Exception):
    """The stream cannot be used. The message says why and what to do."""


class SentAway(ControlError):
    """The topom at the other end does not lead. ``leader`` is the URL of the leader, if that topom knows it."""

    def __init__(self, message: str, leader: str) -> None:
        super().__init__(message)
        self.leader = leader


@dataclass(frozen=True, slots=True)
class Product:
    """The product's fixed values, which topom sends when it registers the proxy. They are the same for all proxies."""

    product: str
    number_of_slots: int
    slot_function: str
    databases: int

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """From a ``registered`` message. Raises :class:`ControlError`."""
        try:
            return cls(
                str(wire["product"]), int(wire["number_of_slots"]), str(wire["slot_function"]), int(wire["databases"])
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ControlError(f"topom's answer to the registration lacks something: {error!r}") from error

    def to_wire(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)


class Handler(Protocol):
    """Handles the messages of topom. Each method may raise :class:`ControlError` to end the stream."""

    def registration(self) -> Message:
        """The fields of ``register`` beyond those of this process."""

    def heartbeat(self) -> Message:
        """The fields of ``heartbeat``."""

    def registered(self, product: Product) -> None:
        """topom has registered the proxy."""

    def table(self, message: Message) -> None:
        """A table or changes came."""

    def shut_out(self, reason: str) -> None:
        """topom refuses the present identity for good (``fenced`` or ``removed``); a new one is needed."""

    def drain(self) -> None:
        """The proxy has to let its clients go and end."""


class Listener(Protocol):
    """Handles messages about anything but tables. An exception means an unusable message, and ends the stream."""

    def registration(self) -> Message:
        """More fields of ``register``."""

    def registered(self, answer: Message) -> None:
        """topom has registered the proxy, with this answer."""

    def heard(self, message: Message) -> bool:
        """Handle a message; false if it is unknown here."""

    def lost(self) -> None:
        """The stream has ended, if there was one."""


class Control:
    """Holds the stream while :meth:`run` runs.

    Args:
        urls: of topom, such as ``http://127.0.0.1:8380``.
        token: the bearer token.
        handler: handles the messages.
        listeners: handle the messages that the handler does not know.
    """

    def __init__(self, urls: list[str], token: str, handler: Handler, *listeners: Listener) -> None:
        self._urls = [_stream_url(url) for url in urls]
        self._token = token
        self._handler = handler
        self._listeners = listeners
        self._outgoing: asyncio.Queue[Message] | None = None  # while registered
        self._hang_up = asyncio.Event()
        self._leaving = False
        self._left = asyncio.Event()
        self._stands = asyncio.Event()
        self._problems: dict[str, str] = {}  # the last message logged, by URL

    @property
    def connected(self) -> bool:
        """Whether the proxy is registered and the stream is up."""
        return self._outgoing is not None

    def send(self, message: Message) -> None:
        """Send soon. Without a stream this does nothing, for a new one begins with the handler's present state."""
        if self._outgoing is None:
            return
        try:
            self._outgoing.put_nowait(message)
        except asyncio.QueueFull:
            self.register_again()

    def register_again(self) -> None:
        """End the stream, if there is one, and begin another."""
        self._hang_up.set()

    async def reach(self) -> bool:
        """Wait until the stream is up; say whether it is. Takes a few seconds at most.

        A proxy that leaves should not go without telling topom because a stream is being lost or a registration is
        under way.
        """
        return await _within(LEAVE_SECONDS, self._stands)

    async def leave(self) -> bool:
        """Tell topom that the proxy leaves for good; say whether topom has confirmed it. Takes a few seconds at most.

        If the stream is lost meanwhile, the message is sent again over the next one.
        """
        self._leaving = True
        self.send({"type": "leave"})
        return await _within(LEAVE_SECONDS, self._left)

    async def run(self) -> None:
        """Keep the stream up until cancelled, or until topom has confirmed that the proxy leaves."""
        backoff = Backoff(RETRY_SECONDS_MIN, RETRY_SECONDS_MAX)
        place = 0
        sent_away = 0  # in a row
        loop = asyncio.get_running_loop()
        while not self._left.is_set():
            began = loop.time()
            place %= len(self._urls)
            url = self._urls[place]
            registered = False
            elsewhere: int | None = None
            try:
                registered = await self._attempt(url)
            except SentAway as error:
                registered = self._outgoing is not None
                elsewhere = self._place_of(error.leader, place)
                self._report(url, error, registered)
            except (ControlError, WebSocketException, OSError, TimeoutError) as error:
                registered = self._outgoing is not None
                # Even if it led: a paused topom takes a connection and says nothing. Another one knows who leads.
                place += 1
                self._report(url, error, registered)
            finally:
                self._outgoing = None
                self._stands.clear()
                for listener in self._listeners:
                    listener.lost()
            if registered and loop.time() - began > RETRY_SECONDS_MAX:
                backoff.reset()
                sent_away = 0
            if elsewhere is not None:
                place = elsewhere
                sent_away += 1
                # bounded: topoms that send the proxy to and fro do not yet agree on the leader.
                if sent_away <= len(self._urls):
                    continue
            sent_away = 0
            await asyncio.sleep(backoff.next())

    def _place_of(self, leader: str, place: int) -> int:
        """The place after ``place``: the leader's, if its address is known here, else the next one."""
        url = _stream_url(leader)
        return self._urls.index(url) if url in self._urls else place + 1

    def _report(self, url: str, error: Exception, registered: bool) -> None:
        """Log a problem once, not at each attempt."""
        if isinstance(error, InvalidStatus) and error.response.status_code in (401, 403):
            problem = "topom refuses the token; set the same one here (SLOTFERRY_PROXY_TOKEN) and there"
        elif isinstance(error, TimeoutError):
            problem = "topom did not answer in time"
        else:
            problem = str(error) or repr(error)
        if registered or problem != self._problems.get(url):
            log.warning("topom_lost" if registered else "topom_unreachable", url=url, reason=problem)
        self._problems[url] = problem

    async def _attempt(self, url: str) -> bool:
        """One stream, from connecting to its end; say whether the proxy was registered."""
        self._hang_up.clear()
        async with connect(
            url,
            additional_headers={"Authorization": f"Bearer {self._token}"} if self._token else None,
            open_timeout=CONNECT_SECONDS,
            ping_interval=PING_SECONDS,
            ping_timeout=2 * PING_SECONDS,
            close_timeout=1.0,
            max_size=MESSAGE_LIMIT_BYTES,
            compression=None,
            proxy=None,
        ) as stream:
            registered = await self._register(stream)
            if registered is None:
                return False
            self._problems.clear()
            await self._converse(stream, registered)
            return True

    async def _register(self, stream: ClientConnection) -> float | None:
        """Register; give the seconds between heartbeats, or None if a new identity is needed."""
        process = {"hostname": socket.gethostname(), "pid": os.getpid(), "version": _version()}
        more = {name: value for listener in self._listeners for name, value in listener.registration().items()}
        registration = {"type": "register", **process, **more, **self._handler.registration()}
        async with asyncio.timeout(REGISTER_SECONDS):
            # A message that came before the stream was closed still counts. It may say where to go instead.
            with suppress(ControlError):
                await _send(stream, registration)
            try:
                answer = _message(await stream.recv())
            except ConnectionClosed as error:
                raise ControlError("topom closed the stream") from error
        if answer["type"] == "refused":
            self._refused(answer)
            return None
        if answer["type"] != "registered":
            raise ControlError(f"topom answered the registration with a message {answer['type']!r}")
        heartbeat_seconds = _heartbeat_seconds(answer)
        product = Product.from_wire(answer)
        self._outgoing = asyncio.Queue(QUEUE_LIMIT)
        try:
            self._handler.registered(product)
        except ControlError:
            self._outgoing = None
            raise
        with _understood(answer):
            for listener in self._listeners:
                listener.registered(answer)
        self._stands.set()
        if self._leaving:
            self.send({"type": "leave"})
        log.info("registered", proxy_id=answer.get("proxy_id"), product=product.product)
        return heartbeat_seconds

    def _refused(self, answer: Message) -> None:
        reason = str(answer.get("reason"))
        if self._leaving and reason in ("fenced", "removed"):
            # topom has heard it, though its answer was lost: the proxy is no member any more.
            self._left.set()
        elif reason in ("fenced", "removed"):
            log.warning("shut_out", reason=reason, message=answer.get("message"))
            self._handler.shut_out(reason)
        elif reason == "follower":
            raise SentAway(str(answer.get("message")), str(answer.get("leader")))
        else:
            raise ControlError(f"topom refuses the registration: {answer.get('message')}")

    async def _converse(self, stream: ClientConnection, heartbeat_seconds: float) -> None:
        """Pass messages both ways until either side ends the stream."""
        tasks = [
            asyncio.create_task(self._receive(stream)),
            asyncio.create_task(self._send_queued(stream)),
            asyncio.create_task(self._send_heartbeats(heartbeat_seconds)),
            asyncio.create_task(self._hang_up.wait()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _receive(self, stream: ClientConnection) -> None:
        async for text in stream:
            message = _message(text)
            match message["type"]:
                case "table":
                    self._handler.table(message)
                case "refused":
                    self._refused(message)
                    return
                case "drain":
                    self._handler.drain()
                case "left":
                    self._left.set()
                    return
                case other:
                    with _understood(message):
                        heard = any(listener.heard(message) for listener in self._listeners)
                    if not heard:
                        log.debug("control_message_unknown", message_type=other)
        if not self._left.is_set():
            raise ControlError("topom closed the stream")

    async def _send_queued(self, stream: ClientConnection) -> None:
        assert self._outgoing is not None
        while True:
            await _send(stream, await self._outgoing.get())

    async def _send_heartbeats(self, seconds: float) -> None:
        while True:
            self.send({"type": "heartbeat", **self._handler.heartbeat()})
            await asyncio.sleep(seconds)


async def _within(seconds: float, event: asyncio.Event) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


def _stream_url(url: str) -> str:
    return url.replace("http", "ws", 1).rstrip("/") + PATH


def _heartbeat_seconds(answer: Message) -> float:
    seconds = answer.get("heartbeat_seconds", 1.0)
    if not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise ControlError(f"topom wants a heartbeat every {seconds!r} s, which is not a number of seconds")
    return max(float(seconds), HEARTBEAT_SECONDS_MIN)


@contextmanager
def _understood(message: Message) -> Iterator[None]:
    """A bad message ends the stream, and not the proxy."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise ControlError(f"topom sent a message {message['type']!r} that cannot be used: {error!r}") from error


async def _send(stream: ClientConnection, message: Message) -> None:
    async with asyncio.timeout(SEND_SECONDS):
        try:
            await stream.send(json.dumps(message, separators=(",", ":")))
        except ConnectionClosed as error:
            raise ControlError("topom closed the stream") from error


def _message(text: str | bytes) -> Message:
    try:
        message = json.loads(text)
    except ValueError as error:
        raise ControlError(f"topom sent something that is not JSON: {text[:80]!r}") from error
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise ControlError(f"topom sent something that is not a message: {text[:80]!r}")
    return message


def _version() -> str:
    try:
        return metadata.version("slotferry")
    except metadata.PackageNotFoundError:  # run from its folder, not installed
        return "0.0.0"
