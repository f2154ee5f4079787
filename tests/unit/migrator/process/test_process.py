"""The process has a thread for whatever its copies wait for."""

import asyncio
import threading
from pathlib import Path

from migrator.process.process import serve
from migrator.process.settings import MigratorSettings
from slots.messages.copies import MOST_COPIES
from slots.reloading import Reloading


async def test_copies_that_all_wait_for_their_snapshots_keep_nothing_else_waiting(tmp_path: Path) -> None:
    settings = MigratorSettings.checked({"topom": "http://127.0.0.1:1", "spool": tmp_path})
    waited = asyncio.Event()
    went_on = threading.Event()

    async def meanwhile(_: Reloading[MigratorSettings]) -> None:
        # A default pool has far fewer threads.
        waiting = [asyncio.create_task(asyncio.to_thread(went_on.wait)) for _ in range(MOST_COPIES // 8)]
        await asyncio.sleep(0)
        try:
            assert await asyncio.wait_for(asyncio.to_thread(lambda: "the disk"), 60) == "the disk"
        finally:
            went_on.set()
            await asyncio.gather(*waiting)
        waited.set()

    async with asyncio.timeout(60):
        await serve(settings, meanwhile)
    assert waited.is_set()
