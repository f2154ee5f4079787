"""A cluster of which each process is of a version of its own: of a release, or of the tree."""

import asyncio
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slotferry.local import environment_of
from slotferry.processes import ManagedProcess
from tests.integration.cluster.harness import LIMIT, Cluster, eventually
from tests.integration.cluster.several import SeveralTopoms

TREE = Path(__file__).parents[3]
SECRET = secrets.token_hex(16)


def running(folder: Path, *words: str) -> list[str]:
    """The command line of ``slotferry WORDS`` of the version in ``folder``; what it starts is of this version, too."""
    # Without the second one, the folder in which the tests run would win.
    return ["env", f"PYTHONPATH={folder}", "PYTHONSAFEPATH=1", sys.executable, "-m", "slotferry", *words]


def compiled_in(pid: int) -> set[Path]:
    """The folders of which a process has loaded compiled modules of Slotferry: the release's or the tree's."""
    lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
    loaded = {Path(line.split()[-1]) for line in lines if line.endswith(".so") and "/slots/" in line}
    return {next(above for above in file.parents if above.name == "slots").parent for file in loaded}


class Mixed(Cluster):
    """What all have in common.

    Args:
        begun: the folder of the version that all processes begin with.
        options: those of a cluster.
    """

    def __init__(self, begun: Path, **options: Any) -> None:
        super().__init__(**options)
        self._begun = begun

    def _command(self, process: str) -> list[str]:
        return running(self._begun, process)

    async def change(self, process: ManagedProcess, folder: Path) -> None:
        """Stop a process in order, if it runs, and start it again with another version."""
        if process.running:
            assert await process.stop(LIMIT) == 0, process.tail()
        process.arguments = running(folder, process.arguments[-1])
        process.start()

    async def runs(self, process: ManagedProcess, folder: Path) -> None:
        """Wait until a process has loaded what it needs, and see that it runs the version of this folder."""

        async def look() -> set[Path]:
            return compiled_in(process.pid)

        assert await eventually(look, bool, f"{process.name} to have loaded its modules") == {folder}


class MixedTopoms(Mixed, SeveralTopoms):
    """Several topoms over etcd."""


class MixedCluster(Mixed):
    """A topom with its migrator, a migrator of another machine, and proxies that keep their tables."""

    def __init__(self, begun: Path, **options: Any) -> None:
        super().__init__(begun, **options)
        self._topom_settings["tokens"] = [f"migrator:away:{SECRET}"]
        self.migrator: ManagedProcess | None = None

    async def start(self) -> None:
        """The same, and the migrator of the other machine."""
        await super().start()
        settings = {
            "topom": self.topom_url,
            "token": SECRET,
            "spool": str(self.directory / "spool"),
            "node": "away",
        }
        self.migrator = ManagedProcess(
            "migrator",
            running(self._begun, "migrator"),
            self.directory / "migrator.log",
            environment_of("SLOTFERRY_MIGRATOR_", settings),
        )
        self.migrator.start()

    @property
    def processes(self) -> list[ManagedProcess]:
        return [*super().processes, *([self.migrator] if self.migrator else [])]

    async def stop(self) -> None:
        if self.migrator is not None:
            await self.migrator.stop()
        await super().stop()

    def _start_proxy(self, own_settings: Mapping[str, Any]) -> None:
        table = self.directory / f"table-{len(self.proxies) + 1}"
        super()._start_proxy({"table_file": str(table), **own_settings})


async def command(folder: Path, cluster: Cluster, *words: str) -> str:
    """Run ``slotferry WORDS`` of the version in this folder; give what it prints, once it has ended well."""
    own = {"SLOTFERRY_TOPOM": cluster.topom_url, "SLOTFERRY_TOKEN": cluster.token, "COLUMNS": "250"}
    process = await asyncio.create_subprocess_exec(
        *running(folder, *words),
        env={**environment_of("", {}), **own},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(LIMIT):
        printed, _ = await process.communicate()
    text = printed.decode()
    assert process.returncode == 0, text
    return text
