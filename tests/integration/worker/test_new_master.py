"""A group has another master because its own hangs: requests go to the new one, and those under way do not wait."""

import asyncio

import pytest
import redis.exceptions

from slots.group import Group
from slots.messages.channel import Counters
from slots.slot import Action, Slot
from slots.states import SlotState
from tests.integration.worker.blocked import blocked_at, frozen
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.conversations import Talk
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.test_slot_states import KEY, SLOT, until
from tests.integration.worker.test_watch import KEY as WATCHED
from tests.integration.worker.test_watch import watching

SECONDS = 40
"""Less than the limits after which requests would get their errors anyway."""


async def test_what_is_under_way_at_a_master_that_hangs_is_given_up(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3, lock_drain_seconds=1.0, backend_reply_seconds=60)
    hung, new = worker.servers[0].address, worker.servers[2].address
    async with worker.client(socket_timeout=60) as client, worker.client() as other, asyncio.timeout(SECONDS):
        await client.set(KEY, "0")
        async with frozen(worker.servers[0]):
            running = asyncio.create_task(client.incr(KEY))
            while not any(entry["owed"] == "1" for entry in await other.client_list()):
                await asyncio.sleep(0.01)
            verdict = await worker.verdict(worker.push([], [Group(1, (new, hung))]))
            assert verdict.type == "ack"
            with pytest.raises(redis.exceptions.ResponseError, match=f"{hung} is not its group's master any more"):
                await running
            assert await client.incr(KEY) == 1
    async with worker.direct(3) as promoted:
        assert await promoted.get(KEY) == b"1"


async def test_a_key_that_is_waited_for_comes_from_the_new_source(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3, lock_drain_seconds=1.0, backend_reply_seconds=60, move_seconds=60)
    hung, target, new = (server.address for server in worker.servers)
    async with worker.client(socket_timeout=60) as client, worker.direct(3) as promoted, asyncio.timeout(SECONDS):
        await client.set(KEY, "at the hung one")
        await promoted.set(KEY, "replicated")
        for state in (SlotState.PREPARED, SlotState.MIGRATING):
            await worker.act([SLOT], state)
        # The connection over which keys are moved is there already.
        await client.get(f"{{{KEY}}}")
        async with frozen(worker.servers[0]):
            waiting = asyncio.create_task(client.get(KEY))
            await worker.next(lambda message: message.type == "counters" and message.counters["moving"] > 0)
            moving = Slot(SLOT, 1, Action(SlotState.MIGRATING, 2, epoch=9, target_run_id=worker.run_ids[target]))
            await worker.apply([moving], [Group(1, (new, hung))])
            assert await waiting == b"replicated"
            assert await promoted.exists(KEY) == 0


async def test_of_a_key_that_is_back_at_a_new_source_the_targets_copy_counts(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3, lock_drain_seconds=1.0)
    former, target, new = (server.address for server in worker.servers)
    async with worker.client() as client, worker.direct(3) as promoted:
        await client.set(KEY, "old")
        for state in (SlotState.PREPARED, SlotState.MIGRATING):
            await worker.act([SLOT], state)
        await client.set(KEY, "new")
        # The replica has not heard that the key has left.
        await promoted.set(KEY, "old")
        moving = Slot(SLOT, 1, Action(SlotState.MIGRATING, 2, epoch=9, target_run_id=worker.run_ids[target]))
        await worker.apply([moving], [Group(1, (new, former))])
        # absent-first: what was known of the former source does not count.
        assert await client.get(KEY) == b"new"
        assert await promoted.exists(KEY) == 0


LOST = b"has failed, and another server takes its place; the command may have run there"


async def sent(worker: WorkerHarness, requests: int) -> None:
    """Wait until so many requests are under way at servers."""

    def under_way(message: object) -> bool:
        return isinstance(message, Counters) and message.counters["in_flight"] >= requests

    worker.messages.clear()
    await worker.next(under_way)


