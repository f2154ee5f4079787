"""A cluster with several topoms over etcd or ZooKeeper, of which any may be killed or paused."""

import json
import os
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

import httpx

from slotferry.client import TopomClient
from slotferry.local import HOST, environment_of
from slotferry.processes import ManagedProcess, free_ports
from tests.certificates import UNENCRYPTED
from tests.integration.cluster.harness import Cluster, eventually
from tests.integration.stores.servers import StoreServer, start_etcd, start_zookeeper, stop

LEASE_SECONDS = 2.5
"""Not less: on a machine that is also busy with other tests, a leader must not lose its place by being slow."""


class SeveralTopoms(Cluster):
    """``topoms`` are their processes, ``urls`` their addresses, in one order; ``stores`` the servers of their store.

    ``store`` is the kind of store, as in topom's setting.
    """

    def __init__(self, topoms: int, stores: int = 1, store: str = "etcd", **options: Any) -> None:
        super().__init__(**options)
        self._count = topoms
        self._store_count = stores
        self._store = store
        self.topoms: list[ManagedProcess] = []
        self.urls: list[str] = []
        self.stores: Sequence[StoreServer] = []
        self.verified_by = UNENCRYPTED
        """What the topoms' certificates are checked with."""

    async def _start_topom(self) -> None:
        start = {"etcd": start_etcd, "zookeeper": start_zookeeper}[self._store]
        self.stores = await start(self.directory, self._store_count)
        ports = free_ports(self._count)
        self.urls = [f"{self._scheme}://{HOST}:{port}" for port in ports]
        for number, port in enumerate(ports):
            settings = {
                "listen": f"{HOST}:{port}",
                "product": "local",
                "token": self.token,
                "data": str(self.directory / f"topom-{number}"),
                "number_of_slots": self._number_of_slots,
                "store": self._store,
                "store_servers": ",".join(server.address for server in self.stores),
                "leader_lease_seconds": LEASE_SECONDS,
                "store_timeout_seconds": 2,
                **self._topom_settings,
            }
            name = f"topom-{number}"
            process = ManagedProcess(
                name,
                self._command("topom"),
                self.directory / f"{name}.log",
                environment_of("SLOTFERRY_TOPOM_", settings),
            )
            process.start()
            self.topoms.append(process)
        self._topom = self.topoms[0]
        self.topom_url = ",".join(self.urls)
        await self.topom_ready()
        await self.all_well()

    async def stop(self) -> None:
        self.resume_all()
        try:
            await super().stop()
        finally:
            await stop(self.stores)

    @property
    def processes(self) -> list[ManagedProcess]:
        first = [process for process in super().processes if process not in self.topoms]
        return [*self.stores, *self.topoms, *first]

    async def said(self, number: int, path: str) -> str:
        """A topom's own answer to this path; empty while it does not answer."""
        try:
            async with httpx.AsyncClient(timeout=20, trust_env=False, verify=self.verified_by) as client:
                headers = {"Authorization": f"Bearer {self.token}"}
                return (await client.get(f"{self.urls[number]}{path}", headers=headers)).text
        except httpx.HTTPError:
            return ""

    async def readiness(self, number: int) -> str:
        """``ok``, or why a topom is not ready; empty while it does not answer."""
        return (await self.said(number, "/readyz")).removesuffix("\n")

    async def reason(self, number: int) -> str:
        """Why nothing can be changed through a topom, while none leads."""
        said = await self.said(number, "/api/v1/status")
        return str(((json.loads(said) if said else {}).get("reason") or {}).get("what", ""))

    async def leads(self, among: set[int]) -> int | None:
        """Which of these leads."""
        for number in among:
            if "\nslotferry_topom_leads 1.0\n" in await self.said(number, "/metrics"):
                return number
        return None

    async def all_well(self) -> int:
        """Wait until every topom says that it is well; which of them leads."""
        everyone = set(range(self._count))

        async def look() -> list[bool]:
            return [await self.readiness(number) == "ok" for number in everyone]

        await eventually(look, all, "every topom to be well")
        leader = await eventually(lambda: self.leads(everyone), lambda found: found is not None, "one to lead")
        assert leader is not None
        return leader

    async def taken_over(self, *former: int) -> tuple[int, float]:
        """Wait until a topom leads that is not gone; say which one, and how many seconds that took."""
        began = time.monotonic()
        others = set(range(self._count)) - {*former}
        leader = await eventually(lambda: self.leads(others), lambda found: found is not None, "another one to lead")
        assert leader is not None
        return leader, time.monotonic() - began

    def pause_topom(self, number: int) -> None:
        """It stands still."""
        os.kill(self.topoms[number].pid, signal.SIGSTOP)

    def resume_topom(self, number: int) -> None:
        """It goes on as if nothing had been."""
        os.kill(self.topoms[number].pid, signal.SIGCONT)

    @asynccontextmanager
    async def asking(self, number: int) -> AsyncIterator[Self]:
        """Inside the block :attr:`api` is this one topom."""
        before = self.api
        async with TopomClient(self.urls[number], self.token) as self.api:
            try:
                yield self
            finally:
                self.api = before
