"""A source of a move by keys restarts with older data: what comes back with it, and that topom tells of the restart."""

import pytest

from slots.functions import slot
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import eventually, plain_client

MOVED = 256


@pytest.mark.long
async def test_what_comes_back_with_older_data_and_an_event_of_the_restart(start_cluster: StartCluster) -> None:
    """given keys that have moved and were used at the target, when their source restarts with data from before, then
    what clients have written stays, and what they have deleted is back. An event and a note say that."""
    cluster = await start_cluster(groups=2, proxies=1, workers=1, slots_on=[1])
    names = [name for number in range(2000) if slot("crc32", (name := f"key-{number}").encode(), 1024) < MOVED]
    changed, deleted, expired, renamed, popped = names[:10], names[10:20], names[20:25], names[25:30], names[30:40]
    source = cluster.servers[1][0]
    async with plain_client(cluster.proxy_addresses[0]) as client, plain_client(source.address) as direct:
        for name in names[:30]:
            await client.set(name, "old")
        for name in popped:
            await client.rpush(name, "old")
        await client.mset(dict.fromkeys(names[40:], "old"))
        await direct.save()
        await cluster.api.set_migration(keys_per_second=2)
        await cluster.api.move_slots(f"0-{MOVED - 1}", 2)
        await cluster.moving(1)
        for name in changed:
            await client.set(name, "new")
        assert await client.delete(*deleted) == len(deleted)
        for name in expired:
            await client.pexpire(name, 1)
        for name in renamed:
            await client.rename(name, f"{{{name}}}:new")
        for name in popped:
            assert await client.lpop(name) == b"old"
        await eventually(lambda: client.exists(*expired), lambda found: not found, "keys to expire")
        assert not await direct.exists(*names[:40])
        await source.kill()
        source.start()
        await source.ready()

        async def told() -> list[str]:
            events = (await cluster.api.events(limit=1000))["events"]
            return [event["text"] for event in events if event["what"] == "source_restarted"]

        (text,) = await eventually(told, bool, "an event of the restart")
        assert text.startswith(f"{source.address} was restarted while keys moved; if its data are older, ")
        (batch,) = (await cluster.api.migration())["batches"]
        assert any(text.startswith(note) for note in batch["notes"])
        await cluster.api.set_migration(keys_per_second=0)
        await cluster.at_rest({1: 1024 - MOVED, 2: MOVED})
        assert await client.mget(changed) == [b"new"] * 10, "RESTORE does not replace what clients have written"
        assert await client.mget([f"{{{name}}}:new" for name in renamed]) == [b"old"] * 5
        assert await client.exists(*deleted, *expired, *renamed, *popped) == 30, (
            "nobody can tell these from keys that never left"
        )
        assert len(await told()) == 1
