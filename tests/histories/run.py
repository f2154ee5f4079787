"""One run: clients, moves and faults side by side, then rest, then every check.

bounded: the clients, the faults and the moves end with the run's seconds, or soon after; coming to rest and each
search have limits of their own.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from slotferry.calls import TopomError
from slotferry.processes import ProcessError
from slots import ranges
from slots.states import SlotState
from tests.histories.accounting import account
from tests.histories.caches import Caches, lived_on
from tests.histories.checker import Verdict, check, first_unexplained
from tests.histories.clients import Recorder
from tests.histories.cluster import BALLAST_DATABASE, PROXIES, SLOTS, WORKERS, HistoriesCluster, NotAtRest
from tests.histories.faults import Faults
from tests.histories.hotreads import HotReads
from tests.histories.listing import Lister
from tests.histories.losses import Losses
from tests.histories.model import Model, nothing, show
from tests.histories.moves import GOAL_MILLISECONDS, TOGETHER, Mover
from tests.histories.operations import Outcome, Partition
from tests.histories.placement import misplaced
from tests.histories.report import Finding, Report
from tests.histories.schedule import Kind, draw
from tests.histories.workload import ACCOUNTED, DATABASES, FLUSHED_DATABASE, LARGE_FIELDS, Workload
from tests.integration.cluster.harness import plain_client

CLIENTS = 16
SWEEP_SECONDS = 30.0
"""A server may have keys of slots that it does not own, brought back with older data, for so long."""
ANSWER_SECONDS = 0.5
LATE_SECONDS = 0.3
"""For how long a key may outlive its lifetime: a server on a busy machine looks at its clock late."""
SHOWN = 12
"""The number of operations in the explanation of a finding."""
FLUSHING = 4
"""Clients flush a database in one of so many runs by the stream."""
SELDOM = 1 / 8
"""So many of the flushes that are drawn are done in such a run. A flush ends every copy of that moment, and slots whose
copies have ended several times move key by key."""
COPIES = {
    b"copy_began": "begun",
    b"stream_began": "streams",
    b"copy_level": "level",
    b"slots_begin_anew": "begun anew",
    b"copy_given_up": "given up",
    b'"role": "replica"': "of replicas",
}
"""Events in topom's log, and what they say of copies."""


