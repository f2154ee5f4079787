"""Earlier versions, built from the project's history, so that they run beside the tree.

A version is known by its commit: a clone may lack tags. What is built stays below ``build/``, which git does not see.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BUILT = ROOT / "build" / "releases"
BUILD_SECONDS = 900


@dataclass(frozen=True)
class Release:
    """A version and the whole hash of its commit."""

    version: str
    commit: str

    @property
    def folder(self) -> Path:
        """Where it is built: one folder for each Python and each way that its modules are compiled."""
        builder = hashlib.sha256(sys.version.encode()).hexdigest()[:8]
        return BUILT / f"{self.version}-{self.commit[:12]}-{builder}"

    def build(self) -> Path:
        """Its folder, with compiled modules; passes the test over where the history is missing, unless
        ``SLOTFERRY_REQUIRE_HISTORY=1`` says that it has to be there."""
        BUILT.mkdir(parents=True, exist_ok=True)
        with (BUILT / "lock").open("w") as lock:
            # Tests of other processes wait for the one that builds.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.folder.exists():
                self._require()
                self._build()
        return self.folder

    def _require(self) -> None:
        known = subprocess.run(
            ["git", "-C", str(ROOT), "cat-file", "-e", f"{self.commit}^{{commit}}"], stderr=subprocess.DEVNULL
        )
        if known.returncode == 0:
            return
        missing = f"the commit of {self.version} is not in this clone; get it with: git fetch --unshallow"
        if os.environ.get("SLOTFERRY_REQUIRE_HISTORY") == "1":
            pytest.fail(f"SLOTFERRY_REQUIRE_HISTORY=1, but {missing}")
        pytest.skip(missing)

    def _build(self) -> None:
        making = self.folder.with_suffix(".making")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir()
        archive = subprocess.Popen(["git", "-C", str(ROOT), "archive", self.commit], stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x"], cwd=making, stdin=archive.stdout, check=True)
        assert archive.wait() == 0
        # The first command makes the folder say its version where it is on the path.
        for command in (["egg_info"], ["build_ext", "--inplace"]):
            done = subprocess.run(
                [sys.executable, "setup.py", "-q", *command],
                cwd=making,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=BUILD_SECONDS,
            )
            assert done.returncode == 0, done.stdout[-4000:]
        making.rename(self.folder)


RELEASES = (Release("0.1.0", "618751fd879634160ef4f27704f66ff9cd60b018"),)
"""Those that can be upgraded from, the oldest first."""
