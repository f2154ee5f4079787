"""A hangup before a process serves does not end it, and is not forgotten; a process of others ignores it."""

import subprocess
import sys

EARLY = """
import asyncio, os, signal, sys
from slots.hangups import early_hangups
early_hangups.expect()
os.kill(os.getpid(), signal.SIGHUP)
from slots.reloading import on_hangup

async def main():
    heard = asyncio.Event()
    on_hangup(heard.set)
    await asyncio.wait_for(heard.wait(), 20)
    heard.clear()
    os.kill(os.getpid(), signal.SIGHUP)
    await asyncio.wait_for(heard.wait(), 20)

asyncio.run(main())
"""


def test_an_early_hangup_is_heard_later() -> None:
    done = subprocess.run([sys.executable, "-c", EARLY], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_hangup_may_be_ignored() -> None:
    code = "from slots.hangups import ignore_hangups; ignore_hangups(); import os; os.kill(os.getpid(), 1); print(7)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "7\n")
