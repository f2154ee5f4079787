"""Reading partitions of real servers, without Spark: what is read is true, and no more is asked than is wanted."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import structlog

from sizing.batches import ROWS
from sizing.cluster import Cluster, choose
from sizing.connection import Connection
from sizing.errors import ServerFailed
from sizing.look import PipelineLook, ScriptLook
from sizing.options import ReadOptions
from sizing.pace import Pace
from sizing.partitions import KEYS_PER_RANGE, plan_partitions
from sizing.scan import read_partition
from sizing.selection import Selection
from slotferry.processes import free_ports
from slotferry.redis_server import RedisServer, start_redis
from slots.access import ServerAccess
from tests.certificates import Authority
from tests.integration.sizing.keyspaces import (
    ALL,
    DATABASES,
    client_of,
    fill,
    options_of,
    rows_of,
    seen,
    selection,
    truth,
)
from tests.integration.sizing.servers import KINDS, running, speaks_tls

KEYS = 600


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server of each kind, filled, that no test changes."""
    with running(request.param, tmp_path_factory.mktemp("scan")) as started:
        fill(started, KEYS)
        yield started


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RedisServer]:
    """A server of the test's own."""
    with running("first", tmp_path) as started:
        yield started


def read(options: ReadOptions, chosen: Selection) -> list[dict[str, Any]]:
    return rows_of(plan_partitions(Cluster.of(options), options), options, chosen)


def by_place(rows: list[dict[str, Any]]) -> dict[tuple[int, bytes], dict[str, Any]]:
    found = {(row["database"], row["key"]): row for row in rows}
    assert len(found) == len(rows), "a key has two rows"
    return found


def whole_truth(server: RedisServer, samples: int = 5) -> dict[tuple[int, bytes], Any]:
    return {(database, key): one for database in DATABASES for key, one in truth(server, database, samples).items()}


@pytest.mark.parametrize(
    ("column", "commands"),
    [
        ("type", {"type"}),
        ("bytes", {"memory"}),
        ("ttl_ms", {"pttl"}),
        ("encoding", {"object"}),
        ("idle_s", {"object"}),
        ("elements", {"type", "llen"}),
    ],
)
def test_a_script_asks_for_nothing_but_its_columns(own: RedisServer, column: str, commands: set[str]) -> None:
    with client_of(own) as client, Connection(own.address, ServerAccess(), 5, 30) as connection:
        client.rpush("list", *range(3))
        look = ScriptLook(connection, [column], (), 5)
        client.config_resetstat()
        look.ask(0, 10)
        look.receive()
        look.at([b"list"])
        ran = {str(name).removeprefix("cmdstat_").partition("|")[0] for name in client.info("commandstats")}
    assert ran - {"scan", "eval", "evalsha", "config", "info"} == commands


@pytest.mark.parametrize("samples", [5, 0, 1])
def test_every_column_is_what_the_server_says_of_the_key(server: RedisServer, samples: int) -> None:
    rows = by_place(read(options_of(server, samples=samples), selection()))
    expected = whole_truth(server, samples)
    assert {place: seen(row) for place, row in rows.items()} == expected
    assert sum(row["bytes"] for row in rows.values()) == sum(each.bytes for each in expected.values())
    assert {row["server"] for row in rows.values()} == {server.address}
    assert all(3_500_000 < row["ttl_ms"] < 3_700_000 for row in rows.values() if row["ttl_ms"] is not None)
    assert all(row["idle_s"] >= 0 for row in rows.values())


@pytest.mark.parametrize(
    "narrowed", [{}, {"types": ("hash",)}, {"types": ("set", "zset")}, {"slots": frozenset(range(100))}], ids=str
)
def test_pipelines_give_what_scripts_give(server: RedisServer, narrowed: dict[str, Any]) -> None:
    chosen = selection(*(column for column in ALL if column not in ("ttl_ms", "idle_s")), **narrowed)
    scripted = by_place(read(options_of(server), chosen))
    with contextlib.closing(client_of(server)) as client:
        client.acl_setuser(
            "reader", enabled=True, passwords=["+secret"], keys=["*"], categories=["+@all", "-@scripting"]
        )
    options = options_of(server)
    access = ServerAccess("secret", "reader")
    with structlog.testing.capture_logs() as logged:
        plain = [
            row
            for partition in plan_partitions(Cluster.of(options, access), options)
            for row in _rows(partition, options, chosen, access)
        ]
    assert by_place(plain) == scripted
    assert scripted
    assert {event["event"] for event in logged} == {"scripts_refused"}


def _rows(partition: Any, options: ReadOptions, chosen: Selection, access: ServerAccess) -> list[dict[str, Any]]:
    return [row for batch in read_partition(partition, options, chosen, access) for row in batch.to_pylist()]


