"""The work of ``slotferry demo``: a rebalance from two groups to three under checked traffic, on this machine."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from slotferry.calls import TopomUnreachable
from slotferry.client import TopomClient
from slotferry.lending import own_context
from slotferry.live import Counting, Display
from slotferry.local import END_SECONDS, LocalCluster
from slotferry.output import say
from slotferry.picture import draw
from slotferry.redis_server import described, find_binary
from slotferry.series import Series
from slotferry.traffic.driver import Report, Traffic, Verification
from slotferry.traffic.placement import Layout
from slotferry.uneven import size_and_even_out

GROUPS, FULL_GROUPS = 3, (1, 2)
WORKERS = 2
CONNECTIONS = 32
PARALLEL_SLOTS = 32
"""Slots moved together: fewer than topom's default, so that there is progress to watch."""
MOVE_SECONDS = 900.0
"""Limit of the rebalance."""
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class DemoOptions:
    """The command's options."""

    keys: int
    rate: float
    pace: int
    calm: float
    leave: bool
    series: Path
    picture: Path | None
    port: int
    sizing: bool = False


@dataclass(frozen=True)
class Verdict:
    """Whether the demo's promise held: no error, no lost key."""

    loaded: Report
    traffic: Report
    verification: Verification
    moved: bool
    """Whether all slots of the plan have moved."""

    @property
    def kept(self) -> bool:
        """No error, no difference, every key where it has to be, every slot moved."""
        return self.moved and self.loaded.clean and self.traffic.clean and self.verification.clean

    def sentences(self, slots: int, keys: int) -> list[str]:
        """The verdict in words; the first sentence sums it up. So many slots and keys have moved."""
        compared = self.verification.compared
        errors = self.loaded.errors + self.traffic.errors + compared.errors
        differences = self.loaded.differences + self.traffic.differences + compared.differences
        moved = f"{slots} slots with {keys:,} keys moved"
        checked = (
            f"{self.traffic.requests:,} requests meanwhile and {self.verification.keys:,} keys compared at the end: "
            f"{errors:,} errors, {differences:,} differences, {self.verification.misplaced:,} keys in a wrong place"
        )
        first = "No error and no lost key" if self.kept else "The promise was NOT kept"
        said = [f"{first}: {moved if self.moved else 'not all slots moved'}; {checked}."]
        for report in (self.loaded, self.traffic, compared):
            said += [f"error, {count} times: {text}" for text, count in report.error_texts.items()]
            said += [f"difference: {text}" for text in report.difference_texts]
        return said + [f"in a wrong place: {text}" for text in self.verification.misplaced_texts]


async def demonstrate(options: DemoOptions) -> bool | None:
    say(f"starting {GROUPS} servers of {described(find_binary())}, topom, and a proxy with {WORKERS} workers")
    cluster = LocalCluster(
        groups=GROUPS,
        workers=WORKERS,
        port=options.port,
        slots_on=FULL_GROUPS,
        topom_settings={
            "migration_parallel_slots": PARALLEL_SLOTS,
            "migration_keys_per_second": options.pace,
            "migration_way": "auto",
        },
        end_seconds=END_SECONDS,
    )
    async with cluster, own_context(cluster, "demo") as command:
        say(f"page: {cluster.page_url}")
        say(f"look at it: {command} status")
        series = Series(options.keys)
        async with (
            cluster.client() as topom,
            Traffic(cluster.proxy_addresses, options.keys, connections=CONNECTIONS, rate=options.rate) as traffic,
        ):
            verdict = await _rebalance_under_traffic(topom, traffic, series, options)
            even = not options.sizing or await _even_out(cluster, topom, traffic, options)
        series.save(options.series)
        if options.picture is not None:
            options.picture.parent.mkdir(parents=True, exist_ok=True)
            options.picture.write_text(draw(series), encoding="utf-8")
            say(f"picture: {options.picture}")
        say(f"measurements: {options.series}")
        keys_moved = series.samples[-1].keys_moved if series.samples else 0
        for move in series.moves:
            say(f"topom's forecast for the first slots {move}")
        for sentence in verdict.sentences(series.slots_to_move, keys_moved):
            say(sentence)
        if not options.leave:
            await stay(cluster, command)
        return verdict.kept and even


