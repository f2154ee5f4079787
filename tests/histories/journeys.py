"""Faults of several steps, for mistakes that show only if things happen in one order: slots come and go in between.

The order is given; proxy, server, groups and times are left to chance, and clients go on all the while. Nobody else
gives orders to move slots meanwhile. If a step takes too long, perhaps because of other faults, the whole journey ends.

bounded: by the fault's own seconds.
"""

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

from slotferry.calls import TopomError
from slotferry.processes import ProcessError
from slots.ranges import show
from tests.histories.cluster import GROUPS, PROXIES, SLOTS, HistoriesCluster
from tests.histories.losses import Losses, Older
from tests.histories.moves import GOAL_MILLISECONDS, POLL_SECONDS, RATES, Mover
from tests.histories.relay import KeysHold
from tests.histories.schedule import Fault, Kind
from tests.histories.steps import BATCH, CHANGES, PLACING, RUNNING, SWEEPING
from tests.histories.workload import USED, Workload

SLOW_RATE = 20
"""Keys in a second, of slots that are to be on their way for as long as a step takes."""
SWEEP_SECONDS = 5.0
"""A restarted server is swept within this time."""
STEP_SECONDS = 12.0
"""How long slots may take to come to one group. A proxy that is cut off is fenced within that."""
UNDER_WAY = "migrating", "copying"
"""States in which keys go to another group."""
EVERY_SLOT = show(range(SLOTS))


