"""What is known of servers when nobody has looked at them yet, or only just."""

import asyncio

from slots.access import ServerAccess
from slots.probing import Probing
from tests.unit.topom.operators import eventually
from tests.unit.topom.topom_fakes import Bench
from topom.cluster import topology
from topom.servers.detector import Condition, DetectorSettings
from topom.servers.health import Health


async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers every request with an error, which only a server that is there can give."""
    while await reader.read(4096):
        writer.write(b"-ERR not now\r\n")
        await writer.drain()
    writer.close()


async def test_a_server_is_unknown_until_it_was_looked_at() -> None:
    server = await asyncio.start_server(answering, "127.0.0.1", 0)
    there = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    bench = await Bench().start()
    # Nobody listens at port 1.
    await bench.edit(lambda table, epoch: topology.add_group(table, epoch, 1, [there, "127.0.0.1:1"]))
    health = Health(bench.ledger, ServerAccess(), DetectorSettings(1.5, 1.6, 5.0), 0.05, 0.5)
    assert health.of(there).condition is Condition.UNKNOWN, "before topom runs"
    running = asyncio.create_task(health.run())
    try:
        await health.looked.wait()
        assert {health.of(one).condition for one in (there, "127.0.0.1:1")} == {Condition.UNKNOWN}
        await eventually(lambda: health.of(there).condition is Condition.ALIVE)
        assert health.of("127.0.0.1:1").condition is Condition.UNKNOWN
        # When: a proxy does not reach it, which topom does.
        health._detector.keep_only(["1"])
        health.heard(1, {there: 9.0})
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
    probing = Probing(ServerAccess(), 0.05, 0.5)
    try:
        probing.keep(["127.0.0.1:1"])
        assert probing.silences(unanswered_from=60.0) == {}
        assert "127.0.0.1:1" in probing.silences()
    finally:
        await probing.close()
