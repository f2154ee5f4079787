import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from proxy import channel
from proxy.channel import Channel, ChannelError, MessageTooLong
from slots.messages.channel import Answer, Limited, Ready, WorkerMessage, parse_worker


@pytest.fixture
async def ends() -> AsyncIterator[tuple[Channel[WorkerMessage], socket.socket]]:
    """A channel, and the bare socket at its other end."""
    ours, theirs = socket.socketpair()
    opened = await Channel.open(ours, parse_worker)
    theirs.setblocking(False)
    yield opened, theirs
    opened.close()
    theirs.close()


async def test_messages_arrive_whole_and_in_order() -> None:
    ours, theirs = socket.socketpair()
    one, other = await Channel.open(ours, parse_worker), await Channel.open(theirs, parse_worker)
    messages = [Answer(id=size, answer="x" * size) for size in (0, 1, 70_000, 3_000_000)]
    for message in messages:
        one.send(message)
    assert [await other.receive() for _ in messages] == messages
    one.close()
    assert await other.receive() is None
    other.close()


async def test_a_message_cut_off_by_death_is_no_message(ends: tuple[Channel[WorkerMessage], socket.socket]) -> None:
    opened, peer = ends
    peer.send(b'{"type":"ready","address":"a:1"}\n{"type":"ready","addr')
    peer.close()
    assert await opened.receive() == Ready(address="a:1")
    assert await opened.receive() is None


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"not json\n", "message: Expecting value"),
        (b"[" * 100_000 + b"\n", "message: "),
        (b"[1]\n", "message: Input should be"),
        (b'{"no":"type"}\n', "message: Unable to extract tag"),
        (b'{"type":1}\n', "message: Input tag '1'"),
        (b"\xff\n", "message: 'utf-8' codec"),
        (b'{"type":"ready","address":1}\n', "ready.address: Input should be a valid string"),
    ],
)
async def test_what_is_not_a_message_is_an_error_that_says_what_is_wrong(
    ends: tuple[Channel[WorkerMessage], socket.socket], line: bytes, told: str
) -> None:
    opened, peer = ends
    peer.send(line)
    with pytest.raises(ChannelError, match=f"^a message came that cannot be used: {told}"):
        await opened.receive()


async def test_lines_have_a_limit_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "LINE_LIMIT_BYTES", 1000)
    ours, theirs = socket.socketpair()
    opened = await Channel.open(ours, parse_worker)
    with pytest.raises(MessageTooLong, match="a message 'answer' of 1037 bytes"):
        opened.send(Answer(id=1, answer="x" * 1000))
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    sending = asyncio.create_task(loop.sock_sendall(theirs, b"x" * 10_000))
    with pytest.raises(ChannelError, match="1000"):
        await opened.receive()
    opened.close()
    await asyncio.gather(sending, return_exceptions=True)
    theirs.close()


async def test_a_peer_that_does_not_read_is_given_up(
    ends: tuple[Channel[WorkerMessage], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, _ = ends
    monkeypatch.setattr(channel, "UNSENT_LIMIT_BYTES", 1_000_000)

    def send_much() -> None:
        for number in range(100):
            opened.send(Answer(id=number, answer="x" * 100_000))

    with pytest.raises(ChannelError, match="has not read"):
        send_much()
    opened.send(Limited())  # nothing happens any more


async def test_flush_waits_for_the_peer(ends: tuple[Channel[WorkerMessage], socket.socket]) -> None:
    opened, peer = ends
    opened.send(Answer(id=1, answer="x" * 3_000_000))
    flushing = asyncio.create_task(opened.flush())
    loop = asyncio.get_running_loop()
    read = 0
    while not flushing.done():
        read += len(await loop.sock_recv(peer, 1 << 20))
    assert read > 2_000_000
