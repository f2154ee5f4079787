"""Real servers whose clients are kept waiting: by what is moved, or by something else.

A server is made slow by stopping its process for a tenth of a second at a time, twice the goal: how fast the
machine is, and what else it does, hardly matters then.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis

from migrator.feedback import START
from migrator.pace import Pace, PaceSettings
from migrator.progress import Pacing
from slotferry.redis_server import RedisServer
from tests.integration.migrator.pairs import Pair, assert_moved, client_of, fill

GOAL = 50.0
STALL_SECONDS = 0.1
SLOW = PaceSettings(keys_per_second=1500, latency_goal_milliseconds=GOAL)


@asynccontextmanager
async def stalling(server: RedisServer, when: Callable[[], bool]) -> AsyncIterator[None]:
    """Have a server stand still again and again, each time that ``when`` says so."""

    async def stall() -> None:
        while True:
            if when():
                os.kill(server.pid, signal.SIGSTOP)
                try:
                    await asyncio.sleep(STALL_SECONDS)
                finally:
                    os.kill(server.pid, signal.SIGCONT)
            await asyncio.sleep(0.01)

    task = asyncio.create_task(stall())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def more_moved(pair: Pair) -> Callable[[], bool]:
    """Whether keys have moved since it was last asked."""
    seen = pair.progress.keys_moved

    def moved() -> bool:
        nonlocal seen
        before, seen = seen, pair.progress.keys_moved
        return seen > before

    return moved


async def pacing(pair: Pair, call: asyncio.Task[None], holds: Callable[[Pacing], bool]) -> Pacing:
    """How the call is held back, once that is as it should be."""
    async with asyncio.timeout(60):
        while True:
            if call.done():
                await call
                pytest.fail("the call ended before")
            told = pair.progress.pacing()
            if told is not None and holds(told):
                return told
            await asyncio.sleep(0.005)


async def probes(server: RedisServer) -> list[str]:
    """Ids of the connections that ask a server how slow it is."""
    async with client_of(server) as redis:
        return [str(entry["id"]) for entry in await redis.client_list() if ".migrator-probe." in entry["name"]]


async def until_probed(server: RedisServer, count: int) -> list[str]:
    async with asyncio.timeout(20):
        while len(found := await probes(server)) != count:
            await asyncio.sleep(0.01)
    return found


@pytest.mark.long
@pytest.mark.parametrize("role", ["source", "target"])
async def test_a_server_that_suffers_from_the_move_is_given_way_to(fragile_pair: Pair, role: str) -> None:
    """given a server that stands still whenever keys have moved, they move slowly; and faster once it does not."""
    pair = fragile_pair
    pair.pace = Pace(SLOW)
    server = {"source": pair.source, "target": pair.target}[role]
    async with client_of(pair.source) as source, client_of(pair.target) as target:
        await fill(source, 30_000)
        call = asyncio.create_task(pair.migrate())
        async with stalling(server, more_moved(pair)):
            # On a busy machine the other one is slow, too, now and then.
            reason = f"{role} {server.address} took more than 50.0 ms for "
            slow = await pacing(pair, call, lambda told: told.speed < START / 2 and reason in told.held_back)
            latency = {"source": slow.source, "target": slow.target}[role]
            assert (latency.p99 or 0) > GOAL
        lowest = slow.speed
        await pacing(pair, call, lambda told: told.speed > 1.5 * lowest)
        pair.pace.change(PaceSettings())
        await call
        await assert_moved(source, target, 30_000)
    assert pair.progress.pacing() is None


async def test_a_server_that_is_slow_anyway_does_not_hold_the_move_back(fragile_pair: Pair) -> None:
    """given a target that stands still whether keys move or not, that is learned, and allowed for."""
    pair = fragile_pair
    pair.pace = Pace(SLOW)
    async with client_of(pair.source) as source, client_of(pair.target) as target:
        await fill(source, 30_000)
        call = asyncio.create_task(pair.migrate())
        async with stalling(pair.target, lambda: True):
            held = await pacing(pair, call, lambda told: told.speed < START)
            assert held.target.allowed == GOAL
            await pacing(pair, call, lambda told: told.target.allowed > 1000 * STALL_SECONDS)
        pair.pace.change(PaceSettings())
        await call
        await assert_moved(source, target, 30_000)


async def test_a_goal_that_is_met_holds_nothing_back(pair: Pair, source: Redis, target: Redis) -> None:
    await fill(source, 20_000)
    pair.pace = Pace(PaceSettings(keys_per_second=1000, latency_goal_milliseconds=60_000))
    call = asyncio.create_task(pair.migrate())
    told = await pacing(pair, call, lambda told: told.speed == 1.0)
    assert told.held_back == ""
    assert told.source.p99 is not None
    assert told.target.p99 is not None
    pair.pace.change(PaceSettings())
    await call
    await assert_moved(source, target, 20_000)


async def test_servers_are_asked_only_while_there_is_a_goal(pair: Pair, source: Redis) -> None:
    await fill(source, 5000)
    pair.pace = Pace(PaceSettings(keys_per_second=100))
    call = asyncio.create_task(pair.migrate())
    await pair.keys_moved(call, 10)
    assert await probes(pair.source) == await probes(pair.target) == []
    assert pair.progress.pacing() is None

    pair.pace.change(PaceSettings(keys_per_second=100, latency_goal_milliseconds=GOAL))
    await pacing(pair, call, lambda told: told.source.p99 is not None and told.target.p99 is not None)
    for server in (pair.source, pair.target):
        await until_probed(server, 1)

    pair.pace.change(PaceSettings(keys_per_second=100))
    for server in (pair.source, pair.target):
        await until_probed(server, 0)
    assert pair.progress.pacing() is None

    pair.pace.change(PaceSettings(latency_goal_milliseconds=60_000))
    await call
    for server in (pair.source, pair.target):
        await until_probed(server, 0)


@pytest.mark.long
async def test_what_cannot_be_measured_does_not_keep_keys_from_moving(pair: Pair, source: Redis, target: Redis) -> None:
    await fill(source, 5000)
    pair.pace = Pace(PaceSettings(keys_per_second=100, latency_goal_milliseconds=GOAL))
    call = asyncio.create_task(pair.migrate())
    for server in (pair.source, pair.target):
        (number,) = await until_probed(server, 1)
        async with client_of(server) as redis:
            await redis.client_kill_filter(_id=number)
    moved = pair.progress.keys_moved
    await pair.keys_moved(call, moved + 20)
    for server in (pair.source, pair.target):
        await until_probed(server, 1)
    pair.pace.change(PaceSettings(latency_goal_milliseconds=60_000))
    await call
    await assert_moved(source, target, 5000)


async def test_a_call_that_is_cancelled_asks_no_more(pair: Pair, source: Redis) -> None:
    await fill(source, 5000)
    pair.pace = Pace(PaceSettings(keys_per_second=100, latency_goal_milliseconds=GOAL))
    call = asyncio.create_task(pair.migrate())
    for server in (pair.source, pair.target):
        await until_probed(server, 1)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    for server in (pair.source, pair.target):
        await until_probed(server, 0)
    assert pair.progress.pacing() is None
