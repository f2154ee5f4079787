"""What Slotferry does when something is changed or breaks, over everything that a real cluster has, while clients work.

Each feature is short, and leaves the cluster well. They run fastest in this order. The tests of the parts go further:
what late leaders do (``cluster/test_leaders.py``), Sentinels (``test_sentinels.py``), failures of masters
(``test_masters.py``), promotions (``test_promotion.py``), all of them in ``tests/integration``. The operator's steps
here are those of ``docs/deploy.md``, ``docs/leaving.md`` and ``docs/operations.md``.
"""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.behaviour import given, then, when
from tests.behaviour.unusual import Amid, Reader
from tests.behaviour.whole import WholeCluster
from tests.integration.cluster.harness import running
from tests.integration.cluster.held import MOVED, STATES, held
from tests.integration.stores.servers import need_etcd


@pytest.fixture(scope="module")
def whole_cluster() -> Iterator[WholeCluster]:
    """Three topoms over three etcd, three groups of a master and a replica, three Sentinels, two proxies."""
    need_etcd()
    yield from running(WholeCluster())  # type: ignore[misc]


@pytest.fixture
async def cluster(whole_cluster: WholeCluster) -> AsyncIterator[WholeCluster]:
    """The same for every feature; each leaves it well."""
    async with whole_cluster.visit():
        await given.all_is_well(whole_cluster)
        await given.keys_nobody_touches(whole_cluster)
        yield whole_cluster


async def test_a_master_that_is_killed_is_replaced_by_its_replica(cluster: WholeCluster) -> None:
    """The Sentinels choose, and the proxies follow. Slots that were on their way from that master arrive."""
    await given.every_master_has_its_replica(cluster)
    await given.the_sentinels_watch_every_group(cluster)
    move = await given.slots_on_their_way(cluster)
    await given.what_masters_have_is_at_their_replicas(cluster)
    master, replica = (await cluster.members())[move.source]
    hit = await given.clients_of_group(cluster, move.source)
    others = await given.clients_of_group(cluster, 3)
    async with hit, others:
        await when.servers_are_killed(cluster, [master])
        await then.the_master_is(cluster, move.source, replica)
        await then.its_clients_go_on(hit)
        await then.errors_name_the_master(hit, master)
        await then.its_clients_had_no_error(others)
        await when.they_are_started_again(cluster, [master])
        await when.moving_may_be_fast_again(cluster)
        await then.the_slots_arrive(cluster, move.target, MOVED)
    await others.check()
    await then.no_key_is_lost_or_misplaced(cluster)


async def test_the_store_is_cut_off_while_slots_move_and_comes_back(cluster: WholeCluster) -> None:
    """Topoms say so and change nothing; clients notice nothing; then it goes on where it was."""
    async with given.clients_at_work(cluster) as clients:
        move = await given.slots_on_their_way(cluster)
        await when.the_store_loses_its_majority(cluster)
        await then.every_topom_says_that_nothing_can_be_changed(cluster)
        await then.clients_go_on_without_an_error(clients)
        await when.the_store_is_back(cluster)
        await then.topoms_are_well_again(cluster)
        await when.moving_may_be_fast_again(cluster)
        await then.the_slots_arrive(cluster, move.target, MOVED)
        await then.clients_go_on_without_an_error(clients)
    await then.no_key_is_lost_or_misplaced(cluster)


async def test_a_replica_is_promoted_by_the_operator_though_sentinels_watch(cluster: WholeCluster) -> None:
    """They leave the group alone meanwhile and then watch its new master; no client has an error."""
    await given.every_master_has_its_replica(cluster)
    await given.the_sentinels_watch_every_group(cluster)
    async with given.clients_at_work(cluster) as clients:
        async with when.a_sentinel_hangs(cluster):
            await then.a_promotion_is_refused(cluster, 2)
        master = await when.the_replica_is_promoted(cluster, 2)
        await then.the_master_is(cluster, 2, master)
        await then.every_sentinel_names(cluster, 2, master)
        await then.the_others_follow(cluster, 2)
        await given.the_sentinels_watch_every_group(cluster)
        await then.the_master_is(cluster, 2, master)
        await then.clients_go_on_without_an_error(clients)
    await then.no_key_is_lost_or_misplaced(cluster)


