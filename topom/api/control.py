"""The control stream: the WebSocket that each proxy holds open to topom.

The messages are those of :mod:`slots.messages.control`, and each is one frame. Only the
newest table matters: if a table is stored while the one before is still being sent, the proxy gets the changes from
what it was sent last to the newest table.
"""

import asyncio
from collections import deque
from contextlib import suppress

import structlog
from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect, WebSocketState

from slots.messages import protocol
from slots.messages.control import (
    Ack,
    Drain,
    Heard,
    Heartbeat,
    Leave,
    Left,
    Load,
    Nack,
    ProxyMessage,
    Register,
    Registered,
    Reloaded,
    Resync,
    TopomMessage,
    parse_proxy,
)
from slots.messages.control import Refused as Refusal
from slots.messages.message import MessageError, encode, sentence
from slots.table import SlotTable
from topom.api.wire import framed, wire_of
from topom.cluster.ledger import LostPlace
from topom.errors import NotLeading, TopomError
from topom.proxies.keptusers import UserBook
from topom.proxies.member import Member, Refused
from topom.proxies.proxylist import ProxyList
from topom.proxies.tableframes import TableFrames
from topom.store import StoreError
from topom.term.node import Node
from topom.term.service import Topom

log = structlog.get_logger(__name__)

REGISTER_SECONDS = 5.0
"""How long a new connection may take to register."""
SEND_SECONDS = 10.0
"""How long a frame may take to go out; a proxy that does not read is disconnected, and connects again."""
MAXIMUM_FRAME_BYTES = 1024 * 1024
"""The largest frame that a proxy may send."""
CLOSE_NORMAL = 1000
CLOSE_REFUSED = 1008
CLOSE_TRY_AGAIN = 1013

router = APIRouter()


class SocketLink:
    """Sends to one proxy: tables as they become newer, and lists of proxies, then a last message.

    News is written at once if the connection takes it; otherwise :meth:`send_news` waits for the connection and sends
    it. This class is a :class:`topom.proxies.member.Link`.
    """

    def __init__(self, websocket: WebSocket, frames: TableFrames, proxies: ProxyList, users: UserBook) -> None:
        self._websocket = websocket
        self._wire = wire_of(websocket.scope)
        self._idle = False
        """Whether all news has been sent, so that the next frame may go at once."""
        self._frames = frames
        self._proxies = proxies
        self._proxies_sent = 0
        self._users = users
        self.users_sent = 0
        """The version of the users that the proxy was told of."""
        self.takes_proxies = False
        """Whether the proxy gets the list of proxies."""
        self._said: deque[TopomMessage] = deque()
        self._sent: SlotTable | None = None
        self._news = asyncio.Event()
        self._ended = False
        self._last: TopomMessage | None = None

    def wake(self) -> None:
        while self._idle and not self._ended and self._wire is not None and self._wire.is_writable:
            text = self._next()
            if text is None:
                return
            self._wire.write(self._frames.framed(text, framed))
        self._news.set()

    def end(self, message: TopomMessage | None) -> None:
        if not self._ended:
            self._ended = True
            self._last = message
            self._news.set()

    def say(self, message: TopomMessage) -> None:
        self._said.append(message)
        self.wake()

    def resync(self) -> None:
        """Send the whole table next."""
        self._sent = None
        self.wake()

    async def send(self, message: TopomMessage) -> None:
        """Send one message, before :meth:`send_news` runs."""
        await self._send_text(encode(message))

    async def send_news(self) -> None:
        """Send all news, tables first; returns after :meth:`end` was called and its message was sent."""
        while not self._ended:
            self._news.clear()
            if self._wire is not None:
                async with asyncio.timeout(SEND_SECONDS):
                    await self._wire.drained()
            text = self._next()
            if text is not None:
                await self._send_text(text)
                continue
            self._idle = True
            try:
                await self._news.wait()
            finally:
                self._idle = False
        if self._last is not None:
            await self.send(self._last)

    def _next(self) -> str | None:
        """The next frame; None if nothing is new."""
        table = self._frames.table
        if self._sent is None or self._sent.epoch < table.epoch:
            text = self._frames.frame(self._sent)
            self._sent = table
            return text
        if (users := self._users.frame(self.users_sent)) is not None:
            self.users_sent, frame = users
            return frame
        if self._said:
            return encode(self._said.popleft())
        if self.takes_proxies and (proxies := self._proxies.frame(self._proxies_sent)) is not None:
            self._proxies_sent = proxies[0]
            return proxies[1]
        return None

    async def _send_text(self, text: str) -> None:
        async with asyncio.timeout(SEND_SECONDS):
            await self._websocket.send_text(text)


