"""Scripts and functions over several workers and several proxies."""

import asyncio
import hashlib
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import redis.asyncio
from redis.exceptions import NoScriptError, ResponseError

from slots.scripts import LONGEST_BODY
from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Cluster, eventually, plain_client

CONNECTIONS = 12
"""So many that each of two workers has some; the kernel spreads them."""


@asynccontextmanager
async def clients(cluster: Cluster, count: int = CONNECTIONS) -> AsyncIterator[list[redis.asyncio.Redis]]:
    """Clients of the first proxy, each with one connection, which are with both of its workers."""
    async with AsyncExitStack() as stack:
        found: list[redis.asyncio.Redis] = []
        workers: set[int] = set()
        async with asyncio.timeout(30):
            while len(found) < count or len(workers) < 2:
                client = plain_client(cluster.proxy_addresses[0], single_connection_client=True)
                found.append(await stack.enter_async_context(client))
                # Numbers of sessions leave the same rest for the same worker.
                workers.add(await client.client_id() % 2)
        yield found


def name_of(body: str) -> str:
    return hashlib.sha1(body.encode()).hexdigest()


async def test_what_one_worker_has_seen_the_others_find(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(groups=2, workers=2)
    async with clients(cluster) as found:
        for number, first in enumerate(found):
            # Run with a key of one server, called with keys of both, over every connection at once.
            body = f"return {number}"
            assert await first.eval(body, 1, "a") == number
            keys = [f"k{number}" for number in range(len(found))]
            calls = (client.evalsha(name_of(body), 1, key) for client, key in zip(found, keys, strict=True))
            assert await asyncio.gather(*calls) == [number] * len(found)
        body = "return 'loaded'"
        assert await found[0].script_load(body) == name_of(body)
        assert await asyncio.gather(*(client.script_exists(name_of(body)) for client in found)) == [[True]] * len(found)
        assert await found[-1].script_flush()
        assert await asyncio.gather(*(client.script_exists(name_of(body)) for client in found)) == [[False]] * len(
            found
        )
        for client in found:
            for key in ("a", "b", "c"):
                with pytest.raises(NoScriptError):
                    await client.evalsha(name_of(body), 1, key)


async def test_functions_at_every_worker(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(groups=2, workers=2)
    code = "#!lua name=lib\nredis.register_function('f', function(keys) return keys[1] end)"
    async with clients(cluster) as found:
        assert await found[0].function_load(code)
        keys = [f"k{number}" for number in range(len(found))]
        calls = (client.fcall("f", 1, key) for client, key in zip(found, keys, strict=True))
        assert await asyncio.gather(*calls) == [key.encode() for key in keys]


async def test_scripts_and_functions_while_slots_move_to_a_server_that_joins(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(groups=3, slots_on=[1, 2], workers=2)
    body = "return redis.call('INCR', KEYS[1])"
    code = "#!lua name=lib\nredis.register_function('f', function(keys) return redis.call('INCR', keys[1]) end)"
    keys = [f"k{number}" for number in range(200)]
    async with clients(cluster) as found:
        await found[0].script_load(body)
        await found[0].function_load(code)
        moved = asyncio.create_task(cluster.api.move_slots("0-1023", 3))
        rounds = 0
        states: dict[str, list[int]] = {}
        while list(states) != [""] or not moved.done():
            for key, client in zip(keys, found * 20, strict=False):
                assert await client.evalsha(name_of(body), 1, key) == rounds + 1
                assert await client.fcall("f", 1, key) == rounds + 2
            rounds += 2
            states = await cluster.states()
        await moved
    assert await cluster.states() == {"": list(range(1024))}


async def test_a_script_that_another_proxy_loaded(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(groups=2, proxies=2)
    body = "return KEYS[1]"
    async with plain_client(cluster.proxy_addresses[0]) as first, plain_client(cluster.proxy_addresses[1]) as second:
        await first.script_load(body)
        for key in ("a", "b", "c", "d"):
            assert await second.evalsha(name_of(body), 1, key) == key.encode()
        # The second proxy has never seen it; the first one loads it again at a server that was restarted.
        server = cluster.servers[2][0]
        await server.kill()
        server.start()
        await server.ready()

        async def all_run() -> list[bytes]:
            return [await second.evalsha(name_of(body), 1, key) for key in ("a", "b", "c", "d")]

        await eventually(all_run, lambda found: found == [b"a", b"b", b"c", b"d"], "the script at every server")


KEYS = ("a", "b", "c", "d")
"""Keys of both groups."""


async def stored(cluster: Cluster) -> set[str]:
    """The scripts in topom's store."""
    with sqlite3.connect(f"file:{cluster.directory}/topom/store.sqlite?mode=ro", uri=True) as connection:
        return {body.decode() for (body,) in connection.execute("SELECT body FROM scripts")}


async def are_stored(cluster: Cluster, *bodies: str) -> None:
    await eventually(lambda: stored(cluster), lambda found: found == set(bodies), f"topom to store {bodies}")


async def restart_servers(cluster: Cluster) -> None:
    """Every server loses its scripts and functions."""
    for group in cluster.servers.values():
        for server in group:
            await server.kill()
            server.start()
            await server.ready()


async def runs(cluster: Cluster, proxy: int, *bodies: str) -> None:
    """Each script is found for keys of every server, and NOSCRIPT never seen."""
    async with plain_client(cluster.proxy_addresses[proxy]) as client:
        for body in bodies:
            for key in KEYS:

                async def call(body: str = body, key: str = key) -> bytes:
                    try:
                        return bytes(await client.evalsha(name_of(body), 1, key))
                    except NoScriptError as error:
                        raise AssertionError(f"NOSCRIPT for {body!r} with {key!r}") from error

                # Until the proxy has noticed that its connections to the server are gone.
                await eventually(call, lambda found, key=key: found == key.encode(), body)  # type: ignore[misc]


async def is_unknown(cluster: Cluster, proxy: int, body: str) -> None:
    async with plain_client(cluster.proxy_addresses[proxy]) as client:
        assert await client.script_exists(name_of(body)) == [False]
        for key in KEYS:
            with pytest.raises(NoScriptError):
                await client.evalsha(name_of(body), 1, key)


async def restart_proxy(cluster: Cluster, proxy: int) -> None:
    await cluster.proxies[proxy].kill()
    cluster.proxies[proxy].start()
    await cluster.ready()


async def test_a_new_proxy_loads_what_the_servers_have_lost(start_cluster: StartCluster) -> None:
    """Nobody who had seen the scripts is left but topom, and that was restarted as well."""
    cluster = await start_cluster(groups=2, workers=2)
    loaded, run, queued = "return KEYS[1]", "local run = 1; return KEYS[1]", "local queued = 1; return KEYS[1]"
    async with plain_client(cluster.proxy_addresses[0]) as client:
        await client.script_load(loaded)
        await client.eval(run, 1, "a")
        async with client.pipeline() as pipe:
            pipe.eval(queued, 1, "a")
            await pipe.execute()
    await are_stored(cluster, loaded, run, queued)
    await cluster.proxies[0].kill()
    await cluster.topom.kill()
    await restart_servers(cluster)
    await cluster.restart_topom()
    cluster.proxies[0].start()
    await cluster.ready()
    await runs(cluster, 0, loaded, run, queued)
    async with plain_client(cluster.proxy_addresses[0]) as client:
        assert await client.script_exists(*map(name_of, (loaded, run, queued, "none"))) == [True, True, True, False]
        async with client.pipeline() as pipe:
            pipe.evalsha(name_of(run), 1, "b")
            assert await pipe.execute() == [b"b"]


async def test_what_a_proxy_that_is_gone_has_loaded_another_one_loads(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(groups=2, proxies=2)
    loaded, run = "return KEYS[1]", "local run = 1; return KEYS[1]"
    longest = "--" + "x" * (LONGEST_BODY - len(loaded) - 3) + "\n" + loaded
    async with plain_client(cluster.proxy_addresses[0]) as client:
        await client.script_load(loaded)
        await client.eval(run, 1, "a")
        await client.script_load(longest)
    await are_stored(cluster, loaded, run, longest)
    await cluster.proxies[0].kill()
    # Given as it is stored, long before the servers are back.
    await restart_servers(cluster)
    await runs(cluster, 1, loaded, run, longest)


async def test_scripts_loaded_while_topom_is_away(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(groups=2, proxies=2)
    before, during = "return KEYS[1]", "local during = 1; return KEYS[1]"
    async with plain_client(cluster.proxy_addresses[0]) as client:
        await client.script_load(before)
        await are_stored(cluster, before)
        await cluster.topom.kill()
        await client.script_load(during)
    await runs(cluster, 1, before, during)
    await cluster.restart_topom()
    await are_stored(cluster, before, during)
    await cluster.online(2)
    await cluster.proxies[0].kill()
    await restart_servers(cluster)
    await runs(cluster, 1, before, during)


async def test_a_flush_at_one_proxy_is_one_at_all(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(groups=2, proxies=2, workers=2)
    loaded, run, after = "return KEYS[1]", "local run = 1; return KEYS[1]", "local after = 1; return KEYS[1]"
    async with plain_client(cluster.proxy_addresses[0]) as first, plain_client(cluster.proxy_addresses[1]) as second:
        for round_number in range(3):
            await second.script_load(loaded)
            await second.eval(run, 1, "a")
            if round_number:
                await are_stored(cluster, loaded, run)
            assert await first.script_flush()
            # The flush is confirmed: nobody knows them any more, whatever was still on its way to topom.
            for body in (loaded, run):
                for proxy in (0, 1):
                    await is_unknown(cluster, proxy, body)
            await are_stored(cluster)
        await second.script_load(after)
    await are_stored(cluster, after)
    await restart_servers(cluster)
    for proxy in (0, 1):
        await restart_proxy(cluster, proxy)
        await runs(cluster, proxy, after)
        for body in (loaded, run):
            await is_unknown(cluster, proxy, body)


async def test_a_flush_while_topom_is_away(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(groups=2, proxies=2)
    before, after = "return KEYS[1]", "local after = 1; return KEYS[1]"
    async with plain_client(cluster.proxy_addresses[0]) as client:
        await client.script_load(before)
        await are_stored(cluster, before)
        await cluster.topom.kill()
        assert await client.script_flush()
        await is_unknown(cluster, 0, before)
        await client.script_load(after)
    await cluster.restart_topom()
    await are_stored(cluster, after)
    await cluster.online(2)
    await is_unknown(cluster, 1, before)
    await runs(cluster, 1, after)


async def test_functions_flushed_while_a_group_has_no_slots(start_cluster: StartCluster) -> None:
    """What was deleted does not come back to everybody with the slots that come back."""
    cluster = await start_cluster(groups=2, slots_on=[1])
    code = "#!lua name=lib\nredis.register_function('f', function(keys) return keys[1] end)"
    async with plain_client(cluster.proxy_addresses[0]) as client:
        await client.function_load(code)
        assert await client.fcall("f", 1, "a") == b"a"
        await cluster.api.move_slots("0-1023", 2)
        await cluster.at_rest({1: 0, 2: 1024})
        assert await client.fcall("f", 1, "a") == b"a"
        assert await client.function_flush()
        await cluster.api.move_slots("0-1023", 1)
        await cluster.at_rest({1: 1024, 2: 0})
        with pytest.raises(ResponseError, match="Function not found"):
            await client.fcall("f", 1, "a")
        assert await client.function_list() == []
    for servers in cluster.groups.values():
        for address in servers:
            async with plain_client(address) as direct:
                assert await direct.function_list() == []
