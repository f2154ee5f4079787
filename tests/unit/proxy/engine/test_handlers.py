"""A handler that has to wait goes on where it stopped, and sends only while the way of its keys is free."""

import asyncio
import os
import socket
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.engine.backend import command
from proxy.engine.outcomes import Answered, Outcome, Reply, Unit, clear, nothing_owed
from proxy.engine.refusals import FAILED
from proxy.engine.router import LOCKED, MIGRATING, OFFLINE, OPEN
from proxy.engine.session import Session
from proxy.worker.holding import Holding
from tests.unit.proxy.engine.inprocess import LIMIT, Engine, Server, Visit, engine, nothing_stored, once, until

GET = command(("GET", "k"))
PING = command(("PING",))
NOTHING = b"$-1\r\n"


def get(steps: list[str], *, keys: tuple[bytes, ...] = (b"k",), before: Callable[[], Any] | None = None) -> Any:
    """A handler that writes down its steps."""

    async def handler() -> Outcome:
        steps.append("begun")
        try:
            if before is not None:
                await before()
                steps.append("waited")
            slot, address = await clear(list(keys))
            steps.append("cleared")
            return Unit(slot, address, GET)
        finally:
            steps.append("ended")

    return handler


async def a_moment() -> None:
    await asyncio.sleep(0.001)


@pytest.mark.parametrize("before", [None, a_moment, nothing_owed], ids=["nothing", "a future", "nothing owed"])
async def test_each_step_is_made_once(before: Callable[[], Any] | None) -> None:
    steps: list[str] = []
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = get(steps, before=before)
            client = proxy.connect()
            proxy.route(LOCKED, server.address)
            # The GET behind it keeps its place.
            await client.send(("ECHO", "x"), ("SET", "k", "v"))
            await until(lambda: len(proxy.router.holding) == 1)
            # It is still locked, so it goes on waiting.
            proxy.router.holding.release()
            await until(lambda: len(proxy.router.holding) == 1)
            assert "cleared" not in steps
            proxy.route(OPEN, server.address)
            proxy.router.holding.release()
            assert await client.read(10) == NOTHING + b"+OK\r\n"
            assert steps == ["begun", *(["waited"] if before else []), "cleared", "ended"]
            assert proxy.loop.requests == 2
            assert proxy.mistakes == []


async def test_it_begins_once_all_before_it_is_answered() -> None:
    steps: list[str] = []
    let_go = asyncio.Event()

    async with Server(once(let_go, nothing_stored)) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = get(steps, before=nothing_owed)
            client = proxy.connect()
            await client.send(("SET", "k", "v"), ("ECHO", "x"))
            await until(lambda: steps == ["begun"])
            let_go.set()
            assert await client.read(10) == b"+OK\r\n" + NOTHING


@pytest.mark.parametrize(
    ("keys", "state", "error"),
    [
        ((b"k", b"another"), OPEN, b"-CROSSSLOT Keys in request don't hash to the same slot: 'k' has slot "),
        ((b"k",), OFFLINE, b"-ERR slot "),
        ((b"__slotferry:x",), OPEN, b"-ERR "),
    ],
)
@pytest.mark.parametrize("before", [None, a_moment])
async def test_keys_that_no_server_may_get(
    keys: tuple[bytes, ...], state: int, error: bytes, before: Callable[[], Any] | None
) -> None:
    steps: list[str] = []
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = get(steps, keys=keys, before=before)
            proxy.route(state, None if state == OFFLINE else server.address)
            client = proxy.connect()
            await client.send(("ECHO", "x"), ("PING",))
            said = await client.read(len(error))
            assert said == error
            assert "cleared" not in steps
            assert steps[-1] == "ended"
            assert proxy.mistakes == []


@pytest.mark.parametrize("before", [None, a_moment])
async def test_a_locked_slot_is_not_waited_for_for_ever(before: Callable[[], Any] | None) -> None:
    """bounded: however often the table changes meanwhile."""
    steps: list[str] = []
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.router.holding = holding = Holding(0.2)
            proxy.slow_path.handlers[b"ECHO"] = get(steps, before=before)
            client = proxy.connect()
            proxy.route(LOCKED, server.address)
            await client.send(("ECHO", "x"), ("PING",))
            reading = asyncio.create_task(client.read(9))

            while not reading.done():
                holding.release()
                await asyncio.sleep(0.001)
                holding.expire()
                await asyncio.sleep(0.001)
            assert await reading == b"-TRYAGAIN"
            assert steps[-1] == "ended"
            assert "cleared" not in steps


