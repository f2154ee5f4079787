"""Reads from replicas: which go there, and when none does."""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import redis.asyncio
import redis.exceptions

from slots.connections import fence, fence_user
from slots.group import Group
from slots.messages.questions import WorkerCounters
from slots.slot import Action, Slot
from slots.states import SlotState
from tests.integration.worker.harness import INSTANCE, WorkerHarness, slot_of
from tests.integration.worker.replicated import (
    PERIOD,
    PROMPT,
    Replicated,
    calls,
    eventually,
    frozen,
    refused_writes,
    replicated_to,
    to,
)

StartReplicated = Callable[..., Awaitable[Replicated]]
KEY = "some-key"
SLOT = slot_of(KEY)
OTHER = next(f"k{number}" for number in range(99) if slot_of(f"k{number}") != SLOT)
UNLIMITED = {"replica_lag_bytes_max": 10**12}


@pytest.fixture
async def start(start_worker: Callable[..., Awaitable[WorkerHarness]]) -> AsyncIterator[StartReplicated]:
    """Starts a worker that reads from replicas, all slots at group 1, which has one replica. Servers: 1 or more."""
    async with AsyncExitStack() as stack:

        async def started(servers: int = 1, replicas: int = 1, gated: bool = False, **settings: Any) -> Replicated:
            chosen = {"replica_reads": True, "replica_check_seconds": PERIOD, **settings}
            worker = await start_worker(servers=servers, extra=PROMPT, **chosen)
            replicated = await stack.enter_async_context(Replicated.around(worker))
            for _ in range(replicas):
                await replicated.add(1, gated)
            await worker.apply(groups=replicated.groups())
            return replicated

        yield started


async def get_all(client: redis.asyncio.Redis, key: str = KEY, times: int = 50) -> set[bytes | None]:
    """What so many reads give."""
    return {await client.get(key) for _ in range(times)}


async def test_who_caches_what_it_reads_reads_at_masters(start: StartReplicated) -> None:
    """A replica may not have the change yet that the client was told of."""
    replicated = await start()
    (replica,) = replicated.replicas[1]
    await replicated.reading(1024)
    async with replicated.worker.client(protocol=3, single_connection_client=True) as client:
        await eventually(functools.partial(is_read_from, client, replica), "reads from the replica")
        await client.execute_command("CLIENT", "TRACKING", "ON")
        before = await calls(replica, "get")
        await get_all(client)
        await client.readonly()
        await get_all(client)
        assert await calls(replica, "get") == before
        await client.execute_command("CLIENT", "TRACKING", "OFF")
        await get_all(client)
        assert await calls(replica, "get") > before


async def test_reads_go_to_the_replica_and_writes_never(start: StartReplicated) -> None:
    replicated = await start()
    (master,), (replica,) = replicated.worker.servers, replicated.replicas[1]
    await replicated.reading(1024)
    for options in ({"protocol": 2}, {"protocol": 3}, {"db": 3}):
        key = f"key of {options}"
        async with replicated.worker.client(**options) as client:
            await eventually(functools.partial(is_read_from, client, replica), "reads from the replica")
            reads, writes = await calls(replica, "get"), await calls(master, "set")
            for number in range(50):
                await client.set(key, str(number))
            await client.hset("hash", mapping={"field": "value"})
            await client.incr("counter")

            async def caught_up(client: redis.asyncio.Redis = client, key: str = key) -> bool:
                return bool(await client.get(key) == b"49" and await client.hlen("hash") == 1)

            await eventually(caught_up, "the replica to have the writes")
            assert await get_all(client, key) == {b"49"}
            assert await calls(replica, "get") - reads >= 50
            assert await calls(master, "set") - writes == 50
            before = await calls(master, "get")
            async with client.pipeline(transaction=False) as pipe:
                for _ in range(20):
                    pipe.set(OTHER, "x").get(key).type(key).strlen(key)
                assert await pipe.execute() == [True, b"49", b"string", 2] * 20
            assert await calls(master, "get") == before
    assert await refused_writes(replica) == 0


async def test_a_cursor_goes_on_where_it_began(start: StartReplicated) -> None:
    """Servers have the elements of one hash in different orders, so a cursor of one means nothing at another."""
    replicated = await start()
    (replica,) = replicated.replicas[1]
    await replicated.reading(1024)
    async with replicated.worker.client() as client:
        await client.hset("hash", mapping={f"field {number}": number for number in range(2000)})
        await client.sadd("set", *range(2000))
        await eventually(lambda: is_read_from(client, replica), "reads from the replica")
        assert len([field async for field in client.hscan_iter("hash")]) == 2000
        assert len({member async for member in client.sscan_iter("set")}) == 2000
        assert await calls(replica, "hscan") == await calls(replica, "sscan") == 0


