"""Commands about the server and its clients: as one Redis answers them, or with a reason why not."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import redis.exceptions

from slots.reserved import SWEPT
from slots.slot import Slot
from tests.integration.worker.conversations import Request, Talk, converse, converse_at_once
from tests.integration.worker.harness import WorkerHarness
from tests.integration.worker.test_slot_states import frozen
from topom.servers.readings import ProxyAnswers, read

StartWorker = Callable[..., Awaitable[WorkerHarness]]

SAME_AS_REDIS = """
ROLE
ROLE x
ACL WHOAMI
ACL CAT nonsense
CLIENT GETNAME
CLIENT SETNAME me
CLIENT GETNAME
CLIENT LIST ID
CLIENT LIST ID x
CLIENT LIST ID 99999
CLIENT LIST ID 99999999999999999999
CLIENT LIST TYPE foo
CLIENT LIST TYPE master
CLIENT LIST TYPE pubsub
CLIENT LIST TYPE slave x
CLIENT LIST FOO
CLIENT INFO x
CLIENT KILL
CLIENT KILL 1.2.3.4:5
CLIENT KILL ID
CLIENT KILL ID x
CLIENT KILL ID 0
CLIENT KILL ID -1
CLIENT KILL ID 99999
CLIENT KILL TYPE foo
CLIENT KILL TYPE normal SKIPME foo
CLIENT KILL TYPE master
CLIENT KILL TYPE pubsub SKIPME no
CLIENT KILL USER nobody
CLIENT KILL USER default ID 99999
CLIENT KILL ADDR 1.2.3.4:5
CLIENT KILL LADDR 1.2.3.4:5
CLIENT KILL FOO bar
CLIENT KILL ID 5 SKIPME
CLIENT NO-EVICT on
CLIENT NO-EVICT foo
CLIENT TRACKING off
CLIENT TRACKING foo
CLIENT TRACKING OFF FOO
CLIENT TRACKING OFF REDIRECT
CLIENT TRACKING OFF REDIRECT x
CLIENT TRACKING OFF PREFIX a
CLIENT TRACKING OFF OPTIN
CLIENT TRACKING ON REDIRECT
CLIENT TRACKING ON REDIRECT x
CLIENT TRACKING ON REDIRECT 0
CLIENT TRACKING ON REDIRECT -1
CLIENT TRACKING ON REDIRECT 99999
CLIENT TRACKING ON PREFIX a REDIRECT 99999
CLIENT TRACKING ON BCAST OPTIN
CLIENT TRACKING ON OPTIN OPTOUT
CLIENT TRACKING ON PREFIX a
CLIENT TRACKING ON BCAST PREFIX a PREFIX ab
CLIENT TRACKING ON BCAST PREFIX a PREFIX a
CLIENT TRACKINGINFO
CLIENT GETREDIR
CLIENT CACHING YES
CLIENT UNPAUSE
CLIENT REPLY FOO
CLIENT REPLY ON
CLIENT FOO
CLIENT HELP
SLOWLOG GET -2
SLOWLOG GET x
SLOWLOG GET 1 2
SLOWLOG RESET
SLOWLOG GET 0
SLOWLOG LEN
SLOWLOG HELP
LATENCY LATEST
LATENCY HISTORY foo
LATENCY GRAPH foo
LATENCY RESET
LATENCY RESET foo bar
LATENCY HISTOGRAM nonsense
LATENCY HELP
INFO nonsense
INFO cluster
INFO modules
LOLWUT
TIME x
CONFIG GET maxmemory-policy
COMMAND COUNT
MEMORY USAGE nothing
OBJECT ENCODING nothing
OBJECT HELP
XINFO STREAM nothing
ECHO
READONLY x
"""


@pytest.fixture
async def beside(start_worker: StartWorker) -> WorkerHarness:
    """Two groups, and a third server without slots: the one Redis to compare with. However slow the machine is, the
    slow logs stay empty."""
    worker = await start_worker(servers=3, slow_log_microseconds=0.0)
    await worker.apply([Slot(index, 2) for index in range(512, 1024)])
    return worker


@pytest.mark.parametrize("protocol", [2, 3])
async def test_replies_are_those_of_redis(beside: WorkerHarness, protocol: int) -> None:
    requests: list[Request] = [tuple(line.split()) for line in SAME_AS_REDIS.strip().splitlines()]
    ours = await converse(beside.settings.listen, requests, protocol)
    theirs = await converse(beside.servers[2].address, requests, protocol)
    different = [pair for pair in zip(requests, ours, theirs, strict=True) if pair[1] != pair[2]]
    assert not different


@pytest.mark.parametrize("protocol", [2, 3])
async def test_what_cannot_be_the_same_has_the_same_shape(beside: WorkerHarness, protocol: int) -> None:
    for request in ("TIME", "CLIENT ID", "CLIENT INFO", "CLIENT LIST", "INFO", "INFO server", "LATENCY DOCTOR"):
        [ours] = await converse(beside.settings.listen, [tuple(request.split())], protocol)
        [theirs] = await converse(beside.servers[2].address, [tuple(request.split())], protocol)
        assert ours[:1] == theirs[:1], request


def fields(text: str) -> dict[str, str]:
    """``name=value`` by name."""
    return dict(part.split("=", 1) for part in text.split())


def sections(text: str) -> dict[str, dict[str, str]]:
    """INFO's fields by section."""
    found: dict[str, dict[str, str]] = {}
    for part in text.split("# ")[1:]:
        name, *lines = part.strip().splitlines()
        found[name] = dict(line.split(":", 1) for line in lines)
    return found