class Journeys:
    """Makes them happen.

    Args:
        cluster: where.
        mover: gives other orders meanwhile.
        workload: is told which of the clients' keys rest.
        losses: records servers that come back with older data.
        now: the seconds of the run.
        restart: restarts the server at a place with its kept files.
        pids: the processes of the proxy at a place.
    """

    def __init__(
        self,
        cluster: HistoriesCluster,
        mover: Mover,
        workload: Workload,
        losses: Losses,
        now: Callable[[], float],
        restart: Callable[[int, Path], Awaitable[None]],
        pids: Callable[[int], Sequence[int]],
    ) -> None:
        self._cluster = cluster
        self._mover = mover
        self._workload = workload
        self._losses = losses
        self._now = now
        self._restart = restart
        self._step = "waiting"
        self._refused = ""
        self._pids = pids

    async def go(self, fault: Fault, keep: Callable[[int], Path]) -> str:
        """Do all steps, take back what they have done, and say how far they came. ``keep`` copies a server's files."""
        chance = random.Random(f"journey {fault.seed}")
        try:
            async with asyncio.timeout(fault.seconds), self._mover.turn:
                self._step, self._refused = "gathering", ""
                try:
                    if fault.kind is Kind.JOURNEYS_CUT:
                        await self._cut_off_while_slots_go_and_return(fault.place, chance)
                    elif fault.kind is Kind.FENCE_FORGOTTEN:
                        await self._forget_a_fence(fault.place, chance, keep)
                    elif fault.kind is Kind.TURN_HELD:
                        if self._cluster.way == "stream":
                            await self._copy_twice(fault.place, chance)
                        else:
                            await self._turn_round(fault.place, chance)
                    else:
                        await self._hold_up_a_sweep(fault.place, chance, keep)
                    self._step = "done"
                finally:
                    await asyncio.shield(self._take_back())
        except (TopomError, ProcessError, OSError) as error:  # a timeout is an OSError
            return f": {self._step}, and no further: {error or self._refused or type(error).__name__}"
        return f": {self._step}"

    async def _cut_off_while_slots_go_and_return(self, proxy: int, chance: random.Random) -> None:
        """A proxy misses that slots arrive, return and set out again. What it knew about their keys is no longer true.

        **by-action**. Some keys are used until it is cut off, and again only when it is back.
        """
        here, there = chance.sample(range(1, GROUPS + 1), 2)
        await self._gather(here)
        self._step = "setting out"
        await self._send(there, SLOW_RATE)
        await asyncio.sleep(chance.uniform(0.7, 1.5))
        self._workload.resting = True
        await self._cut(proxy)
        self._step = "cut off"
        await self._gather(there)
        self._step = "arrived"
        await self._gather(here)
        self._step = "returned"
        await self._send(there, SLOW_RATE)
        self._step = "set out again"
        await self._cluster.control_links[proxy].accept()
        await self._online(proxy)
        self._workload.resting = False
        await asyncio.sleep(chance.uniform(0.5, 1.0))

    async def _forget_a_fence(self, place: int, chance: random.Random, keep: Callable[[int], Path]) -> None:
        """A server that slots have left forgets the fence of a proxy that has not heard of any of this.

        **final-fence**, and **owned** when the slots return. Until then the proxy stands still, or it only does not
        hear topom.
        """
        proxy, stands_still = chance.randrange(PROXIES), chance.randrange(2) == 0
        here = place + 1
        there = chance.choice([group for group in range(1, GROUPS + 1) if group != here])
        await self._gather(here)
        kept = keep(place)
        await self._cut(proxy)
        pids = self._pids(proxy) if stands_still else []
        self._signal(pids, signal.SIGSTOP)
        try:
            self._step = "cut off"
            await self._gather(there)
            self._step = "left"
            await asyncio.sleep(chance.uniform(0.1, 0.8))
            before = await self._losses.look()
            topom = [self._cluster.topom.pid]
            self._signal(topom, signal.SIGSTOP)
            killed = self._now()
            back: float | None = None
            try:
                await self._restart(place, kept)
                back = self._now()
                self._signal(pids, signal.SIGCONT)
                self._step = "forgotten"
                await asyncio.sleep(chance.uniform(0.5, 1.5))
            finally:
                self._signal(topom, signal.SIGCONT)
                # No keys have moved meanwhile. A run that ends in the middle leaves the server on its way back.
                until = self._now() if back is None else back
                self._losses.older.append(Older(here, killed, until, before, await self._losses.look()))
        finally:
            self._signal(pids, signal.SIGCONT)
        await self._cluster.control_links[proxy].accept()
        await self._gather(here)

    async def _hold_up_a_sweep(self, place: int, chance: random.Random, keep: Callable[[int], Path]) -> None:
        """A delete of a sweep comes late: when the server owns the slots again.

        **owned**: topom has given it up by then, and has had the server swept once more.
        """
        here = place + 1
        there = chance.choice([group for group in range(1, GROUPS + 1) if group != here])
        await self._gather(here)
        kept = keep(place)
        await self._gather(there)
        self._step = "left"
        hold = KeysHold(True, SWEEPING)
        self._cluster.server_links[place].catch(hold)
        try:
            before, killed = await self._losses.look(), self._now()
            try:
                await self._restart(place, kept)
            finally:
                # A run that ends in the middle leaves the server on its way back.
                self._losses.older.append(Older(here, killed, self._now(), before, await self._losses.look()))
            async with asyncio.timeout(SWEEP_SECONDS):
                await hold.caught.wait()
            self._step = "held up"
            await self._gather(here)
            self._step = "returned"
        finally:
            hold.end()
        await asyncio.sleep(chance.uniform(0.3, 0.6))

    async def _turn_round(self, place: int, chance: random.Random) -> None:
        """A *place* comes late: when the slots are on their way back, or at rest where they came from.

        **one-way**: once a permit was withdrawn, no key is placed with it. Waiting clients get their replies first.
        """
        there = place + 1
        here = chance.choice([group for group in range(1, GROUPS + 1) if group != there])
        await self._gather(here)
        hold = KeysHold(True, PLACING, chance.choice((*USED, b"")), catching=0.0)
        self._cluster.server_links[place].catch(hold)
        try:
            await self._send(there, SLOW_RATE)
            self._step = "setting out"
            async with asyncio.timeout(STEP_SECONDS):
                await hold.caught.wait()
            self._step = "held up"
            await self._cluster.api.cancel_migration()
            at_rest = chance.randrange(2) == 0
            if at_rest:
                await self._cluster.api.set_migration(keys_per_second=0, latency_goal_milliseconds=0)
            async with asyncio.timeout(STEP_SECONDS):
                while not all(
                    slot["action"].get("target_id") == here and not at_rest
                    if slot["action"]
                    else slot["group_id"] == here
                    for slot in (await self._cluster.api.slots())["slots"]
                ):
                    await asyncio.sleep(POLL_SECONDS)
            self._step = "turned round"
            await asyncio.sleep(chance.uniform(0.0, 0.5))
        finally:
            hold.end()
        await asyncio.sleep(chance.uniform(0.3, 0.6))

    async def _copy_twice(self, place: int, chance: random.Random) -> None:
        """A batch of a copy that was given up comes late: during the next copy to the same target, or after its switch.

        **applied-once**: once a copy has begun, no batch of an earlier one runs.
        """
        there = place + 1
        here = chance.choice([group for group in range(1, GROUPS + 1) if group != there])
        await self._gather(here)
        # A batch of the snapshot can only bring deleted keys back. One of the stream would count or append once more.
        hold = KeysHold(True, chance.choice((RUNNING, CHANGES, CHANGES)), BATCH, catching=0.0)
        self._cluster.server_links[place].catch(hold)
        try:
            await self._order(there, RATES[1])
            self._step = "setting out"
            async with asyncio.timeout(STEP_SECONDS):
                await hold.caught.wait()
            self._step = "held up"
            await asyncio.sleep(chance.uniform(0.0, 0.3))
            await self._cluster.api.cancel_migration()
            await self._rest()
            self._step = "given up"
            if chance.randrange(2):
                await self._gather(there)
                self._step = "copied again"
            else:
                await self._send(there, RATES[0])
                self._step = "setting out again"
            await asyncio.sleep(chance.uniform(0.0, 0.3))
        finally:
            hold.end()
        await asyncio.sleep(chance.uniform(0.3, 0.6))

    async def _take_back(self) -> None:
        self._workload.resting = False
        for link in self._cluster.control_links:
            await link.accept()
        with suppress(TopomError):  # the run's end sees to it
            await self._cluster.api.set_migration(keys_per_second=RATES[1], latency_goal_milliseconds=GOAL_MILLISECONDS)

    async def _cut(self, proxy: int) -> None:
        link = self._cluster.control_links[proxy]
        await link.refuse()
        link.break_all()

    async def _gather(self, group: int) -> None:
        """Have all slots at one group, as fast as they go."""
        async with asyncio.timeout(STEP_SECONDS):
            await self._order(group, 0)
            await self._rest()

    async def _rest(self) -> None:
        async with asyncio.timeout(STEP_SECONDS):
            while (await self._cluster.api.status())["slots"]["moving"]:
                await asyncio.sleep(POLL_SECONDS)

    async def _send(self, group: int, rate: int) -> None:
        """Have all slots on their way to a group."""
        async with asyncio.timeout(STEP_SECONDS):
            await self._order(group, rate)
            while not all(
                slot["group_id"] == group or (slot["action"] or {}).get("state") in UNDER_WAY
                for slot in (await self._cluster.api.slots())["slots"]
            ):
                await asyncio.sleep(POLL_SECONDS)

    async def _order(self, group: int, rate: int) -> None:
        # On a busy machine the migrator would take its time.
        await self._cluster.api.set_migration(keys_per_second=rate, latency_goal_milliseconds=0)
        while True:
            try:
                await self._cluster.api.move_slots(EVERY_SLOT, group)
                return
            except TopomError as error:  # some are on their way to another group
                self._refused = str(error)
                await asyncio.sleep(POLL_SECONDS)

    async def _online(self, proxy: int) -> None:
        address = self._cluster.proxy_addresses[proxy]
        async with asyncio.timeout(STEP_SECONDS):
            while not any(
                found["address"] == address and found["state"] == "online"
                for found in (await self._cluster.api.status())["proxies"]
            ):
                await asyncio.sleep(POLL_SECONDS)

    @staticmethod
    def _signal(pids: Sequence[int], number: signal.Signals) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
