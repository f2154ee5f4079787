"""``spark.read.format("slotferry-rdb")``: files on disk as rows of a DataFrame."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sizing.rdb.parser import read_keys
from sizing.rdb.source import RdbDataSource
from sizing.schema import RDB_COLUMNS
from slots.functions import slot
from tests.integration.sizing.object_store import ObjectStore
from tests.unit.rdb.packing import listpack
from tests.unit.rdb.writer import RdbWriter, milliseconds, string

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS = 20_000
"""More than are in one batch."""


@pytest.fixture(scope="module")
def rdb(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(RdbDataSource)
    return spark


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three whole files, one that is cut, one that was changed, and things that are no RDB files of ours."""
    folder = tmp_path_factory.mktemp("files")
    many = RdbWriter(11)
    for number in range(KEYS):
        many.key(0, string(number), b"many:%d" % number)
    (folder / "many.rdb").write_bytes(many.end())
    few = RdbWriter(80, "VALKEY", "9.1.0").key(16, string(listpack(b"a", 1)), b"\x00\xff\n{tag}")
    few.key(0, string("x"), b"", b"\xfc" + milliseconds(1_700_000_000_500))
    (folder / "few.rdb").write_bytes(few.end())
    (folder / "none.rdb").write_bytes(RdbWriter(9).end())
    good = RdbWriter(11).key(0, string("x"), b"one").key(0, string("x"), b"two")
    (folder / "cut.rdb").write_bytes(good.data + b"\x00\x05th")
    changed = bytearray(good.end())
    # The last byte before the end and the checksum is of a value.
    changed[-10] ^= 1
    (folder / "changed.rdb").write_bytes(changed)
    (folder / "_SUCCESS").write_bytes(b"")
    (folder / "notes.txt").write_bytes(b"notes")
    (folder / "inner").mkdir()
    (folder / "inner" / "deep.rdb").write_bytes(RdbWriter(11).key(0, string("x"), b"deep").end())
    return folder


def load(spark: SparkSession, path: str | list[str], **options: str) -> DataFrame:
    return spark.read.format("slotferry-rdb").options(**options).load(path)


def files_of(frame: DataFrame) -> set[str]:
    return {Path(row.file).name for row in frame.select("file").distinct().collect()}


def test_schema(rdb: SparkSession, folder: Path) -> None:
    schema = load(rdb, str(folder / "few.rdb")).schema
    assert [(field.name, field.dataType.simpleString()) for field in schema] == [
        (column.name, column.kind) for column in RDB_COLUMNS
    ]
    assert [field.metadata["comment"] for field in schema] == [column.comment for column in RDB_COLUMNS]


@pytest.mark.long
def test_rows_are_the_keys_of_the_files(rdb: SparkSession, folder: Path) -> None:
    frame = load(rdb, str(folder / "{many,few,none}.rdb"), function="crc16", number_of_slots="16384")
    assert frame.rdd.getNumPartitions() == 3
    rows = frame.collect()
    assert len(rows) == KEYS + 2
    expected = {
        key.key: (str(folder / name), key)
        for name in ("many.rdb", "few.rdb")
        for key in read_keys(folder / name, function="crc16", number_of_slots=16384)
    }
    for row in rows:
        file, key = expected[bytes(row.key)]
        assert row.asDict() == {
            "file": file,
            "error": None,
            **{column.name: getattr(key, column.name) for column in RDB_COLUMNS[1:-1]},
        }
        assert row.slot == slot("crc16", key.key, 16384)


def test_slot_rules_hold_in_every_task(rdb: SparkSession, folder: Path) -> None:
    rows = (
        load(rdb, str(folder / "few.rdb"), rules='[{"pattern": "*", "tag": "one"}]').select("slot").distinct().collect()
    )
    assert [row["slot"] for row in rows] == [slot("crc32", b"one", 1024)]