async def text(address: str, *words: str) -> str:
    """A bulk string."""
    [reply] = await converse(address, [words])
    return reply.split(b"\r\n", 1)[1].decode()


async def test_client_list_has_the_fields_of_redis_in_their_order(beside: WorkerHarness) -> None:
    ours = list(fields(await text(beside.settings.listen, "CLIENT", "INFO")))
    theirs = list(fields(await text(beside.servers[2].address, "CLIENT", "INFO")))
    assert ours[: len(theirs)] == theirs
    assert ours[len(theirs) :] == ["lib-name", "lib-ver", "owed"]


async def test_client_list_tells_what_clients_do(beside: WorkerHarness) -> None:
    async with (
        Talk(beside.settings.listen) as talk,
        Talk(beside.settings.listen, 3) as other,
        beside.client() as client,
    ):
        await talk.ask("CLIENT", "SETNAME", "busy")
        await talk.ask("SELECT", 2)
        await talk.ask("MULTI")
        await talk.ask("GET", "a")
        await other.ask("SUBSCRIBE", "news")
        await other.ask("CLIENT", "SETINFO", "lib-name", "tests")
        found = {entry["id"]: entry for entry in await client.client_list()}
        own = found[str(await client.client_id())]
        assert (own["flags"], own["cmd"], own["multi"]) == ("N", "client|list", "-1")
        busy = next(entry for entry in found.values() if entry["name"] == "busy")
        assert (busy["flags"], busy["db"], busy["multi"], busy["cmd"]) == ("x", "2", "1", "get")
        subscribed = next(entry for entry in found.values() if entry["lib-name"] == "tests")
        assert (subscribed["flags"], subscribed["sub"], subscribed["resp"]) == ("P", "1", "3")
        assert [entry["id"] for entry in await client.client_list(_type="pubsub")] == [subscribed["id"]]
        assert len(await client.client_list(_type="normal")) == len(found) - 1
        listed = await client.client_list(client_id=[busy["id"], subscribed["id"], "99999"])
        assert {entry["id"] for entry in listed} == {busy["id"], subscribed["id"]}


# -- CLIENT KILL -------------------------------------------------------------------------------------------


async def address_of(talk: Talk) -> str:
    line = (await talk.ask("CLIENT", "INFO")).split(b"\r\n")[1].decode()
    return fields(line)["addr"]


async def is_closed(talk: Talk) -> bool:
    async with asyncio.timeout(60):
        return await talk.reader.read() == b""


