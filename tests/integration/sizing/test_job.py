"""The whole job: real servers with a topom, and RDB files, read by Spark; tables read back from their files."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as parquet
import pytest
import redis

from sizing import job
from sizing.access import TOKEN
from sizing.outcome import JobError, JobRequest, Status, Summary
from slotferry.client import TopomClient
from slotferry.local import LocalCluster
from slotferry.redis_server import start_redis
from slots.functions import slot
from topom.balance.sizes import MOST_PREFIXES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATABASES = (0, 3)


@dataclass
class Heard:
    """What a run prints."""

    notes: list[str] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    total: int = 0
    summary: Summary | None = None

    def begin(self, what: str, total: int, done: int) -> None:
        self.total = total
        self.done = [done]

    def update(self, done: int) -> None:
        self.done.append(done)

    def end(self) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)

    def show(self, summary: Summary) -> None:
        self.summary = summary


def run(spark: SparkSession, job_request: JobRequest) -> tuple[Status, Heard]:
    heard = Heard()
    return job.run(spark, job_request, heard, heard.show).status, heard


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    return list(parquet.read_table(folder / table).to_pylist())


@dataclass(frozen=True)
class Key:
    group_id: int
    database: int
    key: bytes
    bytes: int
    expires: bool

    @property
    def slot(self) -> int:
        return slot("crc32", self.key, 1024)


@contextmanager
def client(address: str, database: int, password: str | None = None) -> Iterator[redis.Redis]:
    found = redis.Redis(port=int(address.rpartition(":")[2]), db=database, password=password)
    try:
        yield found
    finally:
        found.close()


def fill(proxy: str) -> None:
    for database in DATABASES:
        with client(proxy, database) as through, through.pipeline(transaction=False) as pipe:
            for number in range(150):
                pipe.set(f"session:{number}", "v" * number, ex=3600 + 60 * number if number % 2 else None)
                pipe.hset(f"user:{number}:profile", mapping={f"field{n}": n for n in range(number + 1)})
            pipe.rpush("queue", *range(20_000)).set(b"\xff\x00:binary", "v" * 20_000)
            pipe.execute()


def truth(cluster: LocalCluster) -> list[Key]:
    """Each key as its own server says, asked one by one."""
    found = []
    for group_id, servers in cluster.groups.items():
        for database in DATABASES:
            with client(servers[0], database) as server:
                found += [
                    Key(group_id, database, key, server.memory_usage(key), server.pttl(key) >= 0)
                    for key in server.scan_iter(count=1000)
                    if not key.startswith(b"__slotferry:")
                ]
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two groups with keys in two databases."""
    cluster = LocalCluster(groups=2)
    asyncio.run(cluster.start())
    try:
        fill(cluster.proxy_addresses[0])
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv(TOKEN, cluster.token)
            yield cluster
    finally:
        asyncio.run(cluster.stop())


@pytest.fixture
def job_request(cluster: LocalCluster, tmp_path: Path) -> JobRequest:
    return JobRequest(str(tmp_path / "out"), topom=cluster.topom_url, token=cluster.token)


async def known_to_topom(
    cluster: LocalCluster,
) -> tuple[dict[int, dict[str, Any]], dict[str, Any], list[dict[str, Any]]]:
    """Slots by number, what a plan by bytes would be, and the biggest prefixes."""
    async with TopomClient(cluster.topom_url, cluster.token) as topom:
        slots = {entry["id"]: entry for entry in (await topom.slots())["slots"]}
        return slots, await topom.rebalance("bytes", dry_run=True), (await topom.sizes())["prefixes"]


