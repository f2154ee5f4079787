"""One measured move: a cluster of its own is filled, and half of its slots move to the second group under a probe."""

import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import processes, switches
from benchmarks.load import fill
from benchmarks.load import key as key_of
from benchmarks.moved import Phase, Run, say, windows
from benchmarks.moves import Looking, Writing, client_of, memory_bytes, moving_names
from benchmarks.probe import Request, read
from benchmarks.samples import PROXY
from slotferry.client import TopomClient
from slotferry.local import LocalCluster
from slotferry.processes import ManagedProcess
from slotferry.redis_server import ask, start_redis
from slots.ranges import show as show_slots
from slots.reserved import RESERVED_KEYS
from slots.states import SlotState

SOURCE = 1
TARGET = 2
OTHERS = "all others"
"""The role of all other work of the machine, including this program's."""
WARM_SECONDS = 2.0
"""The probe's first seconds, which are not counted."""
REDIS_ARGUMENTS = ("--repl-diskless-sync-delay", "0")
"""A server waits 5 s by default before it begins a snapshot. Figures count from its beginning."""
_POLL_SECONDS = 0.1
_LOOK_SECONDS = 0.01
_MIGRATOR_SECONDS = 30.0
_PROBE_STOP_SECONDS = 30.0
_FILL_BYTES = 1_000_000
_ROOT = Path(__file__).resolve().parent.parent


class MigrationFailed(RuntimeError):
    """The slots did not move in time, or not to where they should."""


@dataclass(frozen=True)
class Scenario:
    """The move, and the probe's requests meanwhile. 0 means topom's default, or no limit."""

    keys: int
    value_bytes: int
    proxies: int
    workers: int
    parallel_slots: int
    keys_per_second: int
    big_keys: int
    big_fields: int
    huge_fields: int
    random_values: bool
    replica: bool
    hot_writes: float
    latency_goals: tuple[float, ...]
    ways: tuple[str, ...]
    connections: int
    rate: float
    writes: float
    quiet_seconds: float
    limit_seconds: float


async def keys_at(address: str) -> int:
    """How many keys a server holds in database 0, without Slotferry's own. Raises OSError, MigrationFailed."""
    numbers = []
    for command in (["DBSIZE"], ["EXISTS", *(key.decode() for key in RESERVED_KEYS)]):
        reply = await ask(address, *command)
        if not reply.startswith(":"):
            raise MigrationFailed(f"{address} answered {command[0]} with {reply}")
        numbers.append(int(reply[1:]))
    return numbers[0] - numbers[1]


def fill_random(address: str, scenario: Scenario) -> None:
    """Give all keys values that cannot be compressed. Raises redis.RedisError."""
    blocks = [os.urandom(scenario.value_bytes) for _ in range(64)]
    step = max(1, _FILL_BYTES // (scenario.value_bytes + 64))
    with client_of(address) as client:
        for first in range(0, scenario.keys, step):
            numbers = range(first, min(scenario.keys, first + step))
            client.mset({key_of(number): blocks[number % len(blocks)] for number in numbers})


def fill_big(address: str, sizes: Sequence[int]) -> None:
    """Store hashes with these numbers of fields, all in slots that will move. Raises redis.RedisError."""
    with client_of(address) as client:
        for name, fields in zip(moving_names("big"), sizes, strict=False):
            for first in range(0, fields, 1000):
                some = range(first, min(fields, first + 1000))
                client.hset(name, mapping={f"field:{number}": f"value {number:026d}" for number in some})


def start_probe(addresses: Sequence[str], scenario: Scenario, directory: Path) -> tuple[ManagedProcess, Path]:
    """Start the probe, with its connections spread over these proxies; give it and its output file. Raises
    ProcessError."""
    output = directory / "probe.times"
    arguments = [
        *(sys.executable, "-m", "benchmarks.probe", *addresses, "--output", str(output)),
        *("--keys", str(scenario.keys), "--value-bytes", str(scenario.value_bytes)),
        *("--connections", str(scenario.connections), "--rate", str(scenario.rate), "--writes", str(scenario.writes)),
        *("--limit", str(WARM_SECONDS + 2 * scenario.quiet_seconds + scenario.limit_seconds)),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])}
    probe = ManagedProcess("probe", arguments, directory / "probe.log", environment)
    probe.start()
    return probe, output


async def quiet(probe: ManagedProcess, seconds: float) -> tuple[float, float]:
    """Let the probe run undisturbed; give the moments of begin and end."""
    begin = time.monotonic()
    await asyncio.sleep(seconds)
    if not probe.running:
        raise MigrationFailed(f"the probe ended with status {probe.status}:\n{probe.tail()}")
    return begin, time.monotonic()


