"""What a wheel installs: the project's packages, and nothing else."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {"slots", "rdb", "proxy", "migrator", "topom", "sizing", "slotferry"}
COMPILER = """#!/bin/sh
# Makes the file behind -o, out of nothing.
while [ $# -gt 0 ]; do
    [ "$1" = -o ] && : >"$2"
    shift
done
"""
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", "build", "dist", "node_modules", "*.egg-info", ".*_cache", "*.so")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Paths in a wheel that is built from a source distribution, which is built from a copy of the tree."""
    directory = tmp_path_factory.mktemp("wheel")
    tree = directory / "tree"
    shutil.copytree(ROOT, tree, ignore=NOT_COPIED)
    # The .c files came along. They are newer than all that they are made of, so they are not made again.
    for translated in tree.rglob("*.c"):
        translated.touch()
    # This test only asks which files there are. Every setup of Slotferry shows that they compile.
    compiler = directory / "cc"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(directory), str(tree)]
    environment = {**os.environ, "CC": str(compiler), "LDSHARED": str(compiler)}
    built = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert built.returncode == 0, built.stdout + built.stderr
    [wheel] = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_top_level_names(files: set[str]) -> None:
    names = {name.partition("/")[0] for name in files}
    assert {name for name in names if not re.fullmatch(r"slotferry-[0-9.]+\.dist-info", name)} == PACKAGES


def test_every_module_is_in_it(files: set[str]) -> None:
    modules = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert modules - files == set()


def test_every_compiled_module_is_in_it(files: set[str]) -> None:
    for package in PACKAGES:
        for source in (ROOT / package).rglob("*.pyx"):
            stem = str(source.relative_to(ROOT).with_suffix(""))
            assert any(name.startswith(f"{stem}.") and name.endswith(".so") for name in files), stem


def test_data_is_in_it(files: set[str]) -> None:
    assert {"slots/commands.tsv", "slots/functions.pxd", "slots/functions.pyi", "slots/py.typed"} <= files
    data = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in (".tsv", ".lua", ".html", ".css", ".js", ".svg", ".txt")
    }
    assert data - files == set()


def test_no_generated_code_is_in_it(files: set[str]) -> None:
    assert [name for name in files if name.endswith((".c", ".pyc", ".html.map"))] == []


def test_license_and_command(files: set[str]) -> None:
    assert any(re.fullmatch(r"slotferry-.*\.dist-info/licenses/LICENSE", name) for name in files)
    assert any(name.endswith(".dist-info/entry_points.txt") for name in files)