def test_tables_say_what_the_servers_say_key_by_key(
    spark: SparkSession, cluster: LocalCluster, job_request: JobRequest
) -> None:
    expected = truth(cluster)

    status, heard = run(spark, replace(job_request, keep_keys=True))

    out = Path(job_request.output)
    assert status == Status.COMPLETE
    assert heard.done[-1] == heard.total == len(expected)
    slots = {row["slot"]: row for row in rows(out, "slots")}
    assert {number: (row["keys"], row["bytes"]) for number, row in slots.items()} == {
        number: (count, sum(key.bytes for key in expected if key.slot == number))
        for number, count in Counter(key.slot for key in expected).items()
    }
    for row in slots.values():
        here = [key for key in expected if key.slot == row["slot"]]
        assert {row["group_id"]} == {key.group_id for key in here}
        assert (row["bytes"], row["biggest_key"]) == (
            sum(key.bytes for key in here),
            max((key.bytes, key.key) for key in here)[1],
        )
        assert row["no_ttl_share"] == pytest.approx(sum(not key.expires for key in here) / len(here))
        assert row["bytes_error"] == row["keys_error"] == 0
    by_prefix = {row["prefix"]: row for row in rows(out, "prefixes") if row["depth"] <= 1}
    assert {name: (row["keys"], row["bytes"]) for name, row in by_prefix.items()} == {
        name: (sum(1 for _ in part), sum(part))
        for name, part in {
            prefix: [key.bytes for key in expected if key.key.startswith(prefix) and (b":" in key.key) == bool(prefix)]
            for prefix in (b"session:", b"user:", b"\xff\x00:", b"")
        }.items()
    }
    ranked = sorted((row for row in rows(out, "biggest") if row["rank"]), key=lambda row: row["rank"])
    assert [row["bytes"] for row in ranked] == sorted((key.bytes for key in expected), reverse=True)[:100]
    histograms = rows(out, "histograms")
    for name in ("bytes", "ttl_ms"):
        assert sum(row["keys"] for row in histograms if row["histogram"] == name) == len(expected)
    for row in histograms:
        if row["histogram"] == "bytes":
            assert row["keys"] == sum(row["low"] <= key.bytes < row["high"] for key in expected)
        elif row["low"] is None:
            assert row["keys"] == sum(not key.expires for key in expected)
    assert (out / "summary.png").read_bytes().startswith(b"\x89PNG")
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["complete"], summary["total"]["bytes"]) == (True, sum(key.bytes for key in expected))
    kept = spark.read.parquet(str(out / "keys"))
    assert Counter(bytes(row["key"]) for row in kept.collect()) == Counter(key.key for key in expected)
    known, plan, prefixes = asyncio.run(known_to_topom(cluster))
    assert {number: known[number]["bytes"] for number in slots} == {
        number: row["bytes"] for number, row in slots.items()
    }
    assert {entry["id"]: entry["before"]["bytes"] for entry in plan["cost"]["groups"]} == {
        group_id: sum(key.bytes for key in expected if key.group_id == group_id) for group_id in cluster.groups
    }
    check_prefixes(prefixes, rows(out, "prefixes"))


def check_prefixes(known: list[dict[str, Any]], table: list[dict[str, Any]]) -> None:
    """topom has the biggest of all depths, each in a longer form only with the shorter one, and as text."""
    table = sorted(table, key=lambda row: (-row["bytes"], row["depth"], row["prefix"]))
    assert len(table) > len(known) == MOST_PREFIXES
    assert [(one["depth"], one["keys"], one["bytes"]) for one in known] == [
        (row["depth"], row["keys"], row["bytes"]) for row in table[:MOST_PREFIXES]
    ]
    names = {one["prefix"] for one in known}
    assert {"user:", "session:", "\\xff\\x00:", ""} <= names
    assert all(f"{one['prefix'].split(':')[0]}:" in names for one in known if one["depth"] == 2)


@pytest.mark.long
def test_a_server_that_fails_is_named_and_is_all_that_the_next_run_reads(spark: SparkSession, tmp_path: Path) -> None:
    first = asyncio.run(start_redis("first", tmp_path))
    second = asyncio.run(start_redis("second", tmp_path))
    try:
        for number, server in enumerate((first, second)):
            with client(server.address, 0) as filling:
                filling.mset({f"of:{number}:{n}": n for n in range(100)})
        with client(second.address, 0) as closing:
            closing.config_set("requirepass", "closed")
        job_request = JobRequest(str(tmp_path / "out"), servers=f"{first.address},{second.address}")

        status, heard = run(spark, job_request)

        assert status == Status.PARTIAL
        assert heard.summary is not None
        assert [failure.place for failure in heard.summary.missing] == [second.address]
        assert "SLOTFERRY_SIZING_REDIS_PASSWORD" in heard.summary.missing[0].reason
        assert heard.summary.total.keys == 100
        assert not json.loads((tmp_path / "out" / "summary.json").read_text())["complete"]

        with client(second.address, 0, "closed") as opening:
            opening.config_set("requirepass", "")
        with client(first.address, 0) as changing:
            changing.flushall()
            changing.set("written after it was read", 1)
        status, heard = run(spark, job_request)

        assert status == Status.COMPLETE
        assert heard.summary is not None
        # The first server's keys are those of the first run: it was not read again, though it has others now.
        assert heard.summary.total.keys == 200
        assert not (tmp_path / "out" / "keys").exists()
        with pytest.raises(JobError, match=r"servers was .*--fresh"):
            run(spark, replace(job_request, servers=first.address))
        status, heard = run(spark, replace(job_request, servers=first.address, fresh=True))
        assert heard.summary is not None
        assert (status, heard.summary.total.keys) == (Status.COMPLETE, 1)
    finally:
        for server in (first, second):
            asyncio.run(server.stop())


