"""redis-py, asyncio: many tasks over one pool, pipelines, transactions, subscriptions, waiting, cancelled commands."""

import asyncio

import pytest
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import ResponseError

Address = tuple[str, int]
PROTOCOLS = pytest.mark.parametrize("protocol", [2, 3])


@pytest.mark.long
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


@PROTOCOLS
async def test_transactions_of_many_tasks(address: Address, protocol: int) -> None:
    host, port = address
    async with Redis(host=host, port=port, protocol=protocol, decode_responses=True) as client:
        account, log = f"{{account}}:{protocol}", f"{{account}}:{protocol}:log"

        async def raise_by(amount: int) -> None:
            async def change(pipe: Pipeline) -> None:
                before = int(await pipe.get(account) or 0)
                pipe.multi()
                pipe.set(account, before + amount)
                pipe.rpush(log, amount)

            # Again and again until nobody else has changed it meanwhile.
            await client.transaction(change, account)

        await asyncio.gather(*(raise_by(number) for number in range(10)))
        assert await client.get(account) == "45"
        assert sorted(map(int, await client.lrange(log, 0, -1))) == list(range(10))
        async with client.pipeline(transaction=True) as pipe:
            assert await pipe.get(account).llen(log).execute() == ["45", 10]
        async with client.pipeline(transaction=True) as pipe:
            with pytest.raises(ResponseError, match="same slot"):
                await pipe.set("a", 1).set("b", 1).execute()
        assert await client.exists("a", "b") == 0


@PROTOCOLS
async def test_subscriptions(address: Address, protocol: int) -> None:
    host, port = address
    channels = [f"channel:{protocol}:{number}" for number in range(20)]
    wanted = sorted((channel, str(number)) for channel in channels for number in range(10))
    async with (
        asyncio.timeout(120),
        Redis(host=host, port=port, protocol=protocol, decode_responses=True) as client,
        client.pubsub() as exact,
        client.pubsub() as pattern,
    ):
        await exact.subscribe(*channels)
        await pattern.psubscribe(f"channel:{protocol}:*")
        assert [(await anext(exact.listen()))["type"] for _ in channels] == ["subscribe"] * 20
        assert (await anext(pattern.listen()))["type"] == "psubscribe"
        for number in range(10):
            for channel in channels:
                await client.publish(channel, number)
        for subscribed, kind in ((exact, "message"), (pattern, "pmessage")):
            messages = [await anext(subscribed.listen()) for _ in wanted]
            assert {message["type"] for message in messages} == {kind}
            assert sorted((message["channel"], message["data"]) for message in messages) == wanted


@PROTOCOLS
async def test_consumers_that_wait(address: Address, protocol: int) -> None:
    host, port = address
    async with Redis(host=host, port=port, protocol=protocol, decode_responses=True) as client:
        queues = [f"queue:{protocol}:{number}" for number in range(10)]

        async def consume(queue: str) -> list[str]:
            found = []
            while (item := (await client.blpop([queue], timeout=30))[1]) != "end":
                found.append(item)
            return found

        consumers = [asyncio.create_task(consume(queue)) for queue in queues]
        for item in [*map(str, range(20)), "end"]:
            await asyncio.gather(*(client.rpush(queue, item) for queue in queues))
        assert await asyncio.gather(*consumers) == [[str(number) for number in range(20)]] * 10


@PROTOCOLS
async def test_every_key_and_a_script(address: Address, protocol: int) -> None:
    host, port = address
    async with Redis(host=host, port=port, db=2 + protocol, protocol=protocol, decode_responses=True) as client:
        names = {f"found:{number}" for number in range(3000)}
        await client.mset(dict.fromkeys(names, "1"))
        assert {name async for name in client.scan_iter("found:*", count=300)} == names
        add = client.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
        assert await asyncio.gather(*(add(keys=[f"found:{number}"], args=[1]) for number in range(50))) == [2] * 50


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


async def test_scanning_one_key(address: Address, at_rest: bool) -> None:
    host, port = address
    async with Redis(host=host, port=port, decode_responses=True) as client:
        await client.sadd("scanned", *range(5000))
        found = {member async for member in client.sscan_iter("scanned", count=500)}
        wanted = {str(number) for number in range(5000)}
        assert found == wanted if at_rest else found <= wanted
