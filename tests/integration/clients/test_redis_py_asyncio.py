"""redis-py, asyncio: many tasks over one pool, pipelines, cancelled commands."""

import asyncio

import pytest
from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import ResponseError

Address = tuple[str, int]
PROTOCOLS = pytest.mark.parametrize("protocol", [2, 3])


@PROTOCOLS
async def test_many_tasks_over_one_pool(address: Address, protocol: int) -> None:
    host, port = address
    pool = BlockingConnectionPool(max_connections=20, timeout=60, host=host, port=port, protocol=protocol)
    async with Redis.from_pool(pool) as client:

        async def work(task: int) -> None:
            key = f"task:{protocol}:{task}"
            assert await client.set(key, task)
            assert await client.incrby(key, 10) == task + 10
            assert await client.get(key) == str(task + 10).encode()
            assert await client.hset(f"{key}:hash", mapping={"a": "1", "b": "2"}) == 2
            assert await client.hgetall(f"{key}:hash") == {b"a": b"1", b"b": b"2"}

        await asyncio.gather(*(work(task) for task in range(300)))
        values = await client.mget([f"task:{protocol}:{task}" for task in range(300)])
        assert values == [str(task + 10).encode() for task in range(300)]


@PROTOCOLS
async def test_pipelines_side_by_side(address: Address, protocol: int) -> None:
    host, port = address
    async with Redis(host=host, port=port, protocol=protocol, decode_responses=True) as client:

        async def work(task: int) -> None:
            async with client.pipeline(transaction=False) as pipe:
                for number in range(200):
                    pipe.set(f"pipe:{protocol}:{task}:{number}", number)
                    pipe.get(f"pipe:{protocol}:{task}:{number}")
                assert await pipe.execute() == [reply for number in range(200) for reply in (True, str(number))]

        await asyncio.gather(*(work(task) for task in range(20)))


async def test_a_transaction_is_refused_and_the_connection_goes_on(address: Address) -> None:
    host, port = address
    async with Redis(host=host, port=port, single_connection_client=True) as client:
        with pytest.raises(ResponseError, match=r"(MULTI|EXEC) is not served"):
            async with client.pipeline(transaction=True) as pipe:
                await pipe.set("a", 1).get("a").execute()
        assert await client.set("after", "transaction")
        assert await client.get("after") == b"transaction"


async def test_databases_side_by_side(address: Address) -> None:
    host, port = address
    clients = [Redis(host=host, port=port, db=database, protocol=2 + database % 2) for database in range(16)]
    for _ in range(10):
        await asyncio.gather(*(client.incrby("asyncio", database) for database, client in enumerate(clients)))
    values = await asyncio.gather(*(client.get("asyncio") for client in clients))
    assert values == [str(10 * database).encode() for database in range(16)]
    await asyncio.gather(*(client.aclose() for client in clients))


async def test_a_command_that_is_given_up_does_not_confuse_the_next(address: Address) -> None:
    host, port = address
    async with Redis(host=host, port=port) as client:
        await client.mset({f"given-up:{number}": number for number in range(100)})
        for number in range(100):
            task = asyncio.create_task(client.mget([f"given-up:{other}" for other in range(number, 100)]))
            await asyncio.sleep(0)
            task.cancel()
            assert await client.get(f"given-up:{number}") == str(number).encode()


async def test_scanning_one_key(address: Address) -> None:
    host, port = address
    async with Redis(host=host, port=port, decode_responses=True) as client:
        await client.sadd("scanned", *range(5000))
        found = {member async for member in client.sscan_iter("scanned", count=500)}
        assert found == {str(number) for number in range(5000)}