async def test_what_waits_for_keys_is_answered_by_who_moves_them() -> None:
    steps: list[str] = []
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            asked: list[Any] = []
            proxy.router.mover = SimpleNamespace(need=lambda session, *_: asked.append(session))  # type: ignore[assignment]
            proxy.slow_path.handlers[b"ECHO"] = get(steps)
            proxy.route(MIGRATING, server.address)
            client = proxy.connect()
            await client.send(("ECHO", "x"), ("PING",))
            await until(lambda: len(asked) == 1)
            # The table has changed: the key is looked for again.
            asked[0].wake()
            await until(lambda: len(asked) == 2)
            asked[0].fail(b"-TRYAGAIN it does not move\r\n")
            expected = b"-TRYAGAIN it does not move\r\n+PONG\r\n"
            assert await client.read(len(expected)) == expected
            assert steps == ["begun", "ended"]


async def test_absent_first_what_is_known_of_some_keys_says_nothing_of_others() -> None:
    async def two_looks() -> Outcome:
        await clear([b"{t}a"])
        slot, address = await clear([b"{t}b"])
        return Unit(slot, address, GET)

    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            asked: list[bytes] = []

            def need(session: Any, database: int, missing: list[tuple[int, bytes]], *_: Any) -> None:
                asked.extend(key for _, key in missing)
                asyncio.get_running_loop().call_soon(session.wake, proxy.router.generation)

            proxy.router.mover = SimpleNamespace(need=need)  # type: ignore[assignment]
            proxy.slow_path.handlers[b"ECHO"] = two_looks
            proxy.route(MIGRATING, server.address)
            client = proxy.connect()
            await client.send(("ECHO", "x"))
            assert await client.read(5) == NOTHING
            assert asked == [b"{t}a", b"{t}b"]


@pytest.mark.parametrize("waits_for", ["a lock", "a future", "what is owed"])
async def test_a_client_that_leaves_ends_its_handler(waits_for: str) -> None:
    steps: list[str] = []
    never = asyncio.Event()

    async def silent(visit: Visit, words: list[bytes]) -> None:
        await never.wait()

    async with Server(silent) as server:
        with engine(server.address) as proxy:
            before = {"a lock": None, "a future": never.wait, "what is owed": nothing_owed}[waits_for]
            proxy.slow_path.handlers[b"ECHO"] = get(steps, before=before)
            client = proxy.connect()
            if waits_for == "a lock":
                proxy.route(LOCKED, server.address)
            await client.send(*([("GET", "k")] if waits_for == "what is owed" else []), ("ECHO", "x"))
            await until(lambda: steps == ["begun"])
            client.close()
            await until(lambda: steps == ["begun", "ended"])
            assert proxy.mistakes == []


async def test_a_client_that_hangs_up_is_noticed_while_a_future_is_awaited() -> None:
    steps: list[str] = []
    never = asyncio.Event()
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = get(steps, before=never.wait)
            client = proxy.connect()
            await client.send(("ECHO", "x"))
            await until(lambda: steps == ["begun"])
            client.hang_up()
            await until(lambda: client.session.closed and steps == ["begun", "ended"])


async def test_nothing_is_run_for_a_client_that_left_while_its_request_was_held() -> None:
    steps: list[str] = []
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = get(steps)
            client = proxy.connect()
            proxy.route(LOCKED, server.address)
            await client.send(("ECHO", "x"), ("PING",))
            await until(lambda: len(proxy.router.holding) == 1)
            client.say_no_more()
            proxy.route(OPEN, server.address)
            proxy.router.holding.release()
            said = await client.read(1000)
            assert said.startswith(b"-TRYAGAIN the connection was closed")
            assert said.count(b"\r\n") == 1, "later requests are not run either"
            assert "cleared" not in steps
            assert all(not visit.asked for visit in server.visits)


