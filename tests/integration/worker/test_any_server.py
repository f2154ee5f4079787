"""Commands that any server may answer."""

from collections.abc import Awaitable, Callable

import pytest

from slots.group import Group
from tests.integration.worker.conversations import Talk
from tests.integration.worker.harness import WorkerHarness
from tests.integration.worker.replicated import PERIOD, PROMPT, Replicated, calls, eventually, to

StartWorker = Callable[..., Awaitable[WorkerHarness]]
KEY = "some-key"
WRITE = ("EVAL", "return redis.call('publish', 'a', 'b')", 0)


async def test_one_owner_no_replica_is_asked_while_its_master_is_down(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, extra=PROMPT, replica_reads=True, replica_check_seconds=PERIOD)
    async with Replicated.around(worker) as replicated:
        replica = await replicated.add(1)
        await worker.apply(groups=replicated.groups())
        await replicated.reading(1024)
        async with Talk(worker.settings.listen) as talk:

            async def connected() -> bool:
                before = await calls(replica, "get")
                assert await talk.ask("GET", KEY) == b"$-1\r\n"
                return await calls(replica, "get") > before

            await eventually(connected, "reads from the replica")
            await worker.servers[0].kill()
            before = await calls(replica, "eval")
            said = await talk.ask(*WRITE)
            assert worker.servers[0].address.encode() in said, said
            assert await calls(replica, "eval") == before


@pytest.mark.parametrize("promoted", [0, 1])
async def test_one_owner_after_a_failover_it_is_the_new_master(start_worker: StartWorker, promoted: int) -> None:
    worker = await start_worker(servers=1, extra=PROMPT, replica_reads=True, replica_check_seconds=PERIOD)
    async with Replicated.around(worker) as replicated, Talk(worker.settings.listen) as talk:
        replicas = [await replicated.add(1) for _ in range(2)]
        await worker.apply(groups=replicated.groups())
        await replicated.reading(1024)
        for number in range(50):
            assert await talk.ask("GET", f"k{number}") == b"$-1\r\n"
        new, other = replicas[promoted], replicas[1 - promoted]
        async with to(new) as client:
            await client.replicaof("NO", "ONE")
        async with to(other) as client:
            await client.replicaof("127.0.0.1", str(new.port))
        await worker.apply(groups=[Group(1, (new.address, other.address))])
        await replicated.reading(1024)
        for number in range(50):
            assert await talk.ask("GET", f"k{number}") == b"$-1\r\n"
        before = await calls(new, "eval")
        for _ in range(5):
            assert await talk.ask(*WRITE) == b":0\r\n"
        assert await calls(new, "eval") == before + 5
