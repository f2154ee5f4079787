"""What a real master sends its replicas is read as requests, and its offsets add up."""

import asyncio

from redis.asyncio import Redis

from slots.keyslots import KeySlots
from slots.requests.reading import Requests
from slots.requests.wanted import WantedRequests

LIMIT_SECONDS = 30.0


async def test_offsets_of_a_masters_stream_add_up(redis: Redis, redis_address: str) -> None:
    host, _, port = redis_address.rpartition(":")
    # Otherwise the server waits whether more replicas come.
    await redis.config_set("repl-diskless-sync", "no")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            writer.write(b"PSYNC ? -1\r\n")
            answer = (await reader.readline()).split()
            assert answer[0] == b"+FULLRESYNC"
            begins = int(answer[2])
            header = b"\n"
            while header == b"\n":
                header = await reader.readline()
            await reader.readexactly(int(header[1:]))
            await redis.set("a", "x" * 100_000)
            async with redis.pipeline(transaction=True) as transaction:
                await transaction.incrby("{b}1", 1).rpush("{b}2", "1", "2").delete("{b}1").execute()
            await redis.eval("redis.call('SET', KEYS[1], 'v', 'EX', 100) redis.call('DEL', KEYS[1])", 1, "a")
            await redis.publish("channel", "words")
            await redis.hset("hash", mapping={f"field{number}": "x" for number in range(5000)})
            end = (await redis.info("replication"))["master_repl_offset"]
            every, mine = Requests(begins), WantedRequests(KeySlots("crc32", 16), bytes(16), begins)
            found: list[list[bytes]] = []
            ends = [begins]
            while every.offset < end:
                piece = await reader.read(1000)
                assert piece
                every.feed(piece)
                mine.feed(piece)
                for argv, size in every:
                    found.append(argv)
                    ends.append(ends[-1] + size)
                assert all(copies == 0 for _, _, copies in mine)
                assert ends[-1] == every.offset == mine.offset
    finally:
        writer.close()
    # The master says where a request of its stream ends.
    assert end in ends
    names = [argv[0].upper() for argv in found]
    assert names[:6] == [b"SELECT", b"SET", b"MULTI", b"INCRBY", b"RPUSH", b"DEL"]
    assert {b"EXEC", b"PUBLISH", b"HSET"} <= set(names)
    assert max(map(len, found)) == 10_002
