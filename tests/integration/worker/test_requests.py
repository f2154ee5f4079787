"""A worker is Redis to a client: every reply as one server would give it, in order, whatever is behind."""

import asyncio
import os
import resource
import signal
from collections.abc import Awaitable, Callable

import pytest
import redis.asyncio
import redis.exceptions

from slots.group import Group
from slots.messages.channel import Drain
from slots.slot import Slot
from tests.integration.worker.harness import WorkerHarness, slot_of


async def exchange(worker: WorkerHarness, sent: bytes, expected: bytes, *, pieces: int = 0) -> None:
    """Send bytes (in so many pieces, or all at once) and compare what comes back."""
    reader, writer = await worker.connect()
    if pieces:
        size = max(1, len(sent) // pieces)
        for start in range(0, len(sent), size):
            writer.write(sent[start : start + size])
            await writer.drain()
            await asyncio.sleep(0)
    else:
        writer.write(sent)
    async with asyncio.timeout(60):
        assert await reader.readexactly(len(expected)) == expected
    writer.close()


def request(*words: bytes | str | int) -> bytes:
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


@pytest.mark.parametrize("protocol", [2, 3])
async def test_every_type_through_the_proxy(worker: WorkerHarness, protocol: int) -> None:
    async with worker.client(protocol=protocol, decode_responses=True) as client:
        for number in range(50):
            await client.set(f"s{number}", number)
            await client.hset(f"h{number}", mapping={"a": "1", "b": "2"})
            await client.rpush(f"l{number}", "x", "y", "z")
            await client.sadd(f"set{number}", "m", "n")
            await client.zadd(f"z{number}", {"one": 1, "two": 2.5})
            await client.xadd(f"x{number}", {"field": "value"}, id="1-1")
        for number in range(50):
            assert await client.get(f"s{number}") == str(number)
            assert await client.hgetall(f"h{number}") == {"a": "1", "b": "2"}
            assert await client.lrange(f"l{number}", 0, -1) == ["x", "y", "z"]
            assert set(await client.smembers(f"set{number}")) == {"m", "n"}
            scores = await client.zrange(f"z{number}", 0, -1, withscores=True)
            assert [tuple(pair) for pair in scores] == [("one", 1.0), ("two", 2.5)]
            entries = await client.xrange(f"x{number}")
            assert [tuple(entry) for entry in entries] == [("1-1", {"field": "value"})]
    for group in (1, 2):
        async with worker.direct(group) as direct:
            keys = await direct.keys("*")
            assert keys
            assert all((slot_of(key) >= 512) == (group == 2) for key in keys)


async def test_split_commands_are_put_together_in_order(worker: WorkerHarness) -> None:
    async with worker.client() as client:
        keys = [f"key-{number}" for number in range(500)]
        assert await client.mset({key: key.upper() for key in keys}) is True
        assert await client.mget([*keys, "nothing"]) == [*(key.upper().encode() for key in keys), None]
        assert await client.exists(*keys, keys[0], "nothing") == 501
        assert await client.touch(*keys) == 500
        assert await client.unlink(*keys[:100]) == 100
        assert await client.delete(*keys) == 400
        assert await client.mget(keys[:3]) == [None, None, None]


async def test_split_command_with_an_error_in_one_part(worker: WorkerHarness) -> None:
    async with worker.client() as client:
        await client.mset({f"k{number}": number for number in range(20)})
    await worker.servers[1].stop()
    async with worker.client() as client:
        with pytest.raises(redis.exceptions.ResponseError, match=worker.servers[1].address):
            await client.mget([f"k{number}" for number in range(20)])
        first = next(f"k{number}" for number in range(20) if slot_of(f"k{number}") < 512)
        assert await client.get(first) == first[1:].encode()


async def test_pipelines_over_servers_keep_their_order(worker: WorkerHarness) -> None:
    async with worker.client() as client, client.pipeline(transaction=False) as pipe:
        for number in range(3000):
            pipe.set(f"k{number}", number)
            pipe.get(f"k{number}")
            if number % 7 == 0:
                pipe.mget(f"k{number}", f"k{number - 1}", "nothing")
            if number % 11 == 0:
                pipe.echo(str(number))
        replies = await pipe.execute()
    expected: list[object] = []
    for number in range(3000):
        expected += [True, str(number).encode()]
        if number % 7 == 0:
            expected.append([str(number).encode(), str(number - 1).encode() if number else None, None])
        if number % 11 == 0:
            expected.append(str(number).encode())
    assert replies == expected


async def test_a_pipeline_longer_than_the_limit_is_answered_whole(worker: WorkerHarness) -> None:
    count = worker.settings.session_max_pipeline * 20
    sent = b"".join(request("INCR", f"n{number % 5}") for number in range(count))
    expected = b"".join(b":%d\r\n" % (number // 5 + 1) for number in range(count))
    await exchange(worker, sent, expected)


async def test_keys_that_do_not_share_a_slot(worker: WorkerHarness) -> None:
    async with worker.client() as client:
        with pytest.raises(redis.exceptions.ResponseError, match="same slot"):
            await client.execute_command("RENAME", "a", "b")
        await client.set("{tag}a", "1")
        assert await client.rename("{tag}a", "{tag}b")
        assert await client.get("{tag}b") == b"1"
        await client.zadd("{tag}z", {"x": 1})
        assert await client.zunionstore("{tag}out", ["{tag}z"]) == 1
        with pytest.raises(redis.exceptions.ResponseError, match="same slot"):
            await client.execute_command("EVAL", "return 1", 2, "a", "b")
        assert await client.eval("return {KEYS[1],ARGV[1]}", 1, "{tag}b", "arg") == [b"{tag}b", b"arg"]


@pytest.mark.parametrize(
    ("sent", "reply"),
    [
        (["GET"], "ERR wrong number of arguments for 'get' command"),
        (["NOSUCH", "x", "y"], "ERR unknown command 'NOSUCH', with args beginning with: 'x' 'y' "),
        (["OBJECT", "NOSUCH"], "ERR unknown subcommand 'NOSUCH'. Try OBJECT HELP."),
        (["SELECT", "99"], "ERR DB index is out of range"),
        (["SELECT", "01"], "ERR value is not an integer or out of range"),
        (["SELECT", "2147483648"], "ERR value is out of range, value must between -2147483648 and 2147483647"),
        (["HELLO", "03"], "ERR Protocol version is not an integer or out of range"),
        (["SELECT", "x"], "ERR value is not an integer or out of range"),
        (["MSET", "a", "1", "b"], "ERR wrong number of arguments for 'mset' command"),
        (["EVAL", "return 1", "3", "a"], "ERR Number of keys can't be greater than number of args"),
        (["HELLO", "9"], "NOPROTO unsupported protocol version"),
        (["AUTH", "x"], "ERR AUTH <password> called without any password configured for the default user. "),
    ],
)
async def test_errors_are_redis_own(worker: WorkerHarness, sent: list[str], reply: str) -> None:
    reader, writer = await worker.connect()
    writer.write(request(*sent) + request("PING"))
    line = (await reader.readline()).decode()
    assert line.startswith("-" + reply)
    assert await reader.readline() == b"+PONG\r\n"
    writer.close()


@pytest.mark.parametrize("name", ["MIGRATE", "SHUTDOWN", "MONITOR", "SWAPDB", "REPLICAOF"])
async def test_what_is_refused_says_so_and_the_connection_stays(worker: WorkerHarness, name: str) -> None:
    arguments = {"MIGRATE": ["h", "1", "k", "0", "1"], "SWAPDB": ["0", "1"], "REPLICAOF": ["no", "one"]}
    reader, writer = await worker.connect()
    writer.write(request(name, *arguments.get(name, [])) + request("PING"))
    line = (await reader.readline()).decode()
    assert line.startswith(f"-ERR {name} is refused by Slotferry: ")
    assert await reader.readline() == b"+PONG\r\n"
    writer.close()


@pytest.mark.parametrize(
    ("sent", "reply"),
    [
        (b"*abc\r\n", b"-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*2000000\r\n", b"-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*1\r\nfoo\r\n", b"-ERR Protocol error: expected '$', got 'f'\r\n"),
        (b"*1\r\n$-5\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\n$99999999999\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
        (b'GET "foo\r\n', b"-ERR Protocol error: unbalanced quotes in request\r\n"),
        (b'GET "' + b"\\x41" * 60 + b"\r\n", b"-ERR Protocol error: unbalanced quotes in request\r\n"),
        (b"x" * 70000, b"-ERR Protocol error: too big inline request\r\n"),
    ],
)
async def test_protocol_errors_close_after_what_is_owed(worker: WorkerHarness, sent: bytes, reply: bytes) -> None:
    reader, writer = await worker.connect()
    writer.write(request("SET", "a", "1") + sent)
    async with asyncio.timeout(60):
        assert await reader.read() == b"+OK\r\n" + reply
    writer.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n",
        b"HEAD /x HTTP/1.0\r\n\r\n",
        b"POST / HTTP/1.1\r\n",
        b"post\r\n",
        b"Host: a\r\n",
    ],
)
async def test_a_request_of_http_is_told_and_nothing_behind_it_is_run(worker: WorkerHarness, sent: bytes) -> None:
    reader, writer = await worker.connect()
    writer.write(request("SET", "a", "1") + sent + b"SET a 2\r\n")
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    assert answer.startswith(b"+OK\r\nHTTP/1.1 400 Bad Request\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"This is a Slotferry proxy." in body
    assert f"Content-Length: {len(body)}".encode() in head
    async with worker.client() as client:
        assert await client.get("a") == b"1"


async def test_words_that_http_has_too_are_commands_like_others(worker: WorkerHarness) -> None:
    sent = b"SET / HTTP/1.1\r\nGET /\r\n" + request("GET", "/", "HTTP/1.1") + b"PING\r\n"
    wrong = b"-ERR wrong number of arguments for 'get' command\r\n"
    await exchange(worker, sent, b"+OK\r\n$8\r\nHTTP/1.1\r\n" + wrong + b"+PONG\r\n")


async def test_requests_in_small_pieces(worker: WorkerHarness) -> None:
    sent = (
        request("SET", "a", "x" * 300)
        + request("MGET", "a", "b", "c")
        + b"PING\r\n\r\n*0\r\n"
        + b"SET \"a b\" 'c\\'d'\r\n"
        + request("GET", "a b")
    )
    expected = b"+OK\r\n*3\r\n$300\r\n" + b"x" * 300 + b"\r\n$-1\r\n$-1\r\n+PONG\r\n+OK\r\n$3\r\nc'd\r\n"
    await exchange(worker, sent, expected, pieces=len(sent))


@pytest.mark.long
async def test_large_values(worker: WorkerHarness) -> None:
    async with worker.client() as client:
        for size in (70_000, 1_000_000, 64_000_000):
            value = os.urandom(1000) * (size // 1000)
            for key in ("first", "second", "third"):
                await client.set(key, value)
            async with client.pipeline(transaction=False) as pipe:
                for key in ("first", "second", "third"):
                    pipe.get(key)
                pipe.echo("end")
                assert await pipe.execute() == [value, value, value, b"end"]


async def test_databases_are_apart(worker: WorkerHarness) -> None:
    reader, writer = await worker.connect()
    writer.write(
        request("SET", "k", "zero")
        + request("SELECT", 5)
        + request("GET", "k")
        + request("SET", "k", "five")
        + request("SELECT", 0)
        + request("GET", "k")
        + request("SELECT", 5)
        + request("GET", "k")
        + request("RESET")
        + request("GET", "k")
    )
    expected = b"+OK\r\n+OK\r\n$-1\r\n+OK\r\n+OK\r\n$4\r\nzero\r\n+OK\r\n$4\r\nfive\r\n+RESET\r\n$4\r\nzero\r\n"
    assert await reader.readexactly(len(expected)) == expected
    writer.close()


async def test_resp3_replies_and_the_way_back(worker: WorkerHarness) -> None:
    reader, writer = await worker.connect()
    writer.write(request("HSET", "h", "a", "1") + request("HELLO", 3, "SETNAME", "me"))
    assert await reader.readline() == b":1\r\n"
    assert await reader.readline() == b"%7\r\n"
    for _ in range(25):
        line = await reader.readline()
    assert line == b"*0\r\n"
    writer.write(request("HGETALL", "h") + request("GET", "none") + request("MGET", "none", "none2"))
    expected = b"%1\r\n$1\r\na\r\n$1\r\n1\r\n_\r\n*2\r\n_\r\n_\r\n"
    assert await reader.readexactly(len(expected)) == expected
    writer.write(request("CLIENT", "GETNAME") + request("HELLO", 2) + request("HGETALL", "h"))
    assert await reader.readexactly(8) == b"$2\r\nme\r\n"
    assert await reader.readline() == b"*14\r\n"
    writer.write(request("QUIT"))
    assert (await reader.read()).endswith(b"*2\r\n$1\r\na\r\n$1\r\n1\r\n+OK\r\n")
    writer.close()


async def test_a_new_resp_version_does_not_overtake(worker: WorkerHarness) -> None:
    """Each RESP version has connections of its own, and only one of them may have to be made first."""
    async with worker.client(protocol=3) as client:
        await client.set("k", "old")
    sent = request("SET", "k", "new") + request("HELLO", 3) + request("GET", "k") + request("PING")
    reader, writer = await worker.connect()
    writer.write(sent)
    async with asyncio.timeout(60):
        assert await reader.readline() == b"+OK\r\n"
        assert (await reader.readuntil(b"*0\r\n")).startswith(b"%7\r\n")
        expected = b"$3\r\nnew\r\n+PONG\r\n"
        assert await reader.readexactly(len(expected)) == expected
    writer.close()


@pytest.mark.long
async def test_authentication(start_worker) -> None:  # type: ignore[no-untyped-def]
    worker = await start_worker(password="secret")
    reader, writer = await worker.connect()
    writer.write(
        request("GET", "k")
        + request("AUTH", "wrong")
        + request("HELLO", 3)
        + request("AUTH", "secret")
        + request("SET", "k", "1")
    )
    for expected in (b"-NOAUTH", b"-WRONGPASS", b"-NOAUTH HELLO", b"+OK", b"+OK"):
        assert (await reader.readline()).startswith(expected)
    writer.close()
    async with worker.client(password="secret") as client:
        assert await client.get("k") == b"1"
    with pytest.raises(redis.exceptions.AuthenticationError):
        async with worker.client(password="wrong") as client:
            await client.get("k")


async def test_servers_with_a_password(start_worker) -> None:  # type: ignore[no-untyped-def]
    worker = await start_worker(extra=["--requirepass", "inner"], redis_password="inner")
    for protocol in (2, 3):
        async with worker.client(protocol=protocol) as client:
            assert await client.set("k", "v")
            assert await client.get("k") == b"v"


async def test_client_commands(worker: WorkerHarness) -> None:
    async with worker.client(client_name="tester", decode_responses=True) as client:
        own = await client.client_id()
        assert await client.client_getname() == "tester"
        info = await client.client_info()
        assert int(info["id"]) == own
        assert info["name"] == "tester"
        assert info["lib-name"].startswith("redis-py")
        assert [int(entry["id"]) for entry in await client.client_list()] == [own]
        assert (await client.info("stats"))["total_commands_processed"] > 0
        assert (await client.info())["redis_version"]
        assert await client.command_count() > 200
        assert (await client.config_get("appendonly"))["appendonly"] == "no"
        seconds, _ = await client.time()
        assert seconds > 1_600_000_000


async def test_a_server_that_is_down_is_named_and_comes_back(worker: WorkerHarness) -> None:
    key = next(f"k{number}" for number in range(100) if slot_of(f"k{number}") >= 512)
    other = next(f"k{number}" for number in range(100) if slot_of(f"k{number}") < 512)
    server = worker.servers[1]
    async with worker.client() as client:
        await client.set(key, "1")
        await server.kill()
        with pytest.raises(redis.exceptions.ResponseError, match=server.address):
            await client.get(key)
        with pytest.raises(redis.exceptions.ResponseError, match=server.address):
            await client.get(key)
        assert await client.set(other, "1")
        server.start()
        await server.ready()
        async with asyncio.timeout(60):
            while True:
                try:
                    assert await client.get(key) is None
                    break
                except redis.exceptions.ResponseError:
                    await asyncio.sleep(0.02)


async def test_a_server_that_hangs_is_given_up_in_time(start_worker) -> None:  # type: ignore[no-untyped-def]
    worker = await start_worker(backend_reply_seconds=1.0)
    async with worker.client() as client, worker.direct(1) as direct:
        await client.set("k", "1")
        await direct.execute_command("CLIENT", "PAUSE", 10_000, "ALL")
        with pytest.raises(redis.exceptions.ResponseError, match="did not reply within"):
            await client.get("k")


@pytest.mark.long
async def test_a_client_that_does_not_read_is_not_buffered_without_end(start_worker) -> None:  # type: ignore[no-untyped-def]
    worker = await start_worker(session_output_pause_bytes=100_000, session_max_pipeline=100, session_stall_seconds=2.0)
    async with worker.client() as client:
        await client.set("big", b"x" * 100_000)
        _, writer = await worker.connect()
        writer.transport.pause_reading()  # type: ignore[union-attr]
        writer.write(request("GET", "big") * 3000)
        # 300 MB are asked for. What the proxy holds of it stays far below, and others are served meanwhile.
        for _ in range(100):
            assert len(await client.get("big")) == 100_000
        counters = (await worker.next(lambda m: m.type == "counters")).counters
        worker.messages.clear()
        counters = (await worker.next(lambda m: m.type == "counters")).counters
        assert counters["memory_bytes"] < 150_000_000
        async with asyncio.timeout(60):
            while len(await client.client_list()) > 1:
                await asyncio.sleep(0.1)
        writer.close()


async def test_a_client_that_ends_its_half_of_the_connection_gets_its_replies(worker: WorkerHarness) -> None:
    reader, writer = await worker.connect()
    writer.write(request("SET", "k", "x" * 3_000_000) + request("GET", "k") + request("MGET", "a", "b", "c"))
    writer.write_eof()
    async with asyncio.timeout(60):
        replies = await reader.read()
    assert replies.startswith(b"+OK\r\n$3000000\r\n")
    assert replies.endswith(b"x\r\n*3\r\n$-1\r\n$-1\r\n$-1\r\n")
    writer.close()


async def taken(writer: asyncio.StreamWriter, total: int, seconds: float) -> int:
    """How much of ``total`` bytes the proxy takes off a client within a time."""
    sock = writer.get_extra_info("socket").dup()
    sent = 0
    until = asyncio.get_running_loop().time() + seconds
    with sock:
        sock.setblocking(False)
        while sent < total and asyncio.get_running_loop().time() < until:
            try:
                sent += sock.send(b"x" * min(65536, total - sent))
            except BlockingIOError:
                await asyncio.sleep(0.01)
    return sent


async def test_nothing_is_kept_of_what_follows_the_last_request(start_worker) -> None:  # type: ignore[no-untyped-def]
    worker = await start_worker()
    async with worker.client() as client:
        await client.set("big", b"x" * 30_000_000)
        _, writer = await worker.connect()
        writer.transport.pause_reading()  # type: ignore[union-attr]
        writer.write(request("GET", "big") + b"*1\r\n:1\r\n")
        assert await taken(writer, 100_000_000, 1.0) < 30_000_000
        writer.close()


async def test_replies_before_their_turn_are_limited_too(start_worker) -> None:  # type: ignore[no-untyped-def]
    worker = await start_worker(session_output_limit_bytes=5_000_000, session_output_pause_bytes=1_000_000)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    slow = next(f"k{number}" for number in range(100) if slot_of(f"k{number}") < 512)
    fast = next(f"k{number}" for number in range(100) if slot_of(f"k{number}") >= 512)
    many = [f"{{{fast}}}{number}" for number in range(10)]
    async with worker.client(protocol=2) as client:
        await client.set(slow, "1")
        await client.set(fast, b"x" * 2_000_000)
        await client.set(many[0], b"x" * 20_000_000)
    for asked in (request("GET", fast) * 50, request("GET", many[0]), request("MGET", *many, slow)):
        reader, writer = await worker.connect()
        os.kill(worker.servers[0].pid, signal.SIGSTOP)
        try:
            writer.write(request("GET", slow) + asked)
            # Without the limit there is an error instead, once the server has not replied for long.
            async with asyncio.timeout(60):
                assert await reader.read() == b""
        finally:
            os.kill(worker.servers[0].pid, signal.SIGCONT)
        writer.close()
    async with worker.client() as client:
        assert await client.mget(fast, slow) == [b"x" * 2_000_000, b"1"]


@pytest.mark.long
async def test_several_keys_at_a_congested_server_are_held_back(start_worker) -> None:  # type: ignore[no-untyped-def]
    worker = await start_worker(backend_queue_pause_bytes=1_000_000)
    value = b"x" * 1_000_000
    async with worker.client(protocol=2) as client:
        await client.set("a", "1")
    os.kill(worker.servers[0].pid, signal.SIGSTOP)
    try:
        reader, writer = await worker.connect()
        writer.write(request("MSET", "a", value, "b", value) * 100)
        await asyncio.sleep(1)
        counters = await worker.under_way()
        assert counters.counters["in_flight"] < 20
    finally:
        os.kill(worker.servers[0].pid, signal.SIGCONT)
    async with asyncio.timeout(60):
        assert await reader.readexactly(500) == b"+OK\r\n" * 100
    writer.close()


@pytest.mark.long
async def test_an_idle_limit_does_not_cut_a_long_reply_short(start_worker) -> None:  # type: ignore[no-untyped-def]
    worker = await start_worker(session_idle_seconds=2.0)
    async with worker.client() as client:
        await client.set("big", b"x" * 40_000_000)
    host, port = worker.settings.listen.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request("GET", "big"))
    received = len(await reader.readline())
    async with asyncio.timeout(60):
        for _ in range(15):
            received += len(await reader.readexactly(1_000_000))
            await asyncio.sleep(0.2)
        rest = await reader.readexactly(11 + 40_000_000 + 2 - received)
        assert rest.endswith(b"x\r\n")
        assert await reader.read() == b""
    writer.close()


@pytest.mark.long
@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs prlimit")
async def test_running_out_of_file_descriptors_does_not_spin(worker: WorkerHarness) -> None:
    async with worker.client() as client:
        await client.set("k", "1")
        # The server's connection for RESP2 is there as well.
        reader, writer = await worker.connect()
        writer.write(request("GET", "k"))
        assert await reader.readexactly(7) == b"$1\r\n1\r\n"
        writer.close()
        limits = resource.prlimit(worker.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(worker.process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        reader, writer = await worker.connect()
        writer.write(request("GET", "k"))
        await asyncio.sleep(2)
        assert worker.process.log.read_text().count("accept_failed") < 10
        assert await client.get("k") == b"1"
        resource.prlimit(worker.process.pid, resource.RLIMIT_NOFILE, limits)
        async with asyncio.timeout(60):
            assert await reader.readexactly(7) == b"$1\r\n1\r\n"
        writer.close()


async def test_a_simple_string_of_any_length(worker: WorkerHarness) -> None:
    """A script can return one, and the server's connection is shared by others."""
    script = "return {ok=string.rep('x', 3000000)}"
    sent = request("EVAL", script, 1, "k") + request("SET", "k", "1") + request("EVAL", script, 1, "k")
    long = b"+" + b"x" * 3_000_000 + b"\r\n"
    await exchange(worker, sent, long + b"+OK\r\n" + long)


class Scripted:
    """A server that is no Redis: it takes connections as one, and answers GETs with what it is told to."""

    def __init__(self, answers: Callable[[asyncio.StreamWriter, int], Awaitable[None]]) -> None:
        self._answers = answers
        self._asked = 0

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            words = [(await reader.readline(), await reader.readline())[1].strip() for _ in range(int(line[1:]))]
            if words[0] == b"GET":
                self._asked += 1
                await self._answers(writer, self._asked)
            else:
                writer.write(b"$-1\r\n" if words[0] == b"ACL" else b"+OK\r\n")
        writer.close()


@pytest.mark.long
async def test_what_stands_behind_a_long_reply_has_its_own_time(start_worker) -> None:  # type: ignore[no-untyped-def]
    async def slowly(writer: asyncio.StreamWriter, number: int) -> None:
        if number == 1:
            writer.write(b"$1000000\r\n")
            for _ in range(10):
                writer.write(b"x" * 100_000)
                await asyncio.sleep(0.3)
            writer.write(b"\r\n")
            await asyncio.sleep(0.8)
        else:
            writer.write(b"$1\r\ny\r\n")

    worker = await start_worker(backend_reply_seconds=2.0)
    async with Scripted(slowly) as address:
        await worker.apply(groups=[Group(1, (address,))])
        expected = b"$1000000\r\n" + b"x" * 1_000_000 + b"\r\n$1\r\ny\r\n"
        await exchange(worker, request("GET", "a") + request("GET", "b"), expected)


async def test_in_order_a_reply_too_many_takes_none_away(worker: WorkerHarness) -> None:
    async def one_too_many(writer: asyncio.StreamWriter, number: int) -> None:
        if number == 2:
            writer.write(b"$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n")

    async with Scripted(one_too_many) as address:
        await worker.apply(groups=[Group(1, (address,)), Group(2, (address,))])
        await exchange(worker, request("GET", "a") + request("GET", "b"), b"$1\r\n1\r\n$1\r\n2\r\n")


async def test_max_clients(start_worker) -> None:  # type: ignore[no-untyped-def]
    worker = await start_worker(max_clients=2)
    first = await worker.connect()
    second = await worker.connect()
    for reader, writer in (first, second):
        writer.write(request("PING"))
        assert await reader.readline() == b"+PONG\r\n"
    reader, _ = await worker.connect()
    assert await reader.read() == b"-ERR max number of clients reached\r\n"
    first[1].close()
    async with asyncio.timeout(60):
        while True:
            reader, writer = await worker.connect()
            writer.write(request("PING"))
            if await reader.readline() == b"+PONG\r\n":
                break
    second[1].close()
    writer.close()


async def test_draining_finishes_what_is_owed(worker: WorkerHarness) -> None:
    reader, writer = await worker.connect()
    writer.write(b"".join(request("INCR", "n") for _ in range(500)))
    assert await reader.readline() == b":1\r\n"
    worker.channel.send(Drain())
    rest = await reader.read()
    assert rest.endswith(b":500\r\n")
    assert await worker.process.wait(60) == 0


async def test_a_worker_ends_with_its_supervisor(worker: WorkerHarness) -> None:
    worker.channel.close()
    assert await worker.process.wait(60) == 1


async def test_redis_client_of_the_synchronous_kind(worker: WorkerHarness) -> None:
    def work() -> list[bytes | None]:
        host, port = worker.settings.listen.split(":")
        client = redis.Redis(host=host, port=int(port))
        client.mset({"a": "1", "b": "2", "c": "3"})
        return client.mget("a", "b", "c")  # type: ignore[return-value]

    assert await asyncio.to_thread(work) == [b"1", b"2", b"3"]


async def test_servers_named_by_host_name(worker: WorkerHarness) -> None:
    groups = [Group(number, (f"localhost:{server.port}",)) for number, server in enumerate(worker.servers, 1)]
    await worker.apply(groups=groups)
    async with worker.client() as client:
        assert await client.mset({f"k{number}": number for number in range(50)})
        assert await client.get("k7") == b"7"
        await worker.apply(groups=[Group(1, ("no-such-host.invalid:6379",))])
        key = next(f"k{number}" for number in range(50) if slot_of(f"k{number}") < 512)
        with pytest.raises(redis.exceptions.ResponseError, match=r"no-such-host.invalid:6379"):
            await client.get(key)
