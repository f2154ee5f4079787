"""The data source on a real Spark, over real servers."""

import asyncio
import contextlib
import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

from sizing.schema import SERVER_COLUMNS
from sizing.source import SlotferryDataSource
from slotferry.redis_server import RedisServer, start_redis
from slots import functions
from tests.integration.sizing.keyspaces import DATABASES, client_of, fill, seen, truth
from tests.integration.topom_process import TOKEN, TopomProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS = 20_000
"""In the first server's databases: enough for two ranges."""
PASSWORD = "a password that nobody may see"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    folder = tmp_path_factory.mktemp("source")
    started = [asyncio.run(start_redis(f"server-{number}", folder)) for number in range(2)]
    fill(started[0], KEYS, DATABASES[:1])
    fill(started[1], 100)
    yield started
    for server in started:
        asyncio.run(server.stop())


@pytest.fixture(scope="module")
def registered(spark: "SparkSession") -> "SparkSession":
    spark.dataSource.register(SlotferryDataSource)
    return spark


@pytest.fixture
def environment(registered: "SparkSession") -> Iterator[dict[str, str]]:
    """What is in the environment of Spark's Python processes from the next registration on.

    They inherit the JVM's environment, which cannot change after its start. These variables come on top of it.
    """
    variables: dict[str, str] = registered.sparkContext.environment
    before = dict(variables)
    yield variables
    variables.clear()
    variables.update(before)
    registered.dataSource.register(SlotferryDataSource)


def read(spark: "SparkSession", *servers: RedisServer, schema: str = "", **options: Any) -> "DataFrame":
    reader = spark.read.format("slotferry").options(servers=",".join(each.address for each in servers), **options)
    return (reader.schema(schema) if schema else reader).load()


def asked(server: RedisServer) -> dict[str, int]:
    """Calls of each command since the last time this was asked."""
    with contextlib.closing(client_of(server)) as client:
        said = client.execute_command("INFO", "commandstats")
        client.config_resetstat()
    calls = said if isinstance(said, dict) else {}
    return {name.removeprefix("cmdstat_"): int(value["calls"]) for name, value in calls.items()}


@pytest.mark.long
def test_every_key_of_every_database_has_its_row_and_the_rows_are_true(
    registered: "SparkSession", servers: list[RedisServer]
) -> None:
    rows = [row.asDict() for row in read(registered, *servers).collect()]
    for server in servers:
        for database in DATABASES:
            mine = [row for row in rows if (row["server"], row["database"]) == (server.address, database)]
            expected = truth(server, database)
            assert {bytes(row["key"]): seen(row) for row in mine} == expected
            assert len(mine) == len(expected)
            assert sum(row["bytes"] for row in mine) == sum(each.bytes for each in expected.values())
    assert {row["product"] for row in rows} == {row["group_id"] for row in rows} == {None}
    assert all(row["idle_s"] >= 0 for row in rows)


@pytest.mark.long
def test_a_server_has_several_partitions_and_each_key_is_in_one(
    registered: "SparkSession", servers: list[RedisServer]
) -> None:
    frame = read(registered, servers[0], columns="database,key", partitions_per_server=2)
    assert frame.rdd.getNumPartitions() == 2
    parts = frame.rdd.mapPartitionsWithIndex(
        lambda index, rows: [(index, row["database"], bytes(row["key"])) for row in rows]
    ).collect()
    assert (
        len({(database, key) for _, database, key in parts})
        == len(parts)
        == sum(len(truth(servers[0], database)) for database in DATABASES)
    )
    # A database of this size is in both.
    assert {(index, database) for index, database, _ in parts} == {(0, 0), (1, 0)}


def test_the_schema_says_units(registered: "SparkSession", servers: list[RedisServer]) -> None:
    schema = read(registered, servers[1]).schema
    assert [(field.name, field.dataType.simpleString(), field.metadata["comment"]) for field in schema] == [
        (column.name, column.kind, column.comment) for column in SERVER_COLUMNS
    ]


@pytest.mark.parametrize("way", ["columns", "schema"])
def test_what_is_not_named_is_not_asked_for(registered: "SparkSession", servers: list[RedisServer], way: str) -> None:
    chosen = {"columns": "slot,bytes"} if way == "columns" else {"schema": "slot int, bytes bigint"}
    asked(servers[1])
    rows = read(registered, servers[1], **chosen).collect()
    commands = asked(servers[1])
    # The name of Slotferry's own key is known without asking for it, but the script has asked already.
    assert commands["memory|usage"] == len(rows) + len(DATABASES)
    assert not {"type", "object|encoding", "object|idletime", "pttl", "strlen", "hlen"} & commands.keys()


@pytest.mark.long
@pytest.mark.parametrize("pushed", [True, False], ids=["pushed", "not-pushed"])
def test_filters_give_the_same_whether_servers_or_spark_apply_them(
    registered: "SparkSession", servers: list[RedisServer], pushed: bool
) -> None:
    registered.conf.set("spark.sql.python.filterPushdown.enabled", str(pushed).lower())
    expected = {(database, key): one for database in DATABASES for key, one in truth(servers[1], database).items()}
    some = sorted({one.slot for one in expected.values()})[::3]
    filters = {
        "type = 'hash'": lambda database, one: one.type == "hash",
        "type = 'HASH'": lambda database, one: False,
        "type in ('set', 'zset') and bytes > 200": lambda database, one: (
            one.type in ("set", "zset") and one.bytes > 200
        ),
        f"slot in ({', '.join(map(str, some))})": lambda database, one: one.slot in some,
        f"slot = {some[0]} and database = 3": lambda database, one: one.slot == some[0] and database == 3,
        "database in (0, 9) and type <> 'list'": lambda database, one: database != 3 and one.type != "list",
    }
    try:
        for text, holds in filters.items():
            found = read(registered, servers[1], columns="database,key,slot,type,bytes").where(text).collect()
            assert Counter((row["database"], bytes(row["key"])) for row in found) == Counter(
                place for place, one in expected.items() if holds(place[0], one)
            ), text
    finally:
        registered.conf.set("spark.sql.python.filterPushdown.enabled", "true")


