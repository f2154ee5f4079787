"""Workers without the half second of importing that each would take: one process has imported all, and forks.

A worker started so is a process of its own that runs the worker's ``main``, as one is that was started by its command.
The forking process ends with the test process, whose end of the socket between them closes then.
"""

import atexit
import fcntl
import functools
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[3]
NUMBER = struct.Struct("=q")
MOST_DESCRIPTORS = 64


class Forked:
    """A worker that was forked, as far as :class:`cli.processes.ManagedProcess` looks at it."""

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


def fork_worker(channel: int, descriptors: Sequence[int], output: IO[bytes]) -> Forked:
    """Start a worker that inherits ``descriptors`` under their numbers, one of which is its channel."""
    status, told = os.pipe()
    request = {
        "channel": channel,
        "numbers": list(descriptors),
        "environment": dict(os.environ),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE),
    }
    try:
        socket.send_fds(_server(), [json.dumps(request).encode()], [told, output.fileno(), *descriptors])
    finally:
        os.close(told)
    return Forked(status)


@functools.cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.worker.forking", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            cwd=ROOT,
            start_new_session=True,
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def serve(control: socket.socket) -> None:
    """Fork a worker for each request, until the other end closes."""
    import proxy.worker  # noqa: F401  # that is what this process is for

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # A test may have lowered its own, which is what its worker gets.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    while True:
        said, descriptors, _, _ = socket.recv_fds(control, 1 << 20, MOST_DESCRIPTORS)
        if not said:
            return
        if not os.fork():
            control.close()
            keep(json.loads(said), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def keep(request: dict[str, object], descriptors: list[int]) -> None:
    """Be the parent of a worker, and say how it ends; does not return."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    status, *inherited = descriptors
    worker = os.fork()
    if not worker:
        os.close(status)
        become(request, inherited)
    for descriptor in inherited:
        os.close(descriptor)
    os.write(status, NUMBER.pack(worker))
    _, ended = os.waitpid(worker, 0)
    os.write(status, NUMBER.pack(os.waitstatus_to_exitcode(ended)))
    os._exit(0)


def become(request: dict, inherited: list[int]) -> None:  # type: ignore[type-arg]
    """Be the worker; does not return."""
    from proxy import worker

    numbers = request["numbers"]
    above = max([512, *numbers]) + 1
    output, *others = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, above) for descriptor in inherited]
    os.closerange(3, above)
    for number, descriptor in zip(numbers, others, strict=True):
        os.dup2(descriptor, number)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(above, above + MOST_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, request["open_files"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["proxy.worker", "--channel", str(request["channel"])]
    status = 1
    try:
        worker.main()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
