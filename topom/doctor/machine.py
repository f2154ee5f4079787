"""Settings of topom's own kernel, for the servers that run on it.

A server is known to run here if it is reached by a loopback address, names the same kernel, and a process of its name
has its process id. Else nothing is said: a loopback address may lead elsewhere by a tunnel.
"""

import os
from pathlib import Path, PurePosixPath

from slots.replies import Info
from topom.cluster.topology import is_loopback
from topom.doctor.facts import KernelFacts

PROC = Path("/proc")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
COMM = 15
"""The most characters of a process's name that the kernel keeps."""


def kernel_of(address: str, info: Info) -> KernelFacts | None:
    """What the kernel of a server is set to; None if the server is not known to run on it."""
    pid = info.get("process_id")
    if not is_loopback(address) or type(pid) is not int or info.get("os") != _kernel():
        return None
    name = PurePosixPath(str(info.get("executable", ""))).name[:COMM]
    if not name or _read(PROC / str(pid) / "comm") != name:
        return None
    huge_pages = _read(HUGE_PAGES)
    return KernelFacts(
        overcommit_memory=_number(PROC / "sys/vm/overcommit_memory"),
        huge_pages_always=None if huge_pages is None else "[always]" in huge_pages,
        most_connections=_number(PROC / "sys/net/core/somaxconn"),
    )


def _kernel() -> str:
    here = os.uname()
    return f"{here.sysname} {here.release} {here.machine}"


def _number(path: Path) -> int | None:
    text = _read(path)
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