@pytest.mark.long
def test_pushed_filters_save_the_server_work(registered: "SparkSession", servers: list[RedisServer]) -> None:
    frame = read(registered, servers[1], columns="database,slot,type,bytes")
    expected = {database: truth(servers[1], database) for database in DATABASES}
    slots = {one.slot for one in expected[0].values()}
    chosen = sorted(slots)[:5]
    asked(servers[1])
    frame.where(f"slot in ({', '.join(map(str, chosen))}) and database = 0").collect()
    commands = asked(servers[1])
    assert commands["memory|usage"] == sum(one.slot in chosen for one in expected[0].values())
    frame.where("type in ('hash', 'list')").collect()
    commands = asked(servers[1])
    assert commands["memory|usage"] == sum(
        one.type in ("hash", "list") for keys in expected.values() for one in keys.values()
    )
    frame.where("type = 'hash'").collect()
    commands = asked(servers[1])
    hashes = sum(one.type == "hash" for keys in expected.values() for one in keys.values())
    # Slotferry's own key is a string here, so SCAN leaves it out by itself.
    assert commands["memory|usage"] == hashes


@pytest.mark.long
def test_no_secret_is_in_a_plan_or_an_error(
    registered: "SparkSession", environment: dict[str, str], tmp_path: Path
) -> None:
    server = asyncio.run(start_redis("secret", tmp_path, extra=["--requirepass", PASSWORD]))
    try:
        client = redis.Redis(port=server.port, password=PASSWORD)
        client.set("key", "value")
        with pytest.raises(Exception, match="SLOTFERRY_SIZING_REDIS_PASSWORD"):
            read(registered, server).collect()
        environment["SLOTFERRY_SIZING_REDIS_PASSWORD"] = PASSWORD
        registered.dataSource.register(SlotferryDataSource)
        with pytest.raises(Exception, match="SLOTFERRY_SIZING_REDIS_PASSWORD") as failed:
            read(registered, server, password=PASSWORD)
        assert PASSWORD not in str(failed.value)
        frame = read(registered, server)
        assert [row["key"] for row in frame.collect()] == [b"key"]
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            frame.explain(True)
        assert "slotferry" in shown.getvalue()
        assert PASSWORD not in shown.getvalue()
        client.close()
    finally:
        asyncio.run(server.stop())


@pytest.mark.long
def test_slot_rules_hold_in_every_task(registered: "SparkSession", servers: list[RedisServer]) -> None:
    rules = '[{"pattern": "*", "database": 0, "tag": "one"}]'
    rows = read(registered, *servers, columns="database,slot,key", rules=rules).collect()
    one = functions.slot("crc32", b"one", 1024)
    assert {row["slot"] for row in rows if row["database"] == 0} == {one}
    others = [row for row in rows if row["database"] != 0]
    assert others
    assert all(row["slot"] == functions.slot("crc32", bytes(row["key"]), 1024) for row in others)


@pytest.mark.long
async def test_topom_says_what_there_is(
    registered: "SparkSession",
    environment: dict[str, str],
    servers: list[RedisServer],
    tmp_path: Path,
) -> None:
    environment["SLOTFERRY_TOKEN"] = TOKEN
    registered.dataSource.register(SlotferryDataSource)
    topom = TopomProcess(tmp_path / "topom", slot_function="crc16", product="shop")
    await topom.start()
    try:
        for group_id, server in enumerate(servers, start=7):
            await topom.call("POST", "/groups", {"id": group_id, "servers": [server.address]})
        frame = registered.read.format("slotferry").options(topom=topom.url, databases="0").load()
        rows = await asyncio.to_thread(frame.select("product", "group_id", "server", "key", "slot").collect)
    finally:
        topom.stop()
    assert {(row["product"], row["group_id"], row["server"]) for row in rows} == {
        ("shop", 7, servers[0].address),
        ("shop", 8, servers[1].address),
    }
    assert all(row["slot"] == functions.slot("crc16", bytes(row["key"]), 16) for row in rows)
    assert len(rows) == sum(len(truth(server, 0)) for server in servers)


@pytest.mark.long
def test_a_server_that_is_down_fails_the_query_by_its_name_or_has_a_row_of_its_own(
    registered: "SparkSession", servers: list[RedisServer], tmp_path: Path
) -> None:
    down = asyncio.run(start_redis("down", tmp_path))
    asyncio.run(down.stop())
    with pytest.raises(Exception, match=f"{down.address} cannot be connected to"):
        read(registered, servers[1], down).count()
    rows = read(registered, servers[1], down, columns="server,key,error", mode="permissive").collect()
    (failure,) = (row for row in rows if row["error"])
    assert failure["server"] == down.address
    assert failure["key"] is None
    assert f"{down.address} cannot be connected to" in failure["error"]
    assert len(rows) == 1 + sum(len(truth(servers[1], database)) for database in DATABASES)
