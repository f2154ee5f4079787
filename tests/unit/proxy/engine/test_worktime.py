"""Whose time the worker's is: each moment counts for one user, and what is above a limit of it waits."""

import asyncio
from functools import partial

import pytest

from proxy.engine.backend import command
from proxy.engine.meter import LONGEST_SECONDS, Meter
from proxy.engine.outcomes import Outcome, Unit, clear
from proxy.engine.router import LOCKED, OPEN
from tests.unit.proxy.engine.inprocess import Client, Engine, Server, Visit, engine, nothing_stored, until

NIL = b"$-1\r\n"
GET = ("GET", "k")
READ = 1_000_000
"""Nanoseconds that pass at each look at the clock, and never else."""


class Clock:
    """A clock that goes on when it is looked at."""

    def __init__(self) -> None:
        self.now = 0
        self.looks = 0

    def __call__(self) -> int:
        self.looks += 1
        self.now += READ
        return self.now


class Users:
    """Users of the engine whose time has a limit."""

    def __init__(self, proxy: Engine, *names: str) -> None:
        self._proxy = proxy
        self.clock = Clock()
        proxy.loop.work_time.clock = self.clock
        self.meters = {name: Meter(proxy.loop, name) for name in names}
        for meter in self.meters.values():
            meter.limit(0, 0, False, 100)

    def connect(self, user: str, limited: bool = False) -> Client:
        """A client of a user; unless it is ``limited``, its time counts and nothing comes of that."""
        client = self._proxy.connect(user, len(self._proxy.clients))
        client.session.belongs_to(user)
        if user in self.meters:
            client.session.measure(self.meters[user] if limited else Meter(self._proxy.loop, user))
        return client

    def turn_to(self, user: str) -> None:
        self._proxy.loop.work_time.turn(self._proxy.loop.statistics.user_number(user))

    def microseconds(self, user: str) -> int:
        return self.meters[user].take()[4]


async def test_each_moment_is_one_users() -> None:
    users = Users(Engine("127.0.0.1:1"), "one", "two")
    users.turn_to("one")
    users.clock.now += 5_000_000
    users.turn_to("two")
    users.clock.now += 2_000_000
    users.turn_to("somebody else")
    users.clock.now += 9_000_000
    users.turn_to("two")
    users.clock.now += 1_000_000
    users.turn_to("nobody")
    assert users.clock.now == 17_000_000 + 5 * READ
    assert (users.microseconds("one"), users.microseconds("two")) == (6_000, 5_000)


async def test_for_others_nobody_looks_at_the_clock() -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            users = Users(proxy)
            client = users.connect("other")
            await client.send(*[GET] * 50)
            assert await client.read(250) == NIL * 50
            assert users.clock.looks == 0


async def test_the_steps_of_a_task_count_for_whom_it_was_started() -> None:
    proxy = Engine("127.0.0.1:1")
    users = Users(proxy, "one")

    async def work() -> str:
        try:
            users.clock.now += 1_000_000
            await asyncio.sleep(0)
            users.clock.now += 2_000_000
            await asyncio.sleep(1000)
        finally:
            users.clock.now += 4_000_000
        return "never"

    users.turn_to("one")
    task = asyncio.create_task(proxy.loop.work_time.task(work()))
    users.turn_to("nobody")
    before = users.microseconds("one")
    await until(lambda: users.clock.now >= 3_000_000 + 4 * READ)
    users.clock.now += 50_000_000
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (before, users.microseconds("one")) == (1_000, 10_000)
    users.turn_to("nobody")
    coroutine = asyncio.sleep(0)
    assert proxy.loop.work_time.task(coroutine) is coroutine
    coroutine.close()


async def test_reading_sending_receiving_and_answering_count() -> None:
    """With a clock that goes on only when it is looked at, each of them has one look's time."""
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            users = Users(proxy, "one")
            client = users.connect("one")
            await client.send(GET)
            assert await client.read(5) == NIL
            users.microseconds("one")
            await client.send(GET)
            assert await client.read(5) == NIL
            read, sent, received, handed_out, answered = 1, 1, 1, 1, 1
            assert users.microseconds("one") == (read + sent + received + handed_out + answered) * 1000


async def test_a_message_counts_for_whom_it_is_sent_to() -> None:
    proxy = Engine("127.0.0.1:1")
    users = Users(proxy, "one")
    client = users.connect("one")
    client.session.push(b"+message\r\n")
    assert await client.read(10) == b"+message\r\n"
    assert users.microseconds("one") == 1000


async def test_what_is_sent_before_a_request_and_its_replies_count() -> None:
    async def transaction() -> Outcome:
        slot, address = await clear([b"k"])
        return Unit(slot, address, b"".join(map(command, (("MULTI",), GET, ("EXEC",)))), before=2)

    async def answer(visit: Visit, words: list[bytes]) -> None:
        if words == [b"EXEC"]:
            visit.say(b"+OK\r\n+QUEUED\r\n*1\r\n$-1\r\n")

    async with Server(answer) as server:
        with engine(server.address) as proxy:
            users = Users(proxy, "one")
            proxy.slow_path.handlers[b"RUN"] = transaction
            client = users.connect("one")
            for _ in range(2):
                users.microseconds("one")
                await client.send(("RUN",))
                assert await client.read(9) == b"*1\r\n" + NIL
            read, sent, received, handed_out, answered = 1, 1, 1, 1, 1
            assert users.microseconds("one") == (read + sent + received + handed_out + answered) * 1000


