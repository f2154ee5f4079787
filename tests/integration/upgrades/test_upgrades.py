"""Earlier versions beside the tree: the order of ``docs/upgrading.md``, and the way back. Slots move at every
step while clients count."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from proxy.supervisor.kept_table.tablefile import TableFile
from slotferry.calls import TopomRefused
from slotferry.client import TopomClient
from slotferry.processes import ManagedProcess
from tests.integration.cluster.harness import Counting, eventually, log_of
from tests.integration.cluster.test_rule_changes import over
from tests.integration.upgrades.mixed import TREE, MixedCluster, MixedTopoms, command
from tests.integration.upgrades.releases import RELEASES

MOVED = "0-63"
RULE = {"pattern": "ruled:*", "database": None}
HEARTBEATS = 2
"""So many are understood before a step counts as done."""
LOOKS = (
    ("status",),
    ("slot", "list"),
    ("group", "list"),
    ("proxy", "list"),
    ("rebalance", "--dry-run"),
    ("migration", "show"),
)


def count(process: ManagedProcess, event: str) -> int:
    """How often an event is in a process's log."""
    return len([entry for entry in log_of(process) if entry.get("event") == event])


@pytest.fixture(scope="module", params=RELEASES, ids=[release.version for release in RELEASES])
def release(request: pytest.FixtureRequest) -> Path:
    """Where a release is built."""
    folder: Path = request.param.build()
    return folder


@pytest.fixture
async def cluster(release: Path, request: pytest.FixtureRequest) -> AsyncIterator[MixedCluster]:
    """A cluster of this release, whose slots go the way that the test asks for."""
    mixed = MixedCluster(
        release,
        groups=2,
        proxies=2,
        slots_on=[1],
        topom_settings={"migration_way": request.param, "proxy_lease_seconds": 5.0, "heartbeat_seconds": 0.2},
        redis_arguments=("--repl-diskless-sync-delay", "0"),
    )
    async with mixed, mixed.visit():
        yield mixed


class Steps:
    """What is looked at after each step."""

    def __init__(self, cluster: MixedCluster, release: Path) -> None:
        self.cluster = cluster
        self.release = release
        self.at = 1
        self.topom_looked_at: Path | None = None

    async def hold(self, clients: list[Counting], runs: dict[ManagedProcess, Path]) -> None:
        """All processes run these versions, commands of both get their answers, slots move, and clients go on."""
        cluster = self.cluster
        await cluster.online(len(cluster.proxies))
        await eventually(cluster.api.migrators, lambda found: bool(found["migrators"]), "the migrator to be registered")
        await self.heard()
        registered = [count(process, "registered") for process in cluster.proxies]
        for process, folder in runs.items():
            if process is not cluster.migrator:
                await cluster.runs(process, folder)
        if runs[cluster.topom] != self.topom_looked_at:
            self.topom_looked_at = runs[cluster.topom]
            for folder in (self.release, TREE):
                for words in LOOKS:
                    await command(folder, cluster, *words)
        self.at = 3 - self.at
        await cluster.api.move_slots(MOVED, self.at)
        await cluster.at_rest({1: 960, 2: 64} if self.at == 2 else {1: 1024, 2: 0})
        if runs[cluster.topom] == TREE:
            await self.rules(all(runs[proxy] == TREE for proxy in cluster.proxies))
        for counting in clients:
            await counting.progress()
        await cluster.check_ballast()
        for _ in range(HEARTBEATS):
            await self.heard()
        again = [count(process, "registered") for process in cluster.proxies]
        assert again == registered, "nobody had to register again"

    async def rules(self, known: bool) -> None:
        """Slot rules change if all proxies know of such changes."""

        async def begin(add: list[dict[str, Any]], remove: list[dict[str, Any]]) -> str:
            try:
                await self.cluster.api.change_rules(add, remove)
            except TopomRefused as error:
                return str(error)
            return ""

        for change in (([RULE], []), ([], [RULE])) if known else (([RULE], []),):
            said = await eventually(
                partial(begin, *change), lambda said: "being removed" not in said, "the servers to be swept"
            )
            assert ("does not know of changes" in said) is not known, said
            if known:
                assert (await over(self.cluster))["stage"] == "done"

    async def heard(self) -> None:
        """Wait until topom has understood one more heartbeat of each proxy: clients work, so it has other numbers."""

        async def served() -> list[int]:
            return [proxy["counters"].get("requests", -1) for proxy in await self.cluster.api.proxies()]

        before = await served()
        await eventually(
            served,
            lambda found: all(now > then for now, then in zip(found, before, strict=True)),
            "a heartbeat of each proxy",
        )


