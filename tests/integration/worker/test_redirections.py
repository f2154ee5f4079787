"""CLIENT TRACKING with REDIRECT: what the other connection is told, also at another worker, and what happens when
it cannot be told."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis.asyncio

from slots.messages.channel import Answers, Ask
from slots.messages.questions import Redirected, RedirectedTo
from tests.integration.worker.blocked import frozen
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.test_tracking import EVERYTHING, ON, USERS, expect, told
from tests.integration.worker.wire import LIMIT, Wire

StartWorker = Callable[..., Awaitable[WorkerHarness]]

CHANNEL = "__redis__:invalidate"
MESSAGE = b"*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n"
NO_SUCH_CLIENT = b"-ERR The client ID you want redirect to does not exist\r\n"
FLUSHED = {2: MESSAGE + b"$-1\r\n", 3: EVERYTHING}
"""By the protocol, what says that everything is to be dropped."""
THERE = 7
"""The number of a client of another worker."""
BOTH = ((2, 2), (2, 3), (3, 2), (3, 3))


def heard(protocol: int, *keys: str) -> bytes:
    """What says that keys have changed."""
    push = told(*keys)
    return push if protocol == 3 else MESSAGE + push[push.index(b"*") :]


@asynccontextmanager
async def listening(listen: str, protocol: int, login: tuple[str, ...] = ()) -> AsyncIterator[tuple[Wire, int]]:
    """A connection that may be redirected to, and its number."""
    async with Wire(listen, protocol) as wire:
        if login:
            assert await wire.say(*login) == b"+OK\r\n"
        number = int((await wire.say("CLIENT", "ID"))[1:])
        if protocol == 2:
            assert (await wire.say("SUBSCRIBE", CHANNEL)).endswith(b":1\r\n")
        yield wire, number


@asynccontextmanager
async def redirected(listen: str, mine: int, its: int, *options: str) -> AsyncIterator[tuple[Wire, Wire, int]]:
    """A client that tracks, and one that is told in its place, by these protocols; and the number of that one."""
    async with listening(listen, its) as (other, number), Wire(listen, mine) as reader:
        assert await reader.say(*ON, "REDIRECT", number, *options) == b"+OK\r\n"
        yield reader, other, number


@pytest.mark.parametrize(("mine", "its"), BOTH)
async def test_the_other_connection_is_told(worker: WorkerHarness, mine: int, its: int) -> None:
    async with redirected(worker.settings.listen, mine, its) as (reader, other, number), worker.client() as writer:
        await reader.say("GET", "k")
        await writer.set("k", "new")
        await expect(other, heard(its, "k"))
        await writer.set("k", "unread")
        await reader.say("MGET", "l", "k")
        await writer.set("k", "newer")
        await expect(other, heard(its, "k"))
        async with worker.direct(1) as server:
            await server.flushall()
        await expect(other, FLUSHED[its])
        assert await reader.heard() == b""
        assert await reader.say("CLIENT", "GETREDIR") == b":%d\r\n" % number
        assert b"$8\r\nredirect\r\n:%d\r\n" % number in await reader.say("CLIENT", "TRACKINGINFO")
        assert b" redir=%d " % number in await reader.say("CLIENT", "INFO")
        await reader.say("GET", "k")
        assert await reader.say("CLIENT", "TRACKING", "OFF") == b"+OK\r\n"
        await writer.set("k", "untold")
        assert await other.heard() == b""


async def test_with_other_options(worker: WorkerHarness) -> None:
    listen = worker.settings.listen
    async with redirected(listen, 2, 2, "BCAST", "PREFIX", "user:") as (_, other, _), worker.client() as writer:
        await writer.set("other", "new")
        await writer.set("user:1", "new")
        await expect(other, heard(2, "user:1"))
    async with redirected(listen, 2, 2, "OPTIN") as (reader, other, _), worker.client() as writer:
        await reader.say("GET", "not")
        reader.send("CLIENT", "CACHING", "YES")
        await reader.say("GET", "chosen")
        await writer.set("not", "new")
        await writer.set("chosen", "new")
        await expect(other, heard(2, "chosen"))


@pytest.mark.parametrize("mine", [2, 3])
async def test_word_comes_again_behind_what_was_owed(worker: WorkerHarness, mine: int) -> None:
    key = next(f"k{number}" for number in range(100) if slot_of(f"k{number}") < 512)
    slow = next(f"o{number}" for number in range(100) if slot_of(f"o{number}") >= 512)
    async with redirected(worker.settings.listen, mine, 2) as (reader, other, _), worker.direct(1) as server:
        await server.set(key, "old")
        # The reply to EVAL holds up all that its connection is owed.
        reader.send("EVAL", "local n = 0 while n < 30000000 do n = n + 1 end return 'slow'", 1, slow)
        reader.send("GET", key)
        async with asyncio.timeout(LIMIT):
            while not (await server.info("commandstats")).get("cmdstat_get", {}).get("calls"):
                await asyncio.sleep(0.001)
        await server.set(key, "new")
        await expect(other, heard(2, key))
        assert await other.heard() == b""
        await expect(reader, b"$4\r\nslow\r\n", b"$3\r\nold\r\n")
        await expect(other, heard(2, key))


async def test_much_that_comes_again_becomes_one_word(worker: WorkerHarness) -> None:
    keys = [f"{number:06}" + "x" * 40_000 for number in range(40)]
    there = next(f"o{number}" for number in range(100) if slot_of(f"o{number}") >= 512)
    async with redirected(worker.settings.listen, 2, 2, "BCAST") as (reader, other, _), worker.direct(1) as server:
        async with frozen(worker.servers[1]), worker.client() as client, asyncio.timeout(LIMIT):
            reader.send("GET", there)
            while not any(one["cmd"] == "get" for one in await client.client_list()):
                await asyncio.sleep(0.01)
            for key in keys:
                await server.set(key, "new")
                await expect(other, heard(2, key))
        await expect(other, FLUSHED[2])
        async with asyncio.timeout(LIMIT):
            again = await other.reader.readuntil(heard(2, keys[-1]))
        # Those that came behind that one word.
        assert len(again) < 1_000_000


@pytest.mark.parametrize("mine", [2, 3])
async def test_what_had_to_wait_is_not_kept(worker: WorkerHarness, mine: int) -> None:
    async with redirected(worker.settings.listen, mine, 2) as (reader, other, _):
        await reader.say("XREAD", "BLOCK", "10", "STREAMS", "s", "$")
        await expect(other, heard(2, "s"), heard(2, "s"))
        assert await reader.heard() == b""


async def test_a_connection_that_cannot_be_told_yet_is_told_later(worker: WorkerHarness) -> None:
    listen = worker.settings.listen
    async with Wire(listen) as other, Wire(listen) as reader, worker.client() as writer:
        number = int((await other.say("CLIENT", "ID"))[1:])
        assert await reader.say(*ON, "REDIRECT", number) == b"+OK\r\n"
        await reader.say("GET", "k")
        await writer.set("k", "new")
        assert await other.heard() == b""
        assert await other.say("SUBSCRIBE", "else") != b""
        await reader.say("GET", "k")
        await writer.set("k", "newer")
        assert await other.heard() == b""
        other.send("SUBSCRIBE", CHANNEL)
        await expect(other, b"*3\r\n$9\r\nsubscribe\r\n$20\r\n__redis__:invalidate\r\n:2\r\n", FLUSHED[2])


async def test_nothing_comes_before_the_confirmation_of_a_subscription(worker: WorkerHarness) -> None:
    """A client of RESP2 would take it for a reply."""
    listen = worker.settings.listen
    key = next(f"k{number}" for number in range(100) if slot_of(f"k{number}") < 512)
    async with Wire(listen) as other, Wire(listen) as reader, Wire(listen, 3) as every, worker.direct(1) as server:
        number = int((await other.say("CLIENT", "ID"))[1:])
        assert await reader.say(*ON, "REDIRECT", number) == b"+OK\r\n"
        assert await every.say(*ON) == b"+OK\r\n"
        await every.say("GET", key)
        await reader.say("GET", key)
        async with frozen(worker.servers[1]):
            other.send("SUBSCRIBE", CHANNEL)
            async with worker.client() as client, asyncio.timeout(LIMIT):
                while not any(one["sub"] == "1" for one in await client.client_list()):
                    await asyncio.sleep(0.01)
            await server.set(key, "new")
            await expect(every, told(key))
        await expect(other, b"*3\r\n$9\r\nsubscribe\r\n$20\r\n__redis__:invalidate\r\n:1\r\n", FLUSHED[2])


@pytest.mark.long
@pytest.mark.parametrize("mine", [2, 3])
async def test_a_connection_that_is_gone(worker: WorkerHarness, mine: int) -> None:
    listen = worker.settings.listen
    async with Wire(listen, mine) as reader, Wire(listen, mine) as again, worker.client() as writer:
        number = await _gone(listen, writer, again, reader)
        assert b"broken" not in await reader.say("CLIENT", "TRACKINGINFO")
        await writer.set("k", "new")
        said = b">2\r\n$21\r\ntracking-redir-broken\r\n:%d\r\n" % number
        if mine == 3:
            await expect(reader, said)
            await reader.say("GET", "k")
            await writer.set("k", "newer")
            await expect(reader, said)
        async with asyncio.timeout(LIMIT):
            while b"$15\r\nbroken_redirect\r\n" not in await reader.say("CLIENT", "TRACKINGINFO"):
                await asyncio.sleep(0.01)
        assert b" flags=tR " in await reader.say("CLIENT", "INFO")
        assert await reader.say("CLIENT", "GETREDIR") == b":%d\r\n" % number
        # One client makes another connection, and names it.
        async with listening(listen, 2) as (other, number):
            assert b"+OK\r\n" in await again.say(*ON, "REDIRECT", number)
            await expect(other, FLUSHED[2])
            if mine == 2:
                assert await reader.ended() == b""
            else:
                assert await reader.say("GET", "k") == b"$5\r\nnewer\r\n"
            assert (await again.say("GET", "k")).startswith(b"$")


async def _gone(listen: str, writer: redis.asyncio.Redis, *readers: Wire) -> int:
    """Have these read a key, and redirect to a connection that is closed then; the number of that one."""
    async with listening(listen, 2) as (_, number):
        for reader in readers:
            assert await reader.say(*ON, "REDIRECT", number) == b"+OK\r\n"
            await reader.say("GET", "k")
    async with asyncio.timeout(LIMIT):
        while any(int(one["id"]) == number for one in await writer.client_list()):
            await asyncio.sleep(0.01)
    return number


async def test_a_client_that_is_gone_may_have_kept_anything(worker: WorkerHarness) -> None:
    async with listening(worker.settings.listen, 2) as (other, number):
        for leave in ("QUIT", "RESET"):
            async with Wire(worker.settings.listen) as reader:
                await reader.say(*ON, "REDIRECT", number)
                await reader.say("GET", "k")
                reader.send(leave)
                await expect(other, FLUSHED[2])


async def test_another_connection_of_the_same_user(start_worker: StartWorker) -> None:
    worker = await start_worker(users=USERS)
    listen = worker.settings.listen
    login = ("AUTH", "limited", "secret")
    async with (
        Wire(listen, 3) as reader,
        listening(listen, 3) as (other, number),
        listening(listen, 2, login) as (limited, its),
        worker.client() as writer,
    ):
        assert await reader.say(*ON, "REDIRECT", its) == NO_SUCH_CLIENT
        assert await reader.say(*ON, "REDIRECT", number) == b"+OK\r\n"
        await reader.say("GET", "k")
        # From now on it is another's.
        assert await other.say(*login) == b"+OK\r\n"
        await writer.set("k", "new")
        await expect(reader, b">2\r\n$21\r\ntracking-redir-broken\r\n:%d\r\n" % number)
        assert await other.heard() == b""
        assert await limited.heard() == b""


@pytest.mark.parametrize("changed", [False, True])
async def test_a_client_that_logs_in_as_another_user_and_leaves(start_worker: StartWorker, changed: bool) -> None:
    worker = await start_worker(users=USERS)
    async with listening(worker.settings.listen, 2) as (other, number), Wire(worker.settings.listen, 3) as reader:
        assert await reader.say(*ON, "REDIRECT", number) == b"+OK\r\n"
        await reader.say("GET", "k")
        assert await reader.say("AUTH", "limited", "secret") == b"+OK\r\n"
        if changed:
            async with worker.client() as writer:
                await writer.set("k", "new")
            await expect(reader, b">2\r\n$21\r\ntracking-redir-broken\r\n:%d\r\n" % number)
            assert await other.heard() == b""
        reader.send("QUIT")
        await expect(other, FLUSHED[2])


async def test_options_are_checked(worker: WorkerHarness) -> None:
    async with listening(worker.settings.listen, 2) as (_, number), Wire(worker.settings.listen) as wire:
        assert await wire.say(*ON, "REDIRECT", 99999) == NO_SUCH_CLIENT
        one = b"-ERR A client can only redirect to a single other client\r\n"
        assert await wire.say(*ON, "REDIRECT", number, "REDIRECT", number) == one
        assert (
            await wire.say(*ON, "REDIRECT", number, "PREFIX", "a")
            == b"-ERR PREFIX option requires BCAST mode to be enabled\r\n"
        )
        assert b"-ERR CLIENT TRACKING ON is refused by Slotferry: a connection of RESP2" in await wire.say(*ON)
        assert await wire.say("CLIENT", "GETREDIR") == b":-1\r\n"


# -- a connection at another worker -----------------------------------------------------------------------


class OtherWorker:
    """Answers questions about its client in the way that it is told."""

    def __init__(self, worker: WorkerHarness) -> None:
        self._worker = worker
        worker.answering = False

    async def asked(self) -> Ask:
        """The next question."""
        found: Ask = await self._worker.next(lambda one: isinstance(one, Ask) and isinstance(one.question, Redirected))
        return found

    async def answers(self, *outcome: str) -> list[str]:
        """Answer the next question so, or not at all; the words that were in it."""
        ask = await self.asked()
        assert isinstance(ask.question, Redirected)
        (to,) = ask.question.targets
        assert (to.number, to.user) == (THERE, "default")
        answers: list[Any] = [[[0, one]] for one in outcome]
        self._worker.channel.send(Answers(id=ask.id, answers=answers))
        return to.words


@asynccontextmanager
async def redirected_elsewhere(worker: WorkerHarness, protocol: int) -> AsyncIterator[tuple[Wire, OtherWorker]]:
    """A client whose words go to one of another worker, and that worker."""
    other = OtherWorker(worker)
    async with Wire(worker.settings.listen, protocol) as reader:
        reader.send(*ON, "REDIRECT", THERE)
        assert await other.answers("told") == []
        await expect(reader, b"+OK\r\n")
        yield reader, other


@pytest.fixture
async def one_of_two(start_worker: StartWorker) -> WorkerHarness:
    """The first of two workers; its clients have even numbers."""
    return await start_worker(workers=2)


async def change(reader: Wire, worker: WorkerHarness, key: str) -> None:
    """Read a key, and have it changed."""
    await reader.say("GET", key)
    async with worker.client() as writer:
        await writer.set(key, "new")


async def test_words_for_another_worker_are_gathered(one_of_two: WorkerHarness) -> None:
    async with redirected_elsewhere(one_of_two, 2) as (reader, other):
        await change(reader, one_of_two, "a")
        first = await other.asked()
        await change(reader, one_of_two, "b")
        await change(reader, one_of_two, "\u00e9")
        await change(reader, one_of_two, "b")
        assert not any(isinstance(one, Ask) for one in one_of_two.messages)
        assert isinstance(first.question, Redirected)
        assert [to.model_dump() for to in first.question.targets] == [
            {"number": THERE, "user": "default", "words": ["*1\r\n$1\r\na\r\n"]}
        ]
        one_of_two.channel.send(Answers(id=first.id, answers=[[[0, "told"]]]))
        words = "".join(await other.answers("told")).encode("latin-1").decode()
        assert words == "*1\r\n$1\r\nb\r\n*1\r\n$2\r\n\u00e9\r\n"


@pytest.mark.long
@pytest.mark.parametrize("outcome", [("later",), ()])
async def test_what_another_worker_did_not_tell(one_of_two: WorkerHarness, outcome: tuple[str, ...]) -> None:
    async with redirected_elsewhere(one_of_two, 2) as (reader, other):
        await change(reader, one_of_two, "a")
        assert await other.answers(*outcome) == ["*1\r\n$1\r\na\r\n"]
        # Until it was told, it is told to drop everything.
        assert await other.answers(*outcome) == ["_\r\n"]
        assert await other.answers("told") == ["_\r\n"]
        await change(reader, one_of_two, "b")
        assert await other.answers("told") == ["*1\r\n$1\r\nb\r\n"]


async def test_a_client_of_another_worker_that_is_gone(one_of_two: WorkerHarness) -> None:
    async with redirected_elsewhere(one_of_two, 3) as (reader, other):
        await change(reader, one_of_two, "a")
        await other.answers("gone")
        await expect(reader, b">2\r\n$21\r\ntracking-redir-broken\r\n:%d\r\n" % THERE)


@pytest.mark.parametrize(("outcome", "said"), [(("gone",), NO_SUCH_CLIENT), ((), b"-ERR the worker that has the")])
async def test_a_client_that_another_worker_does_not_have(
    one_of_two: WorkerHarness, outcome: tuple[str, ...], said: bytes
) -> None:
    other = OtherWorker(one_of_two)
    async with Wire(one_of_two.settings.listen) as reader:
        reader.send(*ON, "REDIRECT", THERE)
        await other.answers(*outcome)
        assert (await reader.heard()).startswith(said)


async def test_what_a_worker_tells_for_another(one_of_two: WorkerHarness) -> None:
    async with listening(one_of_two.settings.listen, 2) as (wire, number):

        async def ask(number: int, user: str, *words: str) -> Any:
            to = RedirectedTo(number=number, user=user, words=list(words))
            return await one_of_two.asked(Redirected(targets=[to]))

        assert await ask(number, "default") == [[0, "told"]]
        # It belongs to the other worker.
        assert await ask(number + 1, "default") is None
        assert await ask(number, "limited", "*1\r\n$1\r\na\r\n") == [[0, "gone"]]
        assert await ask(number + 2000, "default") == [[0, "gone"]]
        assert await wire.heard() == b""
        assert await ask(number, "default", "*1\r\n$2\r\n\u00c3\u00a9\r\n", "_\r\n") == [[0, "told"]]
        await expect(wire, heard(2, "\u00e9"), FLUSHED[2])


async def test_much_for_another_worker_becomes_one_word(one_of_two: WorkerHarness) -> None:
    keys = [f"{number:06}" + "x" * 40_000 for number in range(40)]
    async with redirected_elsewhere(one_of_two, 2) as (reader, other), one_of_two.client() as writer:
        await change(reader, one_of_two, "a")
        first = await other.asked()
        await reader.say("MGET", *keys)
        for key in keys:
            await writer.set(key, "new")
        one_of_two.channel.send(Answers(id=first.id, answers=[[[0, "told"]]]))
        words = await other.answers("told")
        assert "_\r\n" in words
        assert sum(map(len, words)) < 1_100_000