async def unit_of_another_slot() -> Unit:
    slot, address = await clear([b"k"])
    return Unit((slot + 1) % 16, address, GET)


async def unit_after_a_while() -> Unit:
    slot, address = await clear([b"k"])
    await asyncio.sleep(0.001)
    return Unit(slot, address, GET)


@pytest.mark.parametrize("mistake", [unit_of_another_slot, unit_after_a_while])
async def test_nothing_is_sent_by_a_way_that_was_not_found_free_in_this_step(mistake: Callable[[], Any]) -> None:
    """absent-first, drained."""
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = mistake
            client = proxy.connect()
            await client.send(("ECHO", "x"))
            assert await client.read(1) == b""
            assert [text.startswith("a request for slot") for text in proxy.mistakes] == [True]
            assert all(not visit.asked for visit in server.visits)


async def test_a_handler_may_tidy_up_when_its_keys_are_not_let_through() -> None:
    async def careful() -> Outcome:
        try:
            await clear([b"k"])
        except Answered as answered:
            return b"-ERR seen: " + answered.reply[1:]
        return b"+OK\r\n"

    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = careful
            proxy.route(OFFLINE, None)
            client = proxy.connect()
            await client.send(("ECHO", "x"))
            assert await client.read(19) == b"-ERR seen: ERR slot"


async def test_it_waits_while_its_server_has_too_much_to_do() -> None:
    steps: list[str] = []
    let_go = asyncio.Event()

    async with Server(once(let_go, nothing_stored)) as server:
        with engine(server.address) as proxy:
            proxy.options.queue_pause_bytes = 1000
            proxy.slow_path.handlers[b"ECHO"] = get(steps)
            other, client = proxy.connect("other"), proxy.connect()
            # More than the sockets take.
            await other.send(("SET", "k", "x"), ("SET", "k", "x" * 20_000_000))
            await until(lambda: len(server.visits) == 1 and bool(server.visits[0].asked))
            await client.send(("ECHO", "x"), ("SET", "k", "v"))
            await until(lambda: steps == ["begun"])
            let_go.set()
            assert await client.read(10) == NOTHING + b"+OK\r\n"
            assert steps == ["begun", "cleared", "ended"]


async def test_a_closed_session_is_not_watched_for_its_clients_leaving() -> None:
    """Its descriptor may be another connection's by then."""
    never = asyncio.Event()
    begun: list[int] = []

    async def handler() -> bytes:
        begun.append(1)
        try:
            await never.wait()
        finally:
            await asyncio.sleep(0)
        return b"+OK\r\n"

    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = handler
            before = set(os.listdir("/proc/self/fd"))
            client = proxy.connect()
            fds = {int(name) for name in set(os.listdir("/proc/self/fd")) - before}
            await client.send(("ECHO", "x"))
            await until(lambda: bool(begun))
            sending = asyncio.create_task(client.send_bytes(PING * 200_000))
            # The client pipelines more than is read behind a waiting request.
            await until(lambda: client.session.unparsed >= 1_048_576)
            await asyncio.sleep(0.05)
            client.session.close()  # CLIENT KILL, or the largest session is closed
            # Clients arrive, and one gets the descriptor that was closed. Others may be free as well.
            pairs = [socket.socketpair() for _ in range(20)]
            ends = next(pair for pair in pairs if any(end.fileno() in fds for end in pair))
            its = next(end for end in ends if end.fileno() in fds)
            mine = next(end for end in ends if end is not its)
            for end in ends:
                end.setblocking(False)
            await asyncio.sleep(0.05)
            sending.cancel()
            session = Session(proxy.router, its, "next", 5)  # It becomes a session.
            mine.send(PING)
            async with asyncio.timeout(LIMIT):
                assert await asyncio.get_running_loop().sock_recv(mine, 100) == b"+PONG\r\n"
            session.close()