async def test_topoms_and_proxies_are_upgraded_one_by_one(cluster: WholeCluster) -> None:
    """As ``docs/upgrading.md`` says: while slots move, and without a single client error.

    Topoms also get other settings on this occasion.
    """
    await given.topoms_are_to_decide_who_is_master(cluster)
    async with given.clients_at_work(cluster) as clients:
        move = await given.slots_on_their_way(cluster)
        for topom in await when.topoms_in_turn(cluster):
            await when.a_topom_is_started_again(cluster, topom)
            await then.it_serves_again(cluster, topom)
        for proxy in (0, 1):
            moved = clients.moved
            await when.a_proxy_is_started_again(cluster, proxy)
            await then.the_proxy_says_that_it_serves(cluster, proxy)
            await then.clients_go_on_without_an_error(clients)
            assert clients.moved > moved, "it had clients"
        await when.moving_may_be_fast_again(cluster)
        await then.the_slots_arrive(cluster, move.target, MOVED)
        await then.clients_go_on_without_an_error(clients)
    await then.no_proxy_was_lost(cluster)
    await then.no_key_is_lost_or_misplaced(cluster)


async def test_a_replica_is_promoted_by_the_operator_without_sentinels(cluster: WholeCluster) -> None:
    """Where topom decides who is master: nothing is lost, and no client has an error."""
    await given.topoms_decide_who_is_master(cluster)
    await given.every_master_has_its_replica(cluster)
    async with given.clients_at_work(cluster) as clients:
        master = await when.the_replica_is_promoted(cluster, 3)
        await then.the_master_is(cluster, 3, master)
        await then.clients_go_on_without_an_error(clients)
        await then.the_others_follow(cluster, 3)
    await then.no_key_is_lost_or_misplaced(cluster)


@pytest.mark.parametrize("state", STATES)
async def test_the_leader_is_killed_while_slots_are(cluster: WholeCluster, state: str) -> None:
    """Another topom leads and brings the slots to where they go; clients notice nothing."""
    await given.topoms_decide_who_is_master(cluster)
    async with given.checked_traffic(cluster):
        async with held(cluster, state) as move:
            killed = await when.the_leader_is_killed(cluster)
            leader = await when.another_topom_leads(cluster, killed)
            await then.the_slots_have_not_gone_back(cluster, state)
        await then.the_new_leader_brings_the_slots(cluster, leader, move.target)
        await when.a_killed_topom_is_started_again(cluster, killed)
    await then.no_key_is_lost_or_misplaced(cluster)


@pytest.mark.parametrize("state", ["prepared", "finished"])
async def test_the_leader_is_paused_while_slots_are(cluster: WholeCluster, state: str) -> None:
    """Another topom leads, as if the leader were dead. When the leader wakes, it changes nothing."""
    await given.topoms_decide_who_is_master(cluster)
    async with given.checked_traffic(cluster):
        async with held(cluster, state) as move:
            paused = await when.the_leader_is_paused(cluster)
            leader = await when.another_topom_leads(cluster, paused)
        await then.the_new_leader_brings_the_slots(cluster, leader, move.target)
        await then.a_former_leader_changes_nothing(cluster, leader, paused)
    await then.no_key_is_lost_or_misplaced(cluster)


async def test_half_of_the_servers_are_gone(cluster: WholeCluster) -> None:
    """topom does nothing about it by itself until they are back or the operator says so. The rest is served."""
    await given.topoms_decide_who_is_master(cluster)
    await given.every_master_has_its_replica(cluster)
    servers = await cluster.members()
    half = [servers[1][0], *servers[2]]
    before = (await cluster.api.status())["epoch"]
    one = await given.clients_of_group(cluster, 1)
    two = await given.clients_of_group(cluster, 2)
    three = await given.clients_of_group(cluster, 3)
    async with one, two, three:
        await when.servers_are_cut_off(cluster, half)
        await then.protection_is_on(cluster)
        await then.topom_says_why_the_master_is_not_replaced(cluster, 1)
        await then.its_clients_had_no_error(three)

        await when.they_are_reached_again(cluster, half)
        await then.protection_is_over(cluster)
        for clients in (one, two, three):
            await then.its_clients_had_no_error(clients)
        await then.nothing_was_changed(cluster, before)

    for clients in (one, two, three):
        await clients.check()
    await given.what_masters_have_is_at_their_replicas(cluster)
    async with one, two, three:
        await when.servers_are_killed(cluster, half)
        await then.protection_is_on(cluster)
        await then.topom_says_why_the_master_is_not_replaced(cluster, 1)
        await then.nothing_was_changed(cluster, before)

        await when.operator_says(cluster, "protection", "off")
        await then.the_master_is(cluster, 1, servers[1][1])
        await then.its_clients_go_on(one)
        await then.its_clients_had_no_error(three)

        await when.they_are_started_again(cluster, servers[1][:1])
        await when.they_are_started_again(cluster, servers[2])
        await then.its_clients_go_on(two)
        await then.protection_is_over(cluster)
        await then.the_others_follow(cluster, 1)
        await then.the_others_follow(cluster, 2)
    await two.check()
    await three.check()
    await then.no_key_is_lost_or_misplaced(cluster)