@pytest.mark.long
async def test_off_by_default_and_on_by_readonly(start: StartReplicated) -> None:
    replicated = await start(replica_reads=False)
    (master,), (replica,) = replicated.worker.servers, replicated.replicas[1]
    async with (
        replicated.worker.client(single_connection_client=True) as wanting,
        replicated.worker.client(single_connection_client=True) as other,
    ):
        await other.set(KEY, "value")
        await replicated_to(replica, KEY, b"value")
        reads = await calls(replica, "get")
        assert await get_all(other) == {b"value"}
        assert await calls(replica, "get") == reads
        assert await replicated.slots_read() == 0
        assert await wanting.execute_command("READONLY") in (b"OK", True)
        await replicated.reading(1024)
        await wanting.get(KEY)
        await eventually(lambda: is_read_from(wanting, replica), "reads from the replica")
        assert await get_all(wanting) == {b"value"}
        reads, masters = await calls(replica, "get"), await calls(master, "get")
        assert await get_all(other) == {b"value"}
        assert await calls(replica, "get") == reads
        assert await calls(master, "get") - masters == 50
        assert await wanting.execute_command("READWRITE") in (b"OK", True)
        assert await get_all(wanting) == {b"value"}
        assert await calls(replica, "get") == reads
        await replicated.reading(0)

        async def is_left_alone() -> bool:
            asked = await calls(replica, "info")
            await asyncio.sleep(3 * PERIOD)
            return await calls(replica, "info") == asked + 1

        await eventually(is_left_alone, "nobody to ask, for nobody wants to read there")


async def test_on_for_all_and_off_by_readwrite(start: StartReplicated) -> None:
    replicated = await start()
    (replica,) = replicated.replicas[1]
    await replicated.reading(1024)
    async with replicated.worker.client(single_connection_client=True) as client:
        await client.get(KEY)
        await eventually(lambda: is_read_from(client, replica), "reads from the replica")
        await client.execute_command("READWRITE")
        assert not await is_read_from(client, replica)
        await client.execute_command("RESET")
        await eventually(lambda: is_read_from(client, replica), "reads from the replica again")


async def is_read_from(client: redis.asyncio.Redis, *servers: Any, key: str = KEY) -> bool:
    """Whether each of ten reads went to one of these servers."""
    before = [await calls(server, "get") for server in servers]
    await get_all(client, key, times=10)
    return sum([await calls(server, "get") for server in servers]) - sum(before) >= 10


async def test_the_nearest_datacenter_first_and_evenly(start: StartReplicated) -> None:
    replicated = await start(replicas=3, datacenter="paris")
    far, near, nearer = replicated.replicas[1]
    (master,) = replicated.worker.servers
    where = {far.address: "rome", near.address: "paris", nearer.address: "paris", master.address: "paris"}
    await replicated.worker.apply(groups=replicated.groups(where))
    await replicated.reading(1024)
    async with replicated.worker.client() as client:

        async def spread() -> list[int]:
            before = [await calls(server, "get") for server in (far, near, nearer, master)]
            for number in range(400):
                await client.get(f"key-{number}")
            after = [await calls(server, "get") for server in (far, near, nearer, master)]
            return [later - earlier for later, earlier in zip(after, before, strict=True)]

        await eventually(lambda: gives(spread, lambda found: found[3] == 0), "reads from replicas only")
        found = await spread()
        assert found[0] == found[3] == 0
        assert 120 <= found[1] <= 280, found
        await near.kill()
        await nearer.kill()
        await replicated.reading(1024)
        await eventually(lambda: is_read_from(client, far), "reads from the far one")


async def gives(look: Callable[[], Awaitable[Any]], met: Callable[[Any], bool]) -> bool:
    return met(await look())


@pytest.mark.long
async def test_a_replica_that_dies_costs_at_most_what_is_under_way(start: StartReplicated) -> None:
    replicated = await start()
    (replica,) = replicated.replicas[1]
    await replicated.reading(1024)
    errors: list[str] = []
    ending = False

    async def read() -> None:
        async with replicated.worker.client(single_connection_client=True) as client:
            while not ending:
                try:
                    assert await client.get(KEY) == b"value"
                except redis.exceptions.ResponseError as error:
                    errors.append(str(error))

    async with replicated.worker.client() as client:
        await client.set(KEY, "value")
        await replicated_to(replica, KEY, b"value")
        await eventually(lambda: is_read_from(client, replica), "reads from the replica")
        readers = [asyncio.create_task(read()) for _ in range(8)]
        before = await calls(replica, "get")
        await eventually(lambda: gives(lambda: calls(replica, "get"), lambda n: n > before + 50), "their reads")
        await replica.kill()
        assert await get_all(client, times=200) == {b"value"}
        await replicated.reading(0)
        replica.start()
        await replica.ready()
        await replicated.reading(1024)
        await eventually(lambda: is_read_from(client, replica), "reads from the replica again")
        ending = True
        await asyncio.gather(*readers)
    assert len(errors) <= 8, errors
    assert all(replica.address in error for error in errors)


