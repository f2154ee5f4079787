"""A process that leads, is paused, and says what it believes when it wakes. Its argument: settings, in JSON."""

import asyncio
import json
import sys

from topom.store import STATE, StoreConflict
from topom.store.lease import clock
from topom.term.settings import TopomSettings
from topom.term.stores import open_store

LEASE_SECONDS = 2.0


async def lead(settings: TopomSettings) -> None:
    store = open_store(settings)
    await store.open()
    version = (await store.book(STATE).read()).version
    leadership = await store.campaign("1" * 32, "http://127.0.0.1:1", LEASE_SECONDS)
    before = clock()
    print("leads", flush=True)
    # Each look is compared with the one before, so that no pause falls between two of them.
    while (now := clock()) - before <= LEASE_SECONDS:
        before = now
        await asyncio.sleep(0.01)
    print("woke", leadership.valid(), leadership.lost.is_set(), flush=True)
    try:
        await store.book(STATE).write(version, version + 1, {"who": b"the old one"})
        print("wrote", flush=True)
    except StoreConflict:
        print("too late", flush=True)
    await store.close()
    print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(lead(TopomSettings.load(**json.loads(sys.argv[1]))))
