"""Servers where the proxy's user may use no channels: who would be told by them gets a clear error, until it may."""

import pytest

from slots.slot import Slot
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.harness import WorkerHarness
from tests.integration.worker.overslots import FAR, NEAR
from tests.integration.worker.replicated import eventually
from tests.integration.worker.wire import Wire

RULES = ("proxy", "on", ">inner", "~*", "resetchannels", "+@all")
REFUSED = b"NOPERM this user has no permissions to access one of the channels used as arguments"
ADVICE = b"(allow this proxy's user there +subscribe and &*)"


async def started(start_worker: StartWorker) -> WorkerHarness:
    worker = await start_worker(extra=["--user", *RULES], redis_user="proxy", redis_password="inner")
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    return worker


async def allow(worker: WorkerHarness) -> None:
    for server in worker.servers:
        async with Wire(server.address) as wire:
            assert await wire.say("ACL", "SETUSER", "proxy", "&*") == b"+OK\r\n"


@pytest.mark.parametrize("way", ["tracks", "waits"])
async def test_who_would_be_told_by_such_servers(start_worker: StartWorker, way: str) -> None:
    worker = await started(start_worker)
    request = ("CLIENT", "TRACKING", "ON") if way == "tracks" else ("BLPOP", NEAR, FAR, "0.2")
    done = b"+OK\r\n" if way == "tracks" else b"_\r\n"
    async with Wire(worker.settings.listen, protocol=3) as wire:
        for _ in range(3):
            said = await wire.say(*request)
            assert REFUSED in said
            assert ADVICE in said
        await allow(worker)

        async def look() -> bool:
            return await wire.say(*request) == done

        await eventually(look, "the request to be taken")
