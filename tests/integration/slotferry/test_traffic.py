"""The checking traffic on a plain Redis server: right values pass, and every sort of fault is seen."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop
from redis.asyncio import Redis

from slotferry.processes import free_ports
from slotferry.redis_server import RedisServer, ask, start_redis
from slotferry.traffic.content import name_of
from slotferry.traffic.driver import Traffic, TrafficError
from slotferry.traffic.keys import Keys
from slotferry.traffic.placement import Layout
from slotferry.traffic.requests import Difference, Read, Write
from slotferry.traffic.session import Session, Tally
from slots.functions import slot
from slots.rules import SlotRule

LIMIT = 60.0
PROTOCOLS = pytest.mark.parametrize("protocol", [2, 3])


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    found = await start_redis("redis", tmp_path)
    yield found
    await found.stop()


async def until(holds: Callable[[], object]) -> None:
    """Wait for what the traffic reports, which it does once a second."""
    async with asyncio.timeout(LIMIT):
        while not holds():
            await asyncio.sleep(0.05)


def layout_of(*servers: RedisServer) -> Layout:
    """Slots spread over servers by turns."""
    addresses = [server.address for server in servers]
    return Layout("crc32", [addresses[number % len(addresses)] for number in range(1024)], addresses)


@pytest.mark.long
@PROTOCOLS
async def test_every_kind_at_every_version_is_as_a_real_server_has_it(server: RedisServer, protocol: int) -> None:
    keys = Keys(60, "mixed")
    kinds = {type(keys.kind_of(index)).__name__ for index in range(60)}
    assert kinds == {"Text", "Counter", "Hash", "List", "Set", "SortedSet", "Stream"}
    async with Redis(port=server.port, protocol=protocol) as client:
        client.response_callbacks.clear()
        for _ in range(30):
            for index in range(60):
                kind = keys.kind_of(index)
                write = Write(keys, index)
                write.check(await client.execute_command(*write.arguments))
                for call in [kind.whole(index), *(kind.part(index, choice) for choice in range(6))]:
                    read = Read(keys, index, call)
                    read.check(await client.execute_command(*read.arguments))


@pytest.mark.long
async def test_a_run_without_a_fault(server: RedisServer) -> None:
    async with Traffic([server.address], 2000, connections=8, databases=[0, 3], processes=2) as traffic:
        told: list[int] = []
        loaded = await traffic.load(told.append)
        assert (loaded.requests, loaded.clean, told[-1]) == (2000, True, 2000)
        await traffic.start()
        await until(lambda: traffic.total.requests > 5000 and len(traffic.seconds) > 1)
        total = await traffic.stop()
        assert total.clean, (total.error_texts, total.difference_texts)
        assert total.requests >= sum(second.requests for second in traffic.seconds) > 0
        assert total.latency.total == total.requests
        found = await traffic.verify(layout_of(server))
        assert found.clean, found
        assert (found.keys, found.misplaced) == (2000, 0)
        assert 0 < found.placed <= 2000
    async with Redis(port=server.port) as client:
        statistics = await client.info("commandstats")
    for command in ("mget", "mset", "setex", "hset", "rpush", "sadd", "zadd", "xadd", "incrby", "del", "getset"):
        assert statistics[f"cmdstat_{command}"]["calls"] > 0, command


@pytest.mark.long
async def test_the_rate_is_kept(server: RedisServer) -> None:
    async with Traffic([server.address], 500, connections=4, rate=400, profile="fixed:100", pipeline=1) as traffic:
        await traffic.load()
        began = time.monotonic()
        await traffic.start()
        # On a machine that is busy with other things some seconds have less.
        await until(lambda: traffic.total.requests > 700 and max(each.requests for each in traffic.seconds) > 240)
        total = await traffic.stop()
    assert total.requests < 400 * (time.monotonic() - began) * 1.25


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("SET", "{key}", "something else"), "traffic:"),
        (("DEL", "{key}"), "traffic:"),
    ],
)
async def test_a_value_changed_behind_its_back_is_a_difference(
    server: RedisServer, command: tuple[str, ...], expected: str
) -> None:
    async with Traffic([server.address], 200, profile="fixed:100", writes=0.0) as traffic:
        await traffic.load()
        await ask(server.address, *(part.format(key="traffic:7") for part in command))
        await traffic.start()
        await until(lambda: traffic.total.differences)
        total = await traffic.stop()
        assert any("traffic:7" in text for text in total.difference_texts)
        found = await traffic.verify()
    assert (found.compared.differences > 0, found.clean) == (True, False)


async def test_a_lost_ttl_is_a_difference(server: RedisServer) -> None:
    async with Traffic([server.address], 200) as traffic:
        await traffic.load()
        with_ttl = 0
        while await ask(server.address, "PERSIST", f"traffic:{with_ttl}") != ":1":
            with_ttl += 1
        found = await traffic.verify()
    assert found.compared.differences == 1
    assert f"traffic:{with_ttl}:" in found.compared.difference_texts[0]


async def test_keys_in_a_wrong_place_are_found(server: RedisServer, tmp_path: Path) -> None:
    other = await start_redis("other", tmp_path)
    try:
        async with Traffic([server.address], 300, profile="fixed:20") as traffic:
            await traffic.load()
            layout = layout_of(server, other)
            found = await traffic.verify(layout)
            wrong = sum(slot("crc32", name_of(index), 1024) % 2 for index in range(300))
            assert (found.misplaced, found.placed, found.clean) == (wrong, 300, False)
            assert "belongs to" in found.misplaced_texts[0]

            await ask(other.address, "SET", "traffic:5", "again")
            await ask(server.address, "DEL", "traffic:6")
            found = await traffic.verify(layout_of(server))
            assert found.misplaced_texts == ["traffic:6 is on no server"]
            both = Layout("crc32", [server.address] * 1024, [server.address, other.address])
            found = await traffic.verify(both)
            assert f"traffic:5 is on {server.address} and on {other.address}" in found.misplaced_texts
    finally:
        await other.stop()


async def test_a_slot_rule_says_which_place_is_the_right_one(server: RedisServer) -> None:
    owners = ["127.0.0.1:1"] * 1024
    owners[slot("crc32", b"one", 1024)] = server.address
    async with Traffic([server.address], 300, profile="fixed:20") as traffic:
        await traffic.load()
        for rules, misplaced in (((SlotRule("traffic:*", tag="one"),), 0), ((), 300)):
            found = await traffic.verify(Layout("crc32", owners, [server.address], rules=rules))
            assert (found.misplaced, found.placed) == (misplaced, 300)


async def test_errors_are_counted_with_their_text(server: RedisServer) -> None:
    async with Traffic([server.address], 100, profile="fixed:100") as traffic:
        await traffic.load()
        await ask(server.address, "CONFIG", "SET", "maxmemory", "1")
        await traffic.start()
        await until(lambda: traffic.total.errors)
        total = await traffic.stop()
    assert any("OOM" in text for text in total.error_texts)
    assert total.differences == 0


@pytest.mark.long
async def test_a_lost_connection_is_an_error_and_the_traffic_goes_on(server: RedisServer) -> None:
    async with Traffic([server.address], 300, connections=4) as traffic:
        await traffic.load()
        await traffic.start()
        await until(lambda: traffic.total.requests)
        assert await ask(server.address, "CLIENT", "KILL", "TYPE", "normal") != ":0"
        await until(lambda: any("connection lost" in text for text in traffic.total.error_texts))
        # What was asked in the second of the loss is reported by then; a second later there is more.
        before = len(traffic.seconds)
        await until(lambda: len(traffic.seconds) > before + 1 and traffic.seconds[-1].requests)
        total = await traffic.stop()
        found = await traffic.verify()
        assert (total.differences, found.compared.differences) == (0, 0)


async def test_nobody_there() -> None:
    with pytest.raises(TrafficError, match="traffic process 0 ended"):
        async with Traffic([f"127.0.0.1:{free_ports(1)[0]}"], 10):
            pass


async def test_a_layout_from_topoms_answers() -> None:
    status: dict[str, Any] = {
        "slot_function": "crc32",
        "slot_rules": [],
        "groups": [{"id": 1, "servers": [{"address": "h:1"}, {"address": "h:2"}]}, {"id": 2, "servers": []}],
    }
    slots = {"slots": [{"id": 0, "group_id": 1}, {"id": 1, "group_id": 0}]}
    layout = Layout.from_api(status, slots)
    assert (layout.owners, layout.servers) == (["h:1", ""], ["h:1"])
    assert Layout.from_wire(layout.to_wire()) == layout


async def test_a_server_that_greets_too_late_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its greeting would be taken for the reply to what the next connection sends."""
    monkeypatch.setattr(Session, "CONNECT_SECONDS", 0.1)
    left = asyncio.Event()

    async def stopped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while await reader.read(1000):
                pass
        left.set()
        writer.close()

    async with await asyncio.start_server(stopped, "127.0.0.1", 0) as listening:
        session = Session(f"127.0.0.1:{listening.sockets[0].getsockname()[1]}", 0, 3, None, Tally)
        with pytest.raises(TimeoutError):
            await session.open()
        async with asyncio.timeout(LIMIT):
            await left.wait()