@pytest.mark.long
def test_a_fault_is_a_row_and_other_files_go_on(rdb: SparkSession, folder: Path) -> None:
    frame = load(rdb, str(folder / "*.rdb"))
    faults = {Path(row.file).name: row for row in frame.where("error is not null").collect()}
    assert set(faults) == {"cut.rdb", "changed.rdb"}
    size = (folder / "cut.rdb").stat().st_size
    assert f"{folder / 'cut.rdb'}, offset {size - 2}: the file ends" in faults["cut.rdb"].error
    assert "checksum" in faults["changed.rdb"].error
    for row in faults.values():
        assert [name for name, value in row.asDict().items() if value is not None] == ["file", "error"]
    counts = {
        Path(row.file).name: row["count"] for row in frame.where("error is null").groupBy("file").count().collect()
    }
    assert counts == {"many.rdb": KEYS, "few.rdb": 2, "cut.rdb": 2, "changed.rdb": 2}
    # The changed bytes are data: only the checksum shows it.
    unchecked = load(rdb, str(folder / "changed.rdb"), checksum="false")
    assert unchecked.where("error is not null").count() == 0


def test_a_fault_fails_the_job_if_it_is_to(rdb: SparkSession, folder: Path) -> None:
    with pytest.raises(Exception, match=r"TruncatedRdb: .*cut\.rdb, offset \d+: the file ends"):
        load(rdb, str(folder / "cut.rdb"), mode="failfast").collect()
    assert load(rdb, str(folder / "few.rdb"), mode="FAILFAST").count() == 2


@pytest.mark.long
def test_paths(rdb: SparkSession, folder: Path) -> None:
    few, many = folder / "few.rdb", folder / "many.rdb"
    whole = {"few.rdb", "many.rdb"}
    assert files_of(load(rdb, f"file://{folder}/[fm]*.rdb")) == whole
    assert files_of(load(rdb, f"file:{few}")) == {"few.rdb"}
    assert files_of(load(rdb, [str(few), f"file://{many}"])) == whole
    assert files_of(load(rdb, f"{few},{many}")) == whole
    # A file that two paths mean is read once.
    assert load(rdb, [str(few), str(folder / "f*")]).count() == 2
    every = {"few.rdb", "many.rdb", "cut.rdb", "changed.rdb"}
    assert files_of(load(rdb, str(folder))) == every | {"notes.txt"}
    assert files_of(load(rdb, str(folder), pathGlobFilter="*.rdb")) == every
    assert files_of(load(rdb, str(folder), pathGlobFilter="*.rdb", recursiveFileLookup="true")) == every | {"deep.rdb"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("path", "options", "words"),
    [
        ("nothing-here-*.rdb", {}, "means no file"),
        ("ftp://host/a.rdb", {}, "cannot be reached"),
        ("few.rdb", {"mode": "DROPMALFORMED"}, "PERMISSIVE or FAILFAST"),
        ("few.rdb", {"allocator": "slab"}, "jemalloc, jemalloc16, glibc"),
        ("few.rdb", {"function": "md6"}, "there is no slot function"),
        ("few.rdb", {"number_of_slots": "1000"}, "power of two"),
        ("few.rdb", {"rules": "bull"}, "a JSON list of slot rules"),
        ("few.rdb", {"checksum": "maybe"}, "true or false"),
        ("few.rdb", {"check_sum": "true"}, "there is no option"),
    ],
)
def test_what_cannot_be_is_said(
    rdb: SparkSession, folder: Path, path: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises(Exception, match=words):
        load(rdb, path if "://" in path else str(folder / path), **options).collect()


@pytest.mark.long
def test_an_object_store(rdb: SparkSession, folder: Path) -> None:
    with ObjectStore({f"bucket/backup/{path.name}": path.read_bytes() for path in folder.glob("*.*")}) as store:
        query = f"endpoint_override={store.address}&scheme=http&region=us-east-1"
        frame = load(rdb, f"s3a://name:secret@bucket/backup/f*.rdb?{query}")
        rows = frame.collect()
        assert {row.file for row in rows} == {"s3a://bucket/backup/few.rdb"}
        assert len(rows) == 2
        assert load(rdb, f"s3://name:secret@bucket/backup?{query}", pathGlobFilter="*w.rdb").count() == 2
        with pytest.raises(Exception, match="means no file") as raised:
            load(rdb, f"s3://name:secret@bucket/backup/x*.rdb?{query}").collect()
        assert "s3://bucket/backup/x*.rdb" in str(raised.value)
        assert "name:secret" not in str(raised.value)
