"""Child processes that end with the process that started them.

``slotferry local``, the demo, the tests and the benchmarks start all their processes here, so that none is left behind.
A child is stopped by its own pid, first by SIGTERM and then by SIGKILL, and then with all that it has started
(:mod:`slotferry.families`). On Linux the kernel also ends it when its parent dies unexpectedly (PDEATHSIG). macOS has
no such signal: if a parent is killed with SIGKILL, its children stay.
"""

import asyncio
import ctypes
import itertools
import os
import random
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from slotferry.families import kill_family

STOP_SECONDS = 15.0
"""How long a process may take to end after SIGTERM before it gets SIGKILL."""
_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.02
_PORTS: Sequence[int] = range(20000, 32000)
"""Below the range of ports for outgoing connections, so that no such connection takes one of ours."""
_GIVEN: deque[int] = deque(maxlen=1000)
"""Ports that were given lately. A process that got one may not have begun to listen there."""
_RESERVED: deque[socket.socket] = deque()
_MOST_RESERVED = 64
"""The latest of them are kept from other processes that look for ports here: by UDP sockets of the same numbers."""


class ProcessError(RuntimeError):
    """A process could not be started, ended too early, or was not ready in time."""


def _load_prctl() -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return prctl if callable(prctl) else None


# Loaded once and early: between fork and exec a child must not load a library.
_prctl = _load_prctl()


def end_with_parent(parent: int, number: signal.Signals = signal.SIGTERM) -> None:
    """Call this in a child between fork and exec: it has the kernel send this signal when the parent ends.

    The signal is lost if the parent ended before this call, so the child checks its parent once more.
    """
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:
            os._exit(1)


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Different TCP ports on which nothing listens at ``host`` now, and which were not given lately, here or by
    another process.

    Raises:
        ProcessError: when there are not enough free ports.
    """
    found: list[int] = []
    for port in _from_anywhere():
        if _take(port, host):
            found.append(port)
        if len(found) == count:
            return found
    raise ProcessError(f"no {count} free TCP ports between {_PORTS[0]} and {_PORTS[-1]} on {host}; end what uses them")


def free_run(count: int, host: str = "127.0.0.1") -> int:
    """The first of ``count`` TCP ports beside each other, each of which is as those of :func:`free_ports`.

    Raises:
        ProcessError: when there are none.
    """
    known = set(_PORTS)
    for first in _from_anywhere():
        run = range(first, first + count)
        if known.issuperset(run) and all(_take(port, host) for port in run):
            return first
    raise ProcessError(
        f"no {count} free TCP ports beside each other between {_PORTS[0]} and {_PORTS[-1]} on {host}; "
        "end what uses them"
    )


def _from_anywhere() -> Iterator[int]:
    """All ports in their order, from one by chance."""
    # The system's random numbers: a test may have seeded those of its process.
    start = random.SystemRandom().randrange(len(_PORTS))
    return itertools.chain(_PORTS[start:], _PORTS[:start])


def _take(port: int, host: str) -> bool:
    """Whether a port is free and was not given lately; it is given now, then."""
    if port in _GIVEN or not port_is_free(port, host) or not _reserve(port, host):
        return False
    _GIVEN.append(port)
    return True


def _reserve(port: int, host: str) -> bool:
    """Keep a port from other processes for a while, if none of them has it."""
    sock = socket.socket(type=socket.SOCK_DGRAM)
    try:
        sock.bind((host, port))
    except OSError:
        sock.close()
        return False
    _RESERVED.append(sock)
    if len(_RESERVED) > _MOST_RESERVED:
        _RESERVED.popleft().close()
    return True


def port_is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether nothing listens on ``port`` at ``host`` now, and this process may."""
    return not port_taken(port, host)