@router.websocket("/api/v1/control")
async def control(websocket: WebSocket) -> None:
    """One proxy's connection, from its registration to its end."""
    node: Node | None = websocket.app.state.node
    await websocket.accept()
    if node is not None and node.leading is None:
        # Read the first message before the answer: a proxy whose stream is closed before it registers would not see
        # which topom leads.
        with suppress(WebSocketDisconnect, TimeoutError, RuntimeError, KeyError):
            async with asyncio.timeout(REGISTER_SECONDS):
                await websocket.receive_text()
        await send_away(websocket, node)
        return
    topom: Topom = websocket.app.state.serving()
    link = SocketLink(websocket, topom.frames, topom.proxies, topom.users)
    code = CLOSE_NORMAL
    try:
        member = await _register(websocket, topom, link)
        try:
            await _converse(websocket, topom, member, link)
        finally:
            topom.members.disconnected(member, link)
    except Refused as refused:
        code = CLOSE_REFUSED
        log.warning("proxy_refused", reason=refused.reason, message=refused.message)
        await _send_refusal(link, refused)
    except (WebSocketDisconnect, TimeoutError, RuntimeError, OSError) as error:
        # Starlette raises RuntimeError for a send on a connection that is gone.
        log.debug("control_stream_ended", reason=repr(error))
    except (NotLeading, LostPlace):
        if node is not None:
            await send_away(websocket, node)
            return
        code = CLOSE_TRY_AGAIN
    except TopomError as error:
        code = CLOSE_TRY_AGAIN
        log.error("control_stream_failed", reason=str(error))
    await close(websocket, code)


async def _register(websocket: WebSocket, topom: Topom, link: SocketLink) -> Member:
    async with asyncio.timeout(REGISTER_SECONDS):
        text = await _text(websocket)
    try:
        protocol.check(text, "proxy")
    except protocol.OtherProtocol as error:
        raise Refused("invalid", str(error)) from error
    message = _parse(text)
    if not isinstance(message, Register):
        raise Refused("invalid", "the first message has to be of type register")
    member = await topom.members.register(message, link)
    link.takes_proxies = message.cluster is not None
    users = topom.users.told()
    link.users_sent = users.version
    try:
        await link.send(
            Registered(
                proxy_id=member.record.id,
                product=topom.ledger.state.product,
                cluster=topom.ledger.state.cluster_id,
                start=topom.ledger.state.starts[-1].writer,
                heartbeat_seconds=topom.settings.heartbeat_seconds,
                stand_down_seconds=topom.members.stand_down,
                quiet_seconds=topom.settings.server_suspect_seconds,
                users=users,
            )
        )
        if member.record.draining and not message.draining:
            # It was told so over a stream that it has lost, or not at all.
            link.say(Drain())
    except BaseException:
        topom.members.disconnected(member, link)
        raise
    return member


async def _converse(websocket: WebSocket, topom: Topom, member: Member, link: SocketLink) -> None:
    """Send and receive until either side ends. Raises NotLeading once this topom has ceased to lead."""
    retiring = asyncio.create_task(topom.retired.wait())
    sending = asyncio.create_task(link.send_news())
    receiving = asyncio.create_task(_receive(websocket, topom, member, link))
    wire = wire_of(websocket.scope)
    if wire is not None:
        wire.taker = lambda text: _take(text, topom, member, link)
    try:
        await asyncio.wait((sending, receiving, retiring), return_when=asyncio.FIRST_COMPLETED)
        if retiring.done():
            raise NotLeading("this topom does not lead any more")
        if sending.done():
            # The last message is out, or the send failed; what the proxy says now does not matter.
            sending.result()
            return
        receiving.result()
        await sending  # the proxy leaves, and its last message is yet to be sent
    finally:
        if wire is not None:
            wire.taker = None
        for task in (sending, receiving, retiring):
            task.cancel()
        await asyncio.gather(sending, receiving, retiring, return_exceptions=True)