async def _even_out(cluster: LocalCluster, topom: TopomClient, traffic: Traffic, options: DemoOptions) -> bool:
    """Size all keys and rebalance by bytes; say whether the groups are even then and every key is unchanged."""
    results = options.series.with_suffix("") / "sizing"
    even = await size_and_even_out(cluster, topom, results)
    with Counting("comparing every key", options.keys) as counting:
        layout = Layout.from_api(await topom.status(), await topom.slots())
        verification = await traffic.verify(layout, counting.update)
    word = "even" if even else "NOT even"
    lost = "no key lost" if verification.clean else "but keys DIFFER"
    say(f"The groups are {word} by bytes, {lost}; tables and {results / 'summary.png'} show what fills them.")
    return even and verification.clean


async def stay(cluster: LocalCluster, command: str) -> None:
    """Say how the cluster is reached, by ``command`` for one, and wait for Ctrl-C."""
    host, _, port = cluster.proxy_addresses[0].rpartition(":")
    say("")
    say("It stays up until Ctrl-C:")
    say(f"  a client      redis-cli -h {host} -p {port}")
    say(f"  page          {cluster.page_url}")
    say(f"  topom's API   {cluster.topom_url}/openapi.json")
    say(f"  its token     {cluster.token}")
    say(f"  the verbs     {command} status")
    for group_id, servers in cluster.groups.items():
        say(f"  group {group_id}       redis-cli -p {servers[0].rpartition(':')[2]}")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        # A signal after the verdict is the usual way to end, so the verdict is still the exit status.
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()


async def _rebalance_under_traffic(
    topom: TopomClient, traffic: Traffic, series: Series, options: DemoOptions
) -> Verdict:
    with Counting("loading through the proxy", options.keys) as counting:
        loaded = await traffic.load(counting.update)
    with Display(series) as display:
        watch = _Watch(topom, traffic, series, display)
        display.phase("traffic, nothing moves yet")
        await watch.begin()
        await watch.until(lambda: False, options.calm)
        planned = await topom.rebalance("codis")
        series.slots_to_move = len(planned["moves"])
        series.rebalance_began = watch.elapsed
        display.phase(f"{series.slots_to_move} slots move to group {GROUPS}")
        moved = await watch.until(watch.all_moved, MOVE_SECONDS)
        series.rebalance_ended = watch.elapsed
        display.phase("traffic, all slots have moved" if moved else "giving up: the slots did not move in time")
        await watch.until(lambda: False, options.calm)
        total = await traffic.stop()
    # This includes the traffic after the last full second.
    series.requests, series.errors, series.differences = total.requests, total.errors, total.differences
    with Counting("comparing every key", options.keys) as counting:
        layout = Layout.from_api(await topom.status(), await topom.slots()) if moved else None
        verification = await traffic.verify(layout, counting.update)
    return Verdict(loaded, total, verification, moved)


class _Watch:
    """Combines traffic and migration, second by second."""

    def __init__(self, topom: TopomClient, traffic: Traffic, series: Series, display: Display) -> None:
        self._topom = topom
        self._traffic = traffic
        self._series = series
        self._display = display
        self._began = 0.0
        self._migration: dict[str, object] = {}

    @property
    def elapsed(self) -> float:
        """Seconds since the traffic began."""
        return time.time() - self._began

    async def begin(self) -> None:
        """Begin the traffic."""
        self._migration = await self._topom.migration()
        self._began = time.time()
        await self._traffic.start()

    def all_moved(self) -> bool:
        """Whether topom has nothing left to move."""
        return self._migration["slots_pending"] == 0 and self._migration["slots_moving"] == 0

    async def until(self, condition: Callable[[], bool], limit: float) -> bool:
        """Show each second until ``condition`` holds, for at most ``limit`` seconds; say whether it does."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            try:
                self._migration = await self._topom.migration()
            except TopomUnreachable:
                # The data plane serves without topom; the display goes on with the last known values.
                await asyncio.sleep(_POLL_SECONDS)
            self._series.saw(self.elapsed, self._migration)
            for report in self._traffic.seconds[len(self._series.samples) :]:
                sample = self._series.add(report, report.at - self._began, self._migration)
                self._display.show(sample)
            if condition():
                return True
            await asyncio.sleep(_POLL_SECONDS)
        return condition()
