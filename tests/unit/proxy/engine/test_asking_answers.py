"""What becomes of the request at the front once the engine's own question about it is answered."""

import asyncio
from types import SimpleNamespace

import pytest

from proxy.engine.outcomes import Unit, clear
from proxy.engine.refusals import LEFT
from proxy.engine.router import LOCKED, OPEN
from tests.unit.proxy.engine.inprocess import Answer, Client, Engine, Server, Visit, engine, nothing_stored, once, until
from tests.unit.proxy.engine.test_pops import ELEMENT, POP, WAITED, PlainPython, answering
from tests.unit.proxy.engine.test_scans import at, giving, page, prepared

NOTHING = answering(b"*-1\r\n")
"""Plain Python is to have the pop wait."""


def asking(kind: str, proxy: Engine, address: str) -> tuple[PlainPython, Client, tuple[str | int, ...]]:
    """Plain Python, a client, and a request about which the engine asks."""
    if kind == "pop":
        return PlainPython(proxy), proxy.connect(), POP
    _, client = prepared(proxy, address)
    return PlainPython(proxy), client, ("SCAN", at(3))


@pytest.mark.parametrize(
    ("kind", "answer"), [("pop", NOTHING), ("scan", giving(page(0, "a")))], ids=["nothing to take", "a last page"]
)
async def test_nobody_decides_for_a_client_that_has_left(kind: str, answer: Answer) -> None:
    let_go = asyncio.Event()
    async with Server(once(let_go, answer)) as server:
        with engine(server.address) as proxy:
            python, client, request = asking(kind, proxy, server.address)
            bystander = proxy.connect()
            await client.send(request)
            await until(lambda: bool(server.asked))
            client.hang_up()
            let_go.set()
            await until(lambda: client.session.closed)
            # It comes behind the answer.
            await bystander.send(("GET", "k"))
            assert await bystander.read(5) == b"$-1\r\n"
            await asyncio.sleep(0.01)
            assert (python.asked, proxy.mistakes) == ([], [])


@pytest.mark.parametrize(
    ("kind", "answer", "reply"),
    [("pop", answering(b"*1\r\n" + ELEMENT), ELEMENT), ("scan", giving(page(5, "a")), page(at(5), "a"))],
    ids=["pop", "scan"],
)
async def test_a_later_request_that_waits_is_answered_though_its_client_says_no_more(
    kind: str, answer: Answer, reply: bytes
) -> None:
    """The engine looks for a client's end while its own question is under way, and not for longer."""
    async with Server(answer) as server:
        with engine(server.address) as proxy:
            _, client, request = asking(kind, proxy, server.address)
            await client.send(request)
            assert await client.read(len(reply)) == reply
            proxy.route(LOCKED, server.address)
            await client.send(("GET", "k"))
            await until(lambda: client.session.waits)
            client.say_no_more()
            await asyncio.sleep(0.02)
            proxy.route(OPEN, server.address)
            proxy.router.next_generation()
            proxy.router.holding.release()
            assert await client.read(len(LEFT)) == LEFT


async def test_bounded_a_large_pop_waits_for_room_whatever_its_handler_sends() -> None:
    let_go, go_on = asyncio.Event(), asyncio.Event()
    steps: list[str] = []
    key = "{t}" + "x" * 500_000

    async def answer(visit: Visit, words: list[bytes]) -> None:
        if words[0] in (b"MULTI", b"BLPOP", b"EXEC"):
            await NOTHING(visit, words)
        else:
            await let_go.wait()
            await nothing_stored(visit, words)

    async def handler() -> Unit:
        steps.append("begun")
        await go_on.wait()
        slot, address = await clear([b"k"])
        steps.append("cleared")
        return Unit(slot, address, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n")

    async with Server(answer) as server:
        with engine(server.address) as proxy:
            proxy.loop.waiting_limit = 1_000_000
            proxy.options.queue_pause_bytes = 100_000_000
            proxy.router.blocking = SimpleNamespace(begin_wait=lambda *_: handler())  # type: ignore[assignment]
            large, other = proxy.connect(), proxy.connect("other", 1)
            sending = asyncio.create_task(large.send(("BLPOP", key, "0")))
            await until(lambda: bool(steps))
            # More than the sockets take.
            filling = asyncio.create_task(other.send(("SET", "k", "x"), *[("SET", "k", "x" * 900_000)] * 20))
            await until(lambda: proxy.loop.waiting > 600_000)
            looks: list[int] = []
            while min(looks[-10:], default=0) < 600_000 or len(looks) < 10:
                # The sockets take no more: then bytes wait at every look.
                looks.append(proxy.loop.waiting)
                await asyncio.sleep(0.02)
            go_on.set()
            await asyncio.sleep(0.05)
            before = list(steps)
            let_go.set()
            assert await large.read(5) == b"$-1\r\n"
            await asyncio.gather(sending, filling)
            assert before == ["begun"]


async def test_bounded_a_pop_that_has_to_wait_is_a_handlers_while_others_wait_for_room() -> None:
    """Only a handler waits for room before it sends something."""
    let_go = asyncio.Event()

    async def answer(visit: Visit, words: list[bytes]) -> None:
        if words[0] == b"SET":
            await let_go.wait()
        await NOTHING(visit, words)

    async with Server(answer) as server:
        with engine(server.address, backend_connections=2, workers=1) as proxy:
            python, client, other = PlainPython(proxy), proxy.connect("client", 1), proxy.connect()
            proxy.options.queue_pause_bytes = 100_000_000
            # More than the sockets take.
            filling = asyncio.create_task(other.send(*[("SET", "k", "x" * 900_000)] * 20))
            await until(lambda: proxy.loop.waiting > 4_000_000)
            await client.send(POP)
            assert await client.read(len(WAITED)) == WAITED
            assert (len(python.asked), python.waits) == (1, 0)
            let_go.set()
            await filling
            await until(lambda: proxy.loop.waiting == 0)
            await client.send(POP)
            assert await client.read(len(WAITED)) == WAITED
            assert (len(python.asked), python.waits) == (2, 1)


@pytest.mark.parametrize(
    ("kind", "answer", "reply"),
    [
        ("pop", answering(b"*1\r\n" + ELEMENT), ELEMENT),
        ("scan", giving(page(5, "a")), page(at(5), "a")),
        ("pop", NOTHING, LEFT),
    ],
    ids=["pop", "scan", "nothing to take"],
)
async def test_a_client_that_says_no_more_gets_what_a_server_is_asked_for(
    kind: str, answer: Answer, reply: bytes
) -> None:
    """As one Redis: what was taken for it is not lost. Only waiting is over."""
    let_go = asyncio.Event()
    async with Server(once(let_go, answer)) as server:
        with engine(server.address) as proxy:
            python, client, request = asking(kind, proxy, server.address)
            await client.send(request)
            client.say_no_more()
            await until(lambda: bool(server.asked))
            await asyncio.sleep(0.01)
            let_go.set()
            assert await client.read(len(reply) + 1) == reply
            assert python.asked == []