async def test_clients_are_killed_by_what_is_said_of_them(beside: WorkerHarness) -> None:
    async with Talk(beside.settings.listen) as killer:

        async def victim() -> Talk:
            talk = Talk(beside.settings.listen)
            await talk.__aenter__()
            await talk.ask("PING")
            return talk

        talk = await victim()
        assert await killer.ask("CLIENT", "KILL", await address_of(talk)) == b"+OK\r\n"
        assert await is_closed(talk)
        talk = await victim()
        number = (await talk.ask("CLIENT", "ID"))[1:-2]
        assert await killer.ask("CLIENT", "KILL", "ID", number) == b":1\r\n"
        assert await is_closed(talk)
        assert await killer.ask("CLIENT", "KILL", "ID", number) == b":0\r\n"
        talk, other = await victim(), await victim()
        address = await address_of(other)
        assert await killer.ask("CLIENT", "KILL", "TYPE", "normal", "ADDR", address, "USER", "default") == b":1\r\n"
        assert await is_closed(other)
        assert await talk.ask("PING") == b"+PONG\r\n"
        await talk.ask("SUBSCRIBE", "news")
        assert await killer.ask("CLIENT", "KILL", "TYPE", "pubsub") == b":1\r\n"
        assert await is_closed(talk)
        talk, other = await victim(), await victim()
        assert await killer.ask("CLIENT", "KILL", "MAXAGE", 1000) == b":0\r\n"
        assert await killer.ask("CLIENT", "KILL", "LADDR", beside.settings.listen, "SKIPME", "yes") == b":2\r\n"
        assert await is_closed(talk)
        assert await is_closed(other)
        assert await killer.ask("PING") == b"+PONG\r\n"
        for words in (["MAXAGE", "x"], ["MAXAGE", "0"]):
            assert (await killer.ask("CLIENT", "KILL", *words)).startswith(b"-ERR maxage ")


@pytest.mark.parametrize("by_address", [False, True])
async def test_who_kills_itself_hears_of_it_and_runs_nothing_more(beside: WorkerHarness, by_address: bool) -> None:
    async with Talk(beside.settings.listen) as talk, Talk(beside.settings.listen) as other, beside.client() as client:
        own = (await talk.ask("CLIENT", "ID"))[1:-2]
        words = [await address_of(talk)] if by_address else ["ID", own, "SKIPME", "no"]
        talk.send("SET", "a", 1)
        talk.send("CLIENT", "KILL", *words)
        talk.send("SET", "a", 2)
        expected = b"+OK\r\n" + (b"+OK\r\n" if by_address else b":1\r\n")
        async with asyncio.timeout(60):
            assert await talk.reader.read() == expected
        assert await client.get("a") == b"1"
        assert await other.ask("PING") == b"+PONG\r\n"


# -- CLIENT REPLY, RESET -----------------------------------------------------------------------------------

MUTED: list[Request] = [
    ("SET", "a", "1"),
    ("CLIENT", "REPLY", "SKIP"),
    ("SET", "a", "2"),
    ("GET", "a"),
    ("CLIENT", "REPLY", "OFF"),
    ("GET", "a"),
    ("PING",),
    ("NOSUCH",),
    ("MGET", "a", "b", "c"),
    ("DBSIZE",),
    ("CLIENT", "REPLY", "SKIP"),
    ("CLIENT", "REPLY", "FOO"),
    ("CLIENT", "REPLY", "ON"),
    ("GET", "a"),
    ("CLIENT", "REPLY", "SKIP"),
    ("CLIENT", "REPLY", "SKIP"),
    ("PING",),
    ("PING", "heard"),
    ("CLIENT", "REPLY", "OFF"),
    ("RESET",),
    ("GET", "a"),
]


@pytest.mark.parametrize("protocol", [2, 3])
async def test_replies_that_are_not_wanted(beside: WorkerHarness, protocol: int) -> None:
    said = []
    for address in (beside.settings.listen, beside.servers[2].address):
        async with Talk(address, protocol) as talk:
            for request in MUTED:
                talk.send(*request)
            said.append(await talk.heard())
    assert said[0] == said[1]


async def test_reset_leaves_nothing(beside: WorkerHarness) -> None:
    async with Talk(beside.settings.listen, 3) as talk, beside.client() as client:
        await talk.ask("SELECT", 5)
        await talk.ask("CLIENT", "SETNAME", "me")
        await talk.ask("READONLY")
        await talk.ask("SUBSCRIBE", "news")
        await talk.ask("WATCH", "a")
        await talk.ask("MULTI")
        await talk.ask("SET", "a", "in a transaction")
        assert await talk.ask("RESET") == b"+RESET\r\n"
        assert await talk.ask("CLIENT", "GETNAME") == b"$-1\r\n"
        assert await talk.ask("EXEC") == b"-ERR EXEC without MULTI\r\n"
        assert await client.publish("news", "x") == 0
        assert await talk.ask("SET", "a", "1") == b"+OK\r\n"
        assert await client.get("a") == b"1"
        line = fields((await talk.ask("CLIENT", "INFO")).split(b"\r\n")[1].decode())
        assert (line["db"], line["resp"], line["flags"], line["sub"], line["multi"]) == ("0", "2", "N", "0", "-1")


