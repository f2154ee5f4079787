"""Kill -9 of each process in each state that slots pass, under traffic whose answers are checked.

Each state is held, by a proxy that does not acknowledge it or by a slow pace, until the process has died. Then it is
started again, as a service manager would do; the migration goes on by itself, and nothing acknowledged is lost.
"""

import os
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from slotferry.processes import ManagedProcess
from slotferry.traffic.driver import Traffic
from tests.integration.cluster.harness import eventually
from tests.integration.faults.cluster import FaultCluster, Holder, Move, witnessed
from tests.integration.faults.ways import usually

pytestmark = pytest.mark.asyncio(loop_scope="module")

Victim = Callable[[Move], ManagedProcess]


def proxy(move: Move) -> ManagedProcess:
    return move.cluster.proxies[1]


def topom(move: Move) -> ManagedProcess:
    return move.cluster.topom


def source(move: Move) -> ManagedProcess:
    return move.source_server


def target(move: Move) -> ManagedProcess:
    return move.target_server


every_state = pytest.mark.parametrize("state", usually(["prepared", "migrating"], ["preparing", "finished"]))


async def begin(move: Move, state: str) -> None:
    """Put the slots on their way, up to this state."""
    await move.begin()
    if state == "migrating":
        await move.cluster.moving(10)
    elif state == "finished":
        await move.hurry()
    await move.cluster.in_state(state)


@every_state
@pytest.mark.parametrize("victim", [proxy, topom, source, target])
async def test_a_process_is_killed_and_started_again(
    cluster: FaultCluster, traffic: Traffic, victim: Victim, state: str
) -> None:
    move = await Move.ready(cluster)
    async with witnessed(cluster, traffic) as witness, AsyncExitStack() as stack:
        holder = await stack.enter_async_context(Holder(cluster, state)) if state != "migrating" else None
        await begin(move, state)
        process = victim(move)
        await process.kill()
        await cluster.restart(process)
        if holder is not None:
            await holder.let_go()
        await move.hurry()
        await move.arrived()
        await cluster.all_online()
        await witness.check()


@every_state
async def test_a_worker_is_killed(cluster: FaultCluster, traffic: Traffic, state: str) -> None:
    """given a supervisor that starts another one, the proxy keeps its identity."""
    move = await Move.ready(cluster)
    former = await cluster.instances()
    async with witnessed(cluster, traffic) as witness, AsyncExitStack() as stack:
        holder = await stack.enter_async_context(Holder(cluster, state)) if state != "migrating" else None
        await begin(move, state)
        killed = cluster.worker_pids(1)[0]
        os.kill(killed, signal.SIGKILL)

        async def worker() -> int:
            return cluster.worker_pids(1)[0]

        await eventually(worker, lambda pid: pid != killed, "another worker in its place")
        if holder is not None:
            await holder.let_go()
        await move.hurry()
        await move.arrived()
        await cluster.all_online()
        assert await cluster.instances() == former
        await witness.check()
