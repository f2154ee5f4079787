"""A worker serves a group that has replicas no longer than its supervisor allows, whatever it does when that ends."""

import asyncio
import os
import signal
import time

from proxy.engine.allowance import clock
from slots.group import Group
from slots.messages.channel import Allowance, Grant
from tests.integration.worker.blocked import frozen
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.harness import INSTANCE, WorkerHarness
from tests.integration.worker.wire import Wire

HELD = 0.3
LONG = 600.0


def allow(worker: WorkerHarness, general: float, own: float = 0.0, instance: str = INSTANCE) -> None:
    """Allow all groups, and group 1, for so many seconds from now."""
    now = clock()
    groups = {1: now + own} if own else {}
    worker.channel.send(Allowance(instance=instance, grant=Grant(all=now + general, groups=groups)))


async def grouped(start_worker: StartWorker) -> WorkerHarness:
    """A worker whose group 1 has a replica."""
    worker = await start_worker(servers=2, lock_hold_seconds=HELD)
    master, replica = worker.addresses
    await worker.apply([], [Group(1, (master, replica)), Group(2, ())])
    return worker


async def test_a_worker_that_slept_past_its_allowance_sends_nothing(start_worker: StartWorker) -> None:
    worker = await grouped(start_worker)
    async with Wire(worker.settings.listen) as wire, Wire(worker.addresses[0]) as master:
        assert await wire.say("SET", "before", "1") == b"+OK\r\n"
        allow(worker, 0.3)
        assert await worker.next(lambda message: message.type == "limited")
        until = clock() + 0.3
        os.kill(worker.process.pid, signal.SIGSTOP)
        wire.send("SET", "asleep", "1")
        while clock() < until:
            await asyncio.sleep(until - clock())
        os.kill(worker.process.pid, signal.SIGCONT)
        refused = await wire.heard()
        assert refused.startswith(b"-TRYAGAIN slot ")
        assert b"is not served by this proxy: it hears no topom" in refused
        # Of another identity than this one.
        allow(worker, LONG, instance="f" * 32)
        assert b"-TRYAGAIN" in await wire.say("SET", "asleep", "1")
        assert await master.say("EXISTS", "before", "asleep") == b":1\r\n"
        # The replicas' word, while topom is still silent.
        wire.send("SET", "after", "1")
        allow(worker, -1.0, own=LONG)
        assert await wire.heard() == b"+OK\r\n"


async def test_what_is_under_way_when_the_allowance_ends_is_not_waited_for(start_worker: StartWorker) -> None:
    worker = await grouped(start_worker)
    async with Wire(worker.settings.listen) as wire:
        allow(worker, LONG)
        assert await wire.say("SET", "key", "1") == b"+OK\r\n"
        async with frozen(worker.servers[0]):
            wire.send("INCR", "key")
            await worker.under_way()
            allow(worker, -1.0)
            began = time.monotonic()
            assert (await wire.heard()).endswith(b"the command may or may not have run\r\n")
            assert time.monotonic() - began < worker.settings.backend_reply_seconds / 2
        # A group without replicas, or that has lost its last one, has no server that could have become its master.
        await worker.apply([], [Group(1, (worker.addresses[0],))])
        assert await wire.say("SET", "key", "2") == b"+OK\r\n"