async def test_reset_after_what_is_owed(beside: WorkerHarness) -> None:
    requests: list[Request] = [("HELLO", 3), ("GET", "a"), ("RESET",), ("GET", "a"), ("CLIENT", "GETNAME")]
    ours = await converse_at_once(beside.settings.listen, requests)
    theirs = await converse_at_once(beside.servers[2].address, requests)
    assert ours[1:] == theirs[1:] == [b"_\r\n", b"+RESET\r\n", b"$-1\r\n", b"$-1\r\n"]


async def test_reads_may_go_to_replicas_as_the_client_says(beside: WorkerHarness) -> None:
    requests: list[Request] = [("READONLY",), ("GET", "a"), ("READWRITE",), ("GET", "a")]
    assert await converse(beside.settings.listen, requests) == [b"+OK\r\n", b"$-1\r\n"] * 2


# -- INFO --------------------------------------------------------------------------------------------------


async def test_info_has_no_field_that_redis_has_not(beside: WorkerHarness) -> None:
    ours = sections(await text(beside.settings.listen, "INFO", "everything"))
    theirs = sections(await text(beside.servers[2].address, "INFO", "everything"))
    ours.pop("Slotferry")
    assert set(ours) == set(theirs)
    for name in ("Server", "Memory", "Persistence", "Stats", "Replication", "CPU", "Cluster"):
        assert not set(ours[name]) - set(theirs[name]), name
    assert set(ours["Clients"]) - set(theirs["Clients"]) == {"pubsub_clients", "held_requests"}
    assert list(sections(await text(beside.settings.listen, "INFO"))) == [
        *(name for name in sections(await text(beside.servers[2].address, "INFO"))),
        "Slotferry",
    ]


async def test_info_sections_are_chosen_as_in_redis(beside: WorkerHarness) -> None:
    for words in (["server"], ["KEYSPACE", "cluster"], ["all"], ["default"], ["default", "commandstats"], ["nonsense"]):
        ours = sections(await text(beside.settings.listen, "INFO", *words))
        theirs = sections(await text(beside.servers[2].address, "INFO", *words))
        assert [name for name in ours if name != "Slotferry"] == list(theirs), words


async def test_info_sums_the_keyspaces(beside: WorkerHarness) -> None:
    async with beside.client() as client, beside.client(db=3) as third:
        async with beside.direct(1) as direct:
            await direct.hset(SWEPT, "token", "own")
        assert sections(await text(beside.settings.listen, "INFO", "keyspace"))["Keyspace"] == {}
        for number in range(100):
            await client.set(f"k{number}", "1", ex=1000 if number < 30 else None)
        await third.set("a", "1")
        found = await client.info("keyspace")
        assert found["db3"] == {"keys": 1, "expires": 0, "avg_ttl": 0}
        # The average TTL comes when the servers have looked at their keys.
        assert (found["db0"]["keys"], found["db0"]["expires"]) == (100, 30)
        own = await client.info("slotferry")
        assert (own["masters"], own["masters_without_answer"]) == (2, 0)
        # So that it is not taken for a Redis server.
        with pytest.raises(ProxyAnswers):
            await read(client)
        address = beside.servers[1].address
        await beside.servers[1].stop()
        own = await client.info()
        assert (own["masters_without_answer"], own["masters_without_answer_names"]) == (1, address)
        assert 0 < own["db0"]["keys"] < 100


async def test_info_waits_for_no_server_that_hangs(beside: WorkerHarness) -> None:
    """ioredis, for example, asks for it before it takes a connection for ready."""
    async with beside.client() as client:
        await client.info()
        async with frozen(beside, 2):
            # Less than a server may take for a reply.
            async with asyncio.timeout(10):
                found = await client.info()
            assert (found["redis_version"], found["masters_without_answer"]) == ("7.0.15", 1)


async def test_info_counts_clients_and_commands(beside: WorkerHarness) -> None:
    async with (
        beside.client() as client,
        Talk(beside.settings.listen) as subscriber,
        Talk(beside.settings.listen) as waiter,
    ):
        await subscriber.ask("SUBSCRIBE", "news")
        waiter.send("BLPOP", "nothing", 0)
        async with asyncio.timeout(60):
            while (await client.info("clients"))["blocked_clients"] != 1:
                await asyncio.sleep(0.01)
        found = await client.info("clients")
        assert (found["connected_clients"], found["pubsub_clients"]) == (3, 1)
        for number in range(10):
            await client.set(f"k{number}", "1")
        with pytest.raises(redis.exceptions.ResponseError):
            await client.execute_command("INCR", "k0", "x")
        counted = await client.info("commandstats")
        assert counted["cmdstat_set"]["calls"] == 10
        assert counted["cmdstat_set"]["failed_calls"] == 0
        percentiles = (await client.info("latencystats"))["latency_percentiles_usec_set"]
        assert 0 < percentiles["p50"] <= percentiles["p99"]


