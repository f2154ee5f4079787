"""How long a move waits for the target's replicas, in virtual time."""

import asyncio

import pytest

from migrator.pace import Pace, PaceSettings
from migrator.replicabuffers import LONGEST_WAIT_SECONDS, LOOK_SECONDS, MOST_BEHIND, ReplicasBehind
from migrator.steering import PairPace
from tests.unit.migrator.virtual import in_virtual_time, now


@in_virtual_time
async def test_it_waits_while_a_buffer_is_large_and_no_longer() -> None:
    replicas = ReplicasBehind("t:1", now)
    assert replicas.seconds == 0
    replicas.take(MOST_BEHIND)
    assert replicas.seconds == 0
    replicas.take(MOST_BEHIND + 1)
    assert replicas.seconds == LOOK_SECONDS
    replicas.take(0)
    assert replicas.seconds == 0


@in_virtual_time
async def test_a_replica_that_never_catches_up_is_not_waited_for_any_longer() -> None:
    replicas = ReplicasBehind("t:1", now)
    replicas.take(MOST_BEHIND + 1)
    await asyncio.sleep(LONGEST_WAIT_SECONDS - 0.1)
    replicas.take(MOST_BEHIND + 1)
    assert replicas.seconds > 0
    await asyncio.sleep(0.1)
    assert replicas.seconds == 0
    # The next time it is waited for again.
    replicas.take(0)
    replicas.take(MOST_BEHIND + 1)
    assert replicas.seconds > 0


@pytest.mark.parametrize("goal", [0.0, 5.0])
@in_virtual_time
async def test_no_step_is_admitted_until_the_replicas_have_caught_up(goal: float) -> None:
    pace = PairPace(Pace(PaceSettings(latency_goal_milliseconds=goal), clock=now), "s:1", "t:1", now)
    pace.replicas.take(MOST_BEHIND + 1)
    step = asyncio.create_task(pace.admit(1, 1))
    await asyncio.sleep(10)
    assert not step.done()
    assert pace.rest(0.0) >= LOOK_SECONDS

    pace.replicas.take(0)
    began = now()
    await step

    assert now() - began <= 2 * LOOK_SECONDS
