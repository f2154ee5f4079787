"""WATCH: the connections that it takes, what happens when they are lost, and that they come back."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import redis.asyncio

from slots.slot import Action, Slot
from slots.states import SlotState
from tests.integration.worker.conversations import Talk
from tests.integration.worker.harness import WorkerHarness
from tests.integration.worker.test_slot_states import frozen, until
from tests.integration.worker.test_watch import CHANGED, KEY, OTHER, SLOT, can_watch, watching

StartWorker = Callable[..., Awaitable[WorkerHarness]]


async def own_connections(direct: redis.asyncio.Redis) -> list[dict[str, str]]:
    """The connections that were opened for watching, which are those that have asked for their number."""
    return [entry for entry in await direct.client_list() if entry["cmd"] in ("client|id", "watch", "unwatch", "exec")]


async def test_a_slot_that_is_locked_while_watch_gets_its_connection(start_worker: StartWorker) -> None:
    worker = await start_worker(lock_hold_seconds=0.3, own_connections=1, backend_connect_seconds=10.0)
    async with Talk(worker.settings.listen) as talk:
        async with frozen(worker, 1):
            talk.send("WATCH", KEY)
            await asyncio.sleep(0.2)
            await worker.act([SLOT], SlotState.PREPARED)
        assert b"is locked while it changes hands" in await talk.reply()

        async def free() -> bool:
            return await can_watch(worker, OTHER)

        await until(free)
        await worker.act([SLOT], SlotState.MIGRATING)
        assert await talk.ask("WATCH", KEY) == b"+OK\r\n"


async def test_a_lost_connection_may_have_missed_a_change(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with watching(worker) as talk, worker.direct(1) as direct:
        (own,) = await own_connections(direct)
        await direct.client_kill_filter(_id=own["id"])
        # The proxy sees that at the latest in the turn in which it answers this.
        await talk.ask("SET", KEY, "mine")
        assert await talk.ask("EXEC") == CHANGED
        assert await direct.get(KEY) is None
    async with watching(worker) as talk:
        await worker.servers[0].kill()
        worker.servers[0].start()
        await worker.servers[0].ready()
        assert await talk.ask("EXEC") == CHANGED


async def test_an_exec_whose_connection_is_lost_is_not_said_to_have_done_nothing(start_worker: StartWorker) -> None:
    worker = await start_worker(backend_reply_seconds=1.0)
    async with watching(worker) as talk, frozen(worker, 1):
        assert b"did not reply within" in await talk.ask("EXEC")


async def test_drained_a_lock_waits_for_an_exec_whose_client_has_left(start_worker: StartWorker) -> None:
    worker = await start_worker(lock_drain_seconds=10.0, own_connections=1)
    async with worker.direct(1) as direct:
        async with frozen(worker, 1):
            async with watching_then_frozen(worker) as talk:
                talk.send("EXEC")
                await worker.under_way()
            await asyncio.sleep(0.1)
            epoch = worker.push([Slot(SLOT, 1, Action(SlotState.PREPARED, 2))])
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await worker.next(lambda m: m.type == "ack" and m.epoch == epoch)
        assert (await worker.verdict(epoch)).type == "ack"
        assert await direct.get(KEY) == b"mine"
    assert await can_watch(worker, OTHER)


@asynccontextmanager
async def watching_then_frozen(worker: WorkerHarness) -> AsyncIterator[Talk]:
    """As `watching`, for a server that runs nothing while the client goes on."""
    os.kill(worker.servers[0].pid, signal.SIGCONT)
    async with watching(worker) as talk:
        os.kill(worker.servers[0].pid, signal.SIGSTOP)
        yield talk


async def test_drained_a_lock_waits_for_watch(start_worker: StartWorker) -> None:
    worker = await start_worker(lock_drain_seconds=10.0)
    async with Talk(worker.settings.listen) as talk:
        assert await talk.ask("WATCH", KEY) == b"+OK\r\n"
        async with frozen(worker, 1):
            talk.send("WATCH", "{t}other")
            await worker.under_way()
            epoch = worker.push([Slot(SLOT, 1, Action(SlotState.PREPARED, 2))])
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await worker.next(lambda m: m.type == "ack" and m.epoch == epoch)
        assert await talk.reply() == b"+OK\r\n"
        assert (await worker.verdict(epoch)).type == "ack"
        await talk.ask("MULTI")
        assert await talk.ask("EXEC") == CHANGED


async def test_a_watch_that_nobody_ends_holds_up_no_lock(start_worker: StartWorker) -> None:
    worker = await start_worker(own_connections=1)
    async with watching(worker):
        await worker.act([SLOT], SlotState.PREPARED)
        # Its connection has been taken from it, for others to watch on.

        async def free() -> bool:
            return await can_watch(worker, OTHER)

        await until(free)


async def test_connections_come_back_and_watch_nothing(start_worker: StartWorker) -> None:
    worker = await start_worker(own_connections=1)

    async def free() -> bool:
        return await can_watch(worker)

    async with Talk(worker.settings.listen) as talk, worker.client() as other, worker.direct(1) as direct:
        for ending in (("UNWATCH",), ("DISCARD",), ("EXEC",), ("RESET",)):
            await until(free)
            if ending == ("UNWATCH",):
                await until_watching(talk)
            else:
                await until_watching(talk)
                await talk.ask("MULTI")
            async with Talk(worker.settings.listen) as second:
                refused = await second.ask("WATCH", OTHER)
                assert refused.startswith(b"-ERR max number of blocked clients and of clients that watch keys reached")
            await talk.ask(*ending)

            async def taken_up(talk: Talk = talk) -> bool:
                return await talk.ask("WATCH", OTHER) == b"+OK\r\n"

            await until(taken_up)
            # What the connection watched before does not concern the session that has it now.
            await other.set(KEY, "changed")
            await talk.ask("MULTI")
            await talk.ask("SET", OTHER, "1")
            assert await talk.ask("EXEC") == b"*1\r\n+OK\r\n"
        async with watching(worker):
            pass
        await until(free)
        assert len(await own_connections(direct)) == 1


async def until_watching(talk: Talk) -> None:
    async def watched() -> bool:
        return await talk.ask("WATCH", KEY) == b"+OK\r\n"

    await until(watched)
