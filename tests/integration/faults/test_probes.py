"""What a proxy says to an orchestrator, without a token: it lives in every state in which a restart would mend nothing.

The orchestrator restarts who does not live, and sends clients to who is ready.
"""

import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from slotferry.local import HOST, environment_of
from slotferry.processes import ManagedProcess, free_ports
from tests.certificates import UNENCRYPTED
from tests.integration.cluster.harness import eventually, plain_client
from tests.integration.faults.cluster import FaultCluster

OK = (200, "ok\n")
NO_TABLE = (503, "this proxy has no slot table from topom yet\n")
SHUT_OUT = (503, "this proxy was shut out as lost or fenced off, and waits until topom takes it in again\n")
DRAINS = (503, "this proxy drains\n")
CLIENTS = 30
"""As many as it takes for one of them to be there for most of ``drain_seconds``."""


async def ask(address: str, path: str, seconds: float = 60.0) -> tuple[int, str]:
    """Status and text of the answer."""
    async with httpx.AsyncClient(timeout=seconds, trust_env=False, verify=UNENCRYPTED) as client:
        answer = await client.get(f"http://{address}{path}")
        return answer.status_code, answer.text


async def becomes(address: str, expected: tuple[int, str]) -> None:
    """Wait for this answer to ``/readyz``; the proxy lives all the time."""

    async def look() -> tuple[int, str]:
        try:
            assert await ask(address, "/livez") == OK
            return await ask(address, "/readyz")
        except httpx.ConnectError as error:  # it does not listen yet
            raise ConnectionError from error

    await eventually(look, lambda found: found == expected, f"the proxy to say {expected}")


class Probed(FaultCluster):
    """``probed`` has ``host:port`` of each proxy's probes."""

    def __init__(self) -> None:
        self.probed: list[str] = []
        super().__init__({"proxy_lease_seconds": 1.0}, {"workers": 2, "drain_seconds": 60.0})

    def _start_proxy(self, own_settings: Mapping[str, Any]) -> None:
        self.probed.append(f"{HOST}:{free_ports(1)[0]}")
        super()._start_proxy({"metrics": self.probed[-1], **own_settings})


@pytest.fixture
async def cluster() -> AsyncIterator[Probed]:
    started = Probed()
    async with started, started.visit():
        for address in started.probed:
            await becomes(address, OK)
        yield started
        started.mend()


async def test_a_proxy_without_topom_lives_and_is_not_ready(tmp_path: Path) -> None:
    listen, metrics, closed = (f"{HOST}:{port}" for port in free_ports(3))
    settings = {"listen": listen, "metrics": metrics, "topom": [f"http://{closed}"], "token": "t", "workers": 1}
    command = [sys.executable, "-m", "slotferry", "proxy"]
    proxy = ManagedProcess("proxy", command, tmp_path / "log", environment_of("SLOTFERRY_PROXY_", settings))
    proxy.start()
    try:
        await becomes(metrics, NO_TABLE)
    finally:
        await proxy.stop()


async def test_one_worker_is_enough(cluster: Probed) -> None:
    """The rest of the proxy's clients stay, and the worker that died is started again."""
    os.kill(cluster.worker_pids(1)[0], signal.SIGKILL)
    assert await ask(cluster.probed[1], "/readyz") == OK


async def test_nobody_answers_for_a_supervisor_that_hangs(cluster: Probed) -> None:
    supervisor, address = cluster.proxies[1], cluster.probed[1]
    os.kill(supervisor.pid, signal.SIGSTOP)
    with pytest.raises(httpx.ReadTimeout):
        await ask(address, "/livez", 1.0)
    os.kill(supervisor.pid, signal.SIGCONT)
    assert await ask(address, "/livez") == OK


async def test_a_fenced_proxy_is_not_ready_and_not_to_be_restarted(cluster: Probed) -> None:
    """It serves again, as the same process, once topom takes it in."""
    address, process = cluster.probed[1], cluster.proxies[1]
    pid = process.pid
    cluster.signal_proxy(1, signal.SIGSTOP)
    cluster.topom_relays[1].cut()
    await cluster.api.move_slots("0-511", 2)
    await cluster.at_rest({1: 512, 2: 512})
    await cluster.topom.kill()
    cluster.signal_proxy(1, signal.SIGCONT)
    async with plain_client(cluster.proxy_addresses[1]) as client:

        async def use() -> tuple[int, str]:
            for number in range(20):
                await client.execute_command("SET", f"key {number}", "astray")
            return OK

        async def look() -> tuple[int, str]:
            assert await ask(address, "/livez") == OK
            try:
                await use()
            except Exception:  # the proxy may use no server; what it says to clients is no matter of this test
                return await ask(address, "/readyz")
            return OK

        await eventually(look, lambda found: found == SHUT_OUT, "the fenced proxy not to be ready")
    assert await ask(cluster.probed[0], "/readyz") == OK, "the other one serves without topom"
    cluster.mend()
    await cluster.restart_topom()
    await cluster.all_online()
    await becomes(address, OK)
    assert (process.running, process.pid) == (True, pid)


async def test_a_proxy_that_drains_lives_and_gets_no_new_clients(cluster: Probed) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(CLIENTS):
            client = await stack.enter_async_context(plain_client(cluster.proxy_addresses[1]))
            assert await client.ping()
        os.kill(cluster.proxies[1].pid, signal.SIGTERM)
        await becomes(cluster.probed[1], DRAINS)
    assert await ask(cluster.probed[0], "/readyz") == OK
