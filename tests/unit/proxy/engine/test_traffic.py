"""What is counted by slot, server, user and command: each request once, with all of its bytes."""

import asyncio

import pytest

from proxy.engine.backend import command
from proxy.engine.requests import Loop
from proxy.engine.router import OPEN
from proxy.engine.statistics import NOBODY, OTHER, Statistics
from slots.functions import slot
from tests.unit.proxy.engine.inprocess import (
    SLOTS,
    Server,
    Visit,
    engine,
    nobody_listens,
    nothing_stored,
    once,
    until,
)

VALUE = b"$5\r\nvalue\r\n"
Words = tuple[bytes | str | int, ...]


def slot_of(key: str) -> int:
    return slot("crc32", key.encode(), SLOTS)


def size(*requests: Words) -> int:
    return sum(len(command(request)) for request in requests)


async def values(visit: Visit, words: list[bytes]) -> None:
    """Answer as a server whose keys all have the same value, but for those that are of another type."""
    if words[0] == b"MGET":
        visit.say(b"*%d\r\n" % (len(words) - 1) + VALUE * (len(words) - 1))
    elif words[-1] == b"odd":
        visit.say(b"-WRONGTYPE\r\n")
    else:
        visit.say(VALUE)


Counts = tuple[int, int, int, int]


def of_servers(loop: Loop, *present: str) -> dict[str, Counts]:
    """What was counted of each server since the last time, without the time that it took."""
    return {address: counts[:4] for address, counts in loop.traffic.take_servers(present).items()}


def of_server(loop: Loop, address: str) -> Counts:
    return of_servers(loop, address)[address]


def of_slots(loop: Loop) -> dict[int, Counts]:
    return {counted[0]: counted[1:] for counted in loop.traffic.slots.each()}


def of_user(loop: Loop) -> Counts:
    return loop.statistics.take_users()[NOBODY]


async def test_a_request_counts_for_its_slot_server_user_and_command() -> None:
    async with Server(values) as server:
        with engine(server.address) as proxy:
            client = proxy.connect()
            requests: list[Words] = [("GET", "a")] * 3 + [("GET", "odd")] + [("SET", "b", "x" * 100)]
            await client.send(*requests)
            sent = len(VALUE) * 4 + 12
            await client.read(sent)

            assert of_slots(proxy.loop) == {
                slot_of("a"): (3, 0, 3 * size(("GET", "a")), 3 * len(VALUE)),
                slot_of("odd"): (1, 1, size(("GET", "odd")), 12),
                slot_of("b"): (1, 0, size(requests[-1]), len(VALUE)),
            }
            assert of_server(proxy.loop, server.address) == (5, 1, size(*requests), sent)
            assert of_user(proxy.loop) == (5, 1, size(*requests), sent)
            assert proxy.loop.traffic.take_servers([server.address]) == proxy.loop.statistics.take_users() == {}
            read = proxy.loop.statistics.read()
            assert read["get"][4:] == (size(*requests[:4]), sent - len(VALUE))
            assert read["set"][4:] == (size(requests[-1]), len(VALUE))


async def test_each_key_of_a_split_request_counts_for_its_slot() -> None:
    async with Server(values) as one, Server(values) as other:
        with engine(one.address) as proxy:
            keys = ["a", "b", "c", "odd"]
            for key in keys[2:]:
                proxy.router.set_route(slot_of(key), OPEN, other.address, 0)
            assert len({slot_of(key) for key in keys}) == 4
            client = proxy.connect()
            await client.send(("MGET", *keys))
            sent = 4 + 4 * len(VALUE)
            await client.read(sent)

            part = 4 + 2 * len(VALUE)
            assert of_servers(proxy.loop, one.address, other.address) == {
                one.address: (1, 0, size(("MGET", "a", "b")), part),
                other.address: (1, 0, size(("MGET", "c", "odd")), part),
            }
            # What is no key's own counts for the first key of a part. A part's reply is not taken to pieces.
            head, own = size(("MGET", "a", "b")) - 2 * 7, part // 2
            assert of_slots(proxy.loop) == {
                slot_of("a"): (1, 0, head + 7, own),
                slot_of("b"): (1, 0, 7, own),
                slot_of("c"): (1, 0, head + 7, own),
                slot_of("odd"): (1, 0, 9, own),
            }
            assert of_user(proxy.loop) == (1, 0, size(("MGET", *keys)), sent)