@pytest.mark.long
def test_results_stand_when_topom_does_not_take_them_and_are_reported_by_the_next_run(
    spark: SparkSession, cluster: LocalCluster, job_request: JobRequest
) -> None:
    job_request = replace(job_request, prefixes=0)
    status, heard = run(spark, replace(job_request, token="wrong"))

    assert status == Status.NOT_POSTED
    assert any("SLOTFERRY_TOKEN" in note for note in heard.notes)
    assert "wrong" not in "".join(heard.notes)
    total = sum(row["keys"] for row in rows(Path(job_request.output), "slots"))
    assert total == len(truth(cluster))

    with client(cluster.groups[1][0], 0) as server:
        server.set("written after", 1)
    try:
        status, heard = run(spark, job_request)
        assert status == Status.COMPLETE
        assert heard.summary is not None
        assert heard.summary.total.keys == total
        assert asyncio.run(known_to_topom(cluster))[2] == [], "prefixes that were not wanted are told nobody"
    finally:
        with client(cluster.groups[1][0], 0) as server:
            server.delete("written after")


@pytest.mark.long
def test_rdb_files_are_sized_and_the_one_that_is_cut_is_named(
    spark: SparkSession, cluster: LocalCluster, job_request: JobRequest, tmp_path: Path
) -> None:
    expected = truth(cluster)
    for servers in cluster.servers.values():
        with client(servers[0].address, 0) as server:
            server.save()
            file = Path(server.config_get("dir")["dir"]) / "dump.rdb"
        (tmp_path / f"{servers[0].name}.rdb").write_bytes(file.read_bytes())
    job_request = replace(job_request, rdb=str(tmp_path / "*.rdb"))
    whole = file.read_bytes()
    (tmp_path / "cut.rdb").write_bytes(whole[: len(whole) // 2])

    status, heard = run(spark, job_request)

    assert status == Status.PARTIAL
    assert heard.summary is not None
    assert [Path(failure.place).name for failure in heard.summary.missing] == ["cut.rdb"]
    assert "offset" in heard.summary.missing[0].reason
    assert heard.summary.total.keys == len(expected)
    assert {(row["slot"], row["group_id"], row["keys"]) for row in rows(Path(job_request.output), "slots")} == {
        (number, group_id, count)
        for (number, group_id), count in Counter((key.slot, key.group_id) for key in expected).items()
    }


@pytest.mark.long
def test_of_a_sample_the_truth_is_within_four_standard_errors(
    spark: SparkSession, cluster: LocalCluster, job_request: JobRequest
) -> None:
    expected = truth(cluster)

    status, heard = run(spark, replace(job_request, fraction=0.5, post=False))

    assert status == Status.COMPLETE
    assert heard.summary is not None
    assert heard.summary.sampled == 0.5
    found = {total.name: total for total in heard.summary.prefixes}
    # Many keys of like sizes: a sample either has a single big key or knows nothing of it.
    for prefix in ("session:", "user:"):
        total = found[prefix]
        sizes = [key.bytes for key in expected if key.key.startswith(prefix.encode())]
        assert 0 < total.keys_error < len(sizes) / 4
        assert abs(total.keys - len(sizes)) <= 4 * total.keys_error
        assert abs(total.bytes - sum(sizes)) <= 4 * total.bytes_error
