"""Which requests are notable, and what is said of them: a key that is told is the request's own."""

import asyncio
from types import SimpleNamespace

import pytest

from proxy.engine.backend import command
from proxy.engine.router import LOCKED, OFFLINE, OPEN
from proxy.engine.session import Session
from proxy.engine.statistics import LARGE, MANY, NOBODY, Noted
from slots.functions import slot
from tests.unit.proxy.engine.inprocess import (
    SLOTS,
    Client,
    Engine,
    Server,
    Visit,
    engine,
    nobody_listens,
    nothing_stored,
    once,
    until,
)

Words = tuple[bytes | str | int, ...]


def slot_of(key: str) -> int:
    return slot("crc32", key.encode(), SLOTS)


def bulk(size: int) -> bytes:
    return b"$%d\r\n" % size + b"x" * size + b"\r\n"


def reply_to(words: list[bytes]) -> bytes:
    """A key's name says what the reply to a request for it is."""
    if words[0] in (b"MGET", b"DEL"):
        each = [reply_to([b"GET", key]) for key in words[1:]]
        return b"*%d\r\n" % len(each) + b"".join(each) if words[0] == b"MGET" else b":%d\r\n" % len(each)
    key = words[1]
    for name, reply in (
        (b"big", bulk(LARGE)),
        (b"almost", bulk(LARGE // 2)),
        (b"array", b"*%d\r\n" % MANY + b":1\r\n" * MANY),
        (b"short", b"*%d\r\n" % (MANY - 1) + b":1\r\n" * (MANY - 1)),
        (b"map", b"%%%d\r\n" % MANY + b":1\r\n" * MANY * 2),
        (b"nested", b"*1\r\n*%d\r\n" % MANY + b":1\r\n" * MANY),
        (b"number", b":%d\r\n" % MANY),
        (b"few", b":%d\r\n" % (MANY - 1)),
    ):
        if key.startswith(name):
            return reply
    return b"$5\r\nvalue\r\n"


async def answer(visit: Visit, words: list[bytes]) -> None:
    visit.say({b"MULTI": b"+OK\r\n", b"EXEC": b"*0\r\n"}.get(words[0]) or reply_to(words))


def noted_by(proxy: Engine, slow_microseconds: float = 0) -> list[Noted]:
    noted: list[Noted] = []
    proxy.loop.statistics.watch(slow_microseconds, noted.append)
    return noted


async def get(client: Client, *requests: Words) -> None:
    """Send requests, and have all replies."""
    await client.send(*requests)
    size = sum(
        len(reply_to([word if isinstance(word, bytes) else str(word).encode() for word in each])) for each in requests
    )
    assert len(await client.read(size)) == size


@pytest.mark.parametrize(
    ("request_", "why", "elements"),
    [
        (("SET", "key", "x" * LARGE), "big_request", 0),
        (("GET", "big"), "big_reply", 0),
        (("LRANGE", "array", 0, -1), "big_collection", MANY),
        (("HGETALL", "map"), "big_collection", MANY),
        (("LLEN", "number"), "big_collection", MANY),
        (("RPUSH", "number", "x"), "big_collection", MANY),
        (("GET", "almost"), None, 0),
        (("LRANGE", "short", 0, -1), None, 0),
        (("LRANGE", "nested", 0, -1), None, 0),
        (("LLEN", "few"), None, 0),
        (("SADD", "number", "x"), None, 0),
        (("STRLEN", "number"), None, 0),
        (("INCR", "number"), None, 0),
    ],
    ids=str,
)
async def test_what_is_large_is_noted_with_its_key(request_: Words, why: str | None, elements: int) -> None:
    async with Server(answer) as server:
        with engine(server.address) as proxy:
            noted = noted_by(proxy)
            client = proxy.connect()
            await get(client, ("GET", "other"), request_, ("GET", "another"))
            if why is None:
                assert noted == []
                return
            key = str(request_[1])
            sent = len(command(request_))
            (one,) = noted
            assert one[:7] == (why, str(request_[0]).lower(), 0, slot_of(key), key.encode(), len(key), NOBODY)
            assert (one.client, one.server, one.slow) == (client.session.peer, server.address, False)
            got = len(reply_to([b"GET", key.encode()]))
            assert (one.bytes_in, one.bytes_out, one.elements) == (sent, got, elements)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 127, 128, 129, 300])
async def test_the_beginning_of_a_key_of_any_length_is_told(length: int) -> None:
    key = bytes(range(256))[:length] + b"k" * (length - 256)
    async with Server(answer) as server:
        with engine(server.address) as proxy:
            noted = noted_by(proxy)
            await get(proxy.connect(), ("SET", key, "x" * LARGE))
            assert [(one.key, one.length) for one in noted] == [(key[:128], length)]


