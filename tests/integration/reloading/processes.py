"""Processes whose settings stand in files, which tests change while the processes run."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.certificates import UNENCRYPTED
from tests.forking import Forked, fork
from tests.integration.topom_process import TopomProcess

OWN = "the-token-of-topom-itself"
OLD, NEW = "secret-of-yesterday", "secret-of-tomorrow"
LIMIT_SECONDS = 30.0


class File:
    """A settings file.

    Args:
        always: settings that are in it unless they are given another value.
    """

    def __init__(self, path: Path, **always: Any) -> None:
        self.path = path
        self._always = always
        self.write()

    def write(self, **settings: Any) -> None:
        """Have these settings in it."""
        said = {**self._always, **settings}
        self.path.write_text("".join(f"{name} = {_toml(value)}\n" for name, value in said.items()))


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(part)}" for name, part in value.items()) + "}"
    return f"[{', '.join(map(_toml, value))}]" if isinstance(value, list) else json.dumps(value)


class FiledTopom(TopomProcess):
    """A topom with a settings file. The environment, which wins over it, names only what the file does not."""

    def __init__(self, data: Path, file: File, environment: Mapping[str, str]) -> None:
        super().__init__(data)
        self.token = OWN
        self._file = file
        self._more = environment

    def _spawn(self) -> Forked:
        self.data.mkdir(parents=True, exist_ok=True)
        (self.data / "address").unlink(missing_ok=True)
        said = {"LISTEN": self._settings["listen"], "DATA": str(self.data), "NUMBER_OF_SLOTS": "16"}
        said |= {"MIGRATION_WAY": "keys", "HEARTBEAT_SECONDS": "0.1"}
        environment = {f"SLOTFERRY_TOPOM_{name}": value for name, value in said.items()}
        with self.log_file.open("ab") as output, open(os.devnull, "r+b") as nothing:
            descriptors = {0: nothing.fileno(), 1: nothing.fileno(), 2: output.fileno()}
            arguments = ["topom", "--config", str(self._file.path)]
            self._process = fork("tests.starting", arguments, descriptors, {**os.environ, **environment, **self._more})
        return self._process


@asynccontextmanager
async def filed_topom(data: Path, file: File, environment: Mapping[str, str] = {}) -> AsyncIterator[FiledTopom]:
    process = FiledTopom(data, file, environment)
    await process.start()
    try:
        yield process
    finally:
        process.stop()


def client_of(topom: TopomProcess, token: str | None = OWN) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    return httpx.AsyncClient(base_url=topom.url, headers=headers, timeout=LIMIT_SECONDS, verify=UNENCRYPTED)


async def events(client: httpx.AsyncClient) -> list[tuple[str, str, str]]:
    found = (await client.get("/api/v1/events", params={"limit": 1000})).json()["events"]
    return [(one["what"], one["who"], one["text"]) for one in found]


async def hang_up(topom: TopomProcess, client: httpx.AsyncClient) -> Any:
    """Send SIGHUP, and wait until the settings were read anew, or refused."""
    before = (await client.get("/api/v1/settings")).json()
    os.kill(topom.pid, signal.SIGHUP)
    async with asyncio.timeout(LIMIT_SECONDS):
        while (now := (await client.get("/api/v1/settings")).json()) == before:
            await asyncio.sleep(0.02)
    return now