@pytest.mark.long
async def test_a_replica_that_hangs_is_left(start: StartReplicated) -> None:
    replicated = await start()
    (replica,) = replicated.replicas[1]
    await replicated.reading(1024)
    async with replicated.worker.client() as client:
        await client.set(KEY, "value")
        with frozen(replica):
            await replicated.reading(0)
            assert await get_all(client) == {b"value"}
        await replicated.reading(1024)


@pytest.mark.long
async def test_a_lagging_replica_is_not_read(start: StartReplicated) -> None:
    replicated = await start(gated=True, replica_lag_bytes_max=10_000)
    (replica,) = replicated.replicas[1]
    gate = replicated.gates[1]
    await replicated.reading(1024)
    async with replicated.worker.client() as client:
        await client.set(KEY, "old")
        await replicated_to(replica, KEY, b"old")
        await eventually(lambda: is_read_from(client, replica), "reads from the replica")
        gate.shut()
        await client.set(KEY, "new")
        assert await get_all(client) == {b"old"}, "a replica may be behind within the limit"
        await client.set(OTHER, b"x" * 10_000)
        await replicated.reading(0)
        assert await get_all(client) == {b"new"}
        gate.open()
        await replicated.reading(1024)
        await eventually(lambda: is_read_from(client, replica), "reads from the replica")
        assert await get_all(client) == {b"new"}


@pytest.mark.long
async def test_a_replica_that_has_not_heard_from_its_master_for_long(start: StartReplicated) -> None:
    replicated = await start(gated=True, replica_lag_seconds_max=1.0)
    (master,) = replicated.worker.servers
    async with to(master) as direct:
        await direct.config_set("repl-ping-replica-period", 1)
    await replicated.reading(1024)
    replicated.gates[1].shut()
    await replicated.reading(0)
    replicated.gates[1].open()
    await replicated.reading(1024)


@pytest.mark.long
async def test_a_slot_in_motion_is_read_from_its_master_only(start: StartReplicated) -> None:
    replicated = await start(servers=2)
    worker = replicated.worker
    (replica,) = replicated.replicas[1]
    second = await replicated.add(2)
    await worker.apply(groups=replicated.groups())
    await replicated.reading(1024)
    async with worker.client() as client, worker.client() as bystander:
        await client.set(KEY, "value")
        await client.set(OTHER, "value")
        await replicated_to(replica, KEY, b"value")
        await eventually(lambda: is_read_from(client, replica), "reads from the replica")
        for state in (SlotState.PREPARING, SlotState.PREPARED, SlotState.MIGRATING, SlotState.FINISHED):
            await worker.act([SLOT], state)
            # No replica at all is read where one has not answered in time.
            assert await replicated.slots_read() < 1024
            await replicated.reading(1023)
            if state is SlotState.PREPARED:
                continue
            before = [await calls(server, "get") for server in (replica, second)]
            assert await get_all(client) == {b"value"}
            assert [await calls(server, "get") for server in (replica, second)] == before
            assert await get_all(bystander, OTHER) == {b"value"}
            await eventually(
                lambda: is_read_from(bystander, replica, key=OTHER), "reads of another slot from the replica"
            )
        await worker.apply([Slot(SLOT, 2)])
        await replicated.reading(1024)
        await eventually(lambda: is_read_from(client, second), "reads from the target's replica")
        assert await get_all(client) == {b"value"}


async def move(worker: WorkerHarness, client: redis.asyncio.Redis, value: bytes) -> None:
    """Take the key's slot from group 1 to rest at group 2; the key moves because it is read."""
    for state in (SlotState.PREPARING, SlotState.PREPARED, SlotState.MIGRATING):
        await worker.act([SLOT], state)
    assert await client.get(KEY) == value
    await worker.act([SLOT], SlotState.FINISHED)
    await worker.apply([Slot(SLOT, 2)])


