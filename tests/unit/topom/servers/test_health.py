"""What is known of servers that nobody has looked at yet, or only just."""

import asyncio
from collections.abc import Awaitable, Callable

import hiredis
import pytest

from slots.access import ServerAccess
from slots.probing import Probing
from tests.unit.topom.operators import eventually
from tests.unit.topom.topom_fakes import Bench, FakeProxy
from topom.cluster import topology
from topom.cluster.events import What
from topom.servers.detector import Condition, DetectorSettings
from topom.servers.health import Health


async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers every request with an error. Only a server that is there can do that."""
    while sent := await reader.read(4096):
        writer.write(b"-ERR not now\r\n" * sent.count(b"*"))
        await writer.drain()
    writer.close()


async def test_a_server_is_unknown_until_it_was_looked_at() -> None:
    server = await asyncio.start_server(answering, "127.0.0.1", 0)
    there = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    bench = await Bench().start()
    # Nobody listens at port 1.
    await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1, [there, "127.0.0.1:1"]))
    health = Health(bench.ledger, ServerAccess(), DetectorSettings(1.5, 1.6, 5.0), 0.5)
    assert health.of(there).condition is Condition.UNKNOWN, "before topom runs"
    running = asyncio.create_task(health.run())
    try:
        await health.looked.wait()
        assert {health.of(one).condition for one in (there, "127.0.0.1:1")} == {Condition.UNKNOWN}
        await eventually(lambda: health.of(there).condition is Condition.ALIVE)
        assert health.of("127.0.0.1:1").condition is Condition.UNKNOWN
        # When: a proxy does not reach it, but topom does.
        member = (await FakeProxy(bench, 1).register()).member
        assert member is not None
        proxy, epoch = member.record.id, bench.ledger.table.epoch
        # A proxy that is not a member has no view; a proxy with a table that this topom does not have has none either.
        health.heard(proxy + 1, epoch, {there: 9.0}, [])
        health.heard(proxy, epoch + 1, {there: 9.0}, [])
        assert health.silence(there) < 9.0
        health.heard(proxy, epoch, {there: 9.0}, ["127.0.0.1:1"])
        await eventually(lambda: health.of(there).condition is Condition.SUSPECTED)
        assert health.hears(there)
        assert health.silence(there) >= 9.0
        assert not health.hears("127.0.0.1:1")
        health._detector.keep_only([])
        await eventually(lambda: health.of("127.0.0.1:1").condition is Condition.FAILED)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        server.close()
        await bench.stop()


async def test_a_server_that_never_answered_has_been_silent_only_after_a_while() -> None:
    probing = Probing(ServerAccess(), 0.5)
    try:
        probing.keep(["127.0.0.1:1"])
        assert probing.silent(0.0, 60.0) == ({}, ["127.0.0.1:1"])
        assert probing.silent(60.0, 0.0)[0].keys() == {"127.0.0.1:1"}
    finally:
        await probing.close()


@pytest.mark.long
async def test_a_process_is_asked_once_who_it_is() -> None:
    """run-id: and it is asked again over a new connection, which may lead to another process."""
    asked: list[list[bytes]] = []
    run_id = "1" * 40
    connections: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        commands = hiredis.Reader()
        while data := await reader.read(4096):
            commands.feed(data)
            while (command := commands.gets()) is not False:
                asked.append(command)
                said = f"# Server\r\nrun_id:{run_id}\r\n".encode()
                reply = b"$%d\r\n%s\r\n" % (len(said), said) if command[0] == b"INFO" else b"+PONG\r\n"
                writer.write(reply if command[0] != b"CLIENT" else b"+OK\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    there = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    seen: list[str] = []
    probing = Probing(ServerAccess(), 0.5, lambda server, process: seen.append(process))
    try:
        probing.keep([there])
        await eventually(lambda: len(seen) >= 4)
        assert [command[0] for command in asked[:5]] == [b"CLIENT", b"INFO", b"PING", b"PING", b"PING"]
        run_id = "2" * 40
        connections[0].close()
        await eventually(lambda: seen[-1] == run_id)
        assert [command[0] for command in asked].count(b"INFO") == 2
    finally:
        await probing.close()
        server.close()


async def test_servers_that_fail_and_come_back_are_told(bench: Callable[..., Awaitable[Bench]]) -> None:
    one = await bench()
    health = Health(one.ledger, ServerAccess(), DetectorSettings(), 0.5)
    await one.edit(lambda table, epoch: topology.add_group(table, epoch, 7, ["a:1", "b:1", "c:1"]))
    health._keep(one.ledger.state)
    health._probing.keep([])
    detector = health._detector
    now = asyncio.get_running_loop().time()

    def look(a: float, b: float, c: float) -> None:
        silent = {server: silence for server, silence in (("a:1", a), ("b:1", b), ("c:1", c)) if silence > 2.0}
        detector.report("1", silent, now, one.ledger.table.epoch)
        health._probing.silent = lambda *seconds: (silent, [])  # type: ignore[method-assign]
        health._judge()

    look(0.1, 0.1, 0.1)
    look(3.0, 3.0, 0.1)
    look(9.0, 9.0, 0.1)
    look(9.1, 9.1, 0.1)
    look(9.9, 0.0, 0.1)
    await one.edit(lambda table, epoch: topology.add_group(table, epoch, 8, []))
    told = [(event.what, event.text) for event in one.ledger.state.events if event.what.startswith("server_")][-2:]
    assert told == [
        (What.SERVER_FAILED, "failed: 2 servers: a:1 (silent to 2 of 2 views), b:1 (silent to 2 of 2 views)"),
        (What.SERVER_BACK, "answer again: server b:1 (silent to 0 of 2 views)"),
    ]