def port_taken(port: int, host: str) -> str:
    """Why this process cannot listen on ``port`` at ``host`` now, as the rest of a sentence; empty if it can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except PermissionError:
            return "is not for this user: the system keeps low ports for root"
        except OSError:
            return "is in use"
    return ""


def process_runs(pid: int) -> bool:
    """Whether a process of this id runs, whoever started it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class ManagedProcess:
    """One child process with its log file; it may be started again after it ended.

    ``orphaned``: the signal that it gets when its parent has ended.
    """

    orphaned = signal.SIGTERM

    def __init__(
        self, name: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """``environment`` replaces the parent's when given; output of the process is appended to ``log``."""
        self.name = name
        self.arguments = list(arguments)
        self.log = log
        self.environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        """The process's id. Raises :class:`ProcessError` when it was never started."""
        if self._process is None:
            raise ProcessError(f"{self.name} was not started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal; None while it runs or when it was never started."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start the process.

        Raises:
            ProcessError: when it runs already, or the system refuses to start it.
        """
        if self.running:
            raise ProcessError(f"{self.name} runs already, with process id {self.pid}")
        parent = os.getpid()
        with self.log.open("ab") as output:
            self._log_start = output.tell()
            try:
                self._process = self._spawn(output, parent)
            except OSError as error:
                raise ProcessError(
                    f"{self.name} could not be started: {self.arguments[0]}: {error.strerror}"
                ) from error

    def _spawn(self, output: IO[bytes], parent: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.arguments,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=self.environment,
            # A session of its own: Ctrl-C in the terminal only reaches the parent, which then stops the child in order.
            start_new_session=True,
            preexec_fn=lambda: end_with_parent(parent, self.orphaned),
        )

    async def wait(self, limit: float) -> int:
        """Wait for the end of the process, at most ``limit`` seconds, and give its exit status.

        Raises:
            TimeoutError: when it still runs then.
        """
        async with asyncio.timeout(limit):
            while self.running:
                await asyncio.sleep(_POLL_SECONDS)
        status = self.status
        return 0 if status is None else status

    async def stop(self, limit: float = STOP_SECONDS) -> int | None:
        """Ask the process to end, and kill it and all that it has started after ``limit`` seconds. Gives its exit
        status."""
        if self.running:
            os.kill(self.pid, signal.SIGTERM)
            try:
                await self.wait(limit)
            except TimeoutError:
                await self.kill(family=True)
        return self.status

    async def kill(self, family: bool = False) -> None:
        """End the process at once, with SIGKILL; with ``family``, all that it has started, too."""
        if self.running:
            if family:
                kill_family(self.pid)
            else:
                os.kill(self.pid, signal.SIGKILL)
            await self.wait(STOP_SECONDS)

    def logged(self, text: str) -> bool:
        """Whether the log holds ``text`` since the process was last started."""
        try:
            with self.log.open("rb") as log:
                log.seek(self._log_start)
                return text.encode() in log.read()
        except FileNotFoundError:
            return False

    def tail(self, lines: int = 20) -> str:
        """The last lines of the log, or a sentence saying that there are none."""
        try:
            text = self.log.read_text(errors="replace").strip()
        except OSError:
            text = ""
        return "\n".join(text.splitlines()[-lines:]) or f"{self.name} wrote nothing to its log"


async def until(
    condition: Callable[[], Awaitable[bool]], what: str, limit: float, processes: Sequence[ManagedProcess]
) -> None:
    """Wait until ``condition`` gives True, for at most ``limit`` seconds. A condition that raises OSError is not met
    yet.

    Args:
        what: the object of "waiting for", for messages.
        processes: the processes that have to run meanwhile.

    Raises:
        ProcessError: at the limit, or as soon as one of ``processes`` has ended; with the tail of its log.
    """
    last: OSError | None = None
    try:
        async with asyncio.timeout(limit):
            while True:
                for process in processes:
                    if not process.running:
                        raise ProcessError(
                            f"{process.name} ended with status {process.status} while waiting for {what}; "
                            f"its log ends:\n{process.tail()}"
                        )
                try:
                    if await condition():
                        return
                except OSError as error:
                    last = error
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        reason = f" ({last})" if last else ""
        tails = "\n".join(f"log of {process.name} ends:\n{process.tail()}" for process in processes)
        raise ProcessError(f"gave up waiting for {what} after {limit:g} s{reason}\n{tails}") from None
