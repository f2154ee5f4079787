"""Ends a process together with all that it has started, whatever sessions these are in.

A process that is killed cannot end its own children, and they may take their time once they notice. So each process is
stopped first: then it starts nothing more, and no process id below it is used again, because nobody takes the end of
its children.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_LIST_SECONDS = 1.0


def kill_family(pid: int) -> None:
    """Kill a process and everything below it. It has to be a child of ours whose end was not taken yet."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    for child in children_of(pid):
        kill_family(child)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def children_of(pid: int) -> list[int]:
    """The processes that have this one as their parent now; none where the system does not tell."""
    parents = _parents_in_proc() if sys.platform == "linux" else _parents_by_ps()
    return sorted(child for child, parent in parents.items() if parent == pid)


def _parents_in_proc() -> dict[int, int]:
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                # The name of the program is in parentheses, and may have some itself.
                found[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    return found


def _parents_by_ps() -> dict[int, int]:
    with suppress(OSError, subprocess.SubprocessError, ValueError):
        listed = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True, timeout=_LIST_SECONDS
        ).stdout
        return {int(child): int(parent) for child, parent in (line.split() for line in listed.splitlines())}
    return {}