async def test_a_paused_topom_replaces_no_master_until_it_is_resumed(cluster: WholeCluster) -> None:
    """That holds whichever topom leads: hands off means hands off, and other groups are served."""
    await given.topoms_decide_who_is_master(cluster)
    await given.every_master_has_its_replica(cluster)
    await given.what_masters_have_is_at_their_replicas(cluster)
    master, replica = (await cluster.members())[1]
    one = await given.clients_of_group(cluster, 1)
    three = await given.clients_of_group(cluster, 3)
    async with one, three:
        await when.topom_is_paused(cluster, "switches are changed")
        killed = await when.the_leader_is_killed(cluster)
        await when.another_topom_leads(cluster, killed)
        before = (await cluster.api.status())["epoch"]
        await when.servers_are_killed(cluster, [master])
        await then.topom_says_that_the_pause_keeps_it(cluster, 1, "switches are changed")
        await then.its_clients_had_no_error(three)
        await then.nothing_was_changed(cluster, before)

        await when.topom_is_resumed(cluster)
        await then.the_master_is(cluster, 1, replica)
        await then.its_clients_go_on(one)
        await when.they_are_started_again(cluster, [master])
        await then.the_others_follow(cluster, 1)
        await when.a_killed_topom_is_started_again(cluster, killed)
        await then.its_clients_had_no_error(three)
    await three.check()
    await then.no_key_is_lost_or_misplaced(cluster)


async def test_a_replica_leaves_and_an_empty_server_joins(cluster: WholeCluster) -> None:
    """The one is gone at once, the other read from as soon as it is whole."""
    await given.topoms_decide_who_is_master(cluster)
    await given.every_master_has_its_replica(cluster)
    master, replica = (await cluster.members())[1]
    empty = await given.an_empty_server(cluster)
    async with given.clients_at_work(cluster) as clients:
        assert "has left group 1" in await when.a_server_is_drained(cluster, replica, "it is noisy")
        await then.the_servers_are(cluster, 1, master)
        await then.nobody_leaves_any_more(cluster)
        await when.a_server_joins(cluster, 1, empty)
        await then.the_servers_are(cluster, 1, master, empty)
        await then.it_has_what_its_master_has(cluster, 1, empty)
        await then.clients_go_on_without_an_error(clients)
    await when.what_has_left_is_switched_off(cluster)
    await then.no_key_is_lost_or_misplaced(cluster)


async def test_a_master_leaves_once_a_server_with_old_data_has_joined(cluster: WholeCluster) -> None:
    """The server is neither read nor promoted until it is whole. Then it takes over, without any of its old data."""
    await given.topoms_decide_who_is_master(cluster)
    master, replica = (await cluster.members())[2]
    stale = await given.a_server_with_old_data(cluster)
    async with given.clients_at_work(cluster) as clients, Reader(cluster.proxy_addresses[0], given.OLD) as reader:
        await when.a_server_is_drained(cluster, replica, "it is as old")
        await when.a_server_is_drained(cluster, master, "its disk is old")
        await then.the_list_says(cluster, f"server {master}", "its disk is old", "add a replica")
        await then.clients_go_on_without_an_error(clients)
        await then.it_is_not_taken_without_leave(cluster, 2, stale)
        async with when.no_copy_is_begun(cluster):
            await when.a_server_joins(cluster, 2, stale, "--wipe")
            await then.the_list_says(cluster, f"server {master}", "its disk is old", "can take over yet")
            await then.the_servers_are(cluster, 2, master, stale)
        await then.the_servers_are(cluster, 2, stale)
        await then.nobody_leaves_any_more(cluster)
        empty = await when.an_empty_server_fills_the_gap(cluster, 2)
        await then.it_has_what_its_master_has(cluster, 2, empty)
        await then.it_is_read_from(cluster, empty)
        await then.clients_go_on_without_an_error(clients)
    assert reader.seen == {"new"}
    await then.no_key_is_lost_or_misplaced(cluster)


async def test_a_group_leaves(cluster: WholeCluster) -> None:
    """Its slots go to the others while it serves them, and then it is gone."""
    await given.topoms_decide_who_is_master(cluster)
    await given.a_group_of_its_own(cluster, 4, "200-259")
    async with given.clients_at_work(cluster) as clients:
        await when.moving_is_to_be_slow(cluster)
        await when.a_group_is_drained(cluster, 4, "too many groups")
        await then.the_list_says(cluster, "group 4", "too many groups", "slots have to move to other groups first")
        await when.moving_may_be_fast_again(cluster)
        await then.the_group_is_gone(cluster, 4)
        await then.clients_go_on_without_an_error(clients)
    await then.no_key_is_lost_or_misplaced(cluster)


