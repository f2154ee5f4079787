"""Copies of many pairs of groups by migrators of other machines: who makes which, and what topom has to do with them.

    python -m benchmarks.migrators            # 100 pairs over 10 migrators: two minutes
    python -m benchmarks.migrators --quick

Each group is one real Redis server with few keys. The groups are in datacenters, and some of their servers are on a
node that also has a migrator. All slots of each source move to a group of its own at once, by the replication stream.
README.md says how to read the figures.
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Annotated

import redis
import typer
from rich.console import Console
from rich.table import Table

from benchmarks import report, switches
from benchmarks.load import key
from benchmarks.moves import client_of, memory_bytes
from benchmarks.processes import ProcessGone, cpu_seconds
from slotferry.calls import TopomError
from slotferry.client import TopomClient
from slotferry.local import LocalCluster, environment_of, spread
from slotferry.processes import ManagedProcess, ProcessError
from slotferry.signals import until_signal
from slots import functions
from slots.ranges import show as show_slots
from slots.reserved import RESERVED_KEYS
from slots.states import SlotState
from slots.table import DEFAULT_SLOTS

PROXIES = 2
MIGRATORS_A_DATACENTER = 2
STARTS_AT_ONCE = 8
FILL_AT_ONCE = 500
REGISTER_SECONDS = 60.0
POLL_SECONDS = 0.1
REDIS_ARGUMENTS = ("--repl-diskless-sync-delay", "0", "--maxclients", "200")


class MigratorsFailed(RuntimeError):
    """The slots did not move in time, not by copies, or not whole."""


@dataclass(frozen=True)
class Place:
    """Where a server or a migrator is. ``node`` is empty for a server on a node without a migrator."""

    datacenter: str
    node: str


@dataclass(frozen=True)
class Pair:
    """A source and its target, by their groups, and the slots and keys that move."""

    source_id: int
    target_id: int
    slots: range
    place: Place


@dataclass(frozen=True)
class Found:
    """What was measured. Seconds are from the order to move; bytes and CPU time of topom until the sources are cleaned.

    ``copies`` are the places of sources, by the number of the migrator that copied from them. ``waits`` says why pairs
    did not go on at once; such a copy may have been made again.
    """

    pairs: int
    seconds: float
    keys: int
    data_bytes: int
    topom_cpu_seconds: float
    topom_read_bytes: int
    topom_written_bytes: int
    topom_memory_bytes: int
    migrators: list[Place]
    migrators_memory_bytes: list[int]
    migrators_cpu_seconds: list[float]
    copies: list[list[Place]]
    locks_seconds: list[float]
    waits: list[str]

    @property
    def far(self) -> int:
        """How many copies were made elsewhere than they should be: on the node of the source if a migrator is there,
        else in its datacenter."""
        return sum(
            source.node != migrator.node if source.node else source.datacenter != migrator.datacenter
            for migrator, sources in zip(self.migrators, self.copies, strict=True)
            for source in sources
        )


def places(migrators: int) -> list[Place]:
    """Where the migrators are: two in each datacenter, each on a node of its own."""
    return [
        Place(f"dc-{number // MIGRATORS_A_DATACENTER}", f"dc-{number // MIGRATORS_A_DATACENTER}-node-{number}")
        for number in range(migrators)
    ]


def pairs_of(pairs: int, migrators: Sequence[Place]) -> list[Pair]:
    """Pairs of groups, whose sources are spread over the places of the migrators.

    Every second round of them is on nodes that have a migrator; the others are only in its datacenter.
    """
    slots = spread(DEFAULT_SLOTS, range(1, pairs + 1))
    found = []
    for number in range(pairs):
        near = migrators[number % len(migrators)]
        on_node = number // len(migrators) % 2 == 0
        place = near if on_node else Place(near.datacenter, "")
        found.append(Pair(number + 1, pairs + number + 1, slots[number + 1], place))
    return found


def fill(pairs: Sequence[Pair], addresses: Mapping[int, str], keys: int, value_bytes: int) -> int:
    """Store so many keys at each source, all in slots of its own; gives the bytes of names and values. Raises
    redis.RedisError."""
    source_of = {slot: pair.source_id for pair in pairs for slot in pair.slots}
    waiting: dict[int, list[bytes]] = {pair.source_id: [] for pair in pairs}
    missing = dict.fromkeys(waiting, keys)
    size, value = 0, b"x" * value_bytes
    for number in count():
        if not missing:
            return size
        name = key(number)
        group = source_of[functions.slot("crc32", name, DEFAULT_SLOTS)]
        if group not in missing:
            continue
        waiting[group].append(name)
        missing[group] -= 1
        size += len(name) + value_bytes
        if not missing[group] or len(waiting[group]) == FILL_AT_ONCE:
            with client_of(addresses[group]) as client:
                client.mset(dict.fromkeys(waiting[group], value))
            waiting[group].clear()
        if not missing[group]:
            del missing[group]
    raise AssertionError("unreachable: numbers do not end")


def held(address: str) -> int:
    """How many keys a server has, without Slotferry's own. Raises redis.RedisError."""
    with client_of(address) as client:
        return int(client.dbsize()) - int(client.exists(*RESERVED_KEYS))


