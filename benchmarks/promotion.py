"""Measures how long clients wait while another server becomes their group's master, planned or after the master died.

    python -m benchmarks.promotion [--quick]

The cluster has a group of a master and two replicas, and two proxies. Writers count up keys of their own, half of them
through each proxy. First, replicas are promoted one after the other. Then, in a second cluster, three real Sentinels
watch the group and the master is killed. README.md says how to read the figures.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from rich.console import Console
from rich.table import Table

from benchmarks import report
from slotferry.calls import TopomError
from slotferry.client import TopomClient
from slotferry.local import LocalCluster
from slotferry.processes import ManagedProcess, ProcessError, free_ports
from slotferry.redis_server import HOST, RedisServer, ask, find_binary
from slotferry.signals import until_signal

PROXIES = 2
PAUSE_GOAL_MILLISECONDS = 100.0
SWITCH_GOAL_SECONDS = 1.0
REST_SECONDS = 0.002
"""A writer's pause between a reply and the next request."""
AFTERWARDS_SECONDS = 0.3
"""Seconds after a promotion for which its waits still count."""
POLL_SECONDS = 0.05
LIMIT_SECONDS = 60.0
"""Limit of every wait."""
PRODUCT = "bench"
DOWN_AFTER_MILLISECONDS = 1500
SWITCH = "+switch-master"


@dataclass(frozen=True, slots=True)
class Request:
    """One INCR, in seconds of the monotonic clock; ``error`` is empty if it was answered."""

    begun: float
    ended: float
    error: str = ""


class Writer:
    """Counts a key up through one proxy, one request at a time, and knows which requests were acknowledged."""

    def __init__(self, proxy: str, key: str) -> None:
        self.proxy = proxy
        self.key = key
        self.requests: list[Request] = []
        self.stopped = False

    async def run(self) -> None:
        """Run until it is stopped. It is not cancelled: redis-py may take that for a failure of its own."""
        async with connected(self.proxy) as client:
            while not self.stopped:
                begun, error = time.monotonic(), ""
                try:
                    await client.incr(self.key)
                except (RedisError, OSError) as failure:
                    error = str(failure) or type(failure).__name__
                self.requests.append(Request(begun, time.monotonic(), error))
                await asyncio.sleep(REST_SECONDS)

    def acknowledged(self) -> int:
        """The number of answered requests."""
        return sum(not request.error for request in self.requests)


@dataclass
class Planned:
    """Planned promotions: the longest wait of any writer in each, how long each took, and the errors."""

    pause_milliseconds: list[float]
    took_milliseconds: list[float]
    requests: int
    errors: list[str]
    lost: int


@dataclass
class Switched:
    """A master that died: seconds from its death to the announcement, and from then to each proxy's answer."""

    announced_seconds: float
    answered_seconds: list[float]
    lost: int


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Redis]:
    """A client that never repeats a request."""
    host, _, port = address.rpartition(":")
    client: Redis = Redis(host=host, port=int(port), retry=Retry(NoBackoff(), 0), socket_timeout=LIMIT_SECONDS)
    async with client:
        yield client


@asynccontextmanager
async def replicated(**topom_settings: Any) -> AsyncIterator[tuple[LocalCluster, TopomClient]]:
    """A cluster whose only group has two replicas that follow."""
    arguments = ("--repl-diskless-sync-delay", "0")
    cluster = LocalCluster(
        groups=1, proxies=PROXIES, topom_settings={"product": PRODUCT, **topom_settings}, redis_arguments=arguments
    )
    async with cluster, cluster.client() as topom:
        for _ in range(2):
            await topom.add_server(1, (await cluster.add_server(1)).address)
        await all_follow(topom)
        yield cluster, topom


async def servers_of(topom: TopomClient) -> list[str]:
    """The group's servers, the master first."""
    return [str(server["address"]) for server in (await topom.groups())[0]["servers"]]