async def test_one_of_a_pipeline_is_told_with_its_own_key_however_replies_cross() -> None:
    """given two servers, of which the one with the first request answers last."""
    let_go = asyncio.Event()
    async with Server(once(let_go, answer)) as one, Server(answer) as other:
        with engine(one.address) as proxy:
            proxy.router.set_route(slot_of("big:1"), OPEN, other.address, 0)
            names = [f"key:{number}" for number in range(12)]
            late = [name for name in names if slot_of(name) != slot_of("big:1")]
            noted = noted_by(proxy)
            first, second = proxy.connect("first"), proxy.connect("second")
            await first.send(*(("GET", name) for name in late), ("GET", "big:1"), *(("GET", name) for name in late))
            await until(lambda: len(noted) == 1)
            await get(second, *(("GET", name) for name in names if name not in late))
            let_go.set()
            await first.read(len(bulk(LARGE)) + 2 * len(late) * 11)
            await get(second, ("GET", "big:22"), *(("GET", name) for name in names))
            assert [(each.key, each.client) for each in noted] == [
                (b"big:1", "first"),
                (b"big:22", "second"),
            ]


async def test_a_split_request_is_told_with_its_first_key() -> None:
    async with Server(answer) as one, Server(answer) as other:
        with engine(one.address) as proxy:
            proxy.router.set_route(slot_of("almost:1"), OPEN, other.address, 0)
            assert slot_of("almost:1") != slot_of("almost:2")
            noted = noted_by(proxy)
            client = proxy.connect()
            request = ("MGET", "almost:1", "almost:2", "almost:1")
            await get(client, ("GET", "key"), request, ("GET", "key"))
            (one_,) = noted
            assert (one_.why, one_.command, one_.slot, one_.key, one_.length, one_.server) == (
                "big_reply",
                "mget",
                -1,
                b"almost:1",
                8,
                None,
            )
            assert one_.bytes_in == len(command(request))
            assert one_.bytes_out == len(reply_to([str(word).encode() for word in request]))


async def test_a_transaction_is_told_with_its_first_key_and_all_of_its_bytes() -> None:
    async with Server(answer) as server:
        with engine(server.address) as proxy:
            noted = noted_by(proxy)
            client = proxy.connect()
            request = ("SET", "key", "x" * LARGE)
            await get(client, *[("GET", "other")] * 8)
            await client.send(("MULTI",), request, ("EXEC",))
            assert (await client.read(18)).endswith(b"+QUEUED\r\n*0\r\n")
            assert [(each.why, each.command, each.key, each.length) for each in noted] == [
                ("big_request", "set", b"", 0),
                ("big_request", "exec", b"key", 3),
            ]
            assert noted[0].bytes_in == len(command(request)) < noted[1].bytes_in


async def test_what_the_proxy_answers_itself_has_no_key() -> None:
    async with Server(answer) as server:
        with engine(server.address) as proxy:
            noted = noted_by(proxy)
            client = proxy.connect()
            reply = b"*%d\r\n" % MANY + b":1\r\n" * MANY
            proxy.slow_path.handlers[b"KEYS"] = lambda: reply
            await client.send(("GET", "key"), ("KEYS", "*"))
            await client.read(11 + len(reply))
            (one,) = noted
            assert (one.why, one.command, one.slot, one.key, one.length, one.server, one.elements) == (
                "big_collection",
                "keys",
                -1,
                b"",
                0,
                None,
                MANY,
            )
            assert one.bytes_in == len(command(("KEYS", "*")))


async def test_a_client_that_has_left_is_not_named_and_its_key_is() -> None:
    let_go = asyncio.Event()
    async with Server(once(let_go, answer)) as server:
        with engine(server.address) as proxy:
            noted = noted_by(proxy, 1.0)
            leaver, other = proxy.connect("leaver"), proxy.connect("other")
            await leaver.send(("GET", "big:left"))
            await until(lambda: server.asked != [])
            await other.send(("GET", "kept"))
            leaver.close()
            # When
            let_go.set()
            await other.read(11)
            # Then
            assert [(each.why, each.key, each.client, each.bytes_out) for each in noted] == [
                ("slow", b"big:left", "", 0),
                ("slow", b"kept", "other", 11),
            ]
            assert [each.server for each in noted] == [server.address] * 2


async def test_a_muted_reply_is_told_with_its_own_key() -> None:
    async with Server(answer) as server:
        with engine(server.address) as proxy:
            noted = noted_by(proxy)
            client = proxy.connect()
            client.session.muted = 1
            await client.send(("GET", "a"), ("SET", "muted", "x" * LARGE), ("GET", "b"))
            await until(lambda: len(noted) == 1)
            assert (noted[0].why, noted[0].key, noted[0].bytes_out) == ("big_request", b"muted", 0)