@pytest.mark.parametrize("cluster", ["keys", "stream"], indirect=True)
async def test_the_order_of_an_upgrade_and_the_way_back(cluster: MixedCluster, release: Path) -> None:
    assert cluster.migrator is not None
    await cluster.load_ballast()
    steps = Steps(cluster, release)
    up = [cluster.topom, *cluster.proxies, cluster.migrator]
    runs = dict.fromkeys(up, release)
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(Counting(address, 4, f"count-{number}"))
            for number, address in enumerate(cluster.proxy_addresses)
        ]
        await steps.hold(clients, runs)
        for process in up:
            runs[process] = TREE
            await cluster.change(process, TREE)
            await steps.hold(clients, runs)
        # The way back: what topom understands is its own protocol and older ones.
        for process in reversed(up):
            runs[process] = release
            await cluster.change(process, release)
            await steps.hold(clients, runs)
    for counting in clients:
        await counting.check()
    for process in up:
        assert "Traceback" not in process.log.read_text(encoding="utf-8"), process.name


@pytest.mark.parametrize("cluster", ["keys"], indirect=True)
async def test_a_table_that_the_other_version_has_kept_is_served(cluster: MixedCluster, release: Path) -> None:
    """A proxy is upgraded while topom is away, and goes back likewise."""
    await cluster.load_ballast()
    first = cluster.proxies[0]
    masters = {servers[0] for servers in cluster.groups.values()}
    for folder in (TREE, release):
        table = cluster.directory / "table-1"

        async def known(table: Path = table) -> set[str]:
            """Servers of which the file names the process; only these are served."""
            found = TableFile(table).read()
            return set(found.processes) if found is not None else set()

        await cluster.online(2)
        await eventually(known, lambda found: found >= masters, "the servers' processes to be kept")
        assert await cluster.topom.stop() == 0
        await cluster.change(first, folder)

        async def alone() -> list[dict[str, object]]:
            return [entry for entry in log_of(first) if entry.get("event") == "serves_alone"]

        count = 1 if folder == TREE else 2
        await eventually(alone, lambda found, count=count: len(found) == count, "the proxy to serve without topom")  # type: ignore[misc]
        await cluster.runs(first, folder)

        async def whole() -> bool:
            await cluster.check_ballast()
            return True

        await eventually(whole, bool, "the proxy to serve every key")
        await cluster.restart_topom()


async def test_topoms_of_two_versions_over_one_store(release: Path) -> None:
    """The one that follows is changed first, then the leader; on the way back, too. Each answers for the other."""
    settings = {"proxy_lease_seconds": 5.0, "heartbeat_seconds": 0.2}
    mixed = MixedTopoms(release, topoms=2, groups=2, proxies=1, slots_on=[1], topom_settings=settings)
    async with mixed, mixed.visit():
        await mixed.load_ballast()
        at = 1

        async def moves() -> list[dict[str, object]]:
            return list((await mixed.api.migration())["batches"])

        async with Counting(mixed.proxy_addresses[0], 4) as clients:
            for folder in (TREE, release):
                leader = await mixed.all_well()
                for number in (1 - leader, leader):
                    await mixed.change(mixed.topoms[number], folder)
                    await mixed.all_well()
                    await mixed.runs(mixed.topoms[number], folder)
                    await mixed.online(1)
                    for url in mixed.urls:
                        at = 3 - at
                        async with TopomClient(url, mixed.token) as topom:
                            await topom.move_slots(MOVED, at)
                        # The one that follows may see them move a little later.
                        await eventually(moves, lambda found: not found, "the slots to arrive")
                        await mixed.at_rest({1: 960, 2: 64} if at == 2 else {1: 1024, 2: 0})
                    await clients.progress()
        await clients.check()
        await mixed.check_ballast()
        for process in mixed.topoms:
            assert "Traceback" not in process.log.read_text(encoding="utf-8"), process.name
