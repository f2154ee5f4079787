"""newest-store: topom comes back with an older store, and nothing is done to servers by it, by whosever order."""

import asyncio
import json
import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from redis.exceptions import RedisError, ResponseError

from proxy.supervisor.kept_table.tablefile import TableFile
from slotferry.calls import TopomRefused
from slotferry.client import TopomClient
from slots.functions import slot
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Cluster, Counting, eventually, log_of, plain_client
from tests.integration.cluster.test_replica_reads import add_replica
from tests.integration.topom_process import HandProxy, TopomProcess, topom_process
from topom.cluster import lineage
from topom.term.stores import STORE_FILE

NAMES = [name for name in (f"key-{number}" for number in range(400)) if slot("crc32", name.encode(), 1024) < 512]
SERVED = ("registered", "serves_alone")
OLDER = "made after what the store holds, so the store is an older one"
LEASE = {"proxy_lease_seconds": 2}
AT_SERVER = "another topom, which has changed the owner of slots at"


def save(cluster: Cluster, to: Path) -> None:
    store = cluster.directory / "topom" / STORE_FILE
    with closing(sqlite3.connect(store)) as source, closing(sqlite3.connect(to)) as copy:
        source.backup(copy)


async def copied(cluster: Cluster) -> Path:
    """A data folder with a copy of the store, once every master is swept."""
    for group in cluster.groups:
        await cluster.swept(group)
    copy = cluster.directory / "copy"
    copy.mkdir()
    save(cluster, copy / STORE_FILE)
    return copy


def put_back(cluster: Cluster, saved: Path) -> None:
    """The disk of a topom that has ended is as it was then."""
    store = cluster.directory / "topom" / STORE_FILE
    for file in store.parent.glob(f"{STORE_FILE}*"):
        file.unlink()
    shutil.copy(saved, store)


@asynccontextmanager
async def topom_over(cluster: Cluster, copy: Path) -> AsyncIterator[tuple[TopomProcess, TopomClient]]:
    """A second topom, over a copy of the store; a client of its API."""
    settings = {**LEASE, "number_of_slots": 1024, "product": "local", "token": cluster.token}
    async with topom_process(copy, **settings) as other, TopomClient(other.url, cluster.token) as api:
        yield other, api


async def order_moves(api: TopomClient) -> None:
    """Have half of the slots moved to group 2: it is refused until the proxies that this topom knows are lost."""

    async def ordered() -> bool:
        with suppress(TopomRefused):
            await api.move_slots("0-511", 2)
            return True
        return False

    await eventually(ordered, bool, "the order to be taken")


async def begin_alone(cluster: Cluster, saved: Path) -> None:
    """No proxy is left that could tell, and topom comes back with the store that was saved."""
    assert await cluster.proxies[0].stop() == 0
    await cluster.topom.kill()
    put_back(cluster, saved)
    cluster.topom.start()


def table_of(store: Path, start: str, epoch: int) -> dict[str, Any]:
    """What a proxy knows that had a table of a topom over a copy of a saved store."""
    with closing(sqlite3.connect(store)) as connection:
        ((value,),) = connection.execute("SELECT value FROM documents WHERE name = 'starts'")
    cluster = json.loads(value)
    seal = lineage.seal(cluster["key"], start, epoch)
    return {"cluster": cluster["cluster"], "start": start, "epoch": epoch, "seal": seal}


class Place(NamedTuple):
    """Where a topom is."""

    url: str
    token: str


async def reasons(cluster: Cluster) -> list[str]:
    """Why topoms have ended."""
    return [str(entry["reason"]) for entry in log_of(cluster.topom) if entry.get("event") == "topom_failed"]