async def test_a_request_that_cannot_be_sent_is_told_with_its_own_key() -> None:
    with nobody_listens() as address, engine(address) as proxy:
        noted = noted_by(proxy)
        client = proxy.connect()
        for name in ("first", "second"):
            await client.send(("SET", name, "x" * LARGE))
            assert (await client.read_line()).startswith(b"-ERR")
        assert [(each.why, each.key, each.server) for each in noted] == [
            ("big_request", b"first", None),
            ("big_request", b"second", None),
        ]
        assert noted[0].bytes_in == len(command(("SET", "first", "x" * LARGE)))


async def test_a_connection_that_ends_within_a_long_reply_leaves_nothing_of_it() -> None:
    """The next reply is told by its own beginning."""

    async def cut(visit: Visit, words: list[bytes]) -> None:
        if words[1] == b"cut":
            visit.say(b"*%d\r\n" % (3 * MANY) + b":1\r\n" * MANY * 2)
            visit.hang_up()
        else:
            await answer(visit, words)

    async with Server(cut) as server:
        with engine(server.address) as proxy:
            noted = noted_by(proxy)
            client, other = proxy.connect(), proxy.connect()
            await client.send(("LRANGE", "cut", 0, -1))
            assert len(await client.read(100 * MANY)) < 100 * MANY, "its connection has ended"
            for backend in proxy.router.shared_backends:
                backend.reset("connects at once")
            await get(other, ("GET", "big"), ("LRANGE", "array", 0, -1))
            assert [(each.key, each.elements) for each in noted] == [(b"big", 0), (b"array", MANY)]


async def test_bounded_of_many_only_some_are_reported_until_the_next_tick() -> None:
    async with Server(answer) as server:
        with engine(server.address) as proxy:
            noted = noted_by(proxy, 1.0)
            client = proxy.connect()
            await get(client, *([("GET", "key")] * 1000))
            assert len(noted) == 128
            assert proxy.loop.statistics.slow_requests == 1000
            proxy.loop.tick()
            await get(client, ("GET", "later"))
            assert noted[-1].key == b"later"


async def test_what_waited_at_a_server_is_not_slow_may_be_big_and_takes_no_room() -> None:
    async def transaction(visit: Visit, words: list[bytes]) -> None:
        if words[0] == b"EXEC":
            visit.say(b"*1\r\n" + reply_to(visit.asked[-2]))
        else:
            visit.say(b"+OK\r\n" if words[0] == b"MULTI" else b"+QUEUED\r\n")

    async with Server(transaction) as server:
        with engine(server.address) as proxy:
            noted = noted_by(proxy, 1.0)
            client = proxy.connect()
            await get(client, *[("BLPOP", "key", 0)] * 200, ("BLPOP", "array", 0))
            assert [(each.why, each.microseconds, each.slow) for each in noted] == [("big_collection", 0.0, False)]
            assert proxy.loop.statistics.slow_requests == 0


async def test_a_failure_to_note_ends_the_log_and_no_request() -> None:
    async with Server(answer) as server:
        with engine(server.address) as proxy:

            def fail(noted: Noted) -> None:
                raise ValueError("no")

            proxy.loop.statistics.watch(1.0, fail)
            await get(proxy.connect(), ("GET", "key"), ("GET", "key"))
            assert proxy.mistakes == ["no"]


async def test_a_user_is_named_as_it_was_when_the_request_came() -> None:
    let_go = asyncio.Event()
    async with Server(once(let_go, answer)) as server:
        with engine(server.address) as proxy:
            noted = noted_by(proxy, 1.0)
            client = proxy.connect()
            client.session.belongs_to("one")
            await client.send(("GET", "key"))
            await until(lambda: server.asked != [])
            client.session.belongs_to("other")
            let_go.set()
            await client.read(11)
            assert [each.user for each in noted] == ["one"]


async def test_a_request_that_waited_for_no_time_took_none() -> None:
    """given one whose slot is locked, and is not any more before the session has stopped."""
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:

            def hold(session: Session, slot: int) -> None:
                proxy.router.set_route(slot, OFFLINE, None, 0)
                session.wake()

            proxy.router.holding = SimpleNamespace(hold=hold)  # type: ignore[assignment]
            client = proxy.connect()
            for _ in range(30):
                proxy.route(LOCKED, server.address)
                await client.send(("GET", "a"))
                assert (await client.read_line()).startswith(b"-ERR slot")
            calls, _, microseconds, *_ = proxy.loop.statistics.read()["get"]
            assert calls == 30
            assert microseconds < 60e6, "of 17,592 seconds the clock of 32 bits begins anew"