def transferred(pid: int) -> tuple[int, int]:
    """Bytes that a process has read and written by now, from and to sockets and files.

    They are those of `read` and `write`. uvloop uses these calls for its sockets, and topom has no others. Linux does
    not count those of `recv` and `send`, which a migrator uses.
    """
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["rchar"]), int(fields["wchar"])


async def start_migrators(cluster: LocalCluster, stack: AsyncExitStack, where: Sequence[Place]) -> list[ManagedProcess]:
    """Start a migrator at each place; return once all are registered. Raises ProcessError, MigratorsFailed."""
    started = []
    for number, place in enumerate(where):
        settings = {
            "topom": [cluster.topom_url],
            "token": cluster.token,
            "spool": str(cluster.directory / f"spool-{number}"),
            "node": place.node,
            "datacenter": place.datacenter,
        }
        one = ManagedProcess(
            f"migrator-{number}",
            [sys.executable, "-m", "slotferry", "migrator"],
            cluster.directory / f"migrator-{number}.log",
            environment_of("SLOTFERRY_MIGRATOR_", settings),
        )
        one.start()
        stack.push_async_callback(one.stop)
        started.append(one)
    try:
        async with asyncio.timeout(REGISTER_SECONDS), cluster.client() as topom:
            while sum(not one["own"] for one in (await topom.migrators())["migrators"]) < len(where):
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise MigratorsFailed(f"{len(where)} migrators did not register within {REGISTER_SECONDS:g} s") from None
    return started


async def lay_out(cluster: LocalCluster, topom: TopomClient, pairs: Sequence[Pair]) -> dict[int, str]:
    """Start a server for each group and tell topom; gives the addresses, by group. Raises ProcessError, TopomError."""
    turn = asyncio.Semaphore(STARTS_AT_ONCE)

    async def start(group_id: int) -> str:
        async with turn:
            return (await cluster.add_server(group_id)).address

    groups = [(group, pair) for pair in pairs for group in (pair.source_id, pair.target_id)]
    found = await asyncio.gather(*(start(group) for group, _ in groups))
    addresses = {group: address for (group, _), address in zip(groups, found, strict=True)}
    for group, pair in groups:
        # A target is wherever it is: near the source is what counts.
        place = pair.place if group == pair.source_id else Place("dc-elsewhere", "")
        await topom.add_group(group, [addresses[group]], place.datacenter, place.node)
    for pair in pairs:
        await topom.assign_slots(show_slots(pair.slots), pair.source_id)
    return addresses


async def until_moved(cluster: LocalCluster, pairs: int, limit: float) -> None:
    """Return once all slots have moved and what they left is deleted. topom is not asked meanwhile: its log says so.
    Raises MigratorsFailed."""
    log = cluster.topom.log
    try:
        async with asyncio.timeout(limit):
            while sum(event["event"] == "batch_ended" for event in await asyncio.to_thread(_events, log)) < pairs:
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        async with cluster.client() as topom:
            state = await topom.migration()
        raise MigratorsFailed(
            f"not done after {limit:g} s: {state['slots_pending']} slots pending, {state['slots_moving']} moving; "
            f"{state['batches'][:3]}"
        ) from None


def _events(log: Path) -> list[dict[str, object]]:
    return list(switches.events(log))


async def measure(pairs: int, migrators: int, keys: int, value_bytes: int, limit: float, console: Console) -> Found:
    """All of it. Raises the errors that :func:`main` catches."""
    where = places(migrators)
    moving = pairs_of(pairs, where)
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            LocalCluster(
                groups=0,
                proxies=PROXIES,
                slots_on=[],
                topom_settings={"migration_way": "stream", "migration_latency_goal_milliseconds": 0},
                redis_arguments=REDIS_ARGUMENTS,
            )
        )
        topom = await stack.enter_async_context(cluster.client())
        processes = await start_migrators(cluster, stack, where)
        console.print(f"starting {2 * pairs} servers")
        addresses = await lay_out(cluster, topom, moving)
        await cluster.ready()
        console.print(f"putting in {pairs * keys} keys of {value_bytes} bytes")
        size = await asyncio.to_thread(fill, moving, addresses, keys, value_bytes)
        await topom.pause_migration()
        for pair in moving:
            await topom.move_slots(show_slots(pair.slots), pair.target_id)
        console.print(f"{pairs} pairs move")
        pid = cluster.topom.pid
        before = cpu_seconds(pid), *transferred(pid)
        began = time.monotonic()
        await topom.resume_migration()
        await until_moved(cluster, pairs, limit)
        after = cpu_seconds(pid), *transferred(pid)
        done = switches.steps(cluster.topom.log)
        logged = _events(cluster.topom.log)
        if by_keys := [
            event["reason"] for event in logged if event["event"] == "way_chosen" and event["way"] != "stream"
        ]:
            raise MigratorsFailed(f"{len(by_keys)} pairs did not move by the stream: {by_keys[0]}")
        moved = sum([await asyncio.to_thread(held, addresses[pair.target_id]) for pair in moving])
        if moved != pairs * keys:
            raise MigratorsFailed(f"{pairs * keys} keys before the move, {moved} at the targets after it")
        place_of = {addresses[pair.source_id]: pair.place for pair in moving}
        last = switches.last(done, SlotState.FINISHED)
        assert last is not None, "all have switched"
        return Found(
            pairs,
            last - began,
            moved,
            size,
            after[0] - before[0],
            after[1] - before[1],
            after[2] - before[2],
            memory_bytes(pid),
            where,
            [memory_bytes(one.pid) for one in processes],
            [cpu_seconds(one.pid) for one in processes],
            [
                [place_of[str(event["source"])] for event in _events(one.log) if event["event"] == "copy_began"]
                for one in processes
            ],
            [end - begin for begin, end in switches.spans(done)],
            [str(event["reason"]) for event in logged if event["event"] == "batch_waits"],
        )