async def test_one_owner_a_master_that_was_replaced_and_goes_on_answers_nobody(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3, lock_drain_seconds=1.0, backend_reply_seconds=60)
    hung, _, new = (server.address for server in worker.servers)
    async with (
        worker.client() as client,
        worker.direct(3) as promoted,
        Talk(worker.settings.listen) as pops,
        Talk(worker.settings.listen) as moves,
        Talk(worker.settings.listen) as waits,
        watching(worker) as executes,
    ):
        for server in (client, promoted):
            await server.rpush("list", "first", "second")
            await server.rpush("{from}list", "only")
        # Their connections are there already, so that what is said over them lies at the server while it hangs.
        for talk in (pops, moves, waits):
            talk.send("BLPOP", "nothing", "0")
        await blocked_at(worker.servers[0], 3)
        await client.rpush("nothing", "a", "b", "c")
        for talk in (pops, moves, waits):
            await talk.reply()
        async with frozen(worker.servers[0]):
            executes.send("EXEC")
            pops.send("BLPOP", "list", "0")
            moves.send("BLMOVE", "{from}list", "{from}to", "LEFT", "LEFT", "0")
            # At each master; the other one answers.
            waits.send("WAIT", "0", "1000")
            # Three of these are the transaction's.
            await sent(worker, 6)
            verdict = await worker.verdict(worker.push([], [Group(1, (hung, new), locked=True, lost=True)]))
            assert verdict.type == "ack"
            await worker.apply([], [Group(1, (new, hung))])
        for talk in (executes, pops, moves, waits):
            reply = await talk.reply()
            assert reply.startswith(b"-"), reply
            assert LOST in reply
        # The commands were not acknowledged, so the new master must not have run them.
        assert await promoted.lrange("list", 0, -1) == [b"first", b"second"]
        assert await promoted.get(WATCHED) is None
        assert await promoted.lrange("{from}list", 0, -1) == [b"only"]


async def test_one_owner_no_connection_to_a_master_that_is_lost_is_left_or_opened(start_worker: StartWorker) -> None:
    """It answers all the time, but no process hears it."""
    worker = await start_worker(servers=3, lock_hold_seconds=0.2)
    first, _, third = (server.address for server in worker.servers)

    async def connections() -> set[str]:
        async with worker.direct(1) as direct:
            found = await direct.client_list()
        # Except the one for messages: it speaks RESP3, and runs nothing for clients.
        return {entry["id"] for entry in found if entry["name"] and entry["resp"] == "2"}

    async def none_left() -> bool:
        return not await connections()

    async with worker.client(protocol=2) as client, watching(worker) as executes, Talk(worker.settings.listen) as pops:
        # A connection that is shared, two of sessions' own, one for keys that move, and one for reads at the source.
        await pops.ask("BLPOP", "list", "0.01")
        await client.hset("big", mapping={str(number): "x" for number in range(2000)})
        for state in (SlotState.PREPARED, SlotState.MIGRATING):
            await worker.act([slot_of("big")], state)
        assert await client.hlen("big") == 2000
        assert len(await connections()) >= 5
        await worker.apply([], [Group(1, (first, third), locked=True, lost=True)])
        await until(none_left)
        assert await executes.ask("EXEC") == b"*-1\r\n"
        for words in (("WATCH", WATCHED), ("BLPOP", "list", "0"), ("GET", "list")):
            assert (await pops.ask(*words)).startswith(b"-TRYAGAIN"), words
        assert (await pops.ask("WAIT", "0", "1")).startswith(b"-ERR server")
        assert not await connections()
        # It was not replaced after all.
        await worker.apply([], [Group(1, (first, third))])
        assert await client.get(KEY) is None


async def test_what_moves_keys_to_a_master_that_is_lost_ends(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3)
    _, second, third = (server.address for server in worker.servers)

    async def lanes() -> bool:
        async with worker.direct(2) as direct:
            found = await direct.client_list()
        return any(entry["cmd"] in ("eval", "evalsha") for entry in found)

    async def ended() -> bool:
        return not await lanes()

    async with worker.client() as client:
        await client.set(KEY, "value")
        for state in (SlotState.PREPARED, SlotState.MIGRATING):
            await worker.act([SLOT], state)
        assert await client.get(KEY) == b"value"
        assert await lanes()
        await worker.apply([], [Group(2, (second, third), locked=True, lost=True)])
        await until(ended)
