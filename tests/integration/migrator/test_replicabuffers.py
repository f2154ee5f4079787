"""What a real target tells of a replica that does not read."""

import asyncio
import os
import signal

import pytest

from migrator import replicabuffers
from migrator.connection import Timeouts
from migrator.replicabuffers import ReplicasBehind, watch
from slots.access import ServerAccess
from tests.integration.migrator.pairs import Pair, client_of

LIMIT_SECONDS = 30.0


async def test_a_replica_that_stands_still_is_noticed_and_when_it_goes_on(
    fragile_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicabuffers, "MOST_BEHIND", 1 << 20)
    target, replica = fragile_pair.source, fragile_pair.target
    behind = ReplicasBehind(target.address, asyncio.get_running_loop().time)
    watching = asyncio.create_task(
        watch(target.address, "slotferry.test", ServerAccess(), Timeouts(), behind.take), name="watching"
    )
    try:
        async with asyncio.timeout(LIMIT_SECONDS), client_of(target) as master, client_of(replica) as follower:
            await master.config_set("repl-diskless-sync-delay", 0)
            await follower.replicaof("127.0.0.1", target.port)
            while (await follower.info("replication"))["master_link_status"] != "up":
                await asyncio.sleep(0.05)
            await asyncio.sleep(3 * replicabuffers.LOOK_SECONDS)
            assert behind.seconds == 0
            os.kill(replica.pid, signal.SIGSTOP)
            try:
                # The kernel takes the first megabytes.
                while not behind.seconds:
                    await master.set("key", bytes(1 << 20))
            finally:
                os.kill(replica.pid, signal.SIGCONT)
            while behind.seconds:
                await asyncio.sleep(0.05)
    finally:
        watching.cancel()
        await asyncio.wait((watching,))