@pytest.mark.parametrize("types", [("hash",), ("set", "zset", "stream"), ("HASH",), ("no-such-type",)], ids=str)
@pytest.mark.parametrize("columns", [("database", "key"), ("database", "key", "bytes", "type")], ids=["names", "more"])
def test_types_are_chosen(server: RedisServer, types: tuple[str, ...], columns: tuple[str, ...]) -> None:
    found = by_place(read(options_of(server), selection(*columns, types=types)))
    expected = {place for place, one in whole_truth(server).items() if one.type in types}
    assert set(found) == expected


def test_a_sample_is_the_same_keys_each_time_and_about_its_share(server: RedisServer) -> None:
    small = by_place(read(options_of(server), selection("database", "key", "bytes", fraction=0.2)))
    again = by_place(read(options_of(server), selection("database", "key", fraction=0.2)))
    larger = by_place(read(options_of(server), selection("database", "key", "slot", fraction=0.5)))
    everything = whole_truth(server)
    assert set(small) == set(again) < set(larger) < set(everything)
    assert 0.15 < len(small) / len(everything) < 0.25
    assert all(row["bytes"] == everything[place].bytes for place, row in small.items())


def test_only_the_sample_is_looked_at(own: RedisServer) -> None:
    fill(own, KEYS, (0,))
    with contextlib.closing(client_of(own)) as client:
        client.config_resetstat()
        rows = read(options_of(own), selection("key", "bytes", fraction=0.1))
        stats = client.info("commandstats")
    assert stats["cmdstat_memory|usage"]["calls"] == len(rows) < KEYS / 5


def test_keys_that_expire_or_go_before_they_are_looked_at_are_left_out(own: RedisServer) -> None:
    with contextlib.closing(client_of(own)) as client:
        client.mset({"here": 1, "gone": 2})
        client.delete("gone")
        for kind in (ScriptLook, PipelineLook):
            for columns in (["type"], ["bytes"], ["ttl_ms"], ["encoding"], ["elements", "type"], list(ALL)):
                with Connection(own.address, ServerAccess(), 5, 5) as connection:
                    found = kind(connection, columns, (), 5).at([b"gone", b"here", b"gone"])
                assert found.keys == [b"here"], (kind, columns)
                assert {len(values) for values in found.columns.values()} == {1}


@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE"])
def test_a_server_that_goes_down_meanwhile_is_named(tmp_path: Path, mode: str) -> None:
    with running("first", tmp_path) as server:
        fill(server, 2 * ROWS, (0,))
        options = options_of(server, mode=mode)
        chosen = selection("server", "key", "bytes", "error")
        (partition,) = plan_partitions(Cluster.of(options), options)
        batches = read_partition(partition, options, chosen)
        first = next(batches)
        assert first.num_rows >= ROWS
    if mode == "FAILFAST":
        with pytest.raises(ServerFailed, match=server.address):
            list(batches)
        return
    rest = [row for batch in batches for row in batch.to_pylist()]
    (failure,) = (row for row in rest if row["error"] is not None)
    assert rest[-1] == failure
    assert failure["key"] is None
    assert server.address in failure["error"]
    assert all(row["key"] is not None for row in rest[:-1])


def test_a_script_that_the_server_has_forgotten_is_sent_again(own: RedisServer) -> None:
    fill(own, KEYS, (0,))
    with contextlib.closing(client_of(own)) as client, Connection(own.address, ServerAccess(), 5, 5) as connection:
        look = ScriptLook(connection, ["bytes"], (), 5)
        for _ in range(3):
            look.ask(0, 10)
            assert look.receive().keys
            client.script_flush()


def test_without_idle_times_under_an_lfu_policy(tmp_path: Path) -> None:
    with running("first", tmp_path, "--maxmemory-policy", "allkeys-lfu") as server:
        fill(server, 50, (0,))
        rows = read(options_of(server), selection("key", "idle_s", "bytes"))
    assert rows
    assert {row["idle_s"] for row in rows} == {None}


def test_looking_at_keys_is_no_use_of_them_but_for_elements(own: RedisServer) -> None:
    with contextlib.closing(client_of(own)) as client:
        client.set("key", "value")
        asyncio.run(_idle(own))
        (row,) = read(options_of(own), selection(*(column for column in ALL if column != "elements")))
        (again,) = read(options_of(own), selection("idle_s"))
    assert again["idle_s"] >= row["idle_s"] >= 1


async def _idle(server: RedisServer) -> None:
    async with asyncio.timeout(20):
        with contextlib.closing(client_of(server)) as client:
            while client.object("idletime", "key") < 1:
                await asyncio.sleep(0.05)


