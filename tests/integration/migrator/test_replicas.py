"""Whether replicas of a real server have all that it has, whatever connection wrote it."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from migrator import options
from migrator.errors import TooFewReplicas
from migrator.replicas import confirm
from slotferry.redis_server import start_redis
from slots.access import ServerAccess
from tests.integration.migrator.pairs import INSTANCE, client_of
from tests.integration.rdb.servers import NAMES, binaries, started


@pytest.mark.long
@pytest.mark.parametrize("which", NAMES)
async def test_replicas_have_what_any_connection_wrote(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "CONFIRM_SECONDS", 0.3)

    async def confirmed(replicas: int | None) -> None:
        await confirm(master.address, replicas, access=ServerAccess(), instance=INSTANCE)

    async with started(which, tmp_path) as master, client_of(master) as writer:
        await writer.config_set("repl-diskless-sync-delay", 0)
        await confirmed(None)  # there is none to wait for
        replica = await start_redis("replica", tmp_path, binary=binaries()[which])
        try:
            async with client_of(replica) as redis:
                await redis.replicaof("127.0.0.1", master.port)
            async with asyncio.timeout(30):
                while (await writer.info("replication")).get("slave0", {}).get("state") != "online":
                    await asyncio.sleep(0.02)
            await writer.set("key", "before")
            monkeypatch.setattr(options, "CONFIRM_SECONDS", 30.0)
            await confirmed(1)
            await confirmed(None)
            os.kill(replica.pid, signal.SIGSTOP)
            await writer.set("key", "lost with the master")
            monkeypatch.setattr(options, "CONFIRM_SECONDS", 0.3)
            for replicas, says in ((1, "migration_min_replicas is 1"), (None, "not all of the 1 replicas")):
                with pytest.raises(TooFewReplicas, match=says):
                    await confirmed(replicas)
            monkeypatch.setattr(options, "CONFIRM_SECONDS", 30.0)
            waiting = asyncio.create_task(confirmed(1))
            os.kill(replica.pid, signal.SIGCONT)
            await waiting
            async with client_of(replica) as redis:
                assert await redis.get("key") == b"lost with the master"
        finally:
            os.kill(replica.pid, signal.SIGCONT)
            await replica.stop()