@pytest.mark.long
async def test_caught_up_a_replica_of_the_target_is_read_once_it_has_the_keys_that_moved(
    start: StartReplicated,
) -> None:
    replicated = await start(servers=2, **UNLIMITED)
    worker = replicated.worker
    replica = await replicated.add(2, gated=True)
    gate = replicated.gates[2]
    await worker.apply([Slot(slot, 2) for slot in range(1024) if slot != SLOT], replicated.groups())
    await replicated.reading(1024)
    async with worker.client() as client, to(replica) as direct:
        await client.set(KEY, "there for years")
        await client.get(OTHER)
        gate.shut()
        await move(worker, client, b"there for years")
        for _ in range(4):
            await replicated.rounds()
            assert await get_all(client) == {b"there for years"}
        assert await direct.get(KEY) is None, "the replica lacks the key all the time"
        assert await replicated.slots_read() == 1023
        before = await calls(replica, "get")
        await get_all(client, OTHER)
        assert await calls(replica, "get") > before, "for other slots it is fit"
        gate.open()
        await replicated.reading(1024)
        await eventually(lambda: is_read_from(client, replica), "reads from the replica")
        assert await get_all(client) == {b"there for years"}


@pytest.mark.long
async def test_caught_up_a_replica_that_is_stopped_while_the_slot_moves(start: StartReplicated) -> None:
    replicated = await start(servers=2, **UNLIMITED)
    worker = replicated.worker
    replica = await replicated.add(2)
    await worker.apply(groups=replicated.groups())
    await replicated.reading(1024)
    async with worker.client() as client:
        await client.set(KEY, "there for years")
        with frozen(replica):
            await move(worker, client, b"there for years")
            assert await get_all(client) == {b"there for years"}
        reading = asyncio.create_task(get_all(client, times=2000))
        await replicated.reading(1024)
        assert await reading == {b"there for years"}
        await eventually(lambda: is_read_from(client, replica), "reads from the replica")


@pytest.mark.long
async def test_drained_a_read_under_way_at_a_replica_holds_the_lock_up(start: StartReplicated) -> None:
    """If the lock did not wait for the answer, the read could miss a key that has just moved on."""
    replicated = await start(servers=2, lock_drain_seconds=10.0, replica_check_seconds=2.0)
    worker = replicated.worker
    (replica,) = replicated.replicas[1]
    await replicated.reading(1024)
    async with worker.client() as client:
        await client.set(KEY, "value")
        await replicated_to(replica, KEY, b"value")
        await eventually(lambda: is_read_from(client, replica), "reads from the replica")
        with frozen(replica):
            read = asyncio.create_task(client.get(KEY))
            await eventually(lambda: is_under_way(replicated), "the read to be under way")
            await worker.act([SLOT], SlotState.PREPARING)
            epoch = worker.push([Slot(SLOT, 1, Action(SlotState.PREPARED, 2))])
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await worker.next(lambda m: m.type == "ack" and m.epoch == epoch)
            assert not read.done()
        assert await read == b"value"
        assert (await worker.verdict(epoch)).type == "ack"


async def is_under_way(replicated: Replicated) -> bool:
    return bool((await replicated.worker.asked(WorkerCounters()))["in_flight"])


@pytest.mark.long
async def test_caught_up_a_replica_that_comes_back_empty_is_not_read(start: StartReplicated) -> None:
    replicated = await start(gated=True)
    (replica,) = replicated.replicas[1]
    gate = replicated.gates[1]
    await replicated.reading(1024)
    async with replicated.worker.client() as client:
        await client.set(KEY, "value")
        await replicated_to(replica, KEY, b"value")
        await eventually(lambda: is_read_from(client, replica), "reads from the replica")
        gate.refusing = True
        await replica.kill()
        replica.start()
        await replica.ready()
        async with to(replica) as direct:
            assert await direct.get(KEY) is None
            assert await get_all(client, times=500) == {b"value"}
            await replicated.rounds()
            assert await get_all(client) == {b"value"}
            assert await direct.get(KEY) is None
        gate.refusing = False
        await replicated.reading(1024)
        assert await get_all(client) == {b"value"}


async def test_a_replica_that_is_made_a_master_behind_our_back(start: StartReplicated) -> None:
    replicated = await start()
    (replica,) = replicated.replicas[1]
    await replicated.reading(1024)
    async with replicated.worker.client() as client, to(replica) as direct:
        await client.set(KEY, "value")
        await direct.replicaof("NO", "ONE")
        await replicated.reading(0)
        await direct.set(KEY, "its own")
        assert await get_all(client) == {b"value"}


