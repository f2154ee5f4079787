"""The dashboards for Grafana ask for figures that there are: a real Prometheus scrapes a real cluster, and answers each
of their questions."""

import asyncio
import json
import os
import random
import re
import shutil
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ResponseError

from slotferry.processes import ManagedProcess, free_ports
from slotferry.redis_server import HOST
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Cluster, eventually, meanwhile, plain_client

ROOT = Path(__file__).parents[3]
DASHBOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
VALUES = {"topom": "topom", "proxy": "proxy", "instance": ".*", "group": "1", "__rate_interval": "10s"}
"""What Grafana puts in place of variables."""
LIMITED = {"name": "default", "no_password": True, "requests_per_second": 1_000_000}
"""The user of the traffic."""


def questions(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The title of each panel and what it asks Prometheus, with values in place of variables."""
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], re.sub(r"\$(\w+)", lambda match: VALUES[match[1]], target["expr"])


def variables(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The name of each variable that Prometheus fills, and what it is asked."""
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            match = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            assert match is not None
            series = re.sub(r"\$(\w+)", lambda found: VALUES[found[1]], match[1])
            yield variable["name"], f"group by ({match[2]}) ({series})"


class Prometheus:
    """A Prometheus that asks a cluster each second."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def ask(self, question: str) -> list[Any]:
        """The series by which it answers. Raises OSError."""
        url = f"{self._url}/api/v1/query?{urllib.parse.urlencode({'query': question})}"
        return await asyncio.to_thread(self._ask, url)

    def _ask(self, url: str) -> list[Any]:
        with urllib.request.urlopen(url, timeout=10) as answer:
            found: list[Any] = json.load(answer)["data"]["result"]
        return found


@asynccontextmanager
async def prometheus_of(cluster: Cluster, metrics: str, directory: Path) -> AsyncIterator[Prometheus]:
    """Start Prometheus, which scrapes topom and a proxy."""
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [
            {
                "job_name": "topom",
                "authorization": {"credentials": cluster.token},
                "static_configs": [{"targets": [cluster.topom_url.removeprefix("http://")]}],
            },
            {"job_name": "proxy", "static_configs": [{"targets": [metrics]}]},
        ],
    }
    (directory / "prometheus.json").write_text(json.dumps(config))  # JSON is YAML
    address = f"{HOST}:{free_ports(1)[0]}"
    command = [
        "prometheus",
        f"--config.file={directory / 'prometheus.json'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={address}",
    ]
    process = ManagedProcess("prometheus", command, directory / "prometheus.log")
    process.start()
    try:
        yield Prometheus(f"http://{address}")
    finally:
        await process.stop()


@asynccontextmanager
async def traffic(address: str) -> AsyncIterator[None]:
    """A client that goes on with what every panel needs: reads, writes, and errors."""

    async with plain_client(address) as client:

        async def once() -> None:
            key = f"key:{random.randrange(1000)}"
            await client.set(key, "value")
            await client.get(key)
            with pytest.raises(ResponseError):
                await client.lpush(key, 1)
            await asyncio.sleep(0.01)

        async with meanwhile(once):
            yield


def test_there_are_dashboards() -> None:
    assert [path.stem for path in DASHBOARDS] == ["group", "migration", "overview", "proxy"]
    assert len({json.loads(path.read_text())["uid"] for path in DASHBOARDS}) == len(DASHBOARDS)


@pytest.mark.long
async def test_every_panel_of_every_dashboard_has_an_answer(start_cluster: StartCluster, tmp_path: Path) -> None:
    if shutil.which("prometheus") is None:
        if os.environ.get("SLOTFERRY_REQUIRE_PROMTOOL") == "1":
            pytest.fail("SLOTFERRY_REQUIRE_PROMTOOL=1, but prometheus is not on PATH; install prometheus")
        pytest.skip("prometheus is not on PATH (on Debian and Ubuntu: apt-get install prometheus)")
    metrics = f"{HOST}:{free_ports(1)[0]}"
    cluster = await start_cluster(
        groups=2, proxies=1, proxy_settings={"metrics": metrics, "users": json.dumps([LIMITED])}
    )
    boards = {path.stem: json.loads(path.read_text()) for path in DASHBOARDS}
    asked = [
        (f"{name}: {title}", question)
        for name, board in boards.items()
        for title, question in [*questions(board), *variables(board)]
    ]
    async with traffic(cluster.proxy_addresses[0]), prometheus_of(cluster, metrics, tmp_path) as prometheus:

        async def without_answer() -> list[tuple[str, str]]:
            nonlocal asked
            asked = [(place, question) for place, question in asked if not await prometheus.ask(question)]
            return asked

        await eventually(without_answer, lambda found: not found, "an answer to every question")