async def sync_replica(source: str, directory: Path, looking: Looking, limit: float) -> tuple[float, float]:
    """Fill a stock replica from the source, and end it: what the servers alone give. From its snapshot's first byte to
    the end."""
    snapshot = asyncio.create_task(looking.snapshot())
    replica = await start_redis("stock-replica", directory, extra=("--replicaof", *source.split(":")))
    try:
        async with asyncio.timeout(limit):
            begin = await snapshot
            with client_of(replica.address) as client:
                while (await asyncio.to_thread(client.info, "replication"))["master_link_status"] != "up":
                    await asyncio.sleep(_LOOK_SECONDS)
        return begin, time.monotonic()
    except TimeoutError:
        raise MigrationFailed(f"the stock replica of {source} was not filled after {limit:g} s") from None
    finally:
        snapshot.cancel()
        await replica.stop()


async def set_way(topom: TopomClient, scenario: Scenario, way: str, goal: float) -> None:
    """Let slots move in this way and by this latency goal, and wait until whoever moves them is there.

    A migrator starts once, and serves all moves to come: its start is part of no move.
    """
    wanted: dict[str, int | float | str] = {"latency_goal_milliseconds": goal, "way": way}
    if scenario.parallel_slots:
        wanted["parallel_slots"] = scenario.parallel_slots
    if scenario.keys_per_second:
        wanted["keys_per_second"] = scenario.keys_per_second
    await topom.set_migration(**wanted)
    try:
        async with asyncio.timeout(_MIGRATOR_SECONDS):
            while way == "stream" and not (await topom.migrators())["migrators"]:
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise MigrationFailed(f"no migrator has registered after {_MIGRATOR_SECONDS:g} s") from None