@pytest.mark.parametrize("keys", [[b"k"], []], ids=["keys", "no keys"])
async def test_bounded_a_request_without_keys_waits_for_a_full_server_too(keys: list[bytes]) -> None:
    let_go = asyncio.Event()
    cleared: list[int] = []

    async def handler() -> Unit:
        slot, address = await clear(keys)
        cleared.append(slot)
        return Unit(slot, address, command(("EVALSHA", "x" * 40, 0, "y" * 1_000_000)))

    async with Server(once(let_go, nothing_stored)) as server:
        with engine(server.address) as proxy:
            proxy.options.queue_pause_bytes = 1000
            proxy.slow_path.handlers[b"ECHO"] = handler
            other = proxy.connect("other")
            await other.send(("SET", "k", "x"), ("SET", "k", "x" * 20_000_000))
            await until(lambda: len(server.visits) == 1 and bool(server.visits[0].asked))
            for number in range(10):
                await proxy.connect(f"client {number}", number).send(("ECHO", "x"))
            await asyncio.sleep(0.1)
            sent = len(cleared)
            let_go.set()
            assert sent == 0


async def test_way_is_not_free_any_more_after_a_condition_that_had_to_wait() -> None:
    """drained: the slot is locked meanwhile."""
    let_go = asyncio.Event()
    steps: list[str] = []

    async def handler() -> Unit:
        slot, address = await clear([b"k"])
        steps.append("cleared")
        await nothing_owed()
        return Unit(slot, address, GET)

    async with Server(once(let_go, nothing_stored)) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = handler
            client = proxy.connect()
            await client.send(("SET", "k", "v"), ("ECHO", "x"))
            await until(lambda: bool(steps))
            proxy.route(LOCKED, server.address)
            let_go.set()
            await client.read(5)
            await asyncio.sleep(0.05)
            assert [b"GET", b"k"] not in server.asked, "sent while the slot was locked"


async def test_the_way_of_an_earlier_request_is_not_that_of_a_later_one() -> None:
    """drained, absent-first."""
    found: list[Any] = []

    async def first() -> Unit:
        found.append(await clear([b"k"]))
        return Unit(*found[0], GET)

    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = first
            proxy.slow_path.handlers[b"TIME"] = lambda: Unit(*found[0], command(("GET", "second")))
            client = proxy.connect()
            await client.send(("ECHO", "x"))
            assert await client.read(5) == b"$-1\r\n"
            proxy.route(LOCKED, server.address)
            await client.send(("TIME",))
            await asyncio.sleep(0.05)
            assert [b"GET", b"second"] not in server.asked, "sent while the slot was locked"


async def test_a_later_lock_has_its_own_time() -> None:
    """A handler that was held, then waited long for something else, is held again."""
    go_on = asyncio.Event()
    steps: list[str] = []

    async def handler() -> Unit:
        await clear([b"k"])
        steps.append("at the server")
        await go_on.wait()
        slot, address = await clear([b"k"])
        return Unit(slot, address, GET)

    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.router.holding = holding = Holding(0.5)
            proxy.slow_path.handlers[b"ECHO"] = handler
            client = proxy.connect()
            proxy.route(LOCKED, server.address)
            await client.send(("ECHO", "x"))
            await until(lambda: len(holding) == 1)
            proxy.route(OPEN, server.address)
            holding.release()
            await until(lambda: bool(steps))
            for _ in range(8):
                await asyncio.sleep(0.1)
                holding.expire()
            proxy.route(LOCKED, server.address)
            go_on.set()
            await until(lambda: len(holding) == 1)
            holding.expire()  # It has been held for a few milliseconds.
            proxy.route(OPEN, server.address)
            holding.release()
            assert await client.read(5) == NOTHING


async def reply_after_a_while() -> bytes:
    await asyncio.sleep(0.01)
    return b"+first\r\n"


async def wait_with_a_limit() -> bytes:
    async with asyncio.timeout(0.1):
        await asyncio.Event().wait()
    return b"+never\r\n"


@pytest.mark.parametrize("behind", [False, True], ids=["alone", "behind one that waited"])
async def test_bounded_a_limit_in_time_does_not_become_part_of_another_task(behind: bool) -> None:
    """It would never end the wait: that task is another request's, or one that moves keys."""
    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = reply_after_a_while
            proxy.slow_path.handlers[b"TIME"] = wait_with_a_limit
            client = proxy.connect()
            await client.send(*([("ECHO", "x")] if behind else []), ("TIME",))
            expected = (b"+first\r\n" if behind else b"") + FAILED
            assert await client.read(len(expected)) == expected
            assert proxy.mistakes == ["Timeout should be used inside a task"]