# -- SLOWLOG, LATENCY --------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, 3])
async def test_slow_requests_are_told_of(start_worker: StartWorker, protocol: int) -> None:
    worker = await start_worker(slow_log_microseconds=1.0)
    async with worker.client(protocol=protocol) as client, worker.client() as plain:
        await client.client_setname("me")
        for number in range(30):
            await client.set(f"k{number}", "1")
        entries = await client.slowlog_get()
        assert len(entries) == 10
        assert all(entry["duration"] > 0 and entry["client_name"] == b"me" for entry in entries)
        assert entries[0]["command"].startswith(b"set key k29 slot ")
        assert worker.servers[0].address.encode() in entries[0]["command"]
        assert [entry["id"] for entry in entries] == sorted((entry["id"] for entry in entries), reverse=True)
        assert len(await client.slowlog_get(20)) == 20
        assert len(await client.slowlog_get(-1)) >= 30
        assert await client.slowlog_len() >= 30
        assert await plain.slowlog_reset()
        assert await client.slowlog_len() < 10


@pytest.mark.parametrize("protocol", [2, 3])
async def test_latencies_are_told_of(beside: WorkerHarness, protocol: int) -> None:
    async with Talk(beside.settings.listen, protocol) as talk:
        for number in range(20):
            await talk.ask("SET", f"k{number}", "1")
        await talk.ask("CLIENT", "GETNAME")
        reply = await talk.ask("LATENCY", "HISTOGRAM", "SET", "client")
        two = b"%2\r\n" if protocol == 3 else b"*4\r\n"
        # Subcommands count for the command that they are of.
        assert reply.startswith(two + b"$6\r\nclient\r\n" + two + b"$5\r\ncalls\r\n:1\r\n$14\r\nhistogram_usec\r\n")
        assert b"$3\r\nset\r\n" + two + b"$5\r\ncalls\r\n:20\r\n$14\r\nhistogram_usec\r\n" in reply
        # The last bucket has them all.
        assert reply.endswith(b":20\r\n")


# -- what is refused --------------------------------------------------------------------------------------


async def test_what_cannot_be_had_is_refused_with_a_reason(beside: WorkerHarness) -> None:
    requests: list[Request] = [
        ("CLIENT", "NO-TOUCH", "ON"),
        ("CLIENT", "PAUSE", "100"),
        ("SWAPDB", "0", "1"),
        ("MONITOR",),
        ("DEBUG", "JMAP"),
        ("DEBUG", "OBJECT", "key"),
        ("CONFIG", "SET", "maxmemory", "1"),
    ]
    for request, reply in zip(requests, await converse(beside.settings.listen, requests), strict=True):
        assert b" is refused by Slotferry: " in reply, request
    assert await converse(beside.settings.listen, [("CLIENT", "NO-TOUCH", "off"), ("CLIENT", "NO-TOUCH", "x")]) == [
        b"+OK\r\n",
        b"-ERR syntax error\r\n",
    ]


@pytest.mark.parametrize(
    "sent",
    [
        b"SET a 1\r\nPOST / HTTP/1.1\r\nSET a 2\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nSET a 2\r\n",
        b"*1\r\n$5\r\nhost:\r\nSET a 2\r\n",
    ],
)
async def test_http_is_not_listened_to(beside: WorkerHarness, sent: bytes) -> None:
    found = []
    for address in (beside.settings.listen, beside.servers[2].address):
        async with Talk(address) as talk, Talk(address) as other:
            talk.writer.write(sent)
            said = b""
            async with asyncio.timeout(60):
                with suppress(ConnectionResetError):
                    said = await talk.reader.read()
            assert b"unknown command" not in said
            # Whether what came before is answered is a matter of chance.
            found.append(await other.ask("GET", "a"))
    assert found[0] in (b"$-1\r\n", b"$1\r\n1\r\n")
    assert found[1] in (b"$-1\r\n", b"$1\r\n1\r\n")