async def run(
    cluster: HistoriesCluster,
    seed: int,
    *,
    seconds: float,
    operations: int,
    kinds: Sequence[Kind] = tuple(Kind),
    together: int = TOGETHER,
    least: int = 0,
) -> Report:
    """Do one run in a cluster that is at rest, and leave it at rest.

    Args:
        cluster: where; it may have had runs before, with other seeds.
        seed: of everything that is left to chance.
        seconds: for so long, clients send, slots move and things fail.
        operations: how many the clients have to send in this time.
        kinds: of faults.
        least: on a busy machine, clients go on until so many operations have run.
        together: one order of so many has the slots of a source move to several targets at once.
    """
    begun = time.monotonic()
    report = Report(seed)
    logged = cluster.topom.log.stat().st_size
    await cluster.api.set_migration(latency_goal_milliseconds=GOAL_MILLISECONDS)
    workload = Workload(seed, flushes=1.0 if cluster.way == "keys" else SELDOM if seed % FLUSHING == 0 else 0.0)
    await _make_large(cluster, workload)
    recorder = Recorder(cluster.proxy_addresses, workload, seed)
    mover = Mover(cluster, seed, together)
    losses = Losses(cluster, (await cluster.layout()).function, lambda: recorder.now)
    faults = Faults(cluster, mover, workload, losses, lambda: recorder.now)
    schedule = draw(seed, seconds, proxies=PROXIES, workers=WORKERS, servers=len(cluster.server_links), kinds=kinds)
    lister = Lister(cluster.proxy_addresses, seed, lambda: recorder.now, cluster.server_pids)
    caches = Caches(cluster.proxy_addresses, workload, seed, lambda: recorder.now)
    hot = HotReads(cluster.proxy_addresses, seed, lambda: recorder.now)
    beside = [asyncio.create_task(it) for it in (mover.run(), losses.watch(), lister.run())]
    async with caches, hot:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(recorder.run(CLIENTS, operations, seconds, least))
                group.create_task(faults.run(schedule))
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
        report.faults = sorted(faults.done, key=lambda text: float(text.split()[0]))
        try:
            await _come_to_rest(cluster, mover, faults.evicted if cluster.way == "stream" else set())
        except (NotAtRest, AssertionError, ProcessError) as error:
            report.findings.append(Finding("rest", str(error)))
        missing = await recorder.read_all()
        report.findings += [Finding("reading at the end", text) for text in missing]
        report.findings += await caches.settled()
    report.findings += lived_on(caches.used)
    report.cached = len(caches.used)
    report.findings += hot.findings(losses.excuses_key)
    report.hot_reads = hot.reads
    report.findings += [Finding("listing", text) for text in lister.findings(losses.excuses_key)]
    report.lists, report.scans = lister.asked, lister.scanned
    report.findings += await _look_at_servers(cluster, workload, losses, faults.evicted)
    # In a thread: relays and heartbeats have to go on meanwhile.
    judged = [partition for partition in workload.partitions if not losses.excuses(partition)]
    report.excused = len(workload.partitions) - len(judged)
    await asyncio.to_thread(judge, judged, report)
    if losses.older:
        await cluster.load()
    for partition, operation in recorder.unexpected:
        report.findings.append(Finding("reply", f"an error that nothing explains: {operation}", partition))
    report.outcomes = recorder.outcomes
    report.errors = recorder.errors
    report.slots_moved = mover.slots_moved
    report.copies, report.slots_copied = _copies(cluster, logged)
    report.operations = sum(len(partition.history) for partition in workload.partitions)
    report.seconds = time.monotonic() - begun
    return report


def _copies(cluster: HistoriesCluster, start: int) -> tuple[Counter[str], int]:
    """What topom's log says of copies since it had so many bytes, and how many slots have switched to a copy."""
    said = cluster.topom.log.read_bytes()[start:]
    return Counter({what: said.count(event) for event, what in COPIES.items() if event in said}), switched(said)


def switched(log: bytes) -> int:
    """Slots, in a log of topom, whose lock was followed by rest: keys that move one by one move in between."""
    states: dict[int, str] = {}
    switched = 0
    for line in log.splitlines():
        if b'"slots_advanced"' not in line or not line.endswith(b"}"):
            continue
        said = json.loads(line)
        for slot in ranges.parse(said["slots"], SLOTS) if said["slots"] else ():
            switched += said["state"] == SlotState.FINISHED and states.get(slot) == SlotState.PREPARED
            states[slot] = said["state"]
    return switched


async def _make_large(cluster: HistoriesCluster, workload: Workload) -> None:
    for partition in workload.large:
        async with plain_client(cluster.proxy_addresses[0], db=partition.database) as client:
            for start in range(0, LARGE_FIELDS, 1000):
                fields: dict[Any, Any] = {
                    f"ballast:{number}": f"value {number}" * 8 for number in range(start, start + 1000)
                }
                await client.hset(partition.keys[0], mapping=fields)


async def _come_to_rest(cluster: HistoriesCluster, mover: Mover, asking: set[int]) -> None:
    """Nothing fails any more. An operator answers for groups that have lost their marks, if they ask."""
    await cluster.heal()
    await cluster.ready()
    for attempt in range(10):
        try:
            await cluster.api.resume_migration()
            await cluster.api.set_migration(keys_per_second=0, latency_goal_milliseconds=0)
            break
        except TopomError:
            if attempt == 9:
                raise
            await asyncio.sleep(0.5)
    operator = asyncio.create_task(_answer(cluster, asking))
    try:
        await cluster.rest()
    finally:
        operator.cancel()
        await asyncio.gather(operator, return_exceptions=True)
    await mover.look()


