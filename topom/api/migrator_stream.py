"""The stream of migrators: the WebSocket that each of them holds open to topom.

The messages are those of :mod:`slots.messages.copies`, and each is one frame.

A report that cannot be read is passed over with a warning: it shows that the migrator lives, no slot moves by its
figures, and the next one comes soon. Anything else that cannot be read ends the stream, and with it the copies. It may
have been an answer that a copy waits for, or the two do not speak the same language.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress

import structlog
from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect

from slots.messages import protocol
from slots.messages.control import Refused as Refusal
from slots.messages.copies import (
    PATH,
    MigratorMessage,
    MigratorRegistered,
    RegisterMigrator,
    ToMigrator,
    UnreadableReport,
    parse_migrator,
)
from slots.messages.message import MessageError, encode, sentence
from topom.api.access import CALLER
from topom.api.control import (
    CLOSE_NORMAL,
    CLOSE_REFUSED,
    CLOSE_TRY_AGAIN,
    REGISTER_SECONDS,
    SEND_SECONDS,
    close,
    send_away,
)
from topom.errors import NotLeading, TopomError
from topom.migrators.members import REPORT_SECONDS, SILENT_SECONDS, Migrator, Refused
from topom.term.node import Node
from topom.term.service import Topom
from topom.term.tokens import TOPOM

MOST_WAITING = 8192
"""Messages that may wait for one migrator to read. With more, its stream ends."""

WARN_SECONDS = 60.0
"""Between two warnings of reports that cannot be read."""

router = APIRouter()
log = structlog.get_logger(__name__)


class SocketLink:
    """Sends to one migrator. It is a :class:`topom.migrators.members.Link`."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        self._waiting: asyncio.Queue[ToMigrator] = asyncio.Queue(MOST_WAITING)
        self._ended = asyncio.Event()

    def say(self, message: ToMigrator) -> None:
        try:
            self._waiting.put_nowait(message)
        except asyncio.QueueFull:
            self.end()

    def end(self) -> None:
        self._ended.set()

    async def ended(self) -> None:
        """Return once :meth:`end` was called."""
        await self._ended.wait()

    async def send(self, message: ToMigrator) -> None:
        """Send one message."""
        async with asyncio.timeout(SEND_SECONDS):
            await self._websocket.send_text(encode(message))

    async def send_all(self) -> None:
        """Send what there is to say, until cancelled."""
        while True:
            await self.send(await self._waiting.get())


@router.websocket(PATH)
async def control(websocket: WebSocket) -> None:
    """One migrator's connection, from its registration to its end."""
    node: Node | None = websocket.app.state.node
    await websocket.accept()
    try:
        if node is not None and node.leading is None:
            raise NotLeading("this topom does not lead")
        await _serve(websocket, websocket.app.state.serving())
    except Refused as refused:
        log.warning("migrator_refused", reason=str(refused))
        with suppress(WebSocketDisconnect, TimeoutError, RuntimeError, OSError):
            await SocketLink(websocket).send(Refusal(reason="invalid", message=sentence(str(refused))))
        await close(websocket, CLOSE_REFUSED)
    except NotLeading:
        if node is None:
            await close(websocket, CLOSE_TRY_AGAIN)
            return
        # The first message is read before the answer: whoever has not sent it yet would not see which topom leads.
        with suppress(WebSocketDisconnect, TimeoutError, RuntimeError, KeyError):
            async with asyncio.timeout(REGISTER_SECONDS):
                await websocket.receive_text()
        await send_away(websocket, node)
    except (WebSocketDisconnect, TimeoutError, RuntimeError, OSError) as error:
        log.debug("migrator_stream_ended", reason=repr(error))
        await close(websocket, CLOSE_NORMAL)
    except TopomError as error:
        log.error("migrator_stream_failed", reason=str(error))
        await close(websocket, CLOSE_TRY_AGAIN)


async def _serve(websocket: WebSocket, topom: Topom) -> None:
    async with asyncio.timeout(REGISTER_SECONDS):
        try:
            text = await _text(websocket)
            protocol.check(text, "migrator")
            message: MigratorMessage | None = _parse(text)
        except protocol.OtherProtocol as error:
            raise Refused(str(error)) from error
        except UnreadableReport:
            message = None
    if not isinstance(message, RegisterMigrator):
        raise Refused("the first message has to be of type register_migrator")
    link = SocketLink(websocket)
    await link.send(MigratorRegistered(report_seconds=REPORT_SECONDS))
    own = websocket.scope[CALLER].name == TOPOM
    migrator = topom.migrators.register(message, own, link)
    tasks = [
        asyncio.create_task(_receive(websocket, migrator)),
        asyncio.create_task(link.send_all()),
        asyncio.create_task(link.ended()),
        asyncio.create_task(_retired(topom)),
    ]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        topom.migrators.disconnected(migrator)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await close(websocket, CLOSE_NORMAL)


async def _retired(topom: Topom) -> None:
    await topom.retired.wait()
    raise NotLeading("this topom does not lead any more")


async def _receive(websocket: WebSocket, migrator: Migrator) -> None:
    clock = asyncio.get_running_loop().time
    passed_over, warned_at = 0, -math.inf
    while True:
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                message = _parse(await _text(websocket))
        except UnreadableReport as error:
            passed_over += 1
            if clock() - warned_at >= WARN_SECONDS:
                warned_at = clock()
                log.warning("report_passed_over", migrator=migrator.id, reason=str(error), so_far=passed_over)
            continue
        migrator.take(message)


async def _text(websocket: WebSocket) -> str:
    try:
        return await websocket.receive_text()
    except KeyError:
        raise Refused("frames of the stream are text") from None


def _parse(text: str) -> MigratorMessage:
    try:
        return parse_migrator(text)
    except UnreadableReport:
        raise
    except MessageError as error:
        raise Refused(f"not a message of a migrator: {error}") from error
