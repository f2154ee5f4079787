"""Starts processes of ours without the half second of imports that each would need: one process imports all, and forks.

A forked process runs a module's ``main``, as a process that was started by its command does. Each module has one
process that forks. That process ends with the test process, because the test process's end of their socket closes
then. A forked process that starts others has a forking process of its own, which ends with it. So nothing outlives
the test process, even if that was killed: the parent of each process ends it, also if it is stopped.
"""

import asyncio
import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import json
import os
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
NUMBER = struct.Struct("=q")
MOST_DESCRIPTORS = 64

_first = os.getpid()
"""The forking process that ends with the test process, for all that descend from it."""


class Forked:
    """A process that was forked, as far as :class:`slotferry.processes.ManagedProcess` looks at it."""

    def __init__(self, status: int) -> None:
        self._status = status
        self._returned: int | None = None
        (self.pid,) = NUMBER.unpack(os.read(status, NUMBER.size))
        os.set_blocking(status, False)

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        if self._returned is None:
            try:
                said = os.read(self._status, NUMBER.size)
            except BlockingIOError:
                return None
            os.close(self._status)
            # Nothing is said by a keeper that was killed.
            self._returned = NUMBER.unpack(said)[0] if said else -signal.SIGKILL
        return self._returned

    def end(self, number: int, seconds: float) -> int:
        """Send it a signal, unless it has ended, and wait until it has; its exit status. Raises TimeoutError."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
            ended, _, _ = select.select([self._status], [], [], seconds)
            if not ended:
                raise TimeoutError(f"process {self.pid} has not ended within {seconds} s")
        status = self.poll()
        assert status is not None
        return status


class Awaited(Forked):
    """The same as far as :class:`proxy.supervisor.processes.Worker` looks at it."""

    @property
    def returncode(self) -> int | None:
        """What :meth:`poll` says."""
        return self.poll()

    async def wait(self) -> int:
        """Wait until it ends; its exit status."""
        loop = asyncio.get_running_loop()
        while (status := self.poll()) is None:
            said = asyncio.Event()
            loop.add_reader(self._status, said.set)
            try:
                await said.wait()
            finally:
                loop.remove_reader(self._status)
        return status

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def fork(
    module: str, arguments: Sequence[str], descriptors: Mapping[int, int], environment: Mapping[str, str]
) -> Forked:
    """Run ``main`` of a module in a process of its own; ``descriptors`` are ours, by the numbers they get there."""
    return Forked(ask(_server(module), arguments, descriptors, environment))


def ask(
    server: socket.socket, arguments: Sequence[str], descriptors: Mapping[int, int], environment: Mapping[str, str]
) -> int:
    """The same of the forking process at the other end of a socket; gives what a :class:`Forked` is made of."""
    status, told = os.pipe()
    request = {
        "arguments": list(arguments),
        "numbers": list(descriptors),
        "environment": dict(environment),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE),
    }
    try:
        socket.send_fds(server, [json.dumps(request).encode()], [told, *descriptors.values()])
    finally:
        os.close(told)
    return status


def imports_more(environment: Mapping[str, str], python_path: str) -> bool:
    """Whether Python would find more in an environment than here or on ``python_path``."""
    known = {"", str(ROOT), *python_path.split(os.pathsep)}
    return not known.issuperset(environment.get("PYTHONPATH", "").split(os.pathsep))


def bound(command: Sequence[str]) -> list[str]:
    """A command that is killed with the thread that starts it, where the system can do that.

    Unlike a ``preexec_fn`` that asks for it, that is safe in a process with threads.
    """
    return [*(("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()), *command]


def own_server(module: str) -> socket.socket:
    """Fork a forking process off this one, which has imported the module and runs no event loop yet."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if not os.fork():
        try:
            ours.close()
            serve(module, theirs)
        finally:
            os._exit(0)
    theirs.close()
    return ours


@functools.cache
def _server(module: str) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.forking", module, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            cwd=ROOT,
            start_new_session=True,
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def serve(module: str, control: socket.socket) -> None:
    """Fork a process for each request, until the other end closes."""
    importlib.import_module(module)
    # Each process collects its garbage once at its start; it need not look at what was here before.
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # A test may have lowered its own, which is what its processes get.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    while True:
        said, descriptors, _, _ = socket.recv_fds(control, 1 << 20, MOST_DESCRIPTORS)
        if not said:
            return
        if not os.fork():
            control.close()
            keep(module, json.loads(said), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def keep(module: str, request: dict, descriptors: list[int]) -> None:  # type: ignore[type-arg]
    """Be the parent of a process, and say how it ends; does not return."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    status, *inherited = descriptors
    process = os.fork()
    if not process:
        os.close(status)
        become(module, request, inherited)
    for descriptor in inherited:
        os.close(descriptor)
    os.write(status, NUMBER.pack(process))
    if hasattr(os, "pidfd_open"):
        _wait_for_either(process)
    _, ended = os.waitpid(process, 0)
    # Nobody may be left to hear it.
    with contextlib.suppress(BrokenPipeError):
        os.write(status, NUMBER.pack(os.waitstatus_to_exitcode(ended)))
    os._exit(0)


def _wait_for_either(process: int) -> None:
    """Return once a process has ended; end it once the test process has."""
    running = os.pidfd_open(process)
    try:
        first = os.pidfd_open(_first)
    except ProcessLookupError:
        ended = []
    else:
        ended, _, _ = select.select([running, first], [], [])
    if running not in ended:
        os.kill(process, signal.SIGKILL)


def become(module: str, request: dict, inherited: list[int]) -> None:  # type: ignore[type-arg]
    """Be the process; does not return."""
    numbers = request["numbers"]
    above = max([512, *numbers]) + 1
    copies = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, above) for descriptor in inherited]
    os.closerange(3, above)
    for number, descriptor in zip(numbers, copies, strict=True):
        os.dup2(descriptor, number)
    os.closerange(above, above + MOST_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, request["open_files"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = [module, *request["arguments"]]
    status = 0
    try:
        sys.modules[module].main()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
