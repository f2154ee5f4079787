"""What has to be true."""

import asyncio
import re
from typing import Any

import httpx
import pytest

from slotferry.calls import TopomRefused
from slots.reserved import RESERVED
from tests.behaviour import when
from tests.behaviour.clients import Clients
from tests.behaviour.unusual import Amid
from tests.behaviour.whole import GROUPS, WholeCluster
from tests.certificates import UNENCRYPTED
from tests.integration.cluster.harness import LIMIT, Counting, eventually, log_of, plain_client
from tests.integration.cluster.held import goes_on, wakes_in_vain
from topom.api.probes import STORE


async def clients_go_on_without_an_error(clients: Clients) -> None:
    """Every client has more answers, and none has ever had an error."""
    await clients.go_on()
    assert not clients.errors, clients.errors[:5]


async def its_clients_go_on(counting: Counting) -> None:
    """Every one of them has another answer that is not an error."""
    await counting.progress()


async def its_clients_had_no_error(counting: Counting) -> None:
    """None up to now, and every one has another answer."""
    await counting.progress()
    assert not counting.errors, counting.errors[:5]


async def it_serves_again(cluster: WholeCluster, number: int) -> None:
    """A topom that was started again says that it is well, and the leader lists it."""
    await eventually(lambda: cluster.readiness(number), lambda said: said == "ok", "the topom to be well")

    async def listed() -> bool:
        entries = (await cluster.api.status())["topoms"]
        return (cluster.urls[number], True) in {(one["url"], one["state"] in ("leads", "follows")) for one in entries}

    await eventually(listed, bool, "the topom to be listed")


async def the_proxy_says_that_it_serves(cluster: WholeCluster, number: int) -> None:
    """At ``/readyz``; and topom knows two proxies, both online."""

    async def status() -> int:
        async with httpx.AsyncClient(timeout=5, trust_env=False, verify=UNENCRYPTED) as client:
            try:
                return (await client.get(f"http://{cluster.health_addresses[number]}/readyz")).status_code
            except httpx.HTTPError:
                return 0

    await eventually(status, lambda found: found == httpx.codes.OK, "the proxy to serve")
    await cluster.online(2)


async def no_proxy_was_lost(cluster: WholeCluster) -> None:
    """Each of them left before it ended: topom had to wait for none, and to fence none."""
    for topom in cluster.topoms:
        assert "proxy_lost" not in [entry.get("event") for entry in log_of(topom)]


async def the_slots_arrive(cluster: WholeCluster, group: int, first: int) -> None:
    """All slots come to rest, the ``first`` ones in this group, and every key is where it belongs."""
    await cluster.at_rest()
    assert {slot["group_id"] for slot in (await cluster.api.slots())["slots"][:first]} == {group}


async def no_key_is_lost_or_misplaced(cluster: WholeCluster) -> None:
    """Untouched slots are as they were, and every key is where it belongs."""
    await cluster.check_ballast()
    assert await cluster.misplaced() == []


async def every_topom_says_that_nothing_can_be_changed(cluster: WholeCluster) -> None:
    """At ``/readyz``, with the reason in its status and at the head of ``slotferry status``, and to who tries."""
    for number in range(len(cluster.topoms)):
        said = await eventually(
            lambda number=number: cluster.reason(number),  # type: ignore[misc]
            lambda said: "etcd" in said,
            "a topom to say that the store is cut off",
        )
        # Of every server it says what is the matter.
        assert not re.search(r": [;.]", said), said
        # Who shows no token is told no address.
        assert await cluster.readiness(number) == STORE
    with pytest.raises(TopomRefused, match="etcd"):
        await cluster.api.move_slots("1023", 1)
    assert "NOTHING CAN BE CHANGED NOW" in (await when.operator_says(cluster, "status")).out


async def topoms_are_well_again(cluster: WholeCluster) -> None:
    """One leads, and all topoms agree on it."""
    await cluster.all_well()
    assert "NOTHING CAN BE CHANGED" not in (await when.operator_says(cluster, "status")).out


async def the_master_is(cluster: WholeCluster, group: int, address: str) -> None:
    """In the slot table, and by what the server itself says."""
    await eventually(cluster.masters, lambda found: found[group] == address, f"{address} to be the master")
    async with plain_client(address) as client:
        assert (await client.info("replication"))["role"] == "master"


async def a_promotion_is_refused(cluster: WholeCluster, group: int) -> None:
    """With the Sentinel as the reason, and without anything being locked."""
    before = (await cluster.api.status())["epoch"]
    master, replica = (await cluster.members())[group]
    outcome = await when.operator_says(cluster, "group", "promote", str(group), replica)
    assert outcome.status != 0
    assert f"Sentinel {cluster.sentinels[0].address} does not answer" in outcome.err, outcome
    assert (await cluster.api.status())["epoch"] == before
    await the_master_is(cluster, group, master)


