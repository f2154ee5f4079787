"""A client that says no more while its command waits at a server: what was taken for it by then is its own."""

import os
import signal
import socket

import pytest

from tests.integration.worker.blocked import blocked_at
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.wire import Wire


@pytest.mark.parametrize("kept", [0, 3], ids=["made", "kept"])
@pytest.mark.parametrize("first", ["element", "end"])
@pytest.mark.parametrize("line", ["BLPOP k 0", "BRPOPLPUSH k {k}d 0", "XREADGROUP GROUP g c BLOCK 0 STREAMS s >"])
async def test_its_element_and_its_end_come_in_one_turn(
    start_worker: StartWorker, line: str, first: str, kept: int
) -> None:
    """given a worker that stands still while both come."""
    worker = await start_worker(servers=1)
    async with Wire(worker.servers[0].address) as direct, Wire(worker.settings.listen) as wire:
        await direct.say("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
        wire.send(*line.split())
        await blocked_at(worker.servers[0])
        os.kill(worker.process.pid, signal.SIGSTOP)
        try:
            if first == "end":
                wire.writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
            await direct.say("RPUSH", "k", "element")
            await direct.say("XADD", "s", "1-1", "f", "element")
            if first == "element":
                wire.writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
        finally:
            os.kill(worker.process.pid, signal.SIGCONT)
        assert b"element" in await wire.ended()
