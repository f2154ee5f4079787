"""What a topom or a proxy consists of, imported before it is forked off (:mod:`tests.forking`)."""

import os
import sys
from collections.abc import Sequence

import proxy.supervisor.supervisor
import proxy.worker.worker  # noqa: F401
import slotferry.__main__
import slotferry.main
import topom.server  # noqa: F401
from proxy.supervisor import processes
from tests.forking import Awaited, ask, own_server


def main() -> None:
    """The command ``slotferry``; a proxy's workers are forked too."""
    if sys.argv[1:2] == ["proxy"]:
        _fork_workers()
    slotferry.__main__.main()


def _fork_workers() -> None:
    spawn = processes.spawn
    server = own_server("proxy.worker.worker")

    async def forked(arguments: Sequence[str], descriptors: Sequence[int]) -> object:
        command = len(processes.WORKER_COMMAND)
        if tuple(arguments[:command]) != processes.WORKER_COMMAND:
            return await spawn(arguments, descriptors)
        numbers = {descriptor: descriptor for descriptor in descriptors}
        return Awaited(ask(server, arguments[command:], numbers, os.environ))

    processes.spawn = forked  # type: ignore[assignment]
