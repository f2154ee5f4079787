"""Ctrl-C at any moment: a command ends quietly, with the status that shells give to that."""

import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from slotferry.__main__ import main
from slotferry.local import environment_of

INTERRUPTED = 130


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a topom that says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("module", ["typer", "httpx", "slotferry.contexts", "slotferry.offline", "slotferry.main"])
def test_it_ends_quietly_whatever_module_is_being_read(silent: str, module: str) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "slotferry", "status", "--topom", silent, "--token", "t"]
    with subprocess.Popen(command, env=environment_of("", {}), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if line.endswith(f" {module}\n"))
        process.send_signal(signal.SIGINT)
        err = "".join(line for line in process.stderr if not line.startswith("import time:"))
        assert process.wait(30) == INTERRUPTED
    assert err == ""


def test_a_command_in_the_background_of_a_shell_goes_on() -> None:
    """A shell has it ignore SIGINT, which is meant for what is in the foreground."""
    command = [sys.executable, "-X", "importtime", "-m", "slotferry", "--version"]

    def ignore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    pipe = subprocess.PIPE
    environment = environment_of("", {})
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True, preexec_fn=ignore) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if line.endswith(" typer\n"))
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    assert (process.returncode, out.split()[0]) == (0, "slotferry")


def test_the_installed_command_begins_there_too() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert EntryPoint("slotferry", project["scripts"]["slotferry"], "console_scripts").load() is main