@pytest.mark.parametrize("waited", [False, True], ids=["at once", "after a wait"])
async def test_a_large_request_of_a_handler_gets_its_turn(waited: bool) -> None:
    """It is woken when there is room; the others do not take the room before."""
    served: list[bytes] = []
    go_on = asyncio.Event()

    async def slowly(visit: Visit, words: list[bytes]) -> None:
        served.append(words[1])
        await asyncio.sleep(0.002)
        visit.say(b"+OK\r\n")

    async def handler() -> Unit:
        if waited:
            await go_on.wait()
        slot, address = await clear([b"k"])
        return Unit(slot, address, command(("SET", "mine", "x" * 1_000_000)))

    async with Server(slowly) as server:
        with engine(server.address) as proxy:
            proxy.loop.waiting_limit = 3_000_000
            proxy.options.queue_pause_bytes = 100_000_000
            proxy.slow_path.handlers[b"ECHO"] = handler
            ended = False

            async def hog(number: int) -> None:
                client = proxy.connect(f"hog {number}", number + 1)
                while not ended:
                    await client.send(("SET", f"hog{number}", "x" * 1_000_000))
                    assert await client.read(5) == b"+OK\r\n"

            client = proxy.connect()
            if waited:
                sending = asyncio.create_task(client.send(("ECHO", "x" * 600_000)))
                await until(lambda: bool(proxy.slow_path.handled))
            hogs = [asyncio.create_task(hog(number)) for number in range(24)]
            await until(lambda: len(served) > 60)
            before = len(served)
            go_on.set()
            if not waited:
                sending = asyncio.create_task(client.send(("ECHO", "x" * 600_000)))
            try:
                async with asyncio.timeout(60):
                    while b"mine" not in served and len(served) < before + 1500:
                        await asyncio.sleep(0.01)
            finally:
                ended = True
                for task in hogs:
                    task.cancel()
                sending.cancel()
            waited = served.index(b"mine") - before if b"mine" in served else len(served) - before
            assert b"mine" in served
            assert waited < 150


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_handler_that_is_cancelled_says_nothing(at_once: bool) -> None:
    """The worker ends, and nobody knows what was run: an error would say that nothing was."""
    awaited = asyncio.get_running_loop().create_future()
    begun = asyncio.Event()

    async def handler() -> bytes:
        begun.set()
        if at_once:
            raise asyncio.CancelledError
        await awaited
        return b"+OK\r\n"

    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = handler
            client = proxy.connect()
            await client.send(("ECHO", "x"), ("PING",))
            await begun.wait()
            awaited.cancel()
            assert await client.read(100) == b""
            assert client.session.closed


# How it waits, and how its waiting ends: each of these has its own way in the engine


async def wait_for_lock(proxy: Engine, address: str) -> None:
    proxy.route(LOCKED, address)
    await clear([b"k"])


async def wait_for_future(proxy: Engine, address: str) -> None:
    await asyncio.Event().wait()


async def wait_for_turn(proxy: Engine, address: str) -> None:
    while True:
        await asyncio.sleep(0)


async def wait_for_server(proxy: Engine, address: str) -> None:
    await proxy.router.shared_backend(address).ask(command(("BLPOP", "k", "0")))