@pytest.mark.long
async def test_an_operator_s_order_waits_for_proxies_that_the_older_store_does_not_know(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    # given a store that was saved before there was a proxy, and slots and keys that have moved since
    cluster = await start_cluster(groups=2, proxies=1)
    proxy = cluster.proxies[0]
    for group in cluster.groups:
        await cluster.swept(group)
    assert await proxy.stop() == 0
    await cluster.online(0)
    save(cluster, tmp_path / "saved")
    proxy.start()
    await cluster.online(1)
    async with plain_client(cluster.proxy_addresses[0]) as client:
        await eventually(client.ping, bool, "the proxy to serve")
        await client.mset(dict.fromkeys(NAMES, "1"))
        await cluster.api.move_slots("0-511", 2)
        await cluster.at_rest({1: 0, 2: 1024})
        await client.mset(dict.fromkeys(NAMES, "2"))

        # when topom comes back with that store, and an operator acts by it before the proxy has spoken
        cluster.signal_proxy(0, signal.SIGSTOP)
        await cluster.topom.kill()
        await cluster.forget_marks()
        put_back(cluster, tmp_path / "saved")
        await cluster.restart_topom()
        order = asyncio.create_task(cluster.api.sweep_server(2, cluster.groups[2][0]))
        await eventually(cluster.api.status, lambda status: len(status["groups"]) == 2, "topom to answer")
        cluster.signal_proxy(0, signal.SIGCONT)

        # then the order is refused once the proxy has spoken, topom ends, and no key is lost
        with pytest.raises(TopomRefused, match=OLDER):
            await order
        assert await cluster.topom.wait(60) == 1
        assert [OLDER in reason for reason in await reasons(cluster)] == [True]
        assert await client.mget(NAMES) == [b"2"] * len(NAMES)

        # and no topom begins over that store again, though the proxy that knew more has ended
        assert await proxy.stop() == 0
        cluster.topom.start()
        assert await cluster.topom.wait(60) == 1
        assert [OLDER in reason for reason in await reasons(cluster)] == [True, True]


@pytest.mark.long
async def test_who_has_a_token_cannot_end_topom_with_a_table_that_it_invents(start_cluster: StartCluster) -> None:
    # given what every holder of a proxy's token is told
    cluster = await start_cluster(groups=2, proxies=1, topom_settings=LEASE)
    place = Place(cluster.topom_url, cluster.token)
    async with HandProxy(place) as told:
        async with asyncio.timeout(60):
            while told.known is None:
                await asyncio.sleep(0.02)
        known = told.known
    await cluster.topom.kill()
    await cluster.restart_topom()
    await cluster.online(1)

    # when it says that it has had a newer table, of a start that there was or that there never was
    for invented in ({"epoch": 10**9}, {"start": "invented", "epoch": 10**9}, {"start": "invented", "seal": "ab" * 32}):
        stranger = HandProxy(place)
        stranger.known = known | invented
        async with stranger:
            # then it gets no table
            assert "nothing shows that this cluster has made it" in stranger.refusals[0]["message"]
            assert stranger.table is None

    # and topom goes on
    await cluster.api.move_slots("0-511", 2)
    await cluster.at_rest({1: 0, 2: 1024})


@pytest.mark.long
async def test_an_operator_takes_a_store_for_the_newest_once_a_proxy_of_its_copy_has_gone(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    # given a proxy with a table that was made after a copy of the store, by a topom that a trial started over it
    cluster = await start_cluster(groups=2, proxies=1, topom_settings=LEASE)
    stranger = HandProxy(Place(cluster.topom_url, cluster.token))
    save(cluster, tmp_path / "store")
    stranger.known = table_of(tmp_path / "store", "of the trial", 10)
    async with stranger:
        assert OLDER in stranger.refusals[0]["message"]
    assert await cluster.topom.wait(60) == 1

    # when an operator says that this store is the newest
    cluster.topom.arguments.append("--newest-store")
    await cluster.restart_topom()

    # then topom goes on, also when it starts without that word
    await cluster.api.move_slots("0-511", 2)
    await cluster.at_rest({1: 0, 2: 1024})
    assert await cluster.topom.stop() == 0
    cluster.topom.arguments.pop()
    await cluster.restart_topom()
    await cluster.online(1)
    await cluster.api.move_slots("0-511", 1)
    await cluster.at_rest({1: 512, 2: 512})


@pytest.mark.long
async def test_a_proxy_that_a_topom_over_a_copy_has_fenced_writes_nothing_by_the_table_of_its_own(
    start_cluster: StartCluster,
) -> None:
    # given a client that counts all the time, and a copy of the store
    cluster = await start_cluster(groups=2, proxies=1, topom_settings=LEASE)
    copy = await copied(cluster)
    names, counts = NAMES[:20], Counter[str]()

    async def count() -> None:
        async with plain_client(cluster.proxy_addresses[0]) as client:
            while True:
                for name in names:
                    try:
                        counts[name] = max(counts[name], await client.incr(name))
                    except ResponseError:  # the proxy says that it cannot serve
                        return
                    except RedisError:  # it may have been counted
                        await asyncio.sleep(0.02)

    counting = asyncio.create_task(count())
    await eventually(lambda: asyncio.sleep(0, counts.total()), lambda total: total > 100, "the client to count")

    # when a topom over the copy moves the slots, of which that proxy's topom knows nothing
    async with (
        topom_over(cluster, copy) as (_, api),
    ):
        await order_moves(api)
        await eventually(
            api.status,
            lambda said: said["slots"]["moving"] == 0 and said["migration"]["slots_moved"] == 512,
            "all to have moved",
        )

        # then its own topom gives it no table once it has been fenced, and ends
        assert await cluster.topom.wait(60) == 1
        assert ["another topom, which has fenced a proxy off" in reason for reason in await reasons(cluster)] == [True]

        # and all that the client was told is where the slots are now
        await asyncio.wait_for(counting, 60)
        async with plain_client(cluster.groups[2][0]) as server:
            held = await server.mget(names)
        assert [name for name, value in zip(names, held, strict=True) if int(value or 0) < counts[name]] == []


@pytest.mark.long
async def test_a_topom_over_a_copy_moves_nothing_while_a_proxy_that_it_does_not_know_writes(
    start_cluster: StartCluster,
) -> None:
    # given a copy of the store from before the proxy came, and a client of that proxy
    cluster = await start_cluster(groups=2, proxies=0, topom_settings=LEASE)
    copy = await copied(cluster)
    await cluster.add_proxy()
    await cluster.online(1)
    names = NAMES[:20]
    async with (
        plain_client(cluster.proxy_addresses[0]) as client,
        topom_over(cluster, copy) as (_, api),
    ):
        for name in names:
            await client.incr(name)

        # when a topom over the copy is to move the slots
        await order_moves(api)

        # then no slot leaves its group, and the status says whom to end
        def waits(said: dict[str, Any]) -> bool:
            return "that topom does not know" in json.dumps(said["migration"])

        said = await eventually(api.status, waits, "the move to wait for the stranger")
        assert (said["migration"]["slots_moved"], said["migration"]["slots_moving"]) == (0, 0)
        for name in names:
            assert await client.incr(name) == 2

        # and it goes on once that proxy has ended
        await cluster.proxies[0].stop()
        await eventually(api.status, lambda said: said["migration"]["slots_moved"] == 512, "all to have moved")
    async with plain_client(cluster.groups[2][0]) as server:
        assert [int(value or 0) for value in await server.mget(names)] == [2] * len(names)


@pytest.mark.long
async def test_proxies_that_were_all_restarted_know_from_their_files(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    # given a proxy that keeps its table, and slots that have moved since the store was saved
    file = TableFile(tmp_path / "table")
    cluster = await start_cluster(groups=2, proxies=1, proxy_settings={"table_file": str(file.path)})
    save(cluster, tmp_path / "saved")
    await cluster.api.move_slots("0-511", 2)
    await cluster.at_rest({1: 0, 2: 1024})
    epoch = (await cluster.api.status())["epoch"]

    async def kept() -> int:
        found = file.read()
        return found.table.epoch if found is not None else 0

    await eventually(kept, lambda found: found == epoch, "the newest table to be kept")

    # when all processes have ended, and topom comes back with that store
    cluster.signal_proxy(0, signal.SIGKILL)
    await cluster.proxies[0].wait(60)
    await cluster.topom.kill()
    await cluster.forget_marks()
    put_back(cluster, tmp_path / "saved")
    await cluster.restart_topom()
    cluster.proxies[0].start()

    # then the proxy is a new one, and gets no table
    assert await cluster.topom.wait(60) == 1
    assert [OLDER in reason for reason in await reasons(cluster)] == [True]
    served = [entry["event"] for entry in log_of(cluster.proxies[0]) if entry.get("event") in SERVED]
    assert served == ["registered"], "it was so once, before it was killed"


@pytest.mark.long
async def test_a_proxy_that_comes_between_the_look_and_the_lock_keeps_what_it_has_acknowledged(
    start_cluster: StartCluster,
) -> None:
    # given a topom over a copy of the store, whose move was checked, and waits for a proxy before it locks
    cluster = await start_cluster(groups=2, proxies=0, topom_settings=LEASE)
    copy = await copied(cluster)
    async with (
        topom_over(cluster, copy) as (other, api),
        HandProxy(Place(other.url, cluster.token)) as known,
    ):
        known.withhold = lambda table: table.slots[0].action is not None
        await api.move_slots("0-511", 2)
        await eventually(
            lambda: asyncio.sleep(0, known.states), lambda states: "preparing" in states, "the move to be checked"
        )

        # when a proxy comes of which only the other topom knows, and the move may go on
        await cluster.add_proxy()
        await cluster.online(1)
        async with Counting(cluster.proxy_addresses[0]) as clients:
            known.withhold = lambda table: False
            await known.acknowledge()

            def done(said: dict[str, Any]) -> bool:
                waits = "that topom does not know" in json.dumps(said["migration"])
                return waits or said["migration"]["slots_moved"] == 512

            await eventually(api.status, done, "the move to wait for the stranger")
            await clients.progress()
        await clients.check()


@pytest.mark.long
async def test_a_proxy_that_was_fenced_by_no_change_of_the_table_tells_that_the_store_is_older(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    # given a proxy that hears nothing while an operator removes it and slots move, and a store that was saved before
    cluster = await start_cluster(groups=2, proxies=1, topom_settings=LEASE)
    for group in cluster.groups:
        await cluster.swept(group)
    async with plain_client(cluster.proxy_addresses[0]) as client:
        await client.mset(dict.fromkeys(NAMES, "1"))
        save(cluster, tmp_path / "saved")
        cluster.signal_proxy(0, signal.SIGSTOP)
        await cluster.api.remove_proxy(1)
        await cluster.api.move_slots("0-511", 2)
        await cluster.at_rest({1: 0, 2: 1024})

        # when topom comes back with that store, and then the proxy
        await cluster.topom.kill()
        await cluster.forget_marks()
        put_back(cluster, tmp_path / "saved")
        await cluster.restart_topom()
        cluster.signal_proxy(0, signal.SIGCONT)

        reading = asyncio.create_task(client.mget(NAMES))

        # then topom ends, and no client is told that there are no keys
        assert await cluster.topom.wait(60) == 1
        assert ["another topom, which has fenced a proxy off" in reason for reason in await reasons(cluster)] == [True]
        assert not reading.done() or isinstance(reading.exception(), RedisError)
        reading.cancel()


@pytest.mark.long
async def test_a_topom_that_goes_on_with_a_move_of_an_older_store_takes_no_keys_from_a_proxy_that_it_does_not_know(
    start_cluster: StartCluster,
) -> None:
    # given a copy of the store that was made while keys were on their way, and slots that are back since
    cluster = await start_cluster(groups=2, proxies=1, slots_on=[1], topom_settings=LEASE)
    await cluster.load_ballast()
    assert await cluster.proxies[0].stop() == 0
    await cluster.online(0)
    await cluster.api.set_migration(keys_per_second=500)
    await cluster.api.move_slots("0-511", 2)
    await cluster.moving(10)
    copy = cluster.directory / "copy"
    copy.mkdir()
    save(cluster, copy / STORE_FILE)
    await cluster.api.set_migration(keys_per_second=0)
    await cluster.at_rest({1: 512, 2: 512})
    await cluster.api.move_slots("0-511", 1)
    await cluster.at_rest({1: 1024, 2: 0})

    # when a topom begins over the copy while a proxy of the other one works
    cluster.proxies[0].start()
    await cluster.online(1)
    async with (
        Counting(cluster.proxy_addresses[0]) as clients,
        topom_over(cluster, copy) as (other, _),
    ):
        # then it ends, for the server has had these slots since
        await other.ends()
        assert AT_SERVER in other.log()
        await clients.progress()
    await clients.check()


@pytest.mark.long
async def test_servers_tell_that_the_store_is_older_if_no_proxy_is_left_that_could(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    # given slots and keys that have moved since the store was saved
    cluster = await start_cluster(groups=2, proxies=1, topom_settings=LEASE)
    for group in cluster.groups:
        await cluster.swept(group)
    save(cluster, tmp_path / "saved")
    async with plain_client(cluster.proxy_addresses[0]) as client:
        await client.mset(dict.fromkeys(NAMES, "1"))
    await cluster.api.move_slots("0-511", 2)
    await cluster.at_rest({1: 0, 2: 1024})

    # when all processes end, and but for what the servers have saved an operator puts that store back
    assert await cluster.proxies[0].stop() == 0
    await cluster.topom.kill()
    put_back(cluster, tmp_path / "saved")
    for (server,) in cluster.servers.values():
        async with plain_client(server.address) as direct:
            await direct.config_set("save", "3600 1")
        assert await server.stop() == 0
        server.start()
        await server.ready()
    cluster.topom.start()

    # then topom ends instead of removing what it takes for old keys
    assert await cluster.topom.wait(60) == 1
    assert [AT_SERVER in reason for reason in await reasons(cluster)] == [True]
    async with plain_client(cluster.groups[2][0]) as direct:
        assert await direct.mget(NAMES) == [b"1"] * len(NAMES)

    # and it goes on if an operator says that this store is the newest
    cluster.topom.arguments.append("--newest-store")
    await cluster.restart_topom()
    await cluster.swept(2)
    assert await cluster.topom.stop() == 0
    cluster.topom.arguments.pop()
    await cluster.restart_topom()
    await cluster.api.move_slots("0-511", 2)
    await cluster.at_rest({1: 0, 2: 1024})


@pytest.mark.long
@pytest.mark.parametrize("known", [True, False], ids=["both", "the source"])
async def test_servers_tell_so_before_a_client_is_served(
    start_cluster: StartCluster, tmp_path: Path, known: bool
) -> None:
    """Nothing is due at any server, so nobody else would look there."""
    # given slots and keys that have moved since the store was saved, perhaps to a group that came since
    cluster = await start_cluster(groups=2, proxies=1, slots_on=[1], topom_settings=LEASE)
    if known:
        await cluster.swept(2)
    else:
        await cluster.api.remove_group(2)
    save(cluster, tmp_path / "saved")
    if not known:
        await cluster.api.add_group(2, cluster.groups[2])
    async with plain_client(cluster.proxy_addresses[0]) as client:
        await client.mset(dict.fromkeys(NAMES, "1"))
    await cluster.api.move_slots("0-511", 2)
    await cluster.at_rest({1: 512, 2: 512})

    # when no proxy is left that could tell, and topom comes back with that store
    await begin_alone(cluster, tmp_path / "saved")
    cluster.proxies[0].start()

    # then topom ends, and the new proxy gets no table
    assert await cluster.topom.wait(60) == 1
    assert [AT_SERVER in reason for reason in await reasons(cluster)] == [True]
    served = [entry["event"] for entry in log_of(cluster.proxies[0]) if entry.get("event") in SERVED]
    assert served == ["registered"], "it was so once, before it ended"


@pytest.mark.long
async def test_a_server_that_was_made_a_master_tells_that_the_store_is_older(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    # given a master that a replica has replaced since the store was saved
    cluster = await start_cluster(groups=1, proxies=1, topom_settings={**LEASE, "ha": "topom"})
    replica = (await add_replica(cluster, 1)).address
    save(cluster, tmp_path / "saved")
    await cluster.api.promote(1, replica)
    async with plain_client(cluster.proxy_addresses[0]) as client:
        await client.mset(dict.fromkeys(NAMES, "1"))

    # when no proxy is left that could tell, and topom comes back with that store
    await begin_alone(cluster, tmp_path / "saved")

    # then topom ends, and the master of the store is not made one again
    assert await cluster.topom.wait(60) == 1
    assert [AT_SERVER in reason for reason in await reasons(cluster)] == [True]
    async with plain_client(replica) as direct:
        assert (await direct.role())[0] == b"master"
        assert await direct.mget(NAMES) == [b"1"] * len(NAMES)


async def test_slots_that_were_assigned_tell_that_the_store_is_older(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    # given a store that was saved while some slots were nobody's, and a client that has used them since
    cluster = await start_cluster(groups=2, proxies=1, slots_on=[1], topom_settings=LEASE)
    await cluster.api.take_slots_offline("0-511")
    save(cluster, tmp_path / "saved")
    await cluster.api.assign_slots("0-511", 2)
    async with plain_client(cluster.proxy_addresses[0]) as client:
        await client.mset(dict.fromkeys(NAMES, "1"))

    # when no proxy is left that could tell, and topom comes back with that store
    await begin_alone(cluster, tmp_path / "saved")

    # then it ends before an operator gives them to another group
    assert await cluster.topom.wait(60) == 1
    assert [f"{AT_SERVER} {cluster.groups[2][0]}" in reason for reason in await reasons(cluster)] == [True]