async def every_sentinel_names(cluster: WholeCluster, group: int, master: str) -> None:
    """As the group's master."""

    async def named() -> set[str | None]:
        return {await sentinel.names(group) for sentinel in cluster.sentinels}

    await eventually(named, lambda found: found == {master}, f"every Sentinel to name {master}")


async def the_others_follow(cluster: WholeCluster, group: int) -> None:
    """The other servers of a group are replicas of its master, and have all that it has."""

    async def look() -> bool:
        master, *replicas = (await cluster.members())[group]
        async with plain_client(master) as client:
            said = await client.info("replication")
        followers = {said[f"slave{n}"]["port"] for n in range(said["connected_slaves"]) if _whole(said[f"slave{n}"])}
        return said["role"] == "master" and {int(one.rpartition(":")[2]) for one in replicas} <= followers

    await eventually(look, bool, f"the replicas of group {group} to follow")


def _whole(follower: dict[str, Any]) -> bool:
    return bool(follower["state"] == "online")


async def errors_name_the_master(counting: Counting, address: str) -> None:
    """Every error that a client got names the server."""
    assert all(address in error for error in counting.errors), counting.errors[:5]


async def protection_is_on(cluster: WholeCluster) -> None:
    """``slotferry protection show`` says so, and how many are lost."""
    await eventually(cluster.api.protection, lambda said: bool(said["active"]), "protection to be on")
    outcome = await when.operator_says(cluster, "protection", "show")
    assert "protection is on: nothing is done by itself; 3 of 8 members lost" in outcome.out, outcome


async def protection_is_over(cluster: WholeCluster) -> None:
    """No member is lost any more."""
    await eventually(cluster.api.protection, lambda said: (said["active"], said["lost"]) == (False, 0), "nobody lost")


async def topom_says_why_the_master_is_not_replaced(cluster: WholeCluster, group: int) -> None:
    """topom has looked, found the failed master, and left it as it is."""

    async def reason() -> str:
        return next(str(found["reason"]) for found in await cluster.api.groups() if found["id"] == group)

    await eventually(reason, lambda said: "slotferry protection off" in said, "topom to say why")
    assert "its master has failed and is not replaced yet" in (await when.operator_says(cluster, "status")).out


async def topom_says_that_the_pause_keeps_it(cluster: WholeCluster, group: int, why: str) -> None:
    """``slotferry status`` says so, at the top and of the group whose master has failed."""

    async def said() -> list[str]:
        return (await when.operator_says(cluster, "status")).out.splitlines()

    def of_the_group(lines: list[str]) -> str:
        return next((line for line in lines if f"group {group}: its master has failed" in line), "")

    lines = await eventually(said, lambda lines: why in of_the_group(lines), "topom to say why")
    assert lines[0].startswith("PAUSED: "), lines[0]
    assert why in lines[0]


async def nothing_was_changed(cluster: WholeCluster, epoch: int) -> None:
    """The slot table is the same."""
    assert (await cluster.api.status())["epoch"] == epoch


async def a_former_leader_changes_nothing(cluster: WholeCluster, leader: int, former: int) -> None:
    """It goes on, finds that another topom leads, and follows."""
    await wakes_in_vain(cluster, leader, former)


async def the_new_leader_brings_the_slots(cluster: WholeCluster, leader: int, group: int) -> None:
    """To where they go."""
    await goes_on(cluster, leader, group)


async def the_slots_have_not_gone_back(cluster: WholeCluster, state: str) -> None:
    """Topom goes on with what is stored: it begins nothing by itself, and undoes nothing from ``migrating`` on."""
    may_be = {"preparing": {"pending", "preparing", "prepared"}, "prepared": {"preparing", "prepared"}}
    assert set(await cluster.states()) <= {""} | may_be.get(state, {state})


async def a_group_is_locked(cluster: WholeCluster) -> None:
    """Another server of it is being made its master."""
    await eventually(
        cluster.api.groups,
        lambda found: any(group["locked"] for group in found),
        "a group to be locked for a promotion",
    )


async def a_server_of_the_pool_joins(cluster: WholeCluster, node: str) -> None:
    """It is in a group, and not whole."""

    async def found() -> bool:
        servers = [server for group in await cluster.api.groups() for server in group["servers"]]
        return any(server["node"] == node and server["joining"] for server in servers)

    await eventually(found, bool, f"a server on {node} to join")