@pytest.mark.long
async def test_a_replica_that_is_pointed_to_another_master(start: StartReplicated) -> None:
    replicated = await start(servers=2)
    (replica,) = replicated.replicas[1]
    await replicated.reading(1024)
    async with replicated.worker.client() as client, to(replica) as direct:
        await client.set(KEY, "value")
        await direct.replicaof("127.0.0.1", str(replicated.worker.servers[1].port))

        async def linked() -> bool:
            return (await direct.info("replication"))["master_link_status"] == "up"

        await eventually(linked, "the link to the other master")
        await replicated.reading(0)
        assert await get_all(client) == {b"value"}
        await replicated.rounds()
        assert await replicated.slots_read() == 0


@pytest.mark.long
async def test_promotion_by_the_table(start: StartReplicated) -> None:
    replicated = await start(replica_check_seconds=2.0)
    worker = replicated.worker
    (master,), (replica,) = worker.servers, replicated.replicas[1]
    await replicated.reading(1024)
    async with worker.client() as client, to(replica) as promoted, to(master) as demoted:
        await client.set(KEY, "old")
        await replicated_to(replica, KEY, b"old")
        await eventually(lambda: is_read_from(client, replica), "reads from the replica")
        await promoted.replicaof("NO", "ONE")
        await promoted.config_set("repl-diskless-sync-delay", 0)
        await worker.apply(groups=[Group(1, (replica.address, master.address))])
        assert await replicated.slots_read() == 0
        assert await client.set(KEY, "new")
        assert await get_all(client) == {b"new"}
        assert await demoted.get(KEY) == b"old"
        await demoted.replicaof("127.0.0.1", str(replica.port))
        await replicated.reading(1024)
        await eventually(lambda: is_read_from(client, master), "reads from the new replica")
        assert await get_all(client) == {b"new"}


@pytest.mark.long
async def test_a_replica_that_is_removed_answers_what_it_owes(start: StartReplicated) -> None:
    replicated = await start(replica_check_seconds=2.0)
    worker = replicated.worker
    (master,), (replica,) = worker.servers, replicated.replicas[1]
    await replicated.reading(1024)
    async with worker.client() as client, worker.client() as other:
        await client.set(KEY, "value")
        await replicated_to(replica, KEY, b"value")
        await eventually(lambda: is_read_from(client, replica), "reads from the replica")
        with frozen(replica):
            read = asyncio.create_task(client.get(KEY))
            await eventually(lambda: is_under_way(replicated), "the read to be under way")
            await worker.apply(groups=[Group(1, (master.address,))])
            assert await get_all(other) == {b"value"}
            assert not read.done()
        assert await read == b"value"
        before = await calls(replica, "get")
        assert await get_all(client) == {b"value"}
        assert await calls(replica, "get") == before
        async with to(replica) as direct:

            async def left() -> bool:
                names = [entry["name"] for entry in await direct.client_list()]
                return not [name for name in names if name.startswith("slotferry")]

            await eventually(left, "the connections to it to be closed")


@pytest.mark.long
async def test_a_fenced_proxy_reads_from_no_replica(start: StartReplicated) -> None:
    replicated = await start(servers=2)
    worker = replicated.worker
    (replica,) = replicated.replicas[1]
    await replicated.reading(1024)
    async with worker.client() as client, to(replica) as direct:
        await client.set(KEY, "value")
        await replicated_to(replica, KEY, b"value")
        await fence(direct, [INSTANCE])
        await worker.next(lambda m: m.type == "fenced")
        assert await replicated.slots_read() == 0
        worker.take_identity()
        await replicated.reading(1024)
        await eventually(lambda: is_read_from(client, replica), "reads from the replica")
        await direct.execute_command("ACL", "DELUSER", fence_user(INSTANCE))


async def test_what_a_server_says_of_itself_is_asked_of_the_master(start: StartReplicated) -> None:
    """Each server has idle times and sizes of its own."""
    cluster = await start()
    (replica,) = cluster.replicas[1]
    await cluster.reading(1024)
    requests = (("OBJECT", "IDLETIME", KEY), ("MEMORY", "USAGE", KEY), ("XINFO", "STREAM", f"{KEY}:stream"))
    async with cluster.worker.client() as client:
        await client.set(KEY, "value")
        await client.xadd(f"{KEY}:stream", {"a": 1})
        await get_all(client)
        for request in requests * 5:
            assert await client.execute_command(*request) is not None
    async with redis.asyncio.Redis(port=replica.port) as direct:
        asked = {name.removeprefix("cmdstat_").partition("|")[0] for name in await direct.info("commandstats")}
    assert "get" in asked
    assert not asked & {"object", "memory", "xinfo"}