async def test_what_comes_behind_a_login_counts_for_the_new_user() -> None:
    proxy = Engine("127.0.0.1:1")
    users = Users(proxy, "one", "two")

    def login(client: Client, user: str) -> bytes:
        client.session.belongs_to(user)
        client.session.measure(Meter(proxy.loop, user))
        return b"+OK\r\n"

    def work() -> bytes:
        users.clock.now += 100_000_000
        return b"+OK\r\n"

    proxy.slow_path.handlers[b"WORK"] = work
    for before in ("one", "nobody"):
        client = users.connect(before)
        proxy.slow_path.handlers[b"LOGIN"] = partial(login, client, "two")
        for user in ("one", "two"):
            users.microseconds(user)
        await client.send(("LOGIN",), ("WORK",), ("WORK",))
        assert await client.read(15) == b"+OK\r\n" * 3
        assert (users.microseconds("one") // 100_000, users.microseconds("two") // 100_000) == (0, 2)
        client.close()


async def test_another_session_that_goes_on_meanwhile_does_not_count() -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            users = Users(proxy, "one")

            def work() -> bytes:
                users.clock.now += 100_000_000
                return b"+OK\r\n"

            proxy.slow_path.handlers[b"WORK"] = work
            other = users.connect("other")
            proxy.route(LOCKED, server.address)
            await other.send(GET, ("WORK",))
            await until(lambda: other.session.waits)
            proxy.route(OPEN, server.address)
            users.turn_to("one")
            other.session.wake()
            users.turn_to("nobody")
            assert users.microseconds("one") < 100_000
            assert await other.read(10) == NIL + b"+OK\r\n"


async def test_what_comes_in_one_piece_is_shared_by_bytes() -> None:
    large, small = b"$892\r\n%s\r\n" % (b"x" * 892), b"$93\r\n%s\r\n" % (b"x" * 93)
    asked: list[bytes] = []

    async def both_at_once(visit: Visit, words: list[bytes]) -> None:
        asked.append(words[1])
        if words[1] == b"small":
            visit.say(large + small)

    async with Server(both_at_once) as server:
        with engine(server.address) as proxy:
            users = Users(proxy, "one", "two")
            one, two = users.connect("one"), users.connect("two")
            for count in (1, 3):
                before = [users.microseconds(name) for name in ("one", "two")]
                await one.send(("GET", "large"))
                await until(lambda count=count: len(asked) == count)  # type: ignore[misc]
                await two.send(("GET", "small"))
                assert await one.read(900) == large
                assert await two.read(100) == small
            assert len(before) == 2
            # Four looks are each one's own; of the one for receiving, nine tenths are for the large reply.
            assert [users.microseconds(name) for name in ("one", "two")] == [4_900, 4_100]


async def test_what_goes_in_one_piece_is_shared_by_number_and_bytes() -> None:
    asked: list[bytes] = []

    async def all_at_once(visit: Visit, words: list[bytes]) -> None:
        asked.append(words[0])
        if len(asked) % 3 == 0:
            visit.say(b"+OK\r\n" * 3)

    async with Server(all_at_once) as server:
        with engine(server.address) as proxy:
            users = Users(proxy, "one", "two")
            clients = [users.connect(user) for user in ("one", "two", "other")]
            sizes = [3072, 1024, 1024]
            around = len(command(("SET", "k", "x" * 1000))) - 1000
            for _ in range(2):
                before = [users.microseconds(name) for name in ("one", "two")]
                for client, size in zip(clients, sizes, strict=True):
                    await client.send(("SET", "k", "x" * (size - around)))
                for client in clients:
                    assert await client.read(5) == b"+OK\r\n"
            assert len(before) == 2
            # Three looks are each one's own. A third of the one for receiving is, too. Each request counts as 1,024
            # bytes and its own: so the first one has a half of the look for sending, and each other one a quarter.
            assert [users.microseconds(name) for name in ("one", "two")] == [3_833, 3_583]


async def test_a_request_waits_until_the_time_of_those_before_is_paid() -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            users = Users(proxy, "one")
            meter = users.meters["one"]
            client, other = users.connect("one", limited=True), users.connect("other")
            meter.limit(0, 0, False, 1)
            users.turn_to("one")
            users.clock.now += 3_600_000_000_000
            users.turn_to("nobody")
            assert meter.time_left == pytest.approx(-LONGEST_SECONDS * 10_000, rel=0.01), "it is paid some day"
            await client.send(GET)
            await other.send(GET)
            assert await other.read(5) == NIL
            for _ in range(3):
                proxy.loop.tick()
                meter.tick()
            assert server.asked.count([b"GET", b"k"]) == 1
            assert meter.take()[2:4] == (1, 0)
            # Of a limit that is gone, nothing has to be paid.
            meter.limit(0, 0, False, 0)
            meter.tick()
            assert await client.read(5) == NIL


async def test_the_refusal_names_the_limit() -> None:
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            users = Users(proxy, "one")
            meter = users.meters["one"]
            client = users.connect("one", limited=True)
            for requests, named in ((0, b""), (7, b"7 requests a second or ")):
                meter.limit(requests, 0, True, 20)
                users.turn_to("one")
                users.clock.now += 60_000_000_000
                users.turn_to("nobody")
                await client.send(GET)
                expected = (
                    b"-TRYAGAIN user one asks for more than its %s20%% of a worker's time; nothing was run, try again "
                    b"later, or have its limits raised\r\n" % named
                )
                assert await client.read(len(expected)) == expected
