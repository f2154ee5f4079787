"""What becomes of requests above the limits of their user: they wait by turns, or are refused."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from proxy.engine.meter import LONGEST_SECONDS, Meter
from tests.unit.proxy.engine.inprocess import Client, Engine, Server, engine, nothing_stored, until

WHOLE = 1_000_000
NIL = b"$-1\r\n"
GET = ("GET", "k")
REFUSED = (
    b"-TRYAGAIN user tenant asks for more than its 10 requests a second; nothing was run, try again later, or have its "
    b"limits raised\r\n"
)
NOTHING_COMES = 0
"""Of a share of this, no token comes. One is there at the beginning."""


class Tenant:
    """A user with limits, and its clients."""

    def __init__(self, proxy: Engine, requests: int = 10, octets: int = 0, refuses: bool = False) -> None:
        self._proxy = proxy
        self.meter = Meter(proxy.loop, "tenant")
        self.meter.limit(requests, octets, refuses)
        self.meter.share(NOTHING_COMES, NOTHING_COMES)

    def connect(self, name: str = "tenant") -> Client:
        client = self._proxy.connect(name, len(self._proxy.clients))
        client.session.belongs_to("tenant")
        client.session.measure(self.meter)
        return client

    def tick(self) -> None:
        self._proxy.loop.tick()
        self.meter.tick()

    async def lets_all_go(self, requests: int = 1_000_000) -> None:
        """Let what waits go from now on, at this rate."""
        self.meter.limit(requests, 0, False)
        self.meter.share(WHOLE, WHOLE)

    @contextmanager
    def ticking(self) -> Iterator[None]:
        async def go_on() -> None:
            while True:
                self.tick()
                await asyncio.sleep(0.01)

        task = asyncio.create_task(go_on())
        try:
            yield
        finally:
            task.cancel()


async def waits(client: Client) -> bool:
    """Whether nothing comes, though others are answered meanwhile."""
    try:
        return not await client.read(1, 0.05)
    except TimeoutError:
        return True


async def test_a_pipeline_counts_each_request_and_its_rest_waits_unread() -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            tenant = Tenant(proxy)
            client, other = tenant.connect(), proxy.connect("other", 7)
            await client.send(*[GET] * 5)
            assert await client.read(5) == NIL
            await other.send(*[GET] * 5)
            assert await other.read(25) == NIL * 5
            assert await waits(client)
            assert server.asked.count([b"GET", b"k"]) == 6
            # No more is read than what came at once.
            sending = asyncio.create_task(client.send(*[("SET", "k", "x" * 10_000)] * 1000))
            await other.send(GET)
            assert await other.read(5) == NIL
            assert client.session.unparsed < 300_000
            assert not sending.done()
            await tenant.lets_all_go()
            with tenant.ticking():
                assert await client.read(20) == NIL * 4
                assert await client.read(5000) == b"+OK\r\n" * 1000
                await sending
            requests, octets, delayed, refused, _ = tenant.meter.take()
            assert requests >= 1005
            assert octets > 1000 * 10_000
            assert refused == 0
            assert delayed >= 1


async def test_sessions_have_their_turn_one_after_another() -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            tenant = Tenant(proxy)
            first, second = tenant.connect("first"), tenant.connect("second")
            await first.send(*[("GET", "first")] * 50)
            assert await first.read(5) == NIL
            await second.send(*[("GET", "second")] * 3)
            tenant.meter.limit(40, 0, False)
            tenant.meter.share(WHOLE, 0)
            with tenant.ticking():
                assert await second.read(15) == NIL * 3
                asked = [words[1] for words in server.asked if words[0] == b"GET"]
                place = [number for number, word in enumerate(asked) if word == b"second"]
                assert len(place) == 3
                assert [asked[number - 1] for number in place] == [b"first"] * 3, "each waits for one of the other"
                assert await first.read(5 * 49) == NIL * 49


async def test_bytes_of_requests_and_replies_count_and_a_debt_is_paid() -> None:
    async def large(visit: object, words: list[bytes]) -> None:
        visit.say(b"$30000\r\n" + b"x" * 30_000 + b"\r\n")  # type: ignore[attr-defined]

    async with Server(large) as server:
        with engine(server.address) as proxy:
            tenant = Tenant(proxy, requests=0, octets=100_000)
            client = tenant.connect()
            await client.send(GET)
            assert len(await client.read(30_010)) == 30_010
            loop = asyncio.get_running_loop()
            began = loop.time()
            tenant.tick()
            tenant.meter.share(0, WHOLE)
            with tenant.ticking():
                for _ in range(2):
                    await client.send(GET)
                    assert len(await client.read(30_010)) == 30_010
            # The second had to wait for the bytes of the first, and the third for those of the second.
            assert loop.time() - began > 0.5
            _, octets, delayed, _, _ = tenant.meter.take()
            assert delayed == 2
            assert octets >= 3 * 30_010


async def test_what_is_refused_gets_an_error_at_once_and_takes_no_tokens() -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            tenant = Tenant(proxy, octets=50, refuses=True)
            client = tenant.connect()
            refused = REFUSED.replace(b"10 requests", b"10 requests or 50 bytes")
            await client.send(*[GET] * 100)
            assert await client.read(5 + 99 * len(refused)) == NIL + refused * 99
            assert server.asked.count([b"GET", b"k"]) == 1
            assert tenant.meter.take()[2:4] == (0, 99)
            tenant.meter.limit(1_000_000, 50, False)
            tenant.meter.share(WHOLE, WHOLE)
            await client.send(GET)
            with tenant.ticking():
                assert await client.read(5) == NIL, "the errors have left no debt of bytes"


async def test_a_part_of_a_transaction_is_not_refused_by_itself() -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            tenant = Tenant(proxy, refuses=True)
            client = tenant.connect()
            await client.send(GET, GET)
            assert await client.read(5 + len(REFUSED)) == NIL + REFUSED
            await client.send(("MULTI",), ("SET", "k", "1"))
            assert await waits(client)
            tenant.meter.limit(20, 0, True)
            tenant.meter.share(WHOLE, 0)
            with tenant.ticking():
                assert await client.read(14) == b"+OK\r\n+QUEUED\r\n"


@pytest.mark.long
async def test_what_waits_for_too_long_is_refused_and_a_transaction_ends_with_its_connection() -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            tenant = Tenant(proxy)
            plain, whole = tenant.connect(), tenant.connect()
            await plain.send(GET)
            assert await plain.read(5) == NIL
            await plain.send(GET, ("GET", "next"))
            await whole.send(("MULTI",), ("SET", "k", "1"))
            loop = asyncio.get_running_loop()
            began = loop.time()
            with tenant.ticking():
                assert await plain.read(len(REFUSED), 3 * LONGEST_SECONDS) == REFUSED
                assert loop.time() - began > LONGEST_SECONDS * 0.9
                assert await whole.read(len(REFUSED) + 1, 3 * LONGEST_SECONDS) == REFUSED
                await until(lambda: whole.session.closed)
                assert not plain.session.closed
            assert server.asked == [[b"GET", b"k"]]


async def test_a_request_takes_one_token_however_it_comes() -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            tenant = Tenant(proxy)
            client = tenant.connect()
            for piece in (b"*2\r\n$3\r\nG", b"ET\r\n$1", b"\r\nk\r\n"):
                await client.send_bytes(piece)
                await asyncio.sleep(0.01)
            assert await client.read(5) == NIL
            assert tenant.meter.take()[0] == 1


async def test_the_request_of_a_client_that_has_left_is_not_run() -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            tenant = Tenant(proxy)
            client, gone = tenant.connect(), tenant.connect()
            await client.send(GET)
            assert await client.read(5) == NIL
            await gone.send(("SET", "k", "late"))
            assert await waits(gone)
            gone.hang_up()
            await client.send(("SET", "k", "last"))
            await tenant.lets_all_go()
            with tenant.ticking():
                assert await client.read(5) == b"+OK\r\n"
                await until(lambda: gone.session.closed)
            assert [words[2] for words in server.asked if words[0] == b"SET"] == [b"last"]