def test_a_greeting_that_is_answered_as_the_wait_for_it_ends_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second connection's replies would be taken for those of the first."""
    monkeypatch.setattr(Session, "CONNECT_SECONDS", 0.2)

    class Slow(Session):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            time.sleep(self.CONNECT_SECONDS)  # the machine is busy: time is over before open() sees that it is greeted

    async def greeting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.read(1000)
            writer.write(b"+OK\r\n")
            await reader.read(1000)
        writer.close()

    async def greeted() -> None:
        async with await asyncio.start_server(greeting, "127.0.0.1", 0) as listening:
            session = Slow(f"127.0.0.1:{listening.sockets[0].getsockname()[1]}", 0, 3, None, Tally)
            await session.open()
            session.close()

    uvloop.run(greeted())  # as the traffic has it: its timers come before what became ready


async def test_a_reply_of_another_commands_form_is_a_difference() -> None:
    """And not an error of the one who compares, which would end the connection."""
    keys = Keys(200, "mixed")
    for index in range(200):
        Write(keys, index)
        for call in (
            keys.kind_of(index).whole(index),
            *(keys.kind_of(index).part(index, choice) for choice in range(6)),
        ):
            for reply in (b"text", -7_000_000, [b"one"], {b"a": b"b"}):
                with pytest.raises(Difference):
                    Read(keys, index, call).check(reply)
