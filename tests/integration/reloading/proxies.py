"""Proxies of several workers whose settings stand in files, and clients of theirs."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import redis.asyncio

from slotferry.processes import ManagedProcess, free_ports
from tests.integration.reloading.processes import LIMIT_SECONDS, NEW, OLD, File, FiledTopom

WORKERS = 2
NOW = f"proxy:fleet:{OLD}-proxy"
NEXT = f"proxy:fleet:{NEW}-proxy"


class Proxy:
    """A proxy of two workers with a settings file, in a folder.

    Args:
        environment: with its token; None if that stands in the settings file.
    """

    def __init__(self, folder: Path, topom: FiledTopom, environment: Mapping[str, str] | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.topom = topom
        self.port = free_ports(1)[0]
        always = {"listen": f"127.0.0.1:{self.port}", "topom": [topom.url], "metrics": "", "workers": WORKERS}
        token = {"token": f"{OLD}-proxy"} if environment is None else {}
        self.file = File(folder / "proxy.toml", **always, drain_seconds=0.1, **token)
        command = [sys.executable, "-m", "slotferry", "proxy", "--config", str(self.file.path)]
        self.process = ManagedProcess(
            "proxy", command, folder / "proxy.log", environment={**os.environ, **(environment or {})}
        )

    def client(self, **options: Any) -> redis.asyncio.Redis:
        return redis.asyncio.Redis(port=self.port, socket_timeout=LIMIT_SECONDS, **options)

    def said(self, event: str) -> list[dict[str, Any]]:
        """All log events of that name."""
        lines = self.process.log.read_text().splitlines()
        return [one for one in map(json.loads, lines) if one["event"] == event]

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not holds():
                assert self.process.running, self.process.log.read_text()
                await asyncio.sleep(0.02)

    async def hang_up(self) -> dict[str, Any]:
        """Send SIGHUP; what the log says of it."""

        def answers() -> list[dict[str, Any]]:
            return self.said("settings_reloaded") + self.said("settings_refused")

        before = answers()
        os.kill(self.process.pid, signal.SIGHUP)
        await self.until(lambda: len(answers()) > len(before))
        return next(one for one in answers() if one not in before)

    async def each_worker(self, **options: Any) -> dict[int, redis.asyncio.Redis]:
        """A connection to each worker, by its process id."""
        found: dict[int, redis.asyncio.Redis] = {}
        async with asyncio.timeout(LIMIT_SECONDS):
            while len(found) < WORKERS:
                client = self.client(single_connection_client=True, **options)
                found.setdefault((await client.info("server"))["process_id"], client)
        return found


class Traffic:
    """Clients that write and read one key after another."""

    def __init__(self, proxy: Proxy, **login: Any) -> None:
        self.done = 0
        self._ends = False
        self._client = proxy.client(**login)
        self._task = asyncio.create_task(self._work())

    async def more(self) -> None:
        enough = self.done + 20
        async with asyncio.timeout(LIMIT_SECONDS):
            while self.done < enough:
                if self._task.done():
                    self._task.result()
                await asyncio.sleep(0.01)

    async def end(self) -> None:
        self._ends = True
        async with asyncio.timeout(LIMIT_SECONDS):
            await self._task
        await self._client.aclose()

    async def _work(self) -> None:
        while not self._ends:
            key = f"traffic:{self.done % 100}"
            assert await self._client.set(key, self.done)
            assert int(await self._client.get(key)) == self.done
            self.done += 1