def _take(text: str, topom: Topom, member: Member, link: SocketLink) -> bool:
    """Do what a message asks for, if that needs no wait; gives whether it was done."""
    try:
        message = parse_proxy(text)
    except MessageError:
        return False
    if isinstance(message, Heartbeat) and not topom.members.is_news(member, message.draining, message.stands_down):
        _heartbeat(message, topom, member, link)
    elif isinstance(message, Ack):
        topom.members.heard(member)
        topom.members.acknowledge(member, message.epoch)
    elif isinstance(message, Load):
        topom.members.heard(member)
        try:
            topom.asking.answered(member, link, message)
        except Refused:
            return False
    else:
        return False
    return True


def _heartbeat(message: Heartbeat, topom: Topom, member: Member, link: SocketLink) -> None:
    topom.members.heard(member)
    member.counters = message.counters
    member.users = message.users
    topom.health.heard(member.record.id, message.asked, message.silent, message.unanswered)
    if message.number is not None and topom.members.counts(member):
        link.say(Heard(number=message.number))
    shares = topom.limits.answer(member.record.id, message)
    if shares is not None:
        link.say(shares)


async def _receive(websocket: WebSocket, topom: Topom, member: Member, link: SocketLink) -> None:
    """Take the proxy's messages; returns when it leaves."""
    members = topom.members
    while True:
        message = _parse(await _text(websocket))
        members.heard(member)
        match message:
            case Heartbeat():
                _heartbeat(message, topom, member, link)
                if message.draining:
                    # If that cannot be stored now, the next heartbeat says it again.
                    with suppress(StoreError):
                        await members.drains(member)
                with suppress(StoreError):
                    await members.stands_down(member, message.stands_down)
            case Ack():
                members.acknowledge(member, message.epoch)
            case Nack():
                members.refuse(member, message.epoch, message.reason)
            case Resync():
                link.resync()
            case Leave():
                await members.leave(member)
                link.end(Left())
                return
            case Register():
                raise Refused("invalid", "the proxy is registered already")
            case Load():
                topom.asking.answered(member, link, message)
            case Reloaded():
                topom.reloads.answered(link, message)


async def _text(websocket: WebSocket) -> str:
    try:
        return await websocket.receive_text()
    except KeyError:
        raise Refused("invalid", "frames of the control stream are text") from None


def _parse(text: str) -> ProxyMessage:
    try:
        return parse_proxy(text)
    except MessageError as error:
        raise Refused("invalid", f"not a message of the control stream: {error}") from error


async def _send_refusal(link: SocketLink, refused: Refused) -> None:
    try:
        await link.send(Refusal(reason=refused.reason, message=sentence(refused.message)))
    except (WebSocketDisconnect, TimeoutError, RuntimeError, OSError) as error:
        log.debug("refusal_not_sent", reason=repr(error))


async def send_away(websocket: WebSocket, node: Node) -> None:
    """Send a proxy to the leader at once; if there is no other topom, only end its stream."""
    if not node.shared:
        await close(websocket, CLOSE_TRY_AGAIN)
        return
    leader = node.leader
    said = Refusal(
        reason="follower",
        message=sentence(str(node.reason or "this topom does not lead")),
        leader=leader.url if leader is not None and node.leading is None else "",
    )
    try:
        async with asyncio.timeout(SEND_SECONDS):
            await websocket.send_text(encode(said))
    except (WebSocketDisconnect, TimeoutError, RuntimeError, OSError) as error:
        log.debug("not_sent_away", reason=repr(error))
    await close(websocket, CLOSE_TRY_AGAIN)


async def close(websocket: WebSocket, code: int) -> None:
    if websocket.application_state == WebSocketState.CONNECTED:
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await websocket.close(code)
        except (WebSocketDisconnect, TimeoutError, RuntimeError, OSError) as error:
            log.debug("control_stream_not_closed", reason=repr(error))
