"""CLIENT UNBLOCK: its own reply, and the reply to the client that it unblocks."""

from collections.abc import Awaitable, Callable

import pytest

from slotferry.redis_server import RedisServer
from slots.states import SlotState
from tests.integration.worker.blocked import blocked_at
from tests.integration.worker.harness import WorkerHarness, slot_of
from tests.integration.worker.wire import Wire

StartWorker = Callable[..., Awaitable[WorkerHarness]]
pytestmark = pytest.mark.parametrize("kept", [0, 3], ids=["made", "kept"])
KEY = "some-key"
SLOT = slot_of(KEY)


@pytest.mark.parametrize("protocol", [2, 3])
async def test_client_unblock(worker: WorkerHarness, plain: RedisServer, protocol: int) -> None:
    owner = worker.servers[0 if slot_of("{t}") < 512 else 1]
    for line, count in (
        ("BLPOP {t}k 0", 1),
        ("BLMOVE {t}k {t}to LEFT LEFT 10", 1),
        ("XREAD BLOCK 0 STREAMS {t}k $", 1),
        ("WAIT 2 0", 2),
    ):
        for reason in ([], ["timeout"], ["ERROR"]):
            heard = []
            for address, at, clients in ((worker.settings.listen, owner, count), (plain.address, plain, 1)):
                async with Wire(address, protocol) as wire, Wire(address) as other:
                    number = int((await wire.say("CLIENT", "ID"))[1:])
                    wire.send(*line.split())
                    await blocked_at(at)
                    if clients == 2:
                        await blocked_at(worker.servers[0])
                        await blocked_at(worker.servers[1])
                    said = await other.say("CLIENT", "UNBLOCK", number, *reason)
                    heard.append((said, await wire.heard(), await other.say("CLIENT", "UNBLOCK", number)))
            assert heard[0] == heard[1], (line, reason)
            assert heard[0][0] == b":1\r\n"


async def test_client_unblock_of_one_whose_slot_is_locked(start_worker: StartWorker) -> None:
    worker = await start_worker()
    for reason, reply in (
        (["TIMEOUT"], b"*-1\r\n"),
        (["ERROR"], b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"),
    ):
        async with Wire(worker.settings.listen) as wire, Wire(worker.settings.listen) as other:
            number = int((await wire.say("CLIENT", "ID"))[1:])
            wire.send("BLPOP", KEY, 0)
            await blocked_at(worker.servers[0])
            await worker.act([SLOT], SlotState.PREPARED)
            assert await other.say("CLIENT", "UNBLOCK", number, *reason) == b":1\r\n"
            assert await wire.heard() == reply
            await worker.act([SLOT], SlotState.PREPARING)