async def test_all_bytes_of_a_long_reply_count() -> None:
    """given a reply that is passed on in parts, behind one of which a later part looks like an error."""
    long = b"$1000000\r\n" + b"-" * 1_000_000 + b"\r\n"

    async def slowly(visit: Visit, words: list[bytes]) -> None:
        for start in range(0, len(long), 100_000):
            visit.say(long[start : start + 100_000])
            await asyncio.sleep(0.002)

    async with Server(slowly) as server:
        with engine(server.address) as proxy:
            client = proxy.connect()
            await client.send(("GET", "a"))
            await client.read(len(long))
            await until(lambda: len(proxy.loop.traffic.slots) == 1 and proxy.loop.traffic.slots[slot_of("a")][0] == 1)
            assert of_slots(proxy.loop) == {slot_of("a"): (1, 0, size(("GET", "a")), len(long))}
            assert of_server(proxy.loop, server.address)[1:] == (0, size(("GET", "a")), len(long))
            assert of_user(proxy.loop)[3] == len(long)


@pytest.mark.parametrize("request_", [("GET", "a"), ("MGET", "a", "b")])
@pytest.mark.parametrize("muted", [False, True])
async def test_the_rest_of_a_long_reply_that_nobody_gets_is_no_error(request_: Words, muted: bool) -> None:
    """given a client that wants no reply or leaves, before a part of the reply comes that looks like an error."""
    let_go = asyncio.Event()

    async def slowly(visit: Visit, words: list[bytes]) -> None:
        visit.say((b"*1\r\n" if words[0] == b"MGET" else b"") + b"$1000000\r\n" + b"-" * 500_000)
        await let_go.wait()
        visit.say(b"-" * 500_000 + b"\r\n")

    async with Server(slowly) as one, Server(slowly) as other:
        with engine(one.address) as proxy:
            proxy.router.set_route(slot_of("b"), OPEN, other.address, 0)
            client = proxy.connect()
            client.session.muted = int(muted)
            await client.send(request_)
            await until(lambda: len(one.asked) + len(other.asked) == len(request_) - 1)
            if not muted:
                client.close()
            await asyncio.sleep(0.02)
            let_go.set()
            slots = {slot_of(str(key)) for key in request_[1:]}
            await until(lambda: all(proxy.loop.traffic.slots[each][0] == 1 for each in slots))
            assert proxy.loop.statistics.read()[str(request_[0]).lower()][:2] == (1, 0)
            assert (proxy.loop.errors, of_user(proxy.loop)) == (0, (1, 0, size(request_), 0))


@pytest.mark.parametrize("muted", [False, True])
async def test_a_split_request_that_fails_is_one_error_though_nobody_gets_it(muted: bool) -> None:
    let_go = asyncio.Event()

    async def fail(visit: Visit, words: list[bytes]) -> None:
        visit.say(b"-ERR no\r\n")

    async with Server(once(let_go, fail)) as one, Server(once(let_go, fail)) as other:
        with engine(one.address) as proxy:
            proxy.router.set_route(slot_of("b"), OPEN, other.address, 0)
            client = proxy.connect()
            client.session.muted = int(muted)
            request = ("MGET", "a", "b")
            await client.send(request)
            await until(lambda: len(one.asked) + len(other.asked) == 2)
            if not muted:
                client.close()
            let_go.set()
            await until(lambda: all(proxy.loop.traffic.slots[slot_of(key)][0] == 1 for key in "ab"))
            assert proxy.loop.statistics.read()["mget"][:2] == (1, 1)
            assert (proxy.loop.errors, of_user(proxy.loop)) == (1, (1, 1, size(request), 0))


async def test_what_is_no_request_counts_for_no_command() -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            client = proxy.connect()
            await client.send(("GET", "a"))
            await client.read(5)
            await client.send_bytes(b'GET "b\r\n')
            assert (await client.read_line()).startswith(b"-ERR Protocol error")
            assert of_user(proxy.loop) == (1, 0, size(("GET", "a")), 5)
            assert proxy.loop.statistics.read()["get"][4:] == (size(("GET", "a")), 5)


async def test_what_a_server_never_answers_is_an_error_of_the_server() -> None:
    async def hang_up(visit: Visit, words: list[bytes]) -> None:
        visit.hang_up()

    async with Server(hang_up) as server:
        with engine(server.address) as proxy:
            client = proxy.connect()
            await client.send(*[("GET", "a")] * 5)
            for _ in range(5):
                assert (await client.read_line()).startswith(b"-ERR server")
            assert of_server(proxy.loop, server.address) == (5, 5, 5 * size(("GET", "a")), 0)
            assert of_slots(proxy.loop) == {slot_of("a"): (5, 5, 5 * size(("GET", "a")), 0)}
            # It is left alone for a second.
            await client.send(("GET", "a"), ("PING",))
            for _ in range(2):
                await client.read_line()
            assert of_server(proxy.loop, server.address) == (1, 1, 0, 0)
            assert of_user(proxy.loop)[:2] == (7, 6)


