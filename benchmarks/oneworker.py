"""A cluster with one proxy that has one worker, whose CPU time is read."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from benchmarks import processes
from slotferry.local import LocalCluster
from slotferry.processes import until

START_SECONDS = 20.0


@dataclass(frozen=True)
class OneWorker:
    """The cluster, the address of its proxy, and the worker's process."""

    cluster: LocalCluster
    address: str
    pid: int

    @property
    def servers(self) -> list[str]:
        """The addresses of the masters."""
        return [group[0] for group in self.cluster.groups.values()]

    @property
    def cpu(self) -> dict[str, float]:
        """For :func:`benchmarks.processes.spent`: the worker's CPU seconds by now."""
        return processes.cpu_by_role({"worker": [self.pid]})

    def spent(self, before: dict[str, float]) -> float:
        """Its CPU seconds since :attr:`cpu` was ``before``."""
        return processes.spent(before, self.cpu)["worker"]


@asynccontextmanager
async def one_worker() -> AsyncIterator[OneWorker]:
    """Two groups of one server, and the proxy, which serves. Raises ProcessError."""
    async with LocalCluster(groups=2, proxies=0) as cluster:
        address = await cluster.add_proxy({"workers": 1})
        proxy = cluster.proxies[-1]

        async def complete() -> bool:
            return len(processes.running(proxy.pid, "proxy.worker.worker")) == 1

        await until(complete, "the worker", START_SECONDS, [proxy])
        [pid] = processes.running(proxy.pid, "proxy.worker.worker")
        yield OneWorker(cluster, address, pid)
