"""Which files a path means, and which options a reader takes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from sizing.rdb.files import RdbPathError, alternatives, find, split
from sizing.rdb.source import RdbOptionError, read_file, read_options
from tests.unit.rdb.writer import RdbWriter, string


def names(paths: list[str], **options: bool | str) -> list[str]:
    return [Path(file.shown).name for file in find(paths, **options)]  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.rdb", "b.rdb", "c.txt", "_d.rdb", ".e.rdb", "in,side.rdb", "[f].rdb"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "g.rdb").write_bytes(b"")
    (tmp_path / "_hidden").mkdir()
    (tmp_path / "_hidden" / "h.rdb").write_bytes(b"")
    return tmp_path


def test_commas_part_paths(folder: Path) -> None:
    assert split("/a, /b/{c,d}*.rdb ,,/e") == ["/a", "/b/{c,d}*.rdb", "/e"]
    assert split("a}b,c") == ["a}b", "c"]
    assert split(str(folder / "in,side.rdb")) == [str(folder / "in,side.rdb")]
    assert split("") == []


def test_braces_are_alternatives() -> None:
    assert alternatives("a") == ["a"]
    assert alternatives("{a,b}{c,d}") == ["ac", "ad", "bc", "bd"]
    assert alternatives("x{a,{b,c}}") == ["xa", "xb", "xa", "xc"]


def test_files_of_a_folder(folder: Path) -> None:
    assert names([str(folder)]) == ["[f].rdb", "a.rdb", "b.rdb", "c.txt", "in,side.rdb"]
    assert names([str(folder)], name_filter="?.rdb") == ["a.rdb", "b.rdb"]
    assert names([str(folder)], name_filter="?.rdb", recursive=True) == ["a.rdb", "b.rdb", "g.rdb"]


def test_globs_and_names(folder: Path) -> None:
    assert names([f"{folder}/{{a,b}}.rdb"]) == ["a.rdb", "b.rdb"]
    assert names([f"file://{folder}/[ab].rdb"]) == ["a.rdb", "b.rdb"]
    assert names([f"file:{folder}/a.rdb", f"file://localhost{folder}/b.rdb"]) == ["a.rdb", "b.rdb"]
    assert names([f"{folder}/*/g.rdb"]) == ["g.rdb"]
    # An existing file means itself, whatever it would mean as a glob.
    assert names([f"{folder}/[f].rdb"]) == ["[f].rdb"]
    assert names([f"{folder}/a.rdb", f"{folder}/a*"]) == ["a.rdb"]


def test_paths_are_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert [file.shown for file in find(["a.rdb"])] == [os.path.join(os.getcwd(), "a.rdb")]


@pytest.mark.long
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/nothing/*.rdb", "/nothing/.* means no file"),
        ("file://elsewhere/a.rdb", "no path of this machine"),
        ("gopher://host/a.rdb", "gopher://host/a.rdb cannot be reached"),
        ("s3://name:secret@bucket/a?scheme=gopher", "s3://bucket/a cannot be reached"),
        ("abfs://account:secret@127.0.0.1:1/backup/a?colour=red", "abfs://account@127.0.0.1:1/backup/a cannot be"),
        ("abfs://backup@account/a?client_secret=secret&colour=red", "abfs://backup@account/a cannot be reached"),
    ],
)
def test_paths_that_cannot_be(path: str, words: str) -> None:
    with pytest.raises(RdbPathError, match=words) as raised:
        find([path])
    assert "secret" not in str(raised.value)


def test_a_file_that_was_replaced_is_read_as_it_is_now(tmp_path: Path) -> None:
    path = tmp_path / "dump.rdb"
    path.write_bytes(RdbWriter(11).end())
    [file] = find([str(path)])
    path.write_bytes(RdbWriter(11).key(0, string("x" * 1000)).end())
    batches = read_file(file, read_options({"path": str(path)}))
    assert next(batches).num_rows == 1
    with pytest.raises(StopIteration) as ended:
        next(batches)
    assert ended.value.value is None


def test_a_file_that_is_gone_is_an_error_of_that_file(tmp_path: Path) -> None:
    path = tmp_path / "dump.rdb"
    path.write_bytes(b"")
    [file] = find([str(path)])
    path.unlink()
    with pytest.raises(StopIteration) as ended:
        next(read_file(file, read_options({"path": str(path)})))
    assert str(ended.value.value).startswith(f"{path}, offset 0: it cannot be opened: ")


def test_options() -> None:
    options = read_options({"PATH": "/a,/b", "Mode": "failfast", "checksum": "FALSE", "number_of_slots": "16384"})
    assert (options.paths, options.fail_fast, options.checksum) == (["/a", "/b"], True, False)
    assert (options.function, options.number_of_slots, options.allocator) == ("crc32", 16384, "jemalloc")
    assert read_options({"paths": '["/a,b", "/c"]'}).paths == ["/a,b", "/c"]
    for wrong in (
        {},
        {"path": "/a", "mode": "x"},
        {"path": "/a", "slots": "5"},
        {"path": "/a", "number_of_slots": "x"},
    ):
        with pytest.raises(RdbOptionError):
            read_options(wrong)