@pytest.mark.parametrize("request_", [("GET", "a"), ("MGET", "a", "b"), ("BLPOP", "a", 0), ("SCAN", 0)])
async def test_a_server_that_cannot_be_reached_fails_each_request(request_: Words) -> None:
    with nobody_listens() as address, engine(address) as proxy:
        proxy.slow_path.handlers[b"SCAN"] = lambda: [b"a"]
        client = proxy.connect()
        for _ in range(3):
            await client.send(request_)
            await client.read_line()
        requests, errors, *_ = of_server(proxy.loop, address)
        assert requests == errors >= 3
        assert proxy.loop.errors == 3
        for key in {"GET": "a", "MGET": "ab"}.get(str(request_[0]), ""):
            assert of_slots(proxy.loop)[slot_of(key)][:2] == (3, 3)


async def test_requests_in_one_piece_are_counted_one_by_one() -> None:
    async def transaction(visit: Visit, words: list[bytes]) -> None:
        queues = words[0] in (b"GET", b"SET")
        visit.say({b"MULTI": b"+OK\r\n", b"EXEC": b"*1\r\n$-1\r\n"}[words[0]] if not queues else b"+QUEUED\r\n")

    async with Server(transaction) as server:
        with engine(server.address) as proxy:
            client = proxy.connect()
            requests: list[Words] = [("MULTI",), ("GET", "a"), ("EXEC",)]
            await client.send(*requests)
            await client.read(5 + 9 + 9)
            expected = (3, 0, size(*requests), 5 + 9 + 9)
            assert of_server(proxy.loop, server.address) == expected
            assert of_slots(proxy.loop) == {slot_of("a"): expected}
            assert of_user(proxy.loop) == expected


async def test_who_logs_in_as_another_has_later_requests_counted_for_that_one() -> None:
    let_go = asyncio.Event()
    async with Server(once(let_go, nothing_stored)) as server:
        with engine(server.address) as proxy:
            client = proxy.connect()
            client.session.belongs_to("first")
            await client.send(("GET", "a"))
            await until(lambda: proxy.loop.requests == 1)
            client.session.belongs_to("second")
            await client.send(("GET", "a"))
            await until(lambda: proxy.loop.requests == 2)
            let_go.set()
            await client.read(10)
            assert proxy.loop.statistics.take_users() == dict.fromkeys(("first", "second"), (1, 0, 20, 5))


async def test_replies_that_nobody_gets_have_no_bytes_for_a_user() -> None:
    async with Server(values) as server:
        with engine(server.address) as proxy:
            client = proxy.connect()
            client.session.muted = 1
            await client.send(("GET", "a"), ("PING",))
            await until(lambda: proxy.loop.traffic.slots[slot_of("a")][0] == 1)
            assert of_user(proxy.loop) == (2, 0, size(("GET", "a"), ("PING",)), 0)
            assert of_server(proxy.loop, server.address)[3] == len(VALUE)


async def test_servers_that_have_gone_are_forgotten() -> None:
    async with Server(values) as one, Server(values) as other:
        with engine(one.address) as proxy:
            proxy.router.set_route(slot_of("b"), OPEN, other.address, 0)
            client = proxy.connect()
            await client.send(("GET", "a"), ("GET", "b"))
            await client.read(2 * len(VALUE))
            assert set(proxy.loop.traffic.take_servers([one.address])) == {one.address, other.address}
            proxy.loop.traffic.take_servers([one.address])
            # Its connection is open, but counts where nobody looks: it is closed when a server leaves the table.
            await client.send(("GET", "a"), ("GET", "b"))
            await client.read(2 * len(VALUE))
            assert set(proxy.loop.traffic.take_servers([one.address])) == {one.address}


def test_users_beyond_a_bound_share_a_number() -> None:
    statistics = Statistics()
    numbers = [statistics.user_number(f"user{number}") for number in range(1000)]
    assert len(set(numbers)) == 255
    assert set(numbers[254:]) == {statistics.user_number(OTHER)} == {255}
    assert numbers[0] == statistics.user_number("user0")
    assert statistics.take_users() == {}


async def test_requests_of_one_pipeline_count_each_for_its_command_and_its_user() -> None:
    """given a client that logs in as another one amid a pipeline, twice in a row; all of it comes in one piece."""
    async with Server(values) as server:
        with engine(server.address) as proxy:
            client = proxy.connect()
            names = iter(["between", "second"])

            def log_in() -> bytes:
                client.session.belongs_to(next(names))
                return b"+OK\r\n"

            proxy.slow_path.handlers[b"ECHO"] = log_in
            client.session.belongs_to("first")
            before: list[Words] = [("GET", "a"), ("GET", "b"), ("SET", "a", "x"), ("GET", "odd")]
            after: list[Words] = [("ECHO", "x"), ("GET", "a"), ("GET", "odd"), ("GET", "odd")]
            await client.send(*before, ("ECHO", "x"), *after)
            of_first, of_second = 3 * len(VALUE) + 12, 5 + len(VALUE) + 2 * 12
            await client.read(of_first + 5 + of_second)
            read = proxy.loop.statistics.read()
            gets = [each for each in before + after if each[0] == "GET"]
            assert {name: counts[:2] for name, counts in read.items()} == {"get": (6, 3), "set": (1, 0), "echo": (2, 0)}
            assert read["get"][4:] == (size(*gets), 3 * len(VALUE) + 3 * 12)
            assert read["set"][4:] == (size(before[2]), len(VALUE))
            assert proxy.loop.statistics.take_users() == {
                "first": (4, 1, size(*before), of_first),
                "between": (1, 0, size(("ECHO", "x")), 5),
                "second": (4, 2, size(*after), of_second),
            }
            assert proxy.loop.requests == 9
            assert of_server(proxy.loop, server.address) == (7, 3, size(*before, *after[1:]), of_first + of_second - 5)


