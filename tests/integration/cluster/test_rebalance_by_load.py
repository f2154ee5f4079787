"""Balance by load, end to end: real clients ask one group for nine of ten requests, and the proxies' counts even it."""

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from slotferry.calls import TopomRefused
from slots.functions import slot
from tests.integration.cluster.commands import Outcome, slotferry
from tests.integration.cluster.harness import Cluster, eventually, meanwhile, plain_client

SLOTS = 64
KEYS = 2000
PAUSE_SECONDS = 0.02
"""Between two rounds of requests."""
ROUND = 20
"""Requests of a round."""
SECONDS = 2.0
"""For how long requests are counted at the servers."""

QUICK = """
from topom.balance import deciding, measured
measured.LEAST_MEASURED_SECONDS = 6.0
RULES_AFTER = deciding.Rules.after
deciding.Rules.after = lambda seconds: deciding.replace(RULES_AFTER(seconds), budget=1.0)
from slotferry.main import main
main()
"""
"""Runs the command: an operator's plan needs load of seconds, not of a minute, and of 64 slots any number may move."""


class QuickCluster(Cluster):
    """A cluster whose topom needs load of seconds, and may move as much as it wants."""

    def _command(self, verb: str) -> list[str]:
        return [sys.executable, "-c", QUICK, verb] if verb == "topom" else super()._command(verb)


@asynccontextmanager
async def started(**settings: Any) -> AsyncIterator[QuickCluster]:
    """Two groups of the same number of slots, and clients that ask group 1 for nine of ten requests."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            QuickCluster(groups=2, workers=1, number_of_slots=SLOTS, topom_settings=settings)
        )
        await stack.enter_async_context(cluster.visit())
        halves = await fill(cluster)
        await stack.enter_async_context(asked(cluster.proxy_addresses[0], halves))
        yield cluster


async def fill(cluster: Cluster) -> list[list[str]]:
    """Write keys, without a proxy that would count that; gives those of each half of the slots, which is a group."""
    halves: list[list[str]] = [[], []]
    for number in range(KEYS):
        key = f"key:{number}"
        halves[slot("crc32", key.encode(), SLOTS) * 2 // SLOTS].append(key)
    for half, servers in zip(halves, cluster.groups.values(), strict=True):
        async with plain_client(servers[0]) as client:
            await client.mset(dict.fromkeys(half, "value"))
    return halves


@asynccontextmanager
async def asked(address: str, halves: list[list[str]]) -> AsyncIterator[None]:
    """A client gets keys by chance, nine of ten of the first half of the slots."""
    chance = random.Random(1)
    async with plain_client(address) as client:

        async def once() -> None:
            # In one piece: on a busy machine there would be too few a second to balance by.
            async with client.pipeline(transaction=False) as pipe:
                for _ in range(ROUND):
                    pipe.get(chance.choice(halves[chance.random() >= 0.9]))
                assert await pipe.execute() == [b"value"] * ROUND
            await asyncio.sleep(PAUSE_SECONDS)

        async with meanwhile(once):
            yield


async def operate(cluster: Cluster, *arguments: str) -> Outcome:
    return await slotferry(*arguments, SLOTFERRY_TOPOM=cluster.topom_url, SLOTFERRY_TOKEN=cluster.token)


async def gets(cluster: Cluster) -> list[int]:
    """How many GETs each group's master has run."""
    counts = []
    for servers in cluster.groups.values():
        async with plain_client(servers[0]) as client:
            found = await client.info("commandstats")
        counts.append(found.get("cmdstat_get", {}).get("calls", 0))
    return counts


async def part_of_group_1(cluster: Cluster) -> float:
    """Its part of the requests of a while, as the servers count them."""
    before = await gets(cluster)
    await asyncio.sleep(SECONDS)
    asked = [after - old for after, old in zip(await gets(cluster), before, strict=True)]
    return asked[0] / max(1, sum(asked))


async def test_a_group_with_nine_of_ten_requests_gives_slots_away() -> None:
    async with started() as cluster:
        # Given
        refused = await operate(cluster, "rebalance", "--policy", "load")
        assert refused.status == 1
        assert "load of slots" in refused.err
        assert await part_of_group_1(cluster) > 0.8

        # When: load has been measured for long enough.
        async def is_measured() -> bool:
            try:
                await cluster.api.rebalance("load", dry_run=True)
            except TopomRefused as refused:
                if refused.error != "NotMeasured":
                    raise
                return False
            return True

        await eventually(is_measured, bool, "load to be measured")
        shown = await operate(cluster, "rebalance", "--policy", "load", "--dry-run")
        assert shown.status == 0, shown
        assert "policy load" in shown.out
        assert "load off its share" in shown.out
        moved = (await operate(cluster, "rebalance", "--policy", "load", "--wait", "-o", "json")).json

        # Then: by what the servers count, not only by what topom says.
        assert {(move["from"], move["to"]) for move in moved["moves"]} == {(1, 2)}
        assert 0.38 < await part_of_group_1(cluster) < 0.62
        # A plan by number would send as many back.
        asked = await operate(cluster, "rebalance")
        assert asked.status == 1
        assert "the last plan was by load" in asked.err
        assert (await operate(cluster, "rebalance", "--yes", "--wait")).status == 0
        await cluster.at_rest({1: SLOTS // 2, 2: SLOTS // 2})


@pytest.mark.long
async def test_by_itself() -> None:
    async with started(rebalance="auto", rebalance_after_seconds=6.0) as cluster:
        # Given: an operator has just laid out the slots, which is no act that topom waits after.
        assert await part_of_group_1(cluster) > 0.8
        # When
        events = await eventually(
            lambda: cluster.api.events(0),
            lambda found: any(event["what"] == "slots_moved" for event in found["events"]),
            "slots to have moved by themselves",
        )
        # Then
        [planned, *_] = [event for event in events["events"] if event["what"] == "rebalance_planned"]
        assert planned["who"].startswith("topom ")
        assert "to move by load" in planned["text"]
        await cluster.at_rest()
        assert 0.38 < await part_of_group_1(cluster) < 0.62
        told = await operate(cluster, "rebalance", "show")
        assert told.status == 0, told
        assert "times its share" in told.out or "on their way" in told.out or "last plan" in told.out
        # And it stays so: nothing goes back and forth.
        plans = sum(event["what"] == "rebalance_planned" for event in (await cluster.api.events(0))["events"])
        assert plans <= 2


@pytest.mark.long
async def test_a_group_at_its_maxmemory_gets_no_slots_by_itself() -> None:
    async with started(rebalance="auto", rebalance_after_seconds=6.0) as cluster:
        # Given
        full = cluster.groups[2][0]
        async with plain_client(full) as client:
            await client.config_set("maxmemory", "1mb")
        # When
        decided = await eventually(
            cluster.api.rebalance_decision, lambda found: found["cause"] == "no_plan", "topom to find no plan"
        )
        # Then: no slot is on its way to where it would wait.
        assert f"group 2 can take no slots: target {full} has too little memory" in decided["text"]
        assert not (await cluster.api.migration())["slots_pending"]
        # When, then
        async with plain_client(full) as client:
            await client.config_set("maxmemory", "0")
        await eventually(cluster.api.migration, lambda found: found["slots_moved"] > 0, "slots to move by themselves")
        await cluster.at_rest()


pytestmark = pytest.mark.timeout(120)