async def the_list_says(cluster: WholeCluster, who: str, why: str, waits_for: str) -> None:
    """The list of what leaves: each with its reason and what it waits for."""
    await eventually(
        lambda: leaving(cluster), lambda found: any(waits_for in one for one in found), f"{waits_for!r} to be said"
    )
    said = (await when.operator_says(cluster, "status")).out
    line = next(line for line in said.splitlines() if line.startswith(f"{who} leaves: "))
    assert line.startswith(f"{who} leaves: {why}; ")
    assert waits_for in line, line


async def leaving(cluster: WholeCluster) -> list[str]:
    """What is on the list of what leaves, with its reason and what it waits for."""
    entries = (await cluster.api.status())["leaving"]
    return [f"{entry['kind']} {entry['id']}: {entry['why']}: {entry['reason']}" for entry in entries]


async def nobody_leaves_any_more(cluster: WholeCluster) -> None:
    """Everything that was on the list is gone."""
    await eventually(lambda: leaving(cluster), lambda found: not found, "the list of those leaving to be empty")


async def the_servers_are(cluster: WholeCluster, group: int, *addresses: str) -> None:
    """By the slot table, the master first."""
    await eventually(cluster.members, lambda found: found[group] == [*addresses], f"group {group} to be {addresses}")


async def it_is_read_from(cluster: WholeCluster, address: str) -> None:
    """It is read from by clients that read from replicas."""

    async def gets() -> int:
        async with plain_client(address) as client:
            said = await client.info("commandstats")
        return int(said.get("cmdstat_get", {}).get("calls", 0))

    await eventually(gets, bool, f"{address} to be read from")


async def it_is_not_taken_without_leave(cluster: WholeCluster, group: int, address: str) -> None:
    """It has keys, and the operator has not said that they may be lost."""
    before = await cluster.members()
    outcome = await when.operator_says(cluster, "server", "add", str(group), address)
    assert outcome.status != 0
    assert "--wipe" in outcome.err, outcome
    assert await cluster.members() == before


async def it_has_what_its_master_has(cluster: WholeCluster, group: int, address: str) -> None:
    """Nothing of what it had before is left."""
    await the_others_follow(cluster, group)
    async with plain_client(address) as client:
        assert await client.exists("gone") == 0


async def the_group_is_gone(cluster: WholeCluster, group: int) -> None:
    """The group is gone, and nothing is left at its server."""
    await nobody_leaves_any_more(cluster)
    assert group not in await cluster.masters()
    async with plain_client(cluster.groups[0][-1]) as client:
        assert [key async for key in client.scan_iter() if not key.startswith(RESERVED)] == []


async def its_clients_go_when_they_can(cluster: WholeCluster, number: int, amid: Amid) -> None:
    """All clients leave a draining proxy, except those in the middle of something. The proxy ends after these, and has
    left topom."""
    process, address = cluster.proxies[number], cluster.proxy_addresses[number]
    assert await amid.blocked.ended() == b""

    async def clients() -> list[tuple[bool, str, int]]:
        found = [proxy for proxy in await cluster.api.proxies() if proxy["address"] == address]
        return [(proxy["draining"], proxy["state"], proxy["counters"]["clients"]) for proxy in found]

    await eventually(clients, lambda found: found == [(True, "online", 2)], "the rest to leave")
    assert process.running
    await amid.come_to_their_ends()
    assert await process.wait(LIMIT) == 0
    assert address not in [proxy["address"] for proxy in await cluster.api.proxies()]
    worker = [entry for entry in log_of(process) if entry.get("event") == "worker_drained"][-1]
    assert worker["cut"] == worker["unanswered"] == 0


async def every_group_is_on(cluster: WholeCluster, *nodes: str) -> None:
    """With one server on each of these nodes, all of them whole, and none elsewhere."""
    await nobody_leaves_any_more(cluster)
    found = await cluster.api.groups()
    assert {group["id"]: sorted(server["node"] for server in group["servers"]) for group in found} == dict.fromkeys(
        GROUPS, sorted(nodes)
    )
    for group in GROUPS:
        await the_others_follow(cluster, group)


async def placement_has_made_the_copies(cluster: WholeCluster) -> None:
    """The drain has left the copies to placement, and has taken no server of the pool by itself."""
    events = [event["what"] for event in (await cluster.api.events(limit=500))["events"]]
    assert "placement_begun" in events


async def it_rests(cluster: WholeCluster) -> None:
    """No placement is under way or due. Nothing happens for longer than a step takes."""

    async def news() -> Any:
        last = (await cluster.api.events(limit=1))["newest"]
        await asyncio.sleep(2.5)
        return (await cluster.api.events(since=last))["events"]

    await eventually(
        cluster.api.placement,
        lambda found: found["run"] is None and not found["plan"]["steps"],
        "nothing to be placed",
    )
    await eventually(news, lambda found: not found, "nothing to happen any more")
    found = await cluster.api.placement()
    assert found["run"] is None
    assert not found["plan"]["steps"]
