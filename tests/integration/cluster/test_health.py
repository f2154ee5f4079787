"""What is thought of servers, by topom and two proxies."""

import os
import signal

from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Cluster, eventually

QUICK = {"server_suspect_seconds": 1.0, "server_fail_seconds": 2.0, "server_view_seconds": 10.0}


async def conditions(cluster: Cluster) -> list[tuple[str, int, int]]:
    """Of each group's master: its condition, and how many views of how many have it silent."""
    found = [group["servers"][0] for group in await cluster.api.groups()]
    return [(server["condition"], server["silent"], server["views"]) for server in found]


async def test_a_stopped_server_fails_and_comes_back(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(groups=2, proxies=2, workers=1, topom_settings=QUICK)
    well = [("alive", 0, 3)] * 2
    await eventually(lambda: conditions(cluster), lambda found: found == well, "three views of each server")
    server = cluster.servers[2][0]
    os.kill(server.pid, signal.SIGSTOP)
    failed = [well[0], ("failed", 3, 3)]
    await eventually(lambda: conditions(cluster), lambda found: found == failed, "the server to have failed")
    os.kill(server.pid, signal.SIGCONT)
    await eventually(lambda: conditions(cluster), lambda found: found == well, "the server to be back")
