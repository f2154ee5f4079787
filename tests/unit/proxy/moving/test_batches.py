"""Keys that a batches moves: whatever fails, the clients that wait for them are told."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from proxy.engine.backend import Backend
from proxy.engine.router import Router
from proxy.moving import permits
from proxy.moving.batches import BATCH_KEYS, KeyBatches, _End
from proxy.moving.move import Move, Origin
from proxy.moving.permits import Permits
from proxy.settings import ProxySettings
from slots.moving import TAKE
from tests.unit.proxy.engine.inprocess import Server, Visit, engine, until

TARGET = "127.0.0.1:1"


class NoPermits(Permits):
    """No permit can be renewed, for an unexpected reason."""

    async def renew(self, source: str, target: str) -> str | None:
        raise KeyError("id")


class Mover:
    """Notes what became of moves."""

    def __init__(self, router: Router, permits: Permits) -> None:
        self.router = router
        self.settings = ProxySettings()
        self.permits = permits
        self.finished: list[tuple[Move, bytes | None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = False

    def finish(self, move: Move, error: bytes | None) -> None:
        self.finished.append((move, error))

    def drop(self, move: Move) -> None:
        raise AssertionError("no other table has come")

    def found_big(self, move: Move, source: str | None) -> None:
        raise AssertionError("it is small")

    def is_current(self, move: Move, origin: Origin, target: str) -> bool:
        return True

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        if self._ended:
            work.close()
        else:
            self._tasks.add(asyncio.get_running_loop().create_task(work))

    async def end(self, batches: KeyBatches) -> None:
        """End all work, as a worker that ends does: keys that still wait are due at any later turn of the loop."""
        self._ended = True
        for backend in batches.backends:
            backend.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def not_permitted(visit: Visit, words: list[bytes]) -> None:
    """Answer as a source whose permit has gone."""
    visit.say(b"-NOTPERMITTED the permit has to be renewed\r\n")


async def test_drained_a_key_whose_permit_cannot_be_renewed_is_given_up() -> None:
    """given an unexpected error, the key does not hold its slot for ever."""
    async with Server(not_permitted) as server:
        with engine(server.address) as inside:
            mover = Mover(inside.router, NoPermits(ProxySettings(), lambda: "name"))
            batches = KeyBatches(mover, Origin(server.address), TARGET, 0)
            move = Move(3, (1, 0, b"key"), time.monotonic() + 0.2)
            batches.add(move)
            await until(lambda: bool(mover.finished))
            [(finished, error)] = mover.finished
            assert finished is move
            assert error is not None
            assert error.startswith(b"-TRYAGAIN")
            assert batches.idle
            await mover.end(batches)


async def test_absent_first_an_odd_answer_moves_nothing() -> None:
    """given a source that answers for other keys than it was asked for, the key is not known to have left it."""

    async def odd(visit: Visit, words: list[bytes]) -> None:
        visit.say(b"*9\r\n:1\r\n:0\r\n*0\r\n*1\r\n:7\r\n" + b"*0\r\n" * 5)

    async with Server(odd) as server:
        with engine(server.address) as inside:
            mover = Mover(inside.router, NoPermits(ProxySettings(), lambda: "name"))
            batches = KeyBatches(mover, Origin(server.address), TARGET, 0)
            batches.add(Move(3, (1, 0, b"key"), time.monotonic() + 0.2))
            await until(lambda: bool(mover.finished))
            [(_, error)] = mover.finished
            assert error is not None
            assert b"it answers" in error or b"others were moved" in error
            await mover.end(batches)


@pytest.mark.parametrize("error", [RuntimeError("the handler is closed"), OSError("gone")])
async def test_a_connection_that_is_lost_while_a_permit_is_renewed(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """given a connection that uvloop has closed when something is to be written, the reason is said."""

    async def renew(*_: object) -> str:
        raise error

    monkeypatch.setattr(permits.permits, "renew", renew)
    mine = Permits(ProxySettings(), lambda: "name")
    assert await mine.renew("127.0.0.1:2", TARGET) == str(error)
    assert mine.get("127.0.0.1:2", TARGET) == ""


class Connection:
    """A connection to a server: its number, and the callers that wait for a reply."""

    def __init__(self) -> None:
        self.is_ready = True
        self.connects = 1
        self.answers: list[Callable[[bytes], None]] = []

    def call(self, payload: bytes, answer: Callable[[bytes], None]) -> None:
        self.answers.append(answer)

    def ask(self, payload: bytes) -> "asyncio.Future[bytes]":
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.call(payload, answered.set_result)
        return answered


async def test_run_id_a_connection_that_is_made_as_a_reply_comes_is_compared_itself() -> None:
    """given a server that answers and ends, the connection that another batch has begun may lead to another process."""
    backend = Connection()
    end = _End(cast(Backend, backend))
    checks: list[bool] = []

    def arguments(check: bool) -> tuple[str, ...]:
        checks.append(check)
        return ()

    for reconnects in (False, True, False, False):
        running = asyncio.create_task(end.run(TAKE, arguments))
        await asyncio.sleep(0)
        backend.answers.pop()(b"*0\r\n")
        backend.connects += reconnects
        await running
    assert checks == [True, False, True, False]


async def test_a_key_that_a_dead_mover_has_claimed_is_tried_by_another_permit_before_its_time_is_over() -> None:
    """given little time, a waiting client does not give up before the permit, and with it the claim, is doubted."""

    async def busy(visit: Visit, words: list[bytes]) -> None:
        visit.say(b"*9\r\n:1\r\n:0\r\n*1\r\n:1\r\n" + b"*0\r\n" * 6)

    doubted: list[str] = []

    class Doubts(NoPermits):
        def get(self, source: str, target: str) -> str:
            return "a permit"

        def doubt(self, source: str, target: str, permit: str) -> None:
            doubted.append(permit)

    async with Server(busy) as server:
        with engine(server.address) as inside:
            mover = Mover(inside.router, Doubts(ProxySettings(), lambda: "name"))
            mover.settings = ProxySettings(move_seconds=0.2)
            batches = KeyBatches(mover, Origin(server.address), TARGET, 0)
            batches.add(Move(3, (1, 0, b"key"), time.monotonic() + 0.2))
            await until(lambda: bool(mover.finished))
            assert set(doubted) == {"a permit"}
            await mover.end(batches)


@pytest.mark.parametrize("answer", [b"-ERR something\r\n", b"*2\r\n:7\r\n$0\r\n\r\n", b":1\r\n"])
async def test_one_way_a_claim_is_not_given_back_where_it_is_not_known_whether_the_key_was_placed(
    answer: bytes,
) -> None:
    """given a target whose answer does not say it, the source is asked nothing more by that permit."""
    asked: list[tuple[bytes, bytes]] = []

    async def source(visit: Visit, words: list[bytes]) -> None:
        asked.append((words[1], words[5]))
        if words[5] != b"permit":
            visit.say(b"-NOTPERMITTED the permit has to be renewed\r\n")
        else:
            visit.say(reply([1, 9, [], [], [1], [b"dump"], [-1], [], []]))

    async def target(visit: Visit, words: list[bytes]) -> None:
        visit.say(answer)

    class Has(NoPermits):
        """The permit, until it is doubted."""

        held = "permit"

        def get(self, source: str, target: str) -> str:
            return self.held

        def doubt(self, source: str, target: str, permit: str) -> None:
            self.held = ""

    async with Server(source) as giving, Server(target) as taking:
        with engine(giving.address) as inside:
            mover = Mover(inside.router, Has(ProxySettings(), lambda: "name"))
            batches = KeyBatches(mover, Origin(giving.address), taking.address, 0)
            batches.add(Move(3, (1, 0, b"key"), time.monotonic() + 0.2))
            await until(lambda: bool(mover.finished))
            by_permit = [digest for digest, permit in asked if permit == b"permit"]
            assert by_permit == [TAKE.digest.encode()]


class OnePermit(Permits):
    """One permit holds at once, again and again."""

    def get(self, source: str, target: str) -> str:
        return "source target random"

    async def renew(self, source: str, target: str) -> str | None:
        return None


async def gives_all(visit: Visit, words: list[bytes]) -> None:
    """A source that has every key, and drops what it is told to."""
    keys = words[4 : 3 + int(words[2])]
    if words[1] == TAKE.digest.encode():
        places = list(range(1, len(keys) + 1))
        visit.say(reply([len(keys), 1, [], [], places, [b"payload" for _ in keys], [-1 for _ in keys], [], []]))
    else:
        visit.say(reply([len(keys), int(words[-1])]))


async def test_a_key_that_the_target_refuses_is_no_harm_to_those_that_are_moved_with_it() -> None:
    """given a key that only fails after its time, and one that is refused for good."""
    refused = {b"odd": b"ERR something odd", b"bad": b"ERR Bad data format"}

    async def target(visit: Visit, words: list[bytes]) -> None:
        keys = words[4 : 3 + int(words[2])]
        places = [place for place, key in enumerate(keys, 1) if key in refused]
        visit.say(reply([places, [refused[keys[place - 1]] for place in places]]))

    async with Server(gives_all) as giving, Server(target) as taking:
        with engine(giving.address) as inside:
            mover = Mover(inside.router, OnePermit(ProxySettings(), lambda: "name"))
            batches = KeyBatches(mover, Origin(giving.address), taking.address, 0)
            for name in (b"first", b"odd", b"second", b"bad", b"third"):
                batches.add(Move(3, (1, 0, name), time.monotonic() + 0.5))
            await until(lambda: len(mover.finished) == 5)
            errors = {move.identity[2]: error for move, error in mover.finished}
            assert {name for name, error in errors.items() if error is not None} == set(refused)
            assert b"Bad data format" in (errors[b"bad"] or b"")
            await mover.end(batches)


async def test_absent_first_a_key_that_the_source_cannot_give_is_not_absent_and_no_harm_to_others() -> None:
    """given one that DUMP refuses, others go by the same permit."""
    moved: list[bytes] = []

    async def source(visit: Visit, words: list[bytes]) -> None:
        keys = words[4 : 3 + int(words[2])]
        if words[1] == TAKE.digest.encode():
            bad = [place for place, key in enumerate(keys, 1) if key == b"bad"]
            good = [place for place, key in enumerate(keys, 1) if key != b"bad"]
            payloads, deadlines, errors = [b"payload" for _ in good], [-1 for _ in good], [b"ERR no" for _ in bad]
            visit.say(reply([len(keys), 1, [], [], good, payloads, deadlines, bad, errors]))
        else:
            moved.extend(keys)
            visit.say(reply([len(keys), int(words[-1])]))

    async def target(visit: Visit, words: list[bytes]) -> None:
        visit.say(reply([[], []]))

    class Doubtless(OnePermit):
        def doubt(self, source: str, target: str, permit: str) -> None:
            raise AssertionError("every step is known to have been run")

    async with Server(source) as giving, Server(target) as taking:
        with engine(giving.address) as inside:
            mover = Mover(inside.router, Doubtless(ProxySettings(), lambda: "name"))
            batches = KeyBatches(mover, Origin(giving.address), taking.address, 0)
            for name in (b"first", b"bad", b"second"):
                batches.add(Move(3, (1, 0, name), time.monotonic() + 0.2))
            await until(lambda: len(mover.finished) == 3)
            errors = {move.identity[2]: error for move, error in mover.finished}
            assert errors[b"first"] is None
            assert errors[b"second"] is None
            assert b"ERR no" in (errors[b"bad"] or b"")
            assert moved == [b"first", b"second"]
            await mover.end(batches)


async def test_replicas_are_asked_over_the_connection_that_has_placed_the_keys() -> None:
    """given a connection that is lost right after that, WAIT over another one proves nothing, and no key is dropped."""
    asked: list[bytes] = []

    async def source(visit: Visit, words: list[bytes]) -> None:
        asked.append(words[1])
        visit.say(
            reply([1, 1, [], [], [1], [b"payload"], [-1], [], []] if words[1] == TAKE.digest.encode() else [1, 1])
        )

    class Reconnects(Connection):
        """A new connection to a target whose replicas have everything except the keys that were just placed."""

        address = TARGET

        def call(self, payload: bytes, answer: Callable[[bytes], None]) -> None:
            def answers() -> None:
                waits = b"WAIT" in payload
                answer(b":1\r\n" if waits else reply([[], []]))
                self.connects += not waits

            asyncio.get_running_loop().call_soon(answers)

    async with Server(source) as giving:
        with engine(giving.address) as inside:
            mover = Mover(inside.router, OnePermit(ProxySettings(), lambda: "name"))
            batches = KeyBatches(mover, Origin(giving.address, min_replicas=1), TARGET, 0)
            giving_end, _ = batches.backends
            batches._target_end = _End(cast(Backend, Reconnects()))
            batches.add(Move(3, (1, 0, b"key"), time.monotonic() + 0.1))
            await until(lambda: bool(mover.finished))
            assert set(asked) == {TAKE.digest.encode()}
            [(_, error)] = mover.finished
            assert (error or b"").startswith(b"-TRYAGAIN")
            giving_end.close()


async def test_many_keys_that_the_target_refuses_do_not_hold_up_others() -> None:
    """given more such keys than go together, all tried again and again, a key that comes later moves soon."""

    async def target(visit: Visit, words: list[bytes]) -> None:
        keys = words[4 : 3 + int(words[2])]
        bad = [place for place, key in enumerate(keys, 1) if key != b"good"]
        visit.say(reply([bad, [b"ERR DUMP payload version or checksum are wrong" for _ in bad]]))

    async with Server(gives_all) as giving, Server(target) as taking:
        with engine(giving.address) as inside:
            mover = Mover(inside.router, OnePermit(ProxySettings(), lambda: "name"))
            batches = KeyBatches(mover, Origin(giving.address), taking.address, 0)
            began = time.monotonic()
            for number in range(300):
                batches.add(Move(3, (1, 0, b"bad:%d" % number), began + 2.0))
            batches.add(Move(3, (1, 0, b"good"), began + 2.0))
            await until(lambda: bool(mover.finished))
            [(move, error)] = mover.finished
            assert (move.identity[2], error) == (b"good", None)
            assert time.monotonic() - began < 1.0
            await mover.end(batches)


def reply(said: int | bytes | list[Any]) -> bytes:
    """In RESP."""
    if isinstance(said, list):
        return b"*%d\r\n%b" % (len(said), b"".join(map(reply, said)))
    return b":%d\r\n" % said if isinstance(said, int) else b"$%d\r\n%b\r\n" % (len(said), said)


async def test_a_permit_that_is_doubted_while_it_is_looked_at_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """given one caller that wants the permit that holds, and one that does not know the outcome of its step by that
    permit."""
    looked, doubted = asyncio.Event(), asyncio.Event()

    async def renew(source: object, target: object, address: str, doubt: str) -> str:
        looked.set()
        await doubted.wait()
        return "another" if doubt == "former" else "former"

    monkeypatch.setattr(permits.permits, "renew", renew)
    mine = Permits(ProxySettings(), lambda: "name")
    doubted.set()
    assert await mine.renew("127.0.0.1:2", TARGET) is None
    doubted.clear()
    looked.clear()
    renewal = asyncio.create_task(mine.renew("127.0.0.1:2", TARGET))
    await looked.wait()
    mine.doubt("127.0.0.1:2", TARGET, "former")
    doubted.set()
    assert await renewal is None
    assert mine.get("127.0.0.1:2", TARGET) == "another"


async def test_bounded_a_renewal_does_not_outlast_the_limit_of_a_connection() -> None:
    """given a target that hangs, callers that wait for the permit are told soon. The permit is renewed once the target
    answers again."""

    async def hangs(visit: Visit, words: list[bytes]) -> None:
        pass

    async with Server(hangs) as server:
        mine = Permits(ProxySettings(backend_connect_seconds=0.2), lambda: "name")
        began = time.monotonic()
        assert "Timeout" in (await mine.renew(TARGET, server.address) or "")
        assert time.monotonic() - began < 1.0


async def test_bounded_keys_that_are_late_are_given_up_a_batch_at_a_time() -> None:
    """given very many keys whose time is over, the worker's other clients have their turn in between."""
    async with Server(not_permitted) as server:
        with engine(server.address) as inside:
            mover = Mover(inside.router, NoPermits(ProxySettings(), lambda: "name"))
            batches = KeyBatches(mover, Origin(server.address), TARGET, 0)
            for number in range(1000):
                batches.add(Move(3, (1, 0, b"%d" % number), time.monotonic() - 1.0))
            most, before = 0, 0
            while len(mover.finished) < 1000:
                await asyncio.sleep(0)
                most, before = max(most, len(mover.finished) - before), len(mover.finished)
            assert most <= BATCH_KEYS
            await mover.end(batches)
