"""One server by two addresses, and servers at an address that belonged to another one: nothing is done to them."""

import os
import signal

import pytest

from slotferry.calls import TopomRefused
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import BALLAST, Cluster, eventually, plain_client


async def reasons(cluster: Cluster) -> dict[str, str]:
    """For each server in a group, why nothing is done to it."""
    servers = [server for group in await cluster.api.groups() for server in group["servers"]]
    return {server["address"]: str(server["not_used"] or "") for server in servers}


async def role_of(address: str) -> str:
    async with plain_client(address) as client:
        return str((await client.info("replication"))["role"])


@pytest.mark.long
async def test_one_server_by_two_addresses_is_refused_at_every_door(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(groups=2, proxies=1, workers=1, slots_on=[1])
    first = cluster.servers[1][0]
    alias = f"localhost:{first.port}"
    # When: it is added by its other name.
    for refused in (
        cluster.api.add_group(3, [alias]),
        cluster.api.add_server(1, alias, wipe=True),
        cluster.api.add_server(2, alias, wipe=True),
        cluster.api.add_to_pool(alias, wipe=True),
    ):
        with pytest.raises(TopomRefused, match=f"{alias} is the same server as {first.address}.*in group 1"):
            await refused
    spare = await cluster.add_server(1)
    with pytest.raises(TopomRefused, match="are the same server"):
        await cluster.api.add_group(3, [spare.address, f"localhost:{spare.port}"], wipe=True)

    # When: a replica of one group is added to another.
    async def filled() -> str:
        return await role_of(spare.address)

    await cluster.api.add_server(1, spare.address)
    await eventually(filled, lambda role: role == "slave", "the server that was in group 1 to be a replica")
    await cluster.api.remove_server(1, spare.address)
    held = f"{spare.address} is a replica of {first.address}, the master of group 1"
    with pytest.raises(TopomRefused, match=held):
        await cluster.api.add_server(2, spare.address)
    with pytest.raises(TopomRefused, match=f"{spare.address} is a replica of {first.address}"):
        await cluster.api.add_group(3, [spare.address], wipe=True)
    # When: it is added while it does not answer, so topom cannot know.
    os.kill(spare.pid, signal.SIGSTOP)
    assert (await cluster.api.add_server(2, spare.address, offline_ok=True))["silent"] == [spare.address]
    os.kill(spare.pid, signal.SIGCONT)

    async def waits_for() -> str:
        found = {server["address"]: server for group in await cluster.api.groups() for server in group["servers"]}
        return str(found[spare.address]["not_whole"])

    await eventually(waits_for, lambda reason: held in reason, "the copy of group 1 to be left alone")
    async with plain_client(spare.address) as client:
        assert (await client.info("replication"))["master_port"] == first.port
    await cluster.api.remove_server(2, spare.address)
    # Then: the new master fills it, if the operator says that its copy may be lost.
    await cluster.api.add_server(2, spare.address, wipe=True)

    async def followed() -> int:
        async with plain_client(spare.address) as client:
            return int((await client.info("replication"))["master_port"])

    await eventually(followed, lambda port: port == cluster.servers[2][0].port, "the server to follow group 2")
    assert [group["id"] for group in await cluster.api.groups()] == [1, 2]
    await eventually(lambda: reasons(cluster), lambda said: not any(said.values()), "nothing to be said of the servers")


@pytest.mark.long
async def test_a_server_that_is_found_to_be_another_one_is_left_alone(start_cluster: StartCluster) -> None:
    """It did not answer when its second name was added, so topom could not know. Its keys and its role stay."""
    cluster = await start_cluster(groups=2, proxies=1, workers=1, slots_on=[1])
    await cluster.load_ballast()
    server = cluster.servers[1][0]
    again, replica = f"localhost:{server.port}", f"127.1:{server.port}"
    os.kill(server.pid, signal.SIGSTOP)
    assert (await cluster.api.add_group(3, [again], offline_ok=True))["silent"] == [again]
    assert (await cluster.api.add_server(1, replica, wipe=True, offline_ok=True))["silent"] == [replica]
    os.kill(server.pid, signal.SIGCONT)

    async def found() -> dict[str, str]:
        return await reasons(cluster)

    def are_compared(said: dict[str, str]) -> bool:
        others = f"{again} in group 3" in said[server.address] and f"{replica} in group 1" in said[server.address]
        return others and bool(said[again]) and bool(said[replica])

    told = await eventually(found, are_compared, "the names to be compared")
    assert told[cluster.servers[2][0].address] == ""

    # When: slots are told to move from the server to itself, and from it to another one.
    await cluster.api.move_slots("0-511", 3)
    await cluster.api.move_slots("512-600", 2)

    async def waits() -> str:
        return str((await cluster.api.migration())["batches"])

    await eventually(waits, lambda text: text.count("are one server") >= 2, "both moves to be refused")
    await cluster.api.take_slots_offline("1023")
    with pytest.raises(TopomRefused, match="are one server"):
        await cluster.api.assign_slots("1023", 3)
    async with plain_client(server.address) as client:
        assert await client.dbsize() >= BALLAST
    assert await role_of(server.address) == "master"

    async def events() -> set[str]:
        return {event["what"] for event in (await cluster.api.events(limit=200))["events"]}

    await eventually(events, lambda found: "server_twice" in found, "the event that tells of it")
    # Then: once each name but one is gone, slots move.
    await cluster.api.remove_server(1, replica)
    await cluster.api.cancel_migration("0-511")
    await cluster.api.remove_group(3)
    await cluster.api.assign_slots("1023", 1)
    await cluster.at_rest()
    await eventually(found, lambda said: not any(said.values()), "nothing to be said of the servers")
    await cluster.check_ballast()
    assert await cluster.misplaced() == []
