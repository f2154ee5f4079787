"""The relay: what it holds up arrives later, and what it cuts is closed at both ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest

from tests.histories.relay import CATCHING_SECONDS, KeysHold, Relay
from tests.histories.steps import PLACING

PLACE = PLACING[0]


class Peer:
    """A server that keeps all it is sent and answers each line."""

    def __init__(self) -> None:
        self.got = b""
        self.address = ""
        self.far_ends: list[str] = []
        """Addresses from which connections came."""
        self.ends = 0
        """Connections whose other end has closed them."""
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"

    def stop(self) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.far_ends.append("{}:{}".format(*writer.get_extra_info("peername")))
        try:
            while line := await reader.readline():
                self.got += line
                writer.write(b"+" + line)
        except ConnectionError:
            pass
        self.ends += 1
        writer.close()


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    peer = Peer()
    await peer.start()
    yield peer
    peer.stop()


@pytest.fixture
async def relay(peer: Peer) -> AsyncIterator[Relay]:
    relay = await Relay(peer.address).accept()
    yield relay
    await relay.stop()


class Client:
    """A connection to the relay."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, relay: Relay) -> "Client":
        host, _, port = relay.address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    def send(self, line: bytes) -> None:
        self.writer.write(line)

    async def ask(self, line: bytes) -> bytes:
        self.send(line)
        async with asyncio.timeout(20):
            return await self.reader.readline()


async def until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not met():
            await asyncio.sleep(0.01)


async def test_passes_everything_on(peer: Peer, relay: Relay) -> None:
    client = await Client.open(relay)
    assert await client.ask(b"one\n") == b"+one\n"
    client.writer.close()
    await until(lambda: peer.ends == 1)


async def test_what_is_held_up_arrives_after_its_sender_has_gone(peer: Peer, relay: Relay) -> None:
    held = await Client.open(relay)
    assert await held.ask(b"one\n") == b"+one\n"
    relay.hold(later=False)
    held.send(b"two\n")
    held.writer.close()
    await held.writer.wait_closed()
    # A later connection is not held up, and overtakes it.
    other = await Client.open(relay)
    assert await other.ask(b"three\n") == b"+three\n"
    assert peer.got == b"one\nthree\n"
    relay.release()
    await until(lambda: peer.got == b"one\nthree\ntwo\n")
    other.writer.close()


async def test_only_replies_are_held_up(peer: Peer, relay: Relay) -> None:
    relay.hold(requests=False)
    client = await Client.open(relay)
    reply = asyncio.create_task(client.ask(b"one\n"))
    await until(lambda: peer.got == b"one\n")
    assert not reply.done()
    relay.release()
    assert await reply == b"+one\n"
    client.writer.close()


async def test_a_new_connection_is_held_up_too(peer: Peer, relay: Relay) -> None:
    relay.hold()
    client = await Client.open(relay)
    reply = asyncio.create_task(client.ask(b"one\n"))
    async with asyncio.timeout(20):
        probe = await Client.open(relay)
    relay.release()
    assert await reply == b"+one\n"
    assert await probe.ask(b"two\n") == b"+two\n"
    assert peer.got == b"one\ntwo\n"
    for one in (client, probe):
        one.writer.close()


async def test_cut_and_refused(peer: Peer, relay: Relay) -> None:
    client = await Client.open(relay)
    assert await client.ask(b"one\n") == b"+one\n"
    await relay.refuse()
    relay.break_all()
    with suppress(ConnectionError):
        assert await client.ask(b"two\n") == b""
    await until(lambda: peer.ends == 1)
    with pytest.raises(OSError, match="Connect call failed"):
        await Client.open(relay)
    await relay.accept()
    again = await Client.open(relay)
    assert await again.ask(b"three\n") == b"+three\n"
    again.writer.close()


async def test_one_place_is_held_up_and_the_next_overtakes(peer: Peer, relay: Relay) -> None:
    other = await Client.open(relay)
    mover = await Client.open(relay)
    hold = KeysHold(True, PLACING)
    relay.catch(hold)
    mover.send(PLACE + b" late\n")
    mover.writer.close()
    await mover.writer.wait_closed()
    assert await other.ask(b"GET\n") == b"+GET\n"
    hold_is_over = asyncio.create_task(hold.wait())
    assert hold.caught.is_set()
    await asyncio.sleep(1.1 * CATCHING_SECONDS)
    again = await Client.open(relay)
    assert await again.ask(PLACE + b" again\n") == b"+" + PLACE + b" again\n"
    assert not hold_is_over.done()
    hold.end()
    await hold_is_over
    await until(lambda: peer.got == b"GET\n" + PLACE + b" again\n" + PLACE + b" late\n")
    for one in (other, again):
        one.writer.close()


async def test_keys_of_one_kind_are_held_up_until_something_has_passed(peer: Peer, relay: Relay) -> None:
    other = await Client.open(relay)
    mover = await Client.open(relay)
    hold = KeysHold(True, PLACING, b":flushed:", b"FLUSHDB")
    relay.catch(hold)
    assert await mover.ask(PLACE + b" h1:total:2\n") == b"+" + PLACE + b" h1:total:2\n"
    mover.send(PLACE + b" h1:flushed:2\n")
    await asyncio.wait_for(hold.caught.wait(), 60)
    assert await other.ask(b"GET\n") == b"+GET\n"
    assert not hold.over
    assert await other.ask(b"FLUSHDB\n") == b"+FLUSHDB\n"
    assert hold.over
    await until(lambda: peer.got.endswith(b"FLUSHDB\n" + PLACE + b" h1:flushed:2\n"))
    for one in (other, mover):
        one.writer.close()


async def test_an_answer_is_lost_and_its_connection_ends(peer: Peer, relay: Relay) -> None:
    hold = KeysHold(False, (b"INCR",), b"position", catching=0.0, loses=True)
    relay.catch(hold)
    client, other = await Client.open(relay), await Client.open(relay)
    assert await other.ask(b"INCR\n") == b"+INCR\n"
    assert await client.ask(b"INCR position\n") == b""
    assert peer.got == b"INCR\nINCR position\n", "the server has run it"
    assert await other.ask(b"INCR position\n") == b"+INCR position\n", "one only"
    other.writer.close()


async def test_only_a_replication_stream_is_late(peer: Peer, relay: Relay) -> None:
    follower, other = await Client.open(relay), await Client.open(relay)
    assert await follower.ask(b"PSYNC\n") == b"+PSYNC\n"
    relay.late_seconds = 30.0
    late = asyncio.create_task(follower.ask(b"one\n"))
    await until(lambda: b"one" in peer.got)
    assert await other.ask(b"two\n") == b"+two\n"
    assert not late.done()
    late.cancel()
    other.writer.close()
    follower.writer.close()


async def test_in_a_list_of_clients_followers_have_their_own_addresses(peer: Peer, relay: Relay) -> None:
    follower, other = await Client.open(relay), await Client.open(relay)
    assert await follower.ask(b"PSYNC\n") == b"+PSYNC\n"
    assert await other.ask(b"one\n") == b"+one\n"
    of_follower, of_other = peer.far_ends
    own = "{}:{}".format(*follower.writer.get_extra_info("sockname"))
    assert own != of_follower
    listed = f"id=1 addr={{}} laddr={of_follower} id=2 addr={of_other} \n"
    assert await other.ask(listed.format(of_follower).encode()) == b"+" + listed.format(own).encode()
    # What a follower is sent stays as it is.
    assert await follower.ask(listed.format(of_follower).encode()) == b"+" + listed.format(of_follower).encode()
    for one in (follower, other):
        one.writer.close()
