"""What a wheel installs: the project's packages, and nothing else. What it says about itself is whole, and true."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.specifiers import SpecifierSet

from slotferry import __version__

ROOT = Path(__file__).parents[2]
PACKAGES = {"configs", "slots", "rdb", "proxy", "migrator", "topom", "sizing", "slotferry"}
COMPILER = """#!/bin/sh
# Makes the file behind -o, out of nothing.
while [ $# -gt 0 ]; do
    [ "$1" = -o ] && : >"$2"
    shift
done
"""
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", "build", "dist", "node_modules", "*.egg-info", ".*_cache", "*.so")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel that is built from a source distribution, which is built from a copy of the tree."""
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
    return wheel


@pytest.fixture(scope="module")
def files(wheel: Path) -> set[str]:
    """Paths in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Metadata:
    """What the wheel says about itself; reading it fails where it breaks a rule of the format."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Metadata.from_email(archive.read(name), validate=True)


@pytest.mark.long
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


def test_license_and_command(files: set[str], metadata: Metadata) -> None:
    """The licences of the page's library come with it, and count in the wheel's own."""
    assert metadata.license_files == ["LICENSE", "topom/web/assets/vendor/licences.txt"]
    for name in metadata.license_files:
        assert any(re.fullmatch(rf"slotferry-.*\.dist-info/licenses/{name}", file) for file in files)
    sources = (ROOT / "topom" / "web" / "assets" / "vendor" / "sources.txt").read_text()
    licences = {licence for line in sources.splitlines() for licence in re.split(r"\s{2,}", line)[-1].split(", ")}
    assert set((metadata.license_expression or "").split(" AND ")) == {"MIT", *licences}
    assert any(name.endswith(".dist-info/entry_points.txt") for name in files)


def test_it_says_what_it_is(metadata: Metadata) -> None:
    assert (metadata.name, str(metadata.version)) == ("slotferry", __version__)
    assert metadata.summary
    assert metadata.keywords
    assert metadata.author
    assert metadata.description_content_type == "text/markdown"
    assert metadata.description == (ROOT / "README.md").read_text(encoding="utf-8")


def test_pythons_are_those_that_wheels_are_built_for(metadata: Metadata) -> None:
    named = {found[1] for line in metadata.classifiers or () if (found := re.search(r":: (3\.\d+)$", line))}
    assert named
    assert all(version in (metadata.requires_python or SpecifierSet("<3")) for version in named)
    workflow = (ROOT / ".github" / "workflows" / "wheels.yml").read_text(encoding="utf-8")
    [builds] = re.findall(r"CIBW_BUILD: (.+)", workflow)
    assert {f"3.{tag.removeprefix('cp3').removesuffix('-*')}" for tag in builds.split()} == named
