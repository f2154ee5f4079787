"""A hangup before a process serves does not end it, and is not forgotten; a process of others ignores it."""

import signal
import subprocess
import sys

import pytest

from slots.python import PYTHON, TOLD

EARLY = """
import asyncio, os, signal, sys
from slots.hangups import early_hangups
early_hangups.expect()
os.kill(os.getpid(), signal.SIGHUP)
from slots.reloading import on_hangup

async def main():
    heard = asyncio.Event()
    on_hangup(heard.set)
    await asyncio.wait_for(heard.wait(), 60)
    heard.clear()
    os.kill(os.getpid(), signal.SIGHUP)
    await asyncio.wait_for(heard.wait(), 60)

asyncio.run(main())
"""


def test_an_early_hangup_is_heard_later() -> None:
    done = subprocess.run([sys.executable, "-c", EARLY], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_process_that_another_one_tells_of_settings_ignores_hangups_before_a_module_of_ours_is_read() -> None:
    code = "import os; os.kill(os.getpid(), 1); print(7)"
    done = subprocess.run([*TOLD, "-S", "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "7\n")


HUNG_UP = """
import os, signal, sys

class HangsUp:
    def find_spec(self, name, path=None, target=None):
        if name == "slotferry.main":
            os.kill(os.getpid(), signal.SIGHUP)

import slotferry.__main__ as command
sys.meta_path.insert(0, HangsUp())
command.main()
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("topom --config /no/file", 1),
        ("proxy --config /no/file", 1),
        ("migrator --config /no/file", 1),
        ("proxy list --topom http://127.0.0.1:1", -signal.SIGHUP),
        ("config topom", -signal.SIGHUP),
    ],
)
def test_a_hangup_while_the_command_is_read_ends_what_does_not_serve_alone(line: str, status: int) -> None:
    done = subprocess.run(
        [*PYTHON, "-c", HUNG_UP, *line.split()], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == status, done.stderr
    assert ("/no/file cannot be read" in " ".join(done.stderr.split())) == (status == 1)