@pytest.mark.parametrize("waits", [wait_for_lock, wait_for_future, wait_for_turn, wait_for_server])
@pytest.mark.parametrize("first", [True, False], ids=["its first wait", "a later wait"])
async def test_a_handler_tidies_up_once_and_may_wait_for_it(waits: Callable[[Any], Any], first: bool) -> None:
    """The client leaves. What the handler has to undo may need waits of its own."""
    steps: list[str] = []

    async def handler() -> bytes:
        if not first:
            await asyncio.sleep(0.001)
        try:
            steps.append("waits")
            await waits(proxy, address)
        except asyncio.CancelledError:
            steps.append("cancelled")
            raise
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
            await proxy.router.shared_backend(address).ask(PING)
            steps.append("tidied up")
        return b"+OK\r\n"

    async def pings_only(visit: Visit, words: list[bytes]) -> None:
        if words[0] == b"PING" and steps:
            visit.say(b"+PONG\r\n")

    async with Server(pings_only) as server:
        with engine(server.address) as proxy:
            address = server.address
            proxy.slow_path.handlers[b"ECHO"] = handler
            client = proxy.connect()
            await client.send(("ECHO", "x"))
            await until(lambda: steps == ["waits"])
            if waits is wait_for_server:
                await until(lambda: bool(server.visits and server.visits[0].asked))
            client.session.close()
            if waits is wait_for_server:
                # BLPOP holds up the PING behind it no longer.
                server.visits[0].say(b"*-1\r\n")
            await until(lambda: steps[-1] == "tidied up")
            assert steps == ["waits", "cancelled", "tidied up"]
            assert proxy.mistakes == []


@pytest.mark.parametrize("order", ["the reply first", "the end first"])
async def test_the_reply_and_the_end_of_the_client_in_one_turn(order: str) -> None:
    """The handler goes on once, and sends nothing more."""
    steps: list[object] = []

    async def handler() -> bytes:
        try:
            steps.append(await answer)
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            steps.append("cancelled")
            raise
        return b"+OK\r\n"

    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            answer = Reply()
            proxy.slow_path.handlers[b"ECHO"] = handler
            client = proxy.connect()
            await client.send(("ECHO", "x"))
            await until(lambda: answer.session is not None)
            ends = [partial(answer.give, b"+PONG\r\n"), client.session.close]
            for end in ends if order == "the reply first" else reversed(ends):
                end()
            await until(lambda: steps[-1:] == ["cancelled"])
            await asyncio.sleep(0.01)
            assert steps == ["cancelled"]
            assert proxy.mistakes == []


async def test_a_client_that_a_handler_ends_itself() -> None:
    """CLIENT KILL of the own connection, and then a wait."""
    steps: list[str] = []

    async def handler() -> bytes:
        client.session.close()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            steps.append("cancelled")
            raise
        return b"+OK\r\n"

    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = handler
            client = proxy.connect()
            await client.send(("ECHO", "x"))
            await until(lambda: steps == ["cancelled"])
            assert await client.read(10) == b""
            assert proxy.mistakes == []


async def test_what_ends_an_earlier_wait_says_nothing_about_a_later_one() -> None:
    """Who moves keys answers late: the handler waits for something else by then."""
    answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    steps: list[str] = []

    async def handler() -> bytes:
        await clear([b"k"])
        steps.append("cleared")
        said = await answer
        await nothing_owed()
        return said

    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.slow_path.handlers[b"ECHO"] = handler
            client = proxy.connect()
            await client.send(("ECHO", "x"), ("PING",))
            await until(lambda: steps == ["cleared"])
            client.session.fail(b"-ERR late\r\n")
            client.session.wake()
            client.session.resume_reading()
            await asyncio.sleep(0.01)
            answer.set_result(b"+right\r\n")
            assert await client.read(15) == b"+right\r\n+PONG\r\n"


async def test_who_is_asked_may_answer_at_once() -> None:
    """The mover wakes, or fails, the session while it asks."""
    failing = False

    def need(session: Any, *_: Any) -> None:
        if failing:
            session.fail(b"-ERR at once\r\n")
        else:
            session.wake(proxy.router.generation)

    async with Server(nothing_stored) as server:
        with engine(server.address) as proxy:
            proxy.router.mover = SimpleNamespace(need=need)  # type: ignore[assignment]
            proxy.slow_path.handlers[b"ECHO"] = get([])
            proxy.slow_path.handlers[b"TIME"] = get([], before=a_moment)
            proxy.route(MIGRATING, server.address)
            client = proxy.connect()
            await client.send(("ECHO", "x"), ("TIME",))
            assert await client.read(10) == NOTHING * 2
            failing = True
            await client.send(("ECHO", "x"), ("TIME",))
            assert await client.read(28) == b"-ERR at once\r\n" * 2
            assert proxy.mistakes == []
