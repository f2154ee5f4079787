"""The control stream: one WebSocket to topom, over which the proxy registers and gets its tables.

The data plane serves without it. When the stream is lost, the proxy goes on with the table it has, and topom is dialled
again (:mod:`slots.dialing`).
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

import structlog
from pydantic import ValidationError
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from slots.dialing import ControlError, Dialing, SentAway
from slots.messages.control import (
    Drain,
    Heard,
    Heartbeat,
    Leave,
    Left,
    News,
    Proxies,
    ProxyMessage,
    Refused,
    Register,
    Registered,
    Reload,
    Shares,
    Table,
    TellLoad,
    TopomMessage,
    Users,
    parse_topom,
)
from slots.messages.message import MessageError, UnknownMessage, encode, explained
from slots.tls import Certificates

PATH = "/api/v1/control"
REGISTER_SECONDS = 5.0
SEND_SECONDS = 5.0
LEAVE_SECONDS = 2.0
HEARTBEAT_SECONDS_MIN = 0.01
QUEUE_LIMIT = 256
"""The most messages that may wait to be sent. With more, the stream is given up; a new one begins from the present
state."""

log = structlog.get_logger()


class Handler(Protocol):
    """Handles the messages of topom. Each method may raise :class:`ControlError` to end the stream."""

    def registration(self) -> Register:
        """The first message of a stream that is about to begin."""

    def heartbeat(self) -> Heartbeat:
        """The heartbeat to send now."""

    def registered(self, answer: Registered) -> None:
        """topom has registered the proxy, with this answer."""

    def table(self, message: Table) -> None:
        """A table or changes came."""

    def shut_out(self, reason: str) -> None:
        """topom refuses the present identity for good (``fenced`` or ``removed``); a new one is needed."""

    def drain(self) -> None:
        """The proxy has to let its clients go and end."""


class Listener(Protocol):
    """Hears messages about anything but tables, and takes those that are for it."""

    def registered(self, answer: Registered) -> None:
        """topom has registered the proxy, with this answer."""

    def heard(self, message: News) -> None:
        """A message of topom came."""

    def lost(self) -> None:
        """The stream has ended, if there was one."""


class Control:
    """Holds the stream while :meth:`run` runs.

    Args:
        urls: of topom, such as ``http://127.0.0.1:8380``.
        token: the bearer token.
        certificates: for topoms that serve TLS.
        handler: handles the messages.
        listeners: hear the other messages.
    """

    def __init__(
        self, urls: list[str], token: str, certificates: Certificates | None, handler: Handler, *listeners: Listener
    ) -> None:
        self._dialing = Dialing(
            urls,
            PATH,
            token,
            "topom refuses the token; set one of its role proxy or operator here (SLOTFERRY_PROXY_TOKEN)",
            certificates,
        )
        self._handler = handler
        self._listeners = listeners
        self._outgoing: asyncio.Queue[ProxyMessage] | None = None  # while registered
        self._hang_up = asyncio.Event()
        self._leaving = False
        self._left = asyncio.Event()
        self._stands = asyncio.Event()

    def use_token(self, token: str) -> None:
        """Show topom this token from the next stream on. topom ends the present one with its token."""
        self._dialing.token = token

    @property
    def connected(self) -> bool:
        """Whether the proxy is registered and the stream is up."""
        return self._outgoing is not None

    def send(self, message: ProxyMessage) -> None:
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
        self.send(Leave())
        return await _within(LEAVE_SECONDS, self._left)

    async def run(self) -> None:
        """Keep the stream up until cancelled, or until topom has confirmed that the proxy leaves."""
        await self._dialing.run(self._attempt, lambda: self.connected, self._ended, self._left.is_set)

    def _ended(self) -> None:
        self._outgoing = None
        self._stands.clear()
        for listener in self._listeners:
            listener.lost()

    async def _attempt(self, url: str) -> bool:
        """One stream, from connecting to its end; say whether the proxy was registered."""
        self._hang_up.clear()
        async with self._dialing.connect(url) as stream:
            registered = await self._register(stream)
            if registered is None:
                return False
            self._dialing.stands()
            await self._converse(stream, registered)
            return True

    async def _register(self, stream: ClientConnection) -> float | None:
        """Register; give the seconds between heartbeats, or None if a new identity is needed."""
        with _within_the_rules():
            registration = self._handler.registration()
        async with asyncio.timeout(REGISTER_SECONDS):
            # A message that came before the stream was closed still counts. It may say where to go instead.
            with suppress(ControlError):
                await _send(stream, registration)
            try:
                answer = _parse(await stream.recv())
            except ConnectionClosed as error:
                raise ControlError("topom closed the stream") from error
        if isinstance(answer, Refused):
            self._refused(answer)
            return None
        if not isinstance(answer, Registered):
            kind = answer.type if answer is not None else "that is not known here"
            raise ControlError(f"topom answered the registration with a message {kind}")
        self._outgoing = asyncio.Queue(QUEUE_LIMIT)
        try:
            self._handler.registered(answer)
        except ControlError:
            self._outgoing = None
            raise
        for listener in self._listeners:
            listener.registered(answer)
        self._stands.set()
        if self._leaving:
            self.send(Leave())
        log.info("registered", proxy_id=answer.proxy_id, product=answer.product.name)
        return max(answer.heartbeat_seconds, HEARTBEAT_SECONDS_MIN)

    def _refused(self, refused: Refused) -> None:
        shut_out = refused.reason in ("fenced", "removed")
        if self._leaving and shut_out:
            # topom has heard it, though its answer was lost: the proxy is no member any more.
            self._left.set()
        elif shut_out:
            log.warning("shut_out", reason=refused.reason, message=refused.message)
            self._handler.shut_out(refused.reason)
        elif refused.reason == "follower":
            raise SentAway(refused.message, refused.leader)
        else:
            raise ControlError(f"topom refuses the registration: {refused.message}")

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
            match message := _parse(text):
                case Table():
                    self._handler.table(message)
                case Heard() | Proxies() | TellLoad() | Reload() | Shares() | Users():
                    for listener in self._listeners:
                        listener.heard(message)
                case Drain():
                    self._handler.drain()
                case Refused():
                    self._refused(message)
                    return
                case Left():
                    self._left.set()
                    return
                case Registered():
                    raise ControlError("topom has registered the proxy twice")
                case None:
                    pass
        if not self._left.is_set():
            raise ControlError("topom closed the stream")

    async def _send_queued(self, stream: ClientConnection) -> None:
        assert self._outgoing is not None
        while True:
            await _send(stream, await self._outgoing.get())

    async def _send_heartbeats(self, seconds: float) -> None:
        while True:
            with _within_the_rules():
                heartbeat = self._handler.heartbeat()
            self.send(heartbeat)
            await asyncio.sleep(seconds)


@contextmanager
def _within_the_rules() -> Iterator[None]:
    """Code in this block makes a message. One that breaks its own rules ends the stream, and not the proxy."""
    try:
        yield
    except ValidationError as error:
        raise ControlError(
            f"what the proxy has to tell topom breaks the rules of its messages ({explained(error)}); report this"
        ) from error


async def _within(seconds: float, event: asyncio.Event) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


async def _send(stream: ClientConnection, message: ProxyMessage) -> None:
    async with asyncio.timeout(SEND_SECONDS):
        try:
            await stream.send(encode(message))
        except ConnectionClosed as error:
            raise ControlError("topom closed the stream") from error


def _parse(text: str | bytes) -> TopomMessage | None:
    """The message; None for one of a kind that a newer topom may send. A bad message ends the stream, and not the
    proxy."""
    try:
        return parse_topom(text)
    except UnknownMessage as error:
        log.debug("control_message_unknown", reason=str(error))
        return None
    except MessageError as error:
        raise ControlError(f"topom sent a message that cannot be used: {error}") from error
