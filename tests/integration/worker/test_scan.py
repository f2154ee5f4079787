"""SCAN over several servers: every key, whatever moves meanwhile. The algorithm by itself is in `test_scan_walk`."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable

import pytest
import redis.asyncio

from migrator.connection import Timeouts
from migrator.errors import TargetUnavailable
from migrator.move import migrate
from migrator.pace import Pace
from migrator.progress import Progress
from migrator.withdrawing import withdraw
from proxy.commands.keyspace.scancursor import Cursor
from slots.access import ServerAccess
from slots.connections import fence
from slots.group import Group
from slots.keyslots import KeySlots
from slots.slot import Slot
from slots.states import SlotState
from tests.integration.worker.conversations import Talk, converse
from tests.integration.worker.harness import INSTANCE, WorkerHarness, slot_of

StartWorker = Callable[..., Awaitable[WorkerHarness]]

NOT_USED = b"is not used by this proxy for now: it hears no topom"
"""What a proxy says of a server while it has stood down."""
NAMES = [f"key-{number}" for number in range(1000)]
KEYS = sorted(name.encode() for name in NAMES)


async def fill(client: redis.asyncio.Redis) -> None:
    await client.mset(dict.fromkeys(NAMES, "value"))


async def scan_all(client: redis.asyncio.Redis, **options: object) -> list[bytes]:
    return [key async for key in client.scan_iter(**options)]


@pytest.mark.parametrize("protocol", [2, 3])
async def test_every_key_once_at_rest(worker: WorkerHarness, protocol: int) -> None:
    async with worker.client(protocol=protocol) as client, worker.client(db=4) as other:
        await fill(client)
        await other.set("elsewhere", "1")
        assert sorted(await scan_all(client)) == KEYS
        assert sorted(await scan_all(client, count=300)) == KEYS
        assert sorted(await scan_all(client, match="key-1?")) == [b"key-%d" % number for number in range(10, 20)]
        assert await scan_all(other) == [b"elsewhere"]
        await client.rpush("a-list", "1")
        assert await scan_all(client, _type="list") == [b"a-list"]
        assert sorted(await scan_all(client, _type="string", match="key-9*", count=17)) == [
            key for key in KEYS if key.startswith(b"key-9")
        ]


async def test_cursors_fit_where_clients_keep_them(worker: WorkerHarness) -> None:
    worker.table = worker.table.changed(30_000)
    await worker.apply()
    async with worker.client() as client:
        await fill(client)
        cursor, seen, cursors = None, set[bytes](), []
        while cursor != 0:
            # Some clients have nothing but floating-point numbers.
            cursor, page = await client.scan(int(float(cursor or 0)), count=50)
            seen |= set(page)
            cursors.append(cursor)
        assert seen == set(KEYS)
        assert cursors[-1] == 0
        assert all(0 < cursor < 2**53 for cursor in cursors[:-1])
        assert len(set(cursors)) == len(cursors)


async def test_errors_and_odd_arguments_are_those_of_one_server(start_worker: StartWorker) -> None:
    worker = await start_worker()
    long = "0" * 5000
    cursors = [
        "+0",
        "-0",
        "",
        "+",
        "-",
        "abc",
        "1x",
        " 1",
        "0x1",
        "1 ",
        "18446744073709551616",
        "99999999999999999999999",
    ]
    options = [
        *(["COUNT"], ["COUNT", "x"], ["COUNT", "0"], ["COUNT", "-1"], ["COUNT", "00"], ["COUNT", "+5"], ["FOO"]),
        *(["MATCH"], ["MATCH", "a", "COUNT"], ["TYPE", "nonsense"], ["TYPE"], ["COUNT", "1", "COUNT", "5"]),
        *(["match", "a", "count", "3", "type", "string"], ["COUNT", "99999999999999999999"], ["FOO", "BAR"]),
    ]
    requests: list[tuple[bytes | str | int, ...]] = [("SCAN",), ("SCAN", long)]
    requests += [("SCAN", cursor) for cursor in cursors]
    requests += [("SCAN", "0", *words) for words in options]
    # The second server has no slots, and is the one Redis to compare with.
    for protocol in (2, 3):
        assert await converse(worker.settings.listen, requests, protocol) == await converse(
            worker.servers[1].address, requests, protocol
        )


@pytest.mark.parametrize(("given", "asked"), [((), b"2000"), (("COUNT", 7), b"2000"), (("COUNT", 3000), b"3000")])
async def test_bounded_later_passes_have_pages_that_a_worker_deals_with_in_a_moment(
    worker: WorkerHarness, given: tuple[object, ...], asked: bytes
) -> None:
    epoch = worker.table.epoch
    group = worker.table.slots[0].group_id
    server = worker.table.groups[group].master
    assert server is not None
    host, _, port = server.rpartition(":")
    async with (
        redis.asyncio.Redis(host=host, port=int(port)) as direct,
        direct.monitor() as monitor,
        Talk(worker.settings.listen) as talk,
    ):
        assert (await talk.ask("SCAN", Cursor(1, epoch, group, 0).pack(), *given)).startswith(b"*2\r\n")
        while (said := (await monitor.next_command())["command"].split())[0].upper() != "SCAN":
            pass
    assert said[-2:] == ["COUNT", asked.decode()]


async def test_cursors_that_nobody_gave(worker: WorkerHarness) -> None:
    async with worker.client() as client, Talk(worker.settings.listen) as talk:
        await fill(client)
        for cursor in (2**63, 2**64 - 1, -1):
            assert await talk.ask("SCAN", cursor) == b"-ERR invalid cursor\r\n"
        generator = random.Random(5)
        for cursor in (1, 2**63 - 1, Cursor(0, 0, 9999, 0).pack(), *(generator.getrandbits(63) for _ in range(50))):
            assert (await talk.ask("SCAN", cursor)).startswith(b"*2\r\n")


async def test_a_group_that_does_not_fit_is_told_of(start_worker: StartWorker) -> None:
    worker = await start_worker()
    await worker.apply([Slot(7, 16384)], [Group(2), Group(16384, (worker.servers[1].address,))])
    async with Talk(worker.settings.listen) as talk:
        assert await talk.ask("SCAN", "0") == (
            b"-ERR SCAN cannot be used with a group of id 16384: a cursor has room for ids below 16384\r\n"
        )


# -- while slots move --------------------------------------------------------------------------------------


MIGRATOR = "5107fe44" * 4


async def carry(worker: WorkerHarness, slots: list[int], source: int, target: int) -> None:
    """Take slots from one group to another, keys included."""
    for state in (SlotState.PREPARING, SlotState.PREPARED, SlotState.MIGRATING):
        await worker.act(slots, state, source, target)
    for attempts_left in reversed(range(10)):
        try:
            await move_keys(worker, slots, source, target)
        except TargetUnavailable:
            # Clients flush the servers' permits; for that, a worker ends all connections that write.
            if not attempts_left:
                raise
        else:
            break
    await worker.act(slots, SlotState.FINISHED, source, target)
    ends = worker.servers[source - 1].address, worker.servers[target - 1].address
    await withdraw(*ends, access=ServerAccess(""), instance=MIGRATOR)
    await worker.apply([Slot(index, target) for index in slots])


async def move_keys(worker: WorkerHarness, slots: list[int], source: int, target: int) -> None:
    await migrate(
        worker.servers[source - 1].address,
        worker.servers[target - 1].address,
        slots,
        key_slots=KeySlots("crc32", 1024),
        access=ServerAccess(""),
        pace=Pace(),
        progress=Progress(),
        instance=MIGRATOR,
        timeouts=Timeouts(),
    )


SOME = sorted({slot_of(name) for name in NAMES})[::2]


async def test_keys_of_slots_that_a_server_does_not_own_are_not_seen(worker: WorkerHarness) -> None:
    """owned: both servers came back with data from before slots changed places."""
    owned = {name: 1 if slot_of(name) < 512 else 2 for name in NAMES}
    for group in (1, 2):
        async with worker.direct(group) as direct:
            await direct.mset(dict.fromkeys(NAMES, f"group {group}"))
    async with worker.client() as client:
        assert sorted(await scan_all(client)) == sorted(await client.keys("*")) == KEYS
        assert sorted(await scan_all(client, match="key-1?", count=5)) == [
            b"key-%d" % number for number in range(10, 20)
        ]
        # RANDOMKEY may come upon a key that is still elsewhere, but does not give it.
        for group in (1, 2):
            async with worker.direct(group) as direct:
                await direct.delete(*(name for name in NAMES if owned[name] == group and name != "key-1"))
        assert await client.keys("*") == await scan_all(client) == [b"key-1"]
        assert {await client.randomkey() for _ in range(20)} <= {b"key-1", None}
        await client.delete("key-1")
        assert await client.keys("*") == await scan_all(client) == []
        assert await client.randomkey() is None


@pytest.mark.parametrize("state", [SlotState.PREPARED, SlotState.MIGRATING])
async def test_keys_of_a_moving_slot_are_seen_at_both_ends_and_once(worker: WorkerHarness, state: SlotState) -> None:
    """Others may move keys already by the time that this worker hears of the lock."""
    slots = sorted({slot_of(name) for name in NAMES if slot_of(name) < 512})
    async with worker.client() as client:
        await fill(client)
        for before in (SlotState.PREPARING, SlotState.PREPARED, SlotState.MIGRATING):
            await worker.act(slots, before)
            if before is state:
                break
        moved = [name for name in NAMES if slot_of(name) < 512]
        async with worker.direct(1) as source, worker.direct(2) as target:
            await target.mset(dict.fromkeys(moved[::2], "value"))
            await source.delete(*moved[:-10:2])
        assert sorted(await client.keys("*")) == KEYS
        assert set(await scan_all(client)) == set(KEYS)


async def test_keys_that_moved_backward_are_found_in_another_pass(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with worker.client() as client:
        await worker.apply([Slot(index, 2) for index in SOME])
        await fill(client)
        cursor, seen = 0, list[bytes]()
        while not seen or Cursor.unpack(cursor).group == 1:
            cursor, page = await client.scan(cursor, count=100)
            seen += page
        # Everything at group 1 was returned; what was at group 2 goes there.
        await carry(worker, SOME, 2, 1)
        assert set(seen) != set(KEYS)
        numbers = []
        while cursor:
            numbers.append(Cursor.unpack(cursor).number)
            cursor, page = await client.scan(cursor, count=100)
            seen += page
            if numbers[-1]:
                # A later pass takes large pages, so that it is over before slots can move again.
                assert len(page) > 400
        assert set(seen) == set(KEYS)
        assert numbers == [0, 2]


async def test_keys_that_moved_forward_are_found_in_the_same_pass(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with worker.client() as client:
        await fill(client)
        await worker.apply([Slot(min(set(range(1024)) - {slot_of(name) for name in NAMES}), 2)])
        cursor, seen = await client.scan(0, count=100)
        await carry(worker, SOME, 1, 2)
        while cursor:
            assert Cursor.unpack(cursor).number == 0
            cursor, page = await client.scan(cursor, count=100)
            seen += page
        assert set(seen) == set(KEYS)


async def test_a_scan_is_over_before_a_long_move_is(start_worker: StartWorker) -> None:
    worker = await start_worker()
    async with worker.client() as client:
        await worker.apply([Slot(index, 2) for index in SOME])
        await fill(client)
        await worker.act(SOME, SlotState.PREPARED, 2, 1)
        await worker.act(SOME, SlotState.MIGRATING, 2, 1)
        cursor, seen = await client.scan(0, count=2000)
        # Group 1 is scanned; half of the rest arrives there now, and the move goes on.
        await move_keys(worker, SOME[::2], 2, 1)
        while cursor:
            cursor, page = await client.scan(cursor, count=2000)
            seen += page
        assert set(seen) == set(KEYS)


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
async def test_no_key_is_missed_while_slots_go_to_and_fro(start_worker: StartWorker, workers: int) -> None:
    """Many scans at once, page by page by either of two proxies, under slots that never come to rest."""
    first = await start_worker(servers=3)
    second = await start_worker(servers=1) if workers == 2 else first
    if second is not first:
        # The other proxy has the same servers.
        second.servers, spare = first.servers, second.servers
        await second.apply(groups=first.table.groups.values())
        # One topom gives out the epochs.
        await first.apply()
        assert second.table == first.table
    over = asyncio.Event()
    scans = itertools.count()

    async def keep_moving() -> None:
        for source, target in itertools.cycle([(1, 3), (3, 2), (2, 1), (1, 2), (2, 3), (3, 1)]):
            if over.is_set():
                return
            for state in (SlotState.PREPARING, SlotState.PREPARED, SlotState.MIGRATING, SlotState.FINISHED):
                await asyncio.gather(*(worker.act(SOME, state, source, target) for worker in {first, second}))
                if state is SlotState.MIGRATING:
                    await move_keys(first, SOME, source, target)
            at_rest = [Slot(index, target) for index in SOME]
            await asyncio.gather(*(worker.apply(at_rest) for worker in {first, second}))

    async def scan(number: int) -> None:
        generator = random.Random(number)
        clients = [worker.client() for worker in (first, second)]
        while next(scans) < 60:
            cursor, seen = -1, set[bytes]()
            while cursor:
                page: list[bytes]
                cursor, page = await generator.choice(clients).scan(max(cursor, 0), count=generator.choice([50, 400]))
                seen |= set(page)
            assert seen == set(KEYS)
        for client in clients:
            await client.aclose()

    async with first.client() as client, asyncio.timeout(100):
        await fill(client)
        moving = asyncio.create_task(keep_moving())
        try:
            await asyncio.gather(*(scan(number) for number in range(4)))
        finally:
            over.set()
            await moving
        # Keys and servers are as they were.
        assert await client.dbsize() == len(NAMES)
    if second is not first:
        second.servers = spare


async def test_a_worker_that_was_fenced_and_came_back_begins_anew(start_worker: StartWorker) -> None:
    """What went on while it was away is not known to it."""
    worker = await start_worker()
    async with worker.client() as client:
        await worker.apply([Slot(index, 2) for index in SOME])
        await fill(client)
        cursor, seen = await client.scan(0, count=2000)
        assert Cursor.unpack(cursor).group == 2
        # topom goes on without this worker, which hears of nothing.
        await move_keys(worker, SOME, 2, 1)
        worker.table = worker.table.changed(worker.table.epoch + 5, [Slot(index, 1) for index in SOME])
        worker.take_identity()
        assert (await worker.verdict(worker.table.epoch)).type == "ack"
        while cursor:
            cursor, page = await client.scan(cursor, count=2000)
            seen += page
        assert set(seen) == set(KEYS)


async def test_a_worker_that_one_master_has_fenced_off_does_not_go_on(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=3)
    await worker.apply([*(Slot(index, 2) for index in SOME), Slot(SOME[0], 3)])
    async with worker.client() as client, Talk(worker.settings.listen) as talk, worker.direct(1) as first:
        await fill(client)
        start = Cursor(0, worker.table.epoch, 2, 0).pack()
        assert await fence(first, [INSTANCE])
        reply = await talk.ask("SCAN", start, "COUNT", "2000")
        # It was asked before it knew, or after: then it uses no server.
        assert reply.startswith(b"-ERR server " + worker.servers[0].address.encode()) or NOT_USED in reply
