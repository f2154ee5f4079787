"""Copies that begin together: who waits for whom, for how long, and who may still begin."""

import asyncio

import pytest

from tests.unit.topom.migrators.fakes import FakeLink, registration
from topom.migrators.gathering import Gathering, OutOfTurn, Place
from topom.migrators.members import Migrators


def gathering(*members: str, seconds: float = 10.0) -> Gathering:
    one = Gathering(seconds)
    for member in members:
        one.join(member)
    return one


async def soon(task: asyncio.Task[None]) -> bool:
    """Whether a task ends without anything else happening."""
    for _ in range(10):
        await asyncio.sleep(0)
    return task.done()


@pytest.mark.parametrize("step", ["chosen", "begun"])
async def test_members_wait_for_each_other(step: str) -> None:
    one = gathering("a", "b")
    first = asyncio.create_task(getattr(one, step)("a"))
    assert not await soon(first)
    await getattr(one, step)("b")
    assert await soon(first)


@pytest.mark.parametrize("step", ["chosen", "begun"])
async def test_nobody_waits_for_one_that_has_left(step: str) -> None:
    one = gathering("a", "b")
    first = asyncio.create_task(getattr(one, step)("a"))
    assert not await soon(first)
    one.leave("b")
    assert await soon(first)
    one.leave("b")


@pytest.mark.parametrize("step", ["chosen", "begun"])
async def test_bounded_who_is_late_is_shut_out(step: str) -> None:
    one = gathering("a", "b", "c", seconds=0.01)
    await asyncio.gather(getattr(one, step)("a"), getattr(one, step)("b"))
    with pytest.raises(OutOfTurn) as raised:
        one.require_turn("c")
    assert raised.value.alone, "it would be late again"
    await one.chosen("c")


async def test_who_is_late_once_is_waited_for_no_more() -> None:
    one = gathering("a", "b", seconds=0.01)
    await one.chosen("a")
    late = asyncio.create_task(one.begun("a"))
    assert await soon(late)


async def test_one_that_is_cancelled_while_it_waits_blocks_nobody() -> None:
    one = gathering("a", "b", "c")
    waits = asyncio.create_task(one.begun("a"))
    assert not await soon(waits)
    waits.cancel()
    await asyncio.gather(waits, return_exceptions=True)
    await asyncio.gather(one.begun("b"), one.begun("c"))


async def test_nobody_begins_once_the_stream_may_have_begun() -> None:
    one = gathering("a", "b", "c", "d", seconds=0.01)
    await asyncio.gather(one.chosen("a"), one.chosen("b"), one.chosen("d"))
    one.require_turn("b")
    await asyncio.gather(one.begun("a"), one.begun("d"))
    for member in ("a", "b", "c", "d"):
        with pytest.raises(OutOfTurn):
            one.require_turn(member)
    await one.begun("a")


async def test_who_was_told_to_the_migrator_does_not_begin_again_in_the_same_stream() -> None:
    one = gathering("a", "b")
    waits = asyncio.create_task(one.begun("a"))
    assert not await soon(waits)
    with pytest.raises(OutOfTurn) as raised:
        one.require_turn("a")
    assert not raised.value.alone
    one.require_turn("b")
    one.leave("b")
    await waits


async def test_one_alone_waits_for_nobody_and_begins_as_often_as_it_likes() -> None:
    one = gathering("a", seconds=10.0)
    for _ in range(3):
        one.require_turn("a")
        one.require_alone("a")
        await one.chosen("a")
        await one.begun("a")
    one.close()
    with pytest.raises(OutOfTurn):
        one.require_turn("a")


def test_whoever_goes_key_by_key_is_the_only_one_that_is_left() -> None:
    one = gathering("a", "b", "c")
    for others in (2, 1):
        with pytest.raises(OutOfTurn) as raised:
            one.require_alone("a")
        assert raised.value.alone
        one.leave("bc"[others - 1])
    one.require_alone("a")


def test_all_follow_the_same_server() -> None:
    one = gathering("a", "b")
    assert one.agree("s1:1", "run", ("r1:1",)) == ("r1:1",)
    assert one.agree("s1:1", "run", ("r2:1", "r1:1")) == ("r1:1",)
    for other in (("s2:1", "run"), ("s1:1", "another")):
        with pytest.raises(OutOfTurn):
            one.agree(*other, ("r1:1",))
    alone = gathering("a")
    assert [alone.agree("s1:1", run, (run,)) for run in ("x", "y")] == [("x",), ("y",)]


def test_all_have_the_migrator_that_was_found_first() -> None:
    migrators = Migrators()
    first, second = (migrators.register(registration(number), False, FakeLink()) for number in (1, 2))
    one = gathering("a", "b")
    assert one.migrator(second) is second
    assert one.migrator(first) is second
    alone = gathering("a")
    assert [alone.migrator(found) for found in (first, second)] == [first, second]


def test_a_migrator_that_is_gone_gets_no_further_copy() -> None:
    migrators = Migrators()
    first, second = (migrators.register(registration(number), False, FakeLink()) for number in (1, 2))
    one = gathering("a", "b", "c")
    assert one.migrator(first) is first
    migrators.disconnected(first)
    assert one.migrator(second) is second
    assert one.migrator(second) is second


def test_copies_that_share_a_stream_name_the_same_one() -> None:
    one = gathering("a", "b")
    assert {Place(one, member, f"copy {member}").stream_id for member in "ab"} == {one.id}
    assert Place(gathering("a"), "a", "copy").stream_id == "copy", "each time that it begins"
