"""Reads the CPU time of running processes from the system, and finds the processes that another one started.

Linux only: it reads /proc, and takes CPU time from the process's own clock. That clock counts the sum of the user and
system time of /proc/PID/stat, but in nanoseconds instead of hundredths of a second. Short runs at a few hundred
nanoseconds a request need that.
"""

import ctypes
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path


class ProcessGone(RuntimeError):
    """A process has ended before its cost was read."""


def cpu_seconds(pid: int) -> float:
    """User and system time that all threads of a process have used so far, in seconds.

    Raises:
        ProcessGone: when there is no such process.
    """
    clock = ctypes.c_int()
    status = ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock))
    if status == 0:
        try:
            return time.clock_gettime(clock.value)
        except OSError as error:
            status = error.errno or 0
    raise ProcessGone(f"process {pid} is gone: {os.strerror(status)}; look for its end in its log")


def cpu_by_role(roles: Mapping[str, Iterable[int]]) -> dict[str, float]:
    """CPU seconds so far of the processes of each role together; the values of ``roles`` are process ids."""
    return {role: sum(cpu_seconds(pid) for pid in pids) for role, pids in roles.items()}


def spent(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """The use between two answers of :func:`cpu_by_role`."""
    return {role: after[role] - seconds for role, seconds in before.items()}


def machine_busy_seconds() -> float:
    """CPU seconds that all cores of the machine have spent on any work since its start."""
    fields = Path("/proc/stat").read_text().partition("\n")[0].split()
    # user, nice, system, idle, waiting for disks, interrupts, soft interrupts, taken by other virtual machines
    user, nice, system, _, _, *interrupted = (int(field) for field in fields[1:9])
    return (user + nice + system + sum(interrupted)) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """Ids of the processes that ``pid`` started and that still run, ascending."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            # The name, in parentheses, may contain anything; state and parent follow its last parenthesis.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended since
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(entry.name))
    return sorted(found)


def descendants(pid: int) -> list[int]:
    """Ids of all processes below ``pid``, nearest first."""
    found: list[int] = []
    nearest = children(pid)
    while nearest:
        found += nearest
        nearest = [child for parent in nearest for child in children(parent)]
    return found


def command_line(pid: int) -> list[str]:
    """The arguments of a process, its program first; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def running(pid: int, module: str) -> list[int]:
    """The processes below ``pid`` that run ``python -m module``."""
    return [child for child in descendants(pid) if module in command_line(child)]


def percentile(ascending: Sequence[float], percent: float) -> float:
    """The smallest value that ``percent`` of 100 of the ``ascending`` values do not exceed; 0.0 if there are none."""
    if not ascending:
        return 0.0
    place = -(-len(ascending) * percent // 100)  # rounded up: the nearest-rank method
    return ascending[max(0, min(len(ascending), int(place)) - 1)]