async def all_follow(topom: TopomClient) -> None:
    """Wait until the group's replicas follow its master and are whole."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            master, *replicas = await servers_of(topom)
            port = int(master.rpartition(":")[2])
            found = []
            for replica in replicas:
                async with connected(replica) as client:
                    said = await client.info("replication")
                found.append((said.get("master_port"), said.get("master_link_status")))
            if set(found) == {(port, "up")}:
                return
            await asyncio.sleep(POLL_SECONDS)


@asynccontextmanager
async def writing(cluster: LocalCluster, count: int) -> AsyncIterator[list[Writer]]:
    """So many writers, spread over the proxies; each has had an answer."""
    writers = [Writer(cluster.proxy_addresses[n % PROXIES], f"writer:{n}") for n in range(count)]
    tasks = [asyncio.create_task(writer.run()) for writer in writers]
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not all(writer.acknowledged() for writer in writers):
                await asyncio.sleep(POLL_SECONDS)
        yield writers
    finally:
        for writer in writers:
            writer.stopped = True
        await asyncio.gather(*tasks, return_exceptions=True)


async def lost(cluster: LocalCluster, writers: list[Writer]) -> int:
    """The number of acknowledged increments that are missing."""
    missing = 0
    async with connected(cluster.proxy_addresses[0]) as client:
        for writer in writers:
            missing += max(0, writer.acknowledged() - int(await client.get(writer.key) or 0))
    return missing


async def planned(promotions: int, count: int) -> Planned:
    """Promote replicas one after the other under load."""
    async with replicated() as (cluster, topom), AsyncExitStack() as stack:
        writers = await stack.enter_async_context(writing(cluster, count))
        pauses, took = [], []
        for _ in range(promotions):
            replica = (await servers_of(topom))[1]
            begun = time.monotonic()
            await topom.promote(1, replica)
            took.append(1000 * (time.monotonic() - begun))
            await asyncio.sleep(AFTERWARDS_SECONDS)
            over = [request for writer in writers for request in writer.requests if request.ended >= begun]
            pauses.append(1000 * max(request.ended - request.begun for request in over))
            await all_follow(topom)
        await stack.aclose()
        requests = [request for writer in writers for request in writer.requests]
        errors = [request.error for request in requests if request.error]
        return Planned(pauses, took, len(requests), errors, await lost(cluster, writers))


@asynccontextmanager
async def sentinels(cluster: LocalCluster, topom: TopomClient) -> AsyncIterator[list[str]]:
    """Three Sentinels that watch the group and know each other and its replicas; gives their addresses."""
    async with AsyncExitStack() as stack:
        found = []
        for number in range(3):
            port = free_ports(1)[0]
            config = cluster.directory / f"sentinel-{number}.conf"
            config.write_text(f"port {port}\nbind {HOST}\ndir {cluster.directory}\nprotected-mode no\n")
            command = [str(find_binary()), str(config), "--sentinel"]
            process = ManagedProcess(f"sentinel-{number}", command, cluster.directory / f"sentinel-{number}.log")
            process.start()
            stack.push_async_callback(process.stop)
            found.append(f"{HOST}:{port}")
        async with asyncio.timeout(LIMIT_SECONDS):
            for address in found:
                while not await _answers(address):
                    await asyncio.sleep(POLL_SECONDS)
                await topom.add_sentinel(address)
            while not all([await _knows_all(address) for address in found]):
                await asyncio.sleep(POLL_SECONDS)
        yield found


async def _answers(address: str) -> bool:
    try:
        return (await ask(address, "PING")).startswith("+PONG")
    except OSError:
        return False


async def _knows_all(address: str) -> bool:
    async with connected(address) as client:
        try:
            flat = await client.execute_command("SENTINEL", "MASTER", f"{PRODUCT}-1")
        except RedisError:
            return False
    said = flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))
    fields = {_text(name): _text(value) for name, value in said.items()}
    return (fields.get("num-other-sentinels"), fields.get("num-slaves")) == ("2", "2")


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


async def switched(count: int) -> Switched:
    """Kill the master of a group that Sentinels watch, under load."""
    settings = {"ha": "sentinel", "sentinel_down_after_milliseconds": DOWN_AFTER_MILLISECONDS}
    async with replicated(**settings) as (cluster, topom), AsyncExitStack() as stack:
        found = await stack.enter_async_context(sentinels(cluster, topom))
        writers = await stack.enter_async_context(writing(cluster, count))
        announced: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        # The first Sentinel to say it counts.
        for address in found:
            subscription = (await stack.enter_async_context(connected(address))).pubsub(ignore_subscribe_messages=True)
            await subscription.subscribe(SWITCH)
            listening = asyncio.create_task(_first(subscription, announced))
            stack.callback(listening.cancel)
        master: RedisServer = next(one for one in cluster.servers[1] if one.address == cluster.groups[1][0])
        killed = time.monotonic()
        await master.kill()
        async with asyncio.timeout(LIMIT_SECONDS):
            at = await announced
            while not all(_answered(writers, proxy, at) for proxy in cluster.proxy_addresses):
                await asyncio.sleep(POLL_SECONDS)
        answered = [_answered(writers, proxy, at) for proxy in cluster.proxy_addresses]
        return Switched(at - killed, [moment - at for moment in answered], await lost(cluster, writers))


async def _first(subscription: Any, announced: asyncio.Future[float]) -> None:
    while not announced.done():
        message = await subscription.get_message(timeout=LIMIT_SECONDS)
        if message is not None and not announced.done():
            announced.set_result(time.monotonic())


def _answered(writers: list[Writer], proxy: str, at: float) -> float:
    """When a proxy gave its first answer from the new master, which is any answer after the announcement; 0 if none."""
    ended = [
        request.ended
        for writer in writers
        if writer.proxy == proxy
        for request in writer.requests
        if request.ended >= at and not request.error
    ]
    return min(ended, default=0.0)


async def benchmark(promotions: int, count: int, switches: int, output: Path | None, console: Console) -> bool:
    """Measure both, print and save; say whether the goals are met."""
    before = report.machine()
    of_plans = await planned(promotions, count)
    of_deaths = [await switched(count) for _ in range(switches)]
    last = [max(death.answered_seconds) for death in of_deaths]
    met = {
        "pause": max(of_plans.pause_milliseconds) <= PAUSE_GOAL_MILLISECONDS,
        "errors": not of_plans.errors and not of_plans.lost,
        "switch": max(last) <= SWITCH_GOAL_SECONDS,
    }
    table = Table(title=f"{count} writers, {PROXIES} proxies")
    for heading in ("", "median", "most", "goal", "verdict"):
        table.add_column(heading)
    rows = (
        ("planned: longest wait of a client, ms", of_plans.pause_milliseconds, PAUSE_GOAL_MILLISECONDS, "pause"),
        ("planned: from the request to its end, ms", of_plans.took_milliseconds, None, ""),
        ("master killed: until +switch-master, s", [death.announced_seconds for death in of_deaths], None, ""),
        ("from there to the last proxy's first answer, s", last, SWITCH_GOAL_SECONDS, "switch"),
    )
    for text, values, goal, name in rows:
        shown = [f"{figure:.3g}" for figure in (statistics.median(values), max(values))]
        verdict = ("met" if met[name] else "not met") if name else ""
        table.add_row(text, *shown, "" if goal is None else f"<= {goal:g}", verdict)
    console.print(table)
    console.print(
        f"{promotions} promotions, {of_plans.requests} requests: {len(of_plans.errors)} errors, "
        f"{of_plans.lost} acknowledged writes lost ({'met' if met['errors'] else 'not met'})"
    )
    content = {
        "machine": before,
        "load_average_after": report.machine()["load_average"][0],
        "planned": report.plain(of_plans),
        "switched": report.plain(of_deaths),
    }
    console.print(f"saved as {report.save('promotion', output, content)}")
    return all(met.values())


def main(
    promotions: Annotated[int, typer.Option(min=1, max=100, help="Planned ones, one after the other.")] = 10,
    writers: Annotated[int, typer.Option(min=2, max=64, help="Clients that write, over both proxies.")] = 8,
    switches: Annotated[int, typer.Option(min=1, max=20, help="Masters killed, each in a cluster of its own.")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="Two promotions and one death: shows that all works.")] = False,
    output: Annotated[Path | None, typer.Option(help="JSON file; by default one in benchmarks/results.")] = None,
) -> None:
    """What clients notice of a change of their group's master."""
    console = report.console()
    if quick:
        promotions, switches = 2, 1
    with report.failing(console, TopomError, ProcessError, RedisError, OSError):
        met = asyncio.run(until_signal(benchmark(promotions, writers, switches, output, console)))
    if met is None:
        raise typer.Abort
    if not met:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
