"""Scripts and functions over several workers and several proxies."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import redis.asyncio
from redis.exceptions import NoScriptError, ResponseError

from tests.integration.cluster.conftest import StartCluster
from tests.integration.cluster.harness import Cluster, eventually, plain_client

CONNECTIONS = 12
"""So many that each of two workers has some; the kernel spreads them."""


@asynccontextmanager
async def clients(cluster: Cluster, count: int = CONNECTIONS) -> AsyncIterator[list[redis.asyncio.Redis]]:
    """Clients of the first proxy, each with one connection; both of its workers have some of them."""
    async with AsyncExitStack() as stack:
        found: list[redis.asyncio.Redis] = []
        workers: set[int] = set()
        async with asyncio.timeout(30):
            while len(found) < count or len(workers) < 2:
                client = plain_client(cluster.proxy_addresses[0], single_connection_client=True)
                found.append(await stack.enter_async_context(client))
                # The numbers of a worker's sessions have the same remainder.
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


@pytest.mark.long
async def test_scripts_and_functions_while_slots_move_to_a_server_that_joins(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(groups=3, slots_on=[1, 2], workers=2)
    body = "return redis.call('INCR', KEYS[1])"
    code = "#!lua name=lib\nredis.register_function('f', function(keys) return redis.call('INCR', keys[1]) end)"
    keys = [f"k{number}" for number in range(200)]
    async with clients(cluster) as found:
        await found[0].script_load(body)
        await found[0].function_load(code)
        moved = asyncio.create_task(cluster.api.move_slots("0-1023", 3))
        counts = dict.fromkeys(keys, 0)
        states: dict[str, list[int]] = {}
        while list(states) != [""] or not moved.done():
            for key, client in zip(keys, found * 20, strict=False):
                counts[key] += 1
                assert await client.evalsha(name_of(body), 1, key) == counts[key]
                try:
                    assert await client.fcall("f", 1, key) == counts[key] + 1
                    counts[key] += 1
                except ResponseError as error:
                    # Its slot moves.
                    assert "a function may touch other keys" in str(error)  # noqa: PT017
            states = await cluster.states()
        await moved
        assert await found[0].fcall("f", 1, keys[0]) == counts[keys[0]] + 1
    assert await cluster.states() == {"": list(range(1024))}


@pytest.mark.long
async def test_a_script_that_another_proxy_loaded(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(groups=2, proxies=2)
    body = "return KEYS[1]"
    async with plain_client(cluster.proxy_addresses[0]) as first, plain_client(cluster.proxy_addresses[1]) as second:
        await first.script_load(body)
        for key in ("a", "b", "c", "d"):
            assert await second.evalsha(name_of(body), 1, key) == key.encode()
        # The second proxy has never seen its text; the first one loads it again at a server that was restarted.
        server = cluster.servers[2][0]
        await server.kill()
        server.start()
        await server.ready()

        async def all_run() -> list[bytes]:
            return [await second.evalsha(name_of(body), 1, key) for key in ("a", "b", "c", "d")]

        await eventually(all_run, lambda found: found == [b"a", b"b", b"c", b"d"], "the script at every server")


@pytest.mark.long
async def test_what_another_proxy_has_merely_run_is_loaded_by_the_client(start_cluster: StartCluster) -> None:
    """As with one Redis that has lost its scripts; topom has no part in it."""
    cluster = await start_cluster(groups=2, proxies=2)
    await cluster.topom.kill()
    body = "return KEYS[1]"
    async with plain_client(cluster.proxy_addresses[0]) as first, plain_client(cluster.proxy_addresses[1]) as second:
        run = "local run = 1; " + body
        for key in ("a", "b", "c", "d"):
            assert await first.eval(run, 1, "a") == b"a"
            assert await first.evalsha(name_of(run), 1, key) == key.encode()
        elsewhere = "local elsewhere = 1; " + body
        assert await first.eval(elsewhere, 1, "a") == b"a"
        script = second.register_script(elsewhere)
        for key in ("a", "b", "c", "d"):
            assert await script(keys=[key]) == key.encode()
        await first.script_load(body)
        assert await second.script_flush()
        with pytest.raises(NoScriptError):
            await second.evalsha(name_of(body), 1, "a")


async def test_functions_flushed_while_a_group_has_no_slots(start_cluster: StartCluster) -> None:
    """When slots come back to the group, deleted functions do not come back everywhere."""
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
