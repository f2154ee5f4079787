"""The stream to topom: over it a migrator registers, is given copies, and reports.

A migrator makes copies only while a topom hears of it. When the stream is lost, all copies end, and topom is dialled
again (:mod:`slots.dialing`). topom has given them up by then, or will: a copy belongs to one stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from migrator.process.copies import Copies
from slots.dialing import ControlError, Dialing, SentAway
from slots.messages.control import Refused
from slots.messages.copies import (
    PATH,
    MigratorMessage,
    MigratorRegistered,
    RegisterMigrator,
    SetPace,
    ToMigrator,
    parse_to_migrator,
)
from slots.messages.message import MessageError, UnknownMessage, encode
from slots.tls import Certificates

REGISTER_SECONDS = 5.0
SEND_SECONDS = 5.0
PONG_SECONDS = 5.0
"""How long topom may say nothing: longer than a busy one does, for the end of the stream costs all copies."""
QUEUE_LIMIT = 4096
"""The most messages that may wait to be sent. With more, the stream is given up."""

log = structlog.get_logger()


class Stream:
    """Holds the stream while :meth:`run` runs.

    Args:
        certificates: for topoms that serve TLS.
        registration: the first message.
        make: gives the copies of a stream, for what they say to topom.
    """

    def __init__(
        self,
        urls: list[str],
        token: str,
        certificates: Certificates | None,
        registration: RegisterMigrator,
        make: Callable[[Callable[[MigratorMessage], None]], Copies],
    ) -> None:
        self._dialing = Dialing(
            urls,
            PATH,
            token,
            "topom refuses the token; set one of its role migrator here (SLOTFERRY_MIGRATOR_TOKEN)",
            certificates,
            PONG_SECONDS,
        )
        self._registration = registration
        self._make = make
        self._registered = False

    def use_token(self, token: str) -> None:
        """Show topom this token from the next stream on. topom ends the present one with its token."""
        self._dialing.token = token

    async def run(self) -> None:
        """Keep the stream up until cancelled."""
        await self._dialing.run(self._attempt, lambda: self._registered, self._ended)

    def _ended(self) -> None:
        self._registered = False

    async def _attempt(self, url: str) -> bool:
        async with self._dialing.connect(url) as stream:
            report_seconds = await self._register(stream)
            self._registered = True
            self._dialing.stands()
            log.info("registered", topom=url)
            await self._converse(stream, report_seconds)
            return True

    async def _register(self, stream: ClientConnection) -> float:
        async with asyncio.timeout(REGISTER_SECONDS):
            try:
                await stream.send(encode(self._registration))
                answer = _parse(await stream.recv())
            except ConnectionClosed as error:
                raise ControlError("topom closed the stream") from error
        if isinstance(answer, Refused):
            _refused(answer)
        if not isinstance(answer, MigratorRegistered):
            raise ControlError("topom answered the registration with another message")
        return answer.report_seconds

    async def _converse(self, stream: ClientConnection, report_seconds: float) -> None:
        """Make copies until either side ends the stream."""
        outgoing: asyncio.Queue[MigratorMessage] = asyncio.Queue(QUEUE_LIMIT)
        overrun = asyncio.Event()

        def say(message: MigratorMessage) -> None:
            try:
                outgoing.put_nowait(message)
            except asyncio.QueueFull:
                overrun.set()

        copies = self._make(say)
        tasks = [
            asyncio.create_task(_receive(stream, copies)),
            asyncio.create_task(_send(stream, outgoing)),
            asyncio.create_task(_report(copies, say, report_seconds)),
            asyncio.create_task(_until(overrun)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # Nothing is written at a target any more, whoever makes the copy next.
            await copies.close()


async def _receive(stream: ClientConnection, copies: Copies) -> None:
    async for text in stream:
        match message := _parse(text):
            case SetPace():
                copies.set_pace(message)
            case Refused():
                _refused(message)
            case MigratorRegistered():
                raise ControlError("topom has registered the migrator twice")
            case None:
                pass
            case _:
                copies.take(message)
    raise ControlError("topom closed the stream")


async def _send(stream: ClientConnection, outgoing: asyncio.Queue[MigratorMessage]) -> None:
    while True:
        message = await outgoing.get()
        async with asyncio.timeout(SEND_SECONDS):
            try:
                await stream.send(encode(message))
            except ConnectionClosed as error:
                raise ControlError("topom closed the stream") from error


async def _report(copies: Copies, say: Callable[[MigratorMessage], None], seconds: float) -> None:
    while True:
        say(await copies.report())
        await asyncio.sleep(seconds)


async def _until(overrun: asyncio.Event) -> None:
    await overrun.wait()
    raise ControlError(f"{QUEUE_LIMIT} messages wait to be sent to topom; it takes none")


def _refused(refused: Refused) -> None:
    if refused.reason == "follower":
        raise SentAway(refused.message, refused.leader)
    raise ControlError(f"topom refuses the migrator: {refused.message}")


def _parse(text: str | bytes) -> ToMigrator | None:
    """The message; None for one of a kind that a newer topom may send."""
    try:
        return parse_to_migrator(text)
    except UnknownMessage as error:
        log.debug("control_message_unknown", reason=str(error))
        return None
    except MessageError as error:
        raise ControlError(f"topom sent a message that cannot be used: {error}") from error
