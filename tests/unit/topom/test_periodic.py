"""Loops: they look, report the outcome once, are held, are woken, and try again after a failure."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
import structlog

from topom import periodic
from topom.errors import NotReady
from topom.periodic import Look, Loop
from topom.reasons import Kind, Reason


class Counting(Loop):
    """Says what it is given."""

    name = "counting"

    def __init__(self, *looks: Look | Exception, held: Callable[[], str] = periodic.never_held) -> None:
        super().__init__(held)
        self.looks = [*looks]
        self.count = 0
        self.reached = asyncio.Event()

    async def look(self) -> Look:
        self.count += 1
        found = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        self.reached.set()
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(periodic, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(periodic, "HELD_SECONDS", 0.001)


@asynccontextmanager
async def running(loop: Loop) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(loop.run())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.001)


async def test_it_looks_on_news_alone_where_no_time_is_given() -> None:
    loop = Counting(Look("one"), Look("two"))
    async with running(loop):
        await until(lambda: loop.says == "one")
        await asyncio.sleep(0.02)
        assert loop.count == 1
        loop.wake()
        await until(lambda: loop.says == "two")
        assert loop.count == 2


async def test_it_looks_again_after_the_time_that_it_gives_itself() -> None:
    loop = Counting(Look("", 0.0))
    async with running(loop):
        await until(lambda: loop.count > 3)


async def test_what_is_news_is_logged_once() -> None:
    loop = Counting(Look("one", 0.0), Look("one", 0.0), Look("", 0.0), Look("two"))
    with structlog.testing.capture_logs() as lines:
        async with running(loop):
            await until(lambda: loop.says == "two")
    assert [(line["loop"], line["says"]) for line in lines if line["event"] == "loop_says"] == [
        ("counting", "one"),
        ("counting", "nothing to do"),
        ("counting", "two"),
    ]


async def test_a_sentence_of_which_only_figures_change_is_logged_once() -> None:
    loop = Counting(
        Look("1.02 times a share", 0.0, about="even"), Look("1.03 times a share", 0.0, about="even"), Look("moves")
    )
    with structlog.testing.capture_logs() as lines:
        async with running(loop):
            await until(lambda: loop.says == "1.03 times a share")
            since = loop.since
            await until(lambda: loop.says == "moves")
    assert since < loop.since
    assert [line["says"] for line in lines if line["event"] == "loop_says"] == ["1.02 times a share", "moves"]


async def test_a_refusal_is_what_it_says_and_it_looks_again() -> None:
    loop = Counting(NotReady("a server is away"), NotReady("a server is away"), Look("done"))
    before = loop.since
    async with running(loop):
        await until(lambda: loop.says == "a server is away")
        assert loop.since >= before
        assert loop.waits is not None
        assert (loop.waits.kind, loop.waits.what) == (NotReady.kind, "a server is away")
        await until(lambda: loop.says == "done")
        assert loop.waits is None


async def test_what_nobody_expects_ends_it() -> None:
    with pytest.raises(AttributeError):
        await Counting(AttributeError("no such thing")).run()


async def test_one_that_is_held_does_not_look_and_says_why() -> None:
    why: Reason | None = Reason(Kind.PAUSED, "an operator has paused topom", 1.5, "resume it")
    loop = Counting(Look("done"), held=lambda: why)
    async with running(loop):
        await until(lambda: loop.says == "an operator has paused topom; resume it")
        assert loop.waits == why
        await asyncio.sleep(0.02)
        assert loop.count == 0
        why = None
        await until(lambda: loop.says == "done")
        assert loop.waits is None


async def test_it_ends_with_its_last_look() -> None:
    async with asyncio.timeout(30):
        await Counting(Look("laid the slots out", over=True)).run()