@pytest.mark.parametrize("leave", [when.a_proxy_is_drained, when.a_proxy_is_told_to_end])
async def test_a_proxy_leaves(cluster: WholeCluster, leave: when.Leave) -> None:
    """Its clients come back at the other proxy without an error. A client in the middle of a transaction may end it."""
    proxy = 0 if leave is when.a_proxy_is_drained else 1
    async with given.clients_at_work(cluster) as clients:
        moved = clients.moved
        async with Amid(cluster.proxy_addresses[proxy]) as amid:
            await leave(cluster, proxy)
            await then.its_clients_go_when_they_can(cluster, proxy, amid)
        await then.clients_go_on_without_an_error(clients)
        assert clients.moved > moved, "it had clients"
        cluster.proxies[proxy].start()
        await then.the_proxy_says_that_it_serves(cluster, proxy)
    await then.no_proxy_was_lost(cluster)


async def test_a_master_leaves_though_the_leader_hangs(cluster: WholeCluster) -> None:
    """That happens while the group is locked for its successor; another topom goes on, and the one that hung changes
    nothing when it wakes."""
    await given.topoms_decide_who_is_master(cluster)
    await given.every_master_has_its_replica(cluster)
    master, replica = (await cluster.members())[3]
    async with given.clients_at_work(cluster) as clients:
        async with when.a_proxy_acknowledges_nothing(cluster):
            await when.a_server_is_drained(cluster, master, "its memory fails")
            await then.a_group_is_locked(cluster)
            paused = await when.the_leader_is_paused(cluster)
            leader = await when.another_topom_leads(cluster, paused)
        async with cluster.asking(leader):
            await then.the_servers_are(cluster, 3, replica)
            await then.nobody_leaves_any_more(cluster)
        await then.a_former_leader_changes_nothing(cluster, leader, paused)
        await when.an_empty_server_fills_the_gap(cluster, 3)
        await then.clients_go_on_without_an_error(clients)
    await then.no_key_is_lost_or_misplaced(cluster)


async def test_a_node_leaves_while_topoms_die_and_hang(cluster: WholeCluster) -> None:
    """Its masters hand over, and servers of the pool take the places of all that were there.

    One leader is killed before any of the servers has gone, the next one while a server joins; then the third one
    hangs.
    """
    await given.topoms_decide_who_is_master(cluster)
    await given.every_master_has_its_replica(cluster)
    await given.servers_are_on_two_nodes(cluster, given.FIRST, given.SECOND)
    await given.servers_of_the_pool(cluster, given.THIRD)
    async with given.clients_at_work(cluster) as clients:
        async with when.no_copy_is_begun(cluster):
            async with when.a_proxy_acknowledges_nothing(cluster):
                await when.a_node_is_drained(cluster, given.FIRST, "its power supply fails")
                await then.the_list_says(cluster, f"node {given.FIRST}", "its power supply fails", "3 of its servers")
                killed = await when.the_leader_is_killed(cluster)
                await when.another_topom_leads(cluster, killed)
            await when.a_killed_topom_is_started_again(cluster, killed)
            await then.a_server_of_the_pool_joins(cluster, given.THIRD)
            killed = await when.the_leader_is_killed(cluster)
            await when.another_topom_leads(cluster, killed)
            await when.a_killed_topom_is_started_again(cluster, killed)
            await then.a_server_of_the_pool_joins(cluster, given.THIRD)
            paused = await when.the_leader_is_paused(cluster)
            leader = await when.another_topom_leads(cluster, paused)
        async with cluster.asking(leader):
            await then.every_group_is_on(cluster, given.SECOND, given.THIRD)
        await then.a_former_leader_changes_nothing(cluster, leader, paused)
        await then.clients_go_on_without_an_error(clients)
    await when.what_has_left_is_switched_off(cluster)
    await then.no_key_is_lost_or_misplaced(cluster)


async def test_a_node_leaves_where_placement_is_by_itself(cluster: WholeCluster) -> None:
    """Placement makes the copies elsewhere, and the drain makes the old servers leave. Neither undoes the other, and
    both come to rest."""
    await given.topoms_decide_who_is_master(cluster)
    await given.every_master_has_its_replica(cluster)
    await given.servers_are_on_two_nodes(cluster, given.SECOND, given.THIRD)
    await given.servers_of_the_pool(cluster, given.FOURTH)
    async with given.clients_at_work(cluster) as clients, when.placement_is_by_itself(cluster):
        await when.a_node_is_drained(cluster, given.SECOND, "its rack is needed")
        await then.every_group_is_on(cluster, given.THIRD, given.FOURTH)
        await then.placement_has_made_the_copies(cluster)
        await then.it_rests(cluster)
        await then.every_group_is_on(cluster, given.THIRD, given.FOURTH)
        await then.clients_go_on_without_an_error(clients)
    await when.what_has_left_is_switched_off(cluster)
    await then.no_key_is_lost_or_misplaced(cluster)