async def test_replies_that_come_in_one_piece_count_each_for_its_user() -> None:
    """given two clients whose requests were read in one turn, and a server that answers both at once."""
    asked: list[int] = []

    async def in_one_piece(visit: Visit, words: list[bytes]) -> None:
        asked.append(1)
        if len(asked) == 4:
            visit.say((VALUE + b"-ERR no\r\n") * 2)

    async with Server(in_one_piece) as server:
        with engine(server.address) as proxy:
            clients = [proxy.connect(), proxy.connect()]
            for client, user in zip(clients, ("first", "second"), strict=True):
                client.session.belongs_to(user)
                await client.send(("GET", "a"), ("GET", "b"))
            for client in clients:
                await client.read(len(VALUE) + 9)
            sent = size(("GET", "a")), len(VALUE)
            both = (2, 1, 2 * sent[0], len(VALUE) + 9)
            assert proxy.loop.statistics.take_users() == {"first": both, "second": both}
            assert of_server(proxy.loop, server.address) == tuple(2 * each for each in both)
            assert sum(counts[0] for counts in of_slots(proxy.loop).values()) == 4


async def test_what_plain_python_resets_amid_a_pipeline_begins_there() -> None:
    async with Server(values) as server:
        with engine(server.address) as proxy:
            client = proxy.connect()

            def reset() -> bytes:
                proxy.loop.statistics.reset()
                assert of_user(proxy.loop)[0] == proxy.loop.requests == 3
                return b"+OK\r\n"

            proxy.slow_path.handlers[b"ECHO"] = reset
            await client.send(*[("GET", "a")] * 3, ("ECHO", "x"), ("GET", "a"))
            await client.read(5 + 4 * len(VALUE))
            assert proxy.loop.statistics.read()["get"][4] == size(("GET", "a"))
            assert of_user(proxy.loop)[0] == 2


async def test_requests_before_a_mistake_count() -> None:
    """given a slow path that fails at the second SET, whose slot is another one."""
    async with Server(values) as server:
        with engine(server.address) as proxy:
            client = proxy.connect()
            requests: list[Words] = [("MULTI",), ("SET", "a", 1), ("SET", "b", 1)]
            await client.send(*requests)
            await until(lambda: client.session.closed)
            assert "take_transaction" in proxy.mistakes[0]
            assert proxy.loop.requests == 2
            assert of_user(proxy.loop)[:3] == (2, 0, size(*requests[:2]))


async def silent(visit: Visit, words: list[bytes]) -> None:
    """Answer nothing."""


@pytest.mark.parametrize(
    ("ending", "asked"),
    [(b"nonsense\r\n", 3), (VALUE, 3), (b">1\r\n$1\r\nx\r\n", 3), (b"+OK\r\n", 4)],
    ids=["nonsense", "a reply too many", "a push that closes it", "a reply of the proxy's own that closes it"],
)
async def test_replies_before_the_end_of_a_connection_count(ending: bytes, asked: int) -> None:
    """given three replies in one piece with what ends the connection."""
    async with Server(silent) as server:
        with engine(server.address) as proxy:
            client = proxy.connect()
            await client.send(*[("GET", "a")] * 3)
            await until(lambda: len(server.asked) == 3)
            (backend,) = proxy.router.shared_backends
            backend.on_push = lambda push: backend.reset("is not wanted")
            if asked > 3:
                backend.call(command(("ECHO", "x")), lambda reply: backend.reset("is not wanted"))
            await until(lambda: len(server.asked) == asked)
            server.visits[0].say(VALUE * 3 + ending)
            await client.read(3 * len(VALUE))
            await until(lambda: not backend.is_ready)
            expected = (3, 0, 3 * size(("GET", "a")), 3 * len(VALUE))
            assert of_slots(proxy.loop) == {slot_of("a"): expected}
            assert of_user(proxy.loop) == expected
            assert proxy.loop.statistics.read()["get"][0] == 3
            assert of_server(proxy.loop, server.address)[0] == asked