def show(found: Found, console: Console) -> None:
    """Print the tables."""
    table = Table(title="migrators")
    for heading in ("node", "copies", "from its node", "from its datacenter", "from elsewhere", "MiB", "CPU s"):
        table.add_column(heading, justify="left" if heading == "node" else "right")
    rows = zip(found.migrators, found.copies, found.migrators_memory_bytes, found.migrators_cpu_seconds, strict=True)
    for place, sources, memory, cpu in rows:
        node = sum(source.node == place.node for source in sources)
        near = sum(source.datacenter == place.datacenter for source in sources) - node
        counts = (len(sources), node, near, len(sources) - node - near)
        table.add_row(place.node, *map(str, counts), f"{memory / 2**20:.0f}", f"{cpu:.2f}")
    console.print(table)
    copies = [len(sources) for sources in found.copies]
    locked = sorted(found.locks_seconds)
    middle, longest = (1000 * locked[place] for place in (len(locked) // 2, -1))
    read, written = (size / 1e6 for size in (found.topom_read_bytes, found.topom_written_bytes))
    console.print(
        f"{sum(copies)} copies of {found.pairs} pairs, {min(copies)} to {max(copies)} a migrator, {found.far} far\n"
        f"{found.keys} keys, {found.data_bytes / 1e6:.1f} MB; the last switch {found.seconds:.2f} s after the order\n"
        f"{len(locked)} locks, one after the other: {middle:.1f} ms in the median, {longest:.1f} ms at most, "
        f"{sum(locked):.2f} s together\n"
        f"topom: {found.topom_cpu_seconds:.2f} s of CPU time, read {read:.1f} MB and wrote {written:.1f} MB, files "
        f"included; {found.topom_memory_bytes / 2**20:.0f} MiB at most"
    )
    for reason, times in Counter(found.waits).most_common():
        console.print(f"pairs that waited: {times}, for: {reason}", markup=False, highlight=False)


async def benchmark(
    pairs: int, migrators: int, keys: int, value_bytes: int, limit: float, output: Path | None, console: Console
) -> Found:
    """Measure, print and save."""
    before = report.machine()
    found = await measure(pairs, migrators, keys, value_bytes, limit, console)
    show(found, console)
    content = {
        "machine": before,
        "load_average_after": report.machine()["load_average"][0],
        "value_bytes": value_bytes,
        **asdict(found),
    }
    console.print(f"saved as {report.save('migrators', output, content)}")
    return found


def main(
    pairs: Annotated[int, typer.Option(min=1, max=500, help="Sources, each with a target of its own.")] = 100,
    migrators: Annotated[int, typer.Option(min=1, max=50, help="Processes of slotferry migrator.")] = 10,
    keys: Annotated[int, typer.Option(min=1, help="Keys of each source; all move.")] = 1000,
    value_bytes: Annotated[int, typer.Option(min=1, help="Size of the values.")] = 10_000,
    limit: Annotated[float, typer.Option(min=1, help="Seconds after which the moves have failed.")] = 300,
    quick: Annotated[bool, typer.Option("--quick", help="Eight pairs, four migrators: shows that all works.")] = False,
    output: Annotated[Path | None, typer.Option(help="JSON file; by default one in benchmarks/results.")] = None,
) -> None:
    """Many pairs over several migrators, and what that costs topom."""
    console = report.console()
    if quick:
        pairs, migrators, keys = 8, 4, 200
    with report.failing(console, MigratorsFailed, TopomError, ProcessError, ProcessGone, redis.RedisError, OSError):
        found = asyncio.run(until_signal(benchmark(pairs, migrators, keys, value_bytes, limit, output, console)))
    if found is None:
        raise typer.Abort
    if found.far:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
