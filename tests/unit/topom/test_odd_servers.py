"""A server that gives odd answers is a server that cannot be used, and nothing worse happens."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import structlog.testing
from hypothesis import example, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from migrator.connection import Connection, Timeouts
from migrator.errors import Refused, ServerUnavailable
from migrator.facts import facts_of
from migrator.scan import occupied_databases
from slots import probing
from slots.access import ServerAccess
from slots.failures import FAILURES
from slots.probing import Probing
from topom.copies.digests.asking import position
from topom.doctor import asking
from topom.doctor.examining import examined
from topom.doctor.facts import ClusterFacts, ServerFacts
from topom.masters.sentinels.link import SentinelLink
from topom.servers.lastcopy import ServerFailed
from topom.servers.redis_servers import RedisServers
from topom.servers.replication import ServerReplication

SECONDS = 0.05
INSTANCE = "a" * 32

numbers = st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]).map(lambda number: b":%d\r\n" % number)
bulks = st.one_of(
    st.sampled_from([b"", b"role:master\r\n", b"nan", b"db0:keys=x\r\n# Keyspace\r\n", b"name=\r\nid=x"]),
    st.binary(max_size=30),
).map(lambda text: b"$%d\r\n%b\r\n" % (len(text), text))
leaves = st.one_of(
    numbers,
    bulks,
    st.sampled_from(
        [b"$-1\r\n", b"*-1\r\n", b"*0\r\n", b"+OK\r\n", b"+PONG\r\n", b"+QUEUED\r\n", b"-ERR no\r\n", b"-\r\n"]
    ),
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3).map(lambda parts: b"*%d\r\n%b" % (len(parts), b"".join(parts))),
    max_leaves=6,
)
replies = st.one_of(
    values,
    st.sampled_from([b"HTTP/1.1 400\r\n\r\n", b"$5\r\nhal", b"*3\r\n:1\r\n", b"\x00\xff\r\n", b"$99999999999\r\n"]),
)


@asynccontextmanager
async def odd_server(answers: list[bytes]) -> AsyncIterator[str]:
    """Answers each command with the next of these, in turn, and closes if an answer has no end."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        turn = 0
        with suppress(ConnectionError, asyncio.CancelledError):
            while data := await reader.read(65536):
                for _ in range(max(1, data.count(b"\r\n*") + data.startswith(b"*"))):
                    answer = answers[turn % len(answers)]
                    turn += 1
                    writer.write(answer)
                    if answer in (b"$5\r\nhal", b"*3\r\n:1\r\n"):
                        break
                else:
                    continue
                break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def all_that_topom_asks(address: str) -> None:
    access = ServerAccess()
    servers = RedisServers(access, SECONDS)
    replication = ServerReplication(servers)
    status = (await servers.status([address]))[address]
    assert status is None or status.role in ("master", "replica")
    for ask in (replication.look, replication.read, replication.priority, replication.keep, replication.make_master):
        with suppress(ServerFailed):
            await ask(address)
    await servers.fence({address: [INSTANCE]})
    await servers.unmarked([INSTANCE], address)
    await servers.connected([address])
    facts: list[ServerFacts] = []

    async def ask_for_the_doctor(client: Redis) -> None:
        facts.append(await asking.ask(client, address, 1, True, access))

    await servers.guarded(address, ask_for_the_doctor)
    examined(ClusterFacts(servers=tuple(facts)))
    await servers.close()


async def all_that_a_sentinel_is_asked(address: str) -> None:
    link = SentinelLink(address, ServerAccess())
    for ask in (link.look, link.list_replicas):
        with suppress(*FAILURES):
            await ask(["one", "two"])
    with suppress(*FAILURES):
        await link.masters()
    with suppress(*FAILURES):
        await link.forget("one")
    await link.close()


async def all_that_the_migrator_asks(address: str) -> None:
    for ask in (facts_of, occupied_databases, position, lambda connection: connection.scan(b"0", 10)):
        with suppress(Refused, ServerUnavailable):
            connection = await Connection.open(
                address,
                name="n",
                access=ServerAccess(),
                unavailable=ServerUnavailable,
                refused=Refused,
                timeouts=Timeouts(SECONDS, SECONDS),
            )
            try:
                await ask(connection)
            finally:
                connection.close()


async def judged(address: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probing, "ASK_SECONDS", 0.01)
        one = Probing(ServerAccess(), SECONDS)
        one.keep([address])
        await asyncio.sleep(0.05)
        assert one._asking is not None
        assert not one._asking.done()
        await one.close()


@settings(max_examples=30, deadline=None)
@given(st.lists(replies, min_size=1, max_size=4))
@example([b"+OK\r\n", b":0\r\n"])
def test_no_answer_is_more_than_a_failure(answers: list[bytes]) -> None:
    async def ask() -> None:
        async with odd_server(answers) as address:
            await all_that_topom_asks(address)
            await all_that_a_sentinel_is_asked(address)
            await all_that_the_migrator_asks(address)
            await judged(address)

    with structlog.testing.capture_logs() as logs:
        asyncio.run(ask())
    # An answer that is recognized as odd is not an unexpected error.
    assert [entry for entry in logs if entry["event"] == "server_not_understood"] == []