async def move(topom: TopomClient, scenario: Scenario, speeds: list[float] | None = None) -> tuple[float, float]:
    """Move the upper half of the slots; give the moments of the request and of the end.

    What is left at the source of slots that have moved is deleted before this returns; that is not in the time.

    ``speeds`` gets the speeds, see :class:`Run`.

    Raises:
        MigrationFailed: when it is not done in time, or slots are not where they should be.
    """
    number_of_slots = (await topom.status())["number_of_slots"]
    moving = range(number_of_slots // 2, number_of_slots)
    begin = time.monotonic()
    await topom.move_slots(show_slots(moving), TARGET)
    state: dict[str, Any] = {}
    try:
        async with asyncio.timeout(scenario.limit_seconds):
            while True:
                state = await topom.migration()
                if speeds is not None:
                    speeds += [batch["pacing"]["speed"] for batch in state["batches"] if batch["pacing"]]
                if not state["slots_pending"] and not state["slots_moving"]:
                    break
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise MigrationFailed(
            f"not done after {scenario.limit_seconds:g} s: {state.get('slots_pending')} slots pending, "
            f"{state.get('slots_moving')} moving, {state.get('keys_moved')} keys moved, batches {state.get('batches')}"
        ) from None
    end = time.monotonic()
    async with asyncio.timeout(scenario.limit_seconds):
        while (await topom.migration())["batches"]:
            await asyncio.sleep(_POLL_SECONDS)
    wrong = [
        slot["id"]
        for slot in (await topom.slots())["slots"]
        if slot["action"] or slot["group_id"] != (TARGET if slot["id"] in moving else SOURCE)
    ]
    if wrong:
        raise MigrationFailed(f"after the move, slots {show_slots(wrong)} are not where they should be")
    return begin, end


async def fill_all(cluster: LocalCluster, scenario: Scenario, console: Console) -> Writing | None:
    """Put in all keys; give the client that writes some of them, which has begun, if there is one. Raises
    redis.RedisError, LoadFailed."""
    source = cluster.groups[SOURCE][0]
    console.print(f"putting in {scenario.keys} keys of {scenario.value_bytes} bytes")
    await asyncio.to_thread(fill, source, scenario.keys, scenario.value_bytes)
    if scenario.random_values:
        await asyncio.to_thread(fill_random, source, scenario)
    sizes = [scenario.big_fields] * scenario.big_keys + [scenario.huge_fields] * bool(scenario.huge_fields)
    await asyncio.to_thread(fill_big, source, sizes)
    if not scenario.hot_writes:
        return None
    writing = Writing(cluster.proxy_addresses[0], scenario.hot_writes)
    writing.fill(source)
    writing.start()
    return writing


def roles_of(cluster: LocalCluster, probe: ManagedProcess) -> Mapping[str, Sequence[int]]:
    """By role, the processes whose processor time is counted."""
    supervisors = [proxy.pid for proxy in cluster.proxies]
    return {
        "source": [cluster.servers[SOURCE][0].pid],
        "target": [cluster.servers[TARGET][0].pid],
        PROXY: [pid for one in supervisors for pid in processes.running(one, "proxy.worker.worker")],
        "supervisors": supervisors,
        "topom": topoms(cluster),
        "probe": [probe.pid],
    }


def topoms(cluster: LocalCluster) -> list[int]:
    """topom, and the processes that it has started."""
    return [cluster.topom.pid, *processes.descendants(cluster.topom.pid)]


async def end_writing(writing: Writing | None) -> dict[str, float]:
    """End the client that writes, if there is one, and give its figures. None of its writes may be lost."""
    if writing is None:
        return {}
    lost = await asyncio.to_thread(writing.stop)
    if writing.failed or lost > 0:
        raise MigrationFailed(f"of {writing.acknowledged} writes {lost} were lost; {writing.failed}")
    return {
        "acknowledged": writing.acknowledged,
        "lost": lost,
        "longest_milliseconds": 1000 * writing.longest_seconds,
    }


async def end_probe(probe: ManagedProcess, output: Path, console: Console) -> list[Request]:
    """End the probe, and give its requests."""
    await probe.stop(_PROBE_STOP_SECONDS)
    if probe.status != 0:
        raise MigrationFailed(f"the probe ended with status {probe.status}:\n{probe.tail()}")
    if (said := probe.log.read_text(errors="replace").strip()) != "":
        console.print(said, style="red", markup=False, highlight=False)
    return list(read(output))


async def measure(scenario: Scenario, way: str, goal: float, console: Console) -> Run:
    """Start a cluster, fill it, move half of it under the probe, and end it. Raises the errors that
    :func:`benchmarks.migration.main` catches."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            LocalCluster(
                groups=2,
                proxies=scenario.proxies,
                workers=scenario.workers,
                slots_on=[SOURCE],
                redis_arguments=REDIS_ARGUMENTS,
            )
        )
        source, target = cluster.groups[SOURCE][0], cluster.groups[TARGET][0]
        writing = await fill_all(cluster, scenario, console)
        held = await keys_at(source)
        topom = await stack.enter_async_context(cluster.client())
        await set_way(topom, scenario, way, goal)
        probe, output = start_probe(cluster.proxy_addresses, scenario, cluster.directory)
        stack.push_async_callback(probe.stop)
        roles = roles_of(cluster, probe)
        looking = Looking({"source": source, "target": target})
        await quiet(probe, WARM_SECONDS)
        await asyncio.to_thread(looking.begin)
        console.print(f"quiet for {scenario.quiet_seconds:g} s")
        spans = {"quiet": await quiet(probe, scenario.quiet_seconds)}
        long_steps = {"quiet": await asyncio.to_thread(looking.long_steps)}
        if scenario.replica:
            console.print("filling a stock replica")
            spans["replica"] = await sync_replica(source, cluster.directory, looking, scenario.limit_seconds)
            await quiet(probe, WARM_SECONDS)
            long_steps["replica"] = await asyncio.to_thread(looking.long_steps)
        console.print(f"moving half of the slots, {say(way, goal)}")
        speeds: list[float] = []
        before, busy = processes.cpu_by_role(roles), processes.machine_busy_seconds()
        snapshot = asyncio.create_task(looking.snapshot())
        begin, end = await move(topom, scenario, speeds)
        cpu = processes.spent(before, processes.cpu_by_role(roles))
        snapshot.cancel()
        (snapshot_at,) = await asyncio.gather(snapshot, return_exceptions=True)
        long_steps["moving"] = await asyncio.to_thread(looking.long_steps)
        cpu[OTHERS] = max(0.0, processes.machine_busy_seconds() - busy - sum(cpu.values()))
        after = await quiet(probe, scenario.quiet_seconds)
        long_steps["after"] = await asyncio.to_thread(looking.long_steps)
        writes = await end_writing(writing)
        requests = await end_probe(probe, output, console)
        moved, left = await keys_at(target), await keys_at(source)
        if moved + left != held:
            raise MigrationFailed(f"{held} keys before the move, {moved} + {left} after it")
        done = switches.steps(cluster.topom.log)
        switched = switches.last(done, SlotState.FINISHED) or end
        # Keys move one by one where there is no snapshot.
        began = snapshot_at if isinstance(snapshot_at, float) else switches.first(done, SlotState.MIGRATING) or begin
        spans |= {"checking": (begin, began), "moving": (began, end), "after": after}
        return Run(
            way,
            goal,
            speeds,
            moved,
            left,
            switched - begin,
            switched - began,
            switches.locks(done, requests),
            {name: Phase.of(requests, *span) for name, span in spans.items()},
            cpu,
            windows(requests, begin, end),
            long_steps,
            max(memory_bytes(pid) for pid in topoms(cluster)),
            writes,
        )
