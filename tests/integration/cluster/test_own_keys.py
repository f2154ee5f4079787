"""Somebody's key where Slotferry's own have to be is put aside by topom, and no group is out of reach meanwhile."""

import pytest

from slots.reserved import ASIDE, FENCED, LEADER, SWEPT, WANTED
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import eventually, plain_client


@pytest.mark.long
async def test_a_wrong_type_is_put_aside_and_said(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(groups=1, proxies=1)
    async with plain_client(cluster.groups[1][0]) as direct, plain_client(cluster.proxy_addresses[0]) as client:
        for name in (FENCED, WANTED, LEADER):
            await direct.set(name, name)
        await direct.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

        async def works() -> bool:
            try:
                return bool(await client.set("key", "1"))
            except Exception:
                return False

        await eventually(works, bool, "clients to be served")
        await eventually(lambda: direct.exists(FENCED), lambda there: not there, "the name to be free for marks")
        removed = (await cluster.api.proxies())[0]
        await cluster.api.remove_proxy(removed["id"])
        await eventually(lambda: direct.hkeys(FENCED), bool, "the fence of the proxy that was removed")
        for name in (FENCED, WANTED, LEADER):
            assert await direct.get(ASIDE + name.removeprefix(b"__slotferry:")) == name
        events = (await cluster.api.events())["events"]
        [text] = [event["text"] for event in events if event["what"] == "own_key_put_aside"]
        assert "__slotferry:fenced, __slotferry:leader, __slotferry:wanted" in text


async def test_keys_of_somebody_elses_are_said_when_a_filled_server_is_added(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(groups=2, proxies=1, slots_on=[1])
    [second] = cluster.groups[2]
    async with plain_client(second) as direct:
        await cluster.api.remove_group(2)
        await direct.set(WANTED, "mine")
        await direct.hset(LEADER, "who", "me")
        await direct.hset(SWEPT, "swept", "ours")
        added = await cluster.api.add_group(2, [second])
    assert added["strangers"] == [name.decode() for name in (WANTED, LEADER)]
