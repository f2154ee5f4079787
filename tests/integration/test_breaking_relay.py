"""The relay that other tests break links with does what it says, and nothing else."""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import hiredis
import pytest

from slots.connections import ADMIN
from tests.integration.breaking_relay import (
    BOTH_WAYS,
    HELD_BYTES,
    BreakingRelay,
    Direction,
    Peer,
    control_plane,
    proxies,
)

LIMIT = 60.0


def packed(*words: str) -> bytes:
    command: bytes = hiredis.pack_command(words)  # type: ignore[arg-type]
    return command


class Server:
    """Answers every byte with the same one, and keeps what came; a connection's end is kept as ``b"."``."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.listening: asyncio.Server | None = None

    async def start(self) -> int:
        self.listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self.listening.sockets[0].getsockname()[1]
        return port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.received)
        self.received.append(b"")
        self.writers.append(writer)
        with suppress(OSError):
            while data := await reader.read(65536):
                self.received[number] += data
                writer.write(data)
        self.received[number] += b"."
        writer.close()


class Client:
    """One connection through the relay."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def get(self, data: bytes) -> None:
        """Read exactly this."""
        async with asyncio.timeout(LIMIT):
            assert await self.reader.readexactly(len(data)) == data

    async def ended(self) -> int:
        """Wait for the end; the number of the error it came with, or 0."""
        async with asyncio.timeout(LIMIT):
            try:
                assert await self.reader.read() == b""
            except OSError as error:
                return error.errno or -1
        return 0


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    found = Server()
    yield found
    assert found.listening is not None
    found.listening.close()
    for writer in found.writers:
        writer.close()


@pytest.fixture
async def relay(server: Server) -> AsyncIterator[BreakingRelay]:
    async with BreakingRelay(await server.start()) as found:
        yield found


async def connect(relay: BreakingRelay, name: str = "") -> Client:
    host, _, port = relay.address.rpartition(":")
    client = Client(*await asyncio.open_connection(host, int(port)))
    if name:
        hello = packed("CLIENT", "SETNAME", name)
        client.send(hello)
        await client.get(hello)
    return client


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT):
        while not holds():
            await asyncio.sleep(0.005)


async def test_everything_passes_when_nothing_is_wrong(relay: BreakingRelay, server: Server) -> None:
    client, other = await connect(relay), await connect(relay)
    large = bytes(range(256)) * 40_000
    client.send(large)
    other.send(b"hello")
    await client.get(large)
    await other.get(b"hello")
    client.writer.close()
    await until(lambda: large + b"." in server.received)
    server.writers[server.received.index(b"hello")].close()
    assert await other.ended() == 0


async def test_a_cut_resets_who_is_there_and_who_comes(relay: BreakingRelay, server: Server) -> None:
    theirs, ours = await connect(relay, "slotferry.proxy.1.1.1"), await connect(relay, "slotferry.topom")
    fault = relay.cut(proxies)
    assert await theirs.ended() == errno.ECONNRESET
    ours.send(b"on")
    await ours.get(b"on")
    late = await connect(relay)
    late.send(packed("CLIENT", "SETNAME", "slotferry.proxy.1.1.2"))
    assert await late.ended() == errno.ECONNRESET
    assert fault.met == 2
    await until(lambda: sum(received.endswith(b".") for received in server.received) == 2)
    assert not [received for received in server.received if b"1.1.2" in received], "it was let through"

    fault.mend()
    await connect(relay, "slotferry.proxy.1.1.3")


async def test_who_was_refused_a_connection_gets_none(relay: BreakingRelay) -> None:
    present = await connect(relay)
    relay.refuse()
    with pytest.raises(ConnectionRefusedError):
        await connect(relay)
    present.send(b"on")
    await present.get(b"on")
    await relay.listen()
    await connect(relay, "again")


@pytest.mark.parametrize("direction", Direction)
async def test_one_direction_is_held_and_let_go(relay: BreakingRelay, server: Server, direction: Direction) -> None:
    client = await connect(relay)
    client.send(b"before")
    await client.get(b"before")
    fault = relay.hold(directions=frozenset({direction}))
    client.send(b"held")
    await until(lambda: fault.met)
    if direction is Direction.TO_SERVER:
        assert server.received == [b"before"]
        server.writers[0].write(b"other way")
        await client.get(b"other way")
    else:
        assert server.received == [b"beforeheld"]
        client.send(b" too")
        await until(lambda: server.received == [b"beforeheld too"])
    fault.mend()
    await client.get(b"held")
    assert server.received[0].startswith(b"beforeheld")


async def test_bytes_of_a_peer_that_has_gone_arrive_late_and_its_end_behind_them(
    relay: BreakingRelay, server: Server
) -> None:
    client = await connect(relay)
    fault = relay.hold(only_present=True)
    client.send(b"late")
    client.writer.transport.abort()
    await until(lambda: fault.met)
    newer = await connect(relay)
    newer.send(b"newer passes")
    await newer.get(b"newer passes")
    assert server.received == [b"", b"newer passes"]
    fault.mend()
    await until(lambda: server.received == [b"late.", b"newer passes"])