async def _answer(cluster: HistoriesCluster, groups: set[int]) -> None:
    while groups:
        with suppress(TopomError):  # asked again soon
            await _answer_for_keys(cluster, groups)
        await asyncio.sleep(ANSWER_SECONDS)


async def _look_at_servers(
    cluster: HistoriesCluster, workload: Workload, losses: Losses, evicted: set[int]
) -> list[Finding]:
    databases = {*DATABASES, FLUSHED_DATABASE, BALLAST_DATABASE}
    try:
        wrong = await misplaced(cluster, databases)
        until = time.monotonic() + SWEEP_SECONDS
        asking = evicted if cluster.way == "stream" else evicted.intersection(one.group for one in losses.older)
        while wrong and (losses.older or cluster.way == "stream") and time.monotonic() < until:
            # owned: what a server has brought back, or what has left it, is gone again soon, or an operator is asked.
            await _answer_for_keys(cluster, asking)
            await asyncio.sleep(0.1)
            wrong = await misplaced(cluster, databases)
        said = f" (topom says of the servers: {await _said_of_keys(cluster)})" if wrong else ""
        found = [Finding("placement", text + said) for text in wrong]
        found += [Finding("lost", text) for text in await cluster.lost_ballast(losses.excuses_key)]
        for partition in workload.large:
            if losses.excuses(partition):
                continue
            async with plain_client(cluster.proxy_addresses[0], db=partition.database) as client:
                fields = [it async for it, _ in client.hscan_iter(partition.keys[0], match="ballast:*", count=2000)]
            if len(set(fields)) != LARGE_FIELDS:
                text = f"{len(set(fields))} of {LARGE_FIELDS} fields that no client touches are left"
                found.append(Finding("lost", text, partition))
    except (RedisError, OSError) as error:
        return [Finding("reading at the end", f"a server or a proxy does not answer: {error}")]
    return found


async def _said_of_keys(cluster: HistoriesCluster) -> str:
    """topom's reasons for servers that it has not swept."""
    groups = await cluster.api.groups()
    said = [f"{server['address']}: {server['not_swept']}" for group in groups for server in group["servers"]]
    return "; ".join(said)


async def _answer_for_keys(cluster: HistoriesCluster, groups: set[int]) -> None:
    """Act as an operator if a server has lost its data id: topom does not know that its foreign keys may go."""
    for group in await cluster.api.groups() if groups else ():
        for server in group["servers"]:
            if group["id"] in groups and "was never seen without them" in str(server["not_swept"]):
                with suppress(TopomError):  # asked again soon
                    await cluster.api.sweep_server(group["id"], server["address"])


def judge(partitions: Sequence[Partition], report: Report) -> None:
    """Search or account for every history, and note in the report what comes out."""
    model = Model(LATE_SECONDS)
    for partition in partitions:
        if not partition.history:
            continue
        report.partitions += 1
        if partition.kind in ACCOUNTED:
            report.findings += [Finding("accounting", text, partition) for text in account(partition)]
            continue
        initial = nothing(len(partition.keys))
        found = check(partition.history, initial, model.step)
        report.verdicts[found.verdict] += 1
        report.steps = max(report.steps, found.steps)
        if found.verdict is Verdict.NOT_LINEARIZABLE:
            report.findings.append(Finding("linearizability", explain(partition, model), partition))


def explain(partition: Partition, model: Model) -> str:
    """The first reply that cannot be explained, what was possible then, and what came right before it."""
    unexplained = first_unexplained(partition.history, nothing(len(partition.keys)), model.step)
    if unexplained is None:
        return "no order of its operations explains all replies"
    culprit, before = unexplained
    earlier = [it for it in partition.operations if it.invoked <= culprit.answered and it is not culprit]
    shown = [it for it in earlier if it.outcome is not Outcome.NOT_RUN][-SHOWN:]
    return "\n".join(
        [
            f"no order explains {culprit}",
            f"  an order that explains all before it leads to: {show(before.state)}",
            "  what came before it:",
            *(f"    {it}" for it in shown),
        ]
    )