@pytest.mark.long
def test_a_replica_is_read_before_its_master_and_not_when_its_link_is_down(tmp_path: Path) -> None:
    with running("first", tmp_path) as master:
        fill(master, 100, (0,))
        replica = asyncio.run(start_redis("replica", tmp_path, extra=["--replicaof", "127.0.0.1", str(master.port)]))
        try:
            copy = client_of(replica)
            asyncio.run(_until(lambda: copy.info("replication")["master_link_status"] == "up"))
            group = (master.address, replica.address)
            options = options_of(master)
            chosen = choose(4, group, options, ServerAccess())
            assert (chosen.address, chosen.is_replica, chosen.total) == (replica.address, True, len(truth(master, 0)))
            masters = choose(4, group, options_of(master, read="master"), ServerAccess())
            assert masters.address == master.address
            rows = read(options_of(replica), selection("key", "bytes"))
            assert len(rows) == len(truth(master, 0))
            # Its master is somebody that does not answer.
            copy.replicaof("127.0.0.1", 1)
            asyncio.run(_until(lambda: copy.info("replication")["master_link_status"] == "down"))
            assert choose(4, group, options, ServerAccess()).address == master.address
            with pytest.raises(ServerFailed, match=f"{replica.address} is a replica whose link to its master is down"):
                Cluster.of(options_of(replica))
            copy.close()
        finally:
            asyncio.run(replica.stop())


async def _until(holds: Any) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.02)


@pytest.mark.long
def test_a_server_in_cluster_mode_is_read_in_one_range_a_database(tmp_path: Path) -> None:
    with running("valkey", tmp_path, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf") as server:
        client = client_of(server)
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        asyncio.run(_until(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok"))
        for number in range(25_000):
            client.set(f"key:{number}", "value")
        options = options_of(server, partitions_per_server=4)
        (partition,) = plan_partitions(Cluster.of(options), options)
        assert [each.cursors.of for each in partition.ranges] == [1]
        rows = read(options, selection("database", "key", "bytes"))
        assert len(by_place(rows)) == 25_000
        client.close()


@pytest.mark.skipif(not speaks_tls(), reason="the Redis server was built without TLS")
def test_tls_and_the_user_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("server")
    (port,) = free_ports(1)
    arguments = ["--tls-port", str(port), "--tls-cert-file", issued.certificate, "--tls-key-file", issued.key]
    arguments += ["--tls-ca-cert-file", authority.file, "--tls-auth-clients", "no"]
    arguments += "--user sizer on >secret ~* +@all --user default off".split()  # noqa: SIM905
    with running("first", tmp_path, *arguments):
        options = ReadOptions.of({"servers": f"127.0.0.1:{port}"})
        monkeypatch.setenv("SLOTFERRY_SIZING_REDIS_TLS", "true")
        with pytest.raises(ServerFailed, match="does not get through a TLS handshake"):
            Cluster.of(options)
        monkeypatch.setenv("SLOTFERRY_SIZING_REDIS_TLS_CA", authority.file)
        with pytest.raises(ServerFailed, match="SLOTFERRY_SIZING_REDIS_PASSWORD"):
            Cluster.of(options)
        monkeypatch.setenv("SLOTFERRY_SIZING_REDIS_USER", "sizer")
        monkeypatch.setenv("SLOTFERRY_SIZING_REDIS_PASSWORD", "wrong one")
        with pytest.raises(ServerFailed, match="refuses the login") as refused:
            Cluster.of(options)
        assert "wrong one" not in str(refused.value)
        monkeypatch.setenv("SLOTFERRY_SIZING_REDIS_PASSWORD", "secret")
        with redis.Redis(
            host="127.0.0.1", port=port, ssl=True, ssl_ca_certs=authority.file, username="sizer", password="secret"
        ) as client:
            client.mset({"a": 1, "b": 2})
        assert {row["key"] for row in read(options, selection("key", "bytes"))} == {b"a", b"b"}


@pytest.mark.long
def test_what_a_server_is_allowed_is_divided_by_its_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paces: list[tuple[float, ...]] = []

    class Noted(Pace):
        def __init__(self, most: int, seconds: float, rate: float = 0.0) -> None:
            paces.append((seconds, rate))
            super().__init__(most, seconds, rate)

    monkeypatch.setattr("sizing.scan.Pace", Noted)
    with running("first", tmp_path) as server:
        fill(server, 4 * KEYS_PER_RANGE, (0,))
        options = options_of(server, partitions_per_server=4, max_keys_per_second=4_000_000, milliseconds_per_call=8)
        partitions = plan_partitions(Cluster.of(options), options)
        rows = rows_of(partitions, options, selection("key"))
    assert len(partitions) == 4
    assert len(rows) > 4 * KEYS_PER_RANGE
    assert paces == [(0.002, 1_000_000)] * 4
