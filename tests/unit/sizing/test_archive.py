"""What makes Spark start sooner: the script that starts workers' Python, and where Java's archive of classes is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from sizing import archive
from sizing.outcome import JobError
from sizing.python import worker_python

HOME = Path(pyspark.__file__).parent


def test_workers_import_the_installed_pyspark_and_not_the_zip_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    python = worker_python()
    zips = [str(path) for path in (HOME / "python" / "lib").glob("*.zip")]
    assert zips, "this Spark has none, and needs no script"
    given = os.pathsep.join([*zips, "/opt/a folder", *zips, "/opt/other.zip"])
    code = "import json, sys, pyspark; print(json.dumps([sys.path, pyspark.__file__, sys.argv[1]]))"
    said = subprocess.run(
        [python, "-c", code, "an argument"], env={**os.environ, "PYTHONPATH": given}, capture_output=True, check=True
    )
    path, file, argument = json.loads(said.stdout)
    assert not set(zips) & set(path)
    assert {"/opt/a folder", "/opt/other.zip"} <= set(path)
    assert Path(file).parent == HOME
    assert argument == "an argument"


def test_a_spark_of_its_own_keeps_its_own_pyspark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert worker_python() == sys.executable


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "slotferry"


def java(folder: Path, text: str) -> Path:
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    (folder / "bin" / "java").write_text(text)
    (folder / "bin" / "java").chmod(0o755)
    return folder


def test_an_archive_is_of_one_java_and_used_once_it_is_there(cache: Path, tmp_path: Path) -> None:
    first, second = java(tmp_path / "first", "#!/bin/sh\n# one"), java(tmp_path / "second", "#!/bin/sh\n# another")
    same = java(tmp_path / "elsewhere", "#!/bin/sh\n# one")
    assert archive.path(first) == archive.path(same) != archive.path(second)
    assert archive.path(first).parent == cache
    assert archive.options(first) == ""
    cache.mkdir()
    archive.path(first).write_bytes(b"classes")
    assert f"-XX:SharedArchiveFile={archive.path(first)}" in archive.options(first)
    assert archive.options(second) == ""


def test_what_java_leaves_takes_the_place_of_older_archives(cache: Path) -> None:
    unfinished = archive.begin()
    (cache / "spark-older.jsa").write_bytes(b"")
    ending = subprocess.Popen(["sh", "-c", 'printf classes > "$0"', str(unfinished)])
    archive.keep(unfinished, ending, cache / "spark-new.jsa")
    assert [path.name for path in cache.iterdir()] == ["spark-new.jsa"]
    assert (cache / "spark-new.jsa").read_bytes() == b"classes"


def test_a_java_that_leaves_nothing_is_said(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unfinished = archive.begin()
    kept = cache / "spark-kept.jsa"
    kept.write_bytes(b"classes")
    with pytest.raises(JobError, match="has not left its classes"):
        archive.keep(unfinished, subprocess.Popen(["true"]), kept)
    monkeypatch.setattr(archive, "DUMP_SECONDS", 0.05)
    stuck = subprocess.Popen(["sleep", "60"])
    with pytest.raises(JobError, match="try again when the machine is less busy"):
        archive.keep(unfinished, stuck, kept)
    assert stuck.poll() is not None
    assert kept.read_bytes() == b"classes"


def test_a_cache_that_cannot_be_made_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(JobError, match="cannot be made"):
        archive.begin()