async def test_what_is_held_for_a_connection_that_the_server_has_ended_is_dropped(
    relay: BreakingRelay, server: Server
) -> None:
    client = await connect(relay)
    client.send(b"x")
    await client.get(b"x")
    fault = relay.hold(directions=frozenset({Direction.TO_SERVER}))
    client.send(b"late")
    await until(lambda: fault.met)
    server.writers[0].transport.abort()
    assert await client.ended() == 0
    fault.mend()
    await until(lambda: not relay.peers)
    assert server.received == [b"x."]


async def test_bytes_are_held_by_what_is_in_them(relay: BreakingRelay, server: Server) -> None:
    client, other = await connect(relay), await connect(relay)
    fault = relay.hold(containing=b"REPLACE")
    client.send(b"first")
    await client.get(b"first")
    client.send(b"with REPLACE in it")
    await until(lambda: fault.met)
    client.send(b" and behind")
    other.send(b"passes")
    await other.get(b"passes")
    assert sorted(server.received) == [b"first", b"passes"]
    fault.mend()
    await client.get(b"with REPLACE in it and behind")


async def test_a_fault_can_be_restricted_to_the_connections_that_are_there(
    relay: BreakingRelay, server: Server
) -> None:
    fault = relay.hold(directions=BOTH_WAYS)
    client = await connect(relay)
    client.send(b"held")
    await until(lambda: fault.met)
    relay.restrict_to_present(fault)
    newer = await connect(relay)
    newer.send(b"passes")
    await newer.get(b"passes")
    assert sorted(server.received) == [b"", b"passes"]
    relay.mend()
    await client.get(b"held")


async def test_a_fault_can_be_restricted_to_the_connections_that_it_has_caught(
    relay: BreakingRelay, server: Server
) -> None:
    client, other = await connect(relay), await connect(relay)
    fault = relay.hold(containing=b"late")
    client.send(b"late")
    await until(lambda: fault.met)
    relay.restrict_to_caught(fault)
    other.send(b"late, and passes")
    await other.get(b"late, and passes")
    assert relay.count_present(fault) == 1
    relay.mend()
    await client.get(b"late")


async def test_a_delay_lets_everything_through_later(relay: BreakingRelay) -> None:
    client = await connect(relay)
    fault = relay.delay(0.2)
    loop = asyncio.get_running_loop()
    began = loop.time()
    client.send(b"slow")
    await client.get(b"slow")
    assert loop.time() - began >= 0.4, "there and back"
    relay.delay(3600)
    client.send(b"never mind")
    relay.mend()
    await client.get(b"never mind")
    assert not fault.refused


async def test_held_bytes_have_a_limit(relay: BreakingRelay) -> None:
    client = await connect(relay)
    relay.hold()
    large = b"x" * (HELD_BYTES + 30_000_000)
    client.send(large)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await client.writer.drain()
    relay.mend()
    reading = asyncio.create_task(client.get(large))
    await client.writer.drain()
    await reading


async def test_a_server_that_is_not_there(relay: BreakingRelay, server: Server) -> None:
    assert server.listening is not None
    server.listening.close()
    client = await connect(relay)
    assert await client.ended() == errno.ECONNRESET


@pytest.mark.parametrize(
    ("commands", "matching"),
    [
        ([("CLIENT", "SETNAME", "slotferry.proxy.ab.1.2.")], proxies),
        ([("AUTH", "p"), ("CLIENT", "SETNAME", "slotferry.proxy.ab.1.2.")], proxies),
        ([("HELLO", "3", "SETNAME", "slotferry.proxy.ab.1.2.")], proxies),
        ([("HELLO", "3"), ("client", "setname", ADMIN)], proxies),
        ([("CLIENT", "SETNAME", "slotferry.topom")], control_plane),
        ([("CLIENT", "SETNAME", "slotferry.migrator.ab.1")], control_plane),
        ([("HELLO", "3"), ("CLIENT", "SETINFO", "LIB-NAME", "x"), ("SELECT", "3")], None),
        ([("GET", "slotferry.proxy.")], None),
    ],
)
def test_peers_are_told_apart(commands: list[tuple[str, ...]], matching: Callable[[Peer], bool] | None) -> None:
    peer = Peer()
    sent = b"".join(packed(*command) for command in commands)
    for start in range(0, len(sent), 1000):
        peer.sent(sent[start : start + 1000])
    assert peer.known
    found = [matches for matches in (proxies, control_plane) if matches(peer)]
    assert found == ([matching] if matching else [])


def test_what_is_not_redis_is_nobody_in_particular() -> None:
    peer = Peer()
    peer.sent(b"GET /api/v1/control HTTP/1.1\r\nHost: x\r\n\r\n")
    assert peer.known
    assert (peer.name, peer.first) == ("", "")
