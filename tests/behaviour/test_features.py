"""What Slotferry does when something is changed or breaks, over everything that a real cluster has, while clients work.

Each feature is short. The tests of the parts go further: the leader in each state of a slot
(``cluster/test_leaders.py``), Sentinels (``test_sentinels.py``), failures of masters (``test_masters.py``), promotions
(``test_promotion.py``), what leaves (``test_leaving.py``), all of them in ``tests/integration``. What an operator does
here is what ``docs/deploy.md`` and ``docs/operations.md`` say.
"""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.behaviour import given, then, when
from tests.behaviour.whole import WholeCluster
from tests.integration.cluster.harness import running
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
    """The Sentinels choose, and the proxies follow; slots that were on their way from that master arrive."""
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
        await then.the_slots_arrive(cluster, move.target, given.MOVED)
    await others.check()
    await then.no_key_is_lost_or_misplaced(cluster)


async def test_the_topom_that_leads_is_killed_while_slots_move(cluster: WholeCluster) -> None:
    """Another one leads and brings the slots to where they go; clients notice nothing."""
    async with given.clients_at_work(cluster) as clients:
        move = await given.slots_on_their_way(cluster)
        killed = await when.the_leader_is_killed(cluster)
        await when.another_topom_leads(cluster, killed)
        await when.moving_may_be_fast_again(cluster)
        await then.the_slots_arrive(cluster, move.target, given.MOVED)
        await then.clients_go_on_without_an_error(clients)
        cluster.topoms[killed].start()
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
        await then.the_slots_arrive(cluster, move.target, given.MOVED)
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
    """As ``docs/deploy.md`` says under "Upgrades": while slots move, and without a single client error.

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
            assert clients.moved > moved, "it had clients"
            await then.the_proxy_says_that_it_serves(cluster, proxy)
            await then.clients_go_on_without_an_error(clients)
        await when.moving_may_be_fast_again(cluster)
        await then.the_slots_arrive(cluster, move.target, given.MOVED)
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


async def test_half_of_the_servers_are_gone(cluster: WholeCluster) -> None:
    """topom does nothing about it by itself, and the rest is served, until they are back or the operator says so."""
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
