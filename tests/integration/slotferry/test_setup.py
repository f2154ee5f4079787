"""``scripts/setup`` keeps its own environment: what others install there is noticed, and the tree is put back."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "slotferry"
version = "0.1.0"
"""
BACKEND = '''
"""Makes wheels of the tree, of nothing but what Python has."""
import pathlib, zipfile

NAME = "slotferry-0.1.0-py3-none-any.whl"
OWN = "slotferry-0.1.0.dist-info/"
ABOUT = {
    OWN + "METADATA": "Metadata-Version: 2.1\\nName: slotferry\\nVersion: 0.1.0\\n",
    OWN + "WHEEL": "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    OWN + "entry_points.txt": "[console_scripts]\\nslotferry = slotferry:main\\n",
}

def write(directory, files):
    files = {**files, **ABOUT}
    files[OWN + "RECORD"] = "".join(f"{name},,\\n" for name in [*files, OWN + "RECORD"])
    with zipfile.ZipFile(pathlib.Path(directory, NAME), "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return NAME

def build_wheel(directory, settings=None, metadata=None):
    return write(directory, {"slotferry/__init__.py": pathlib.Path("slotferry/__init__.py").read_text()})

def build_editable(directory, settings=None, metadata=None):
    return write(directory, {"slotferry.pth": f"{pathlib.Path.cwd()}\\n"})
'''
COMMAND = "def main():\n    print(__file__)\n"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small project that the real ``scripts/setup`` has set up; its command says from where it runs."""
    tree = tmp_path_factory.mktemp("setup") / "a tree"
    for folder in ("scripts", "slotferry"):
        (tree / folder).mkdir(parents=True)
    (tree / "scripts" / "setup").write_text((ROOT / "scripts" / "setup").read_text())
    (tree / "pyproject.toml").write_text(PROJECT)
    (tree / "setup.py").write_text("")
    (tree / "backend.py").write_text(BACKEND)
    (tree / "slotferry" / "__init__.py").write_text(COMMAND)
    assert "making a virtual environment" in set_up(tree)
    return tree


def environment() -> dict[str, str]:
    """Without a path of Python's: what was installed is to be found by itself."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PYTHON": sys.executable}


def printed(*command: str | Path, at: Path) -> str:
    """What a command prints that succeeds."""
    run = subprocess.run(command, cwd=at, env=environment(), capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def set_up(tree: Path) -> str:
    """What ``scripts/setup`` says."""
    return printed("sh", "scripts/setup", at=tree)


def runs(tree: Path) -> str:
    """The file that the command in a tree's environment is run from."""
    return printed(tree / ".venv" / "bin" / "slotferry", at=tree.parent).strip()


@pytest.mark.long
def test_a_wheel_in_the_scripts_environment_is_noticed_and_the_tree_put_back(tree: Path) -> None:
    ours = str(tree / "slotferry" / "__init__.py")
    assert set_up(tree) == ""
    assert runs(tree) == ours

    printed(tree / ".venv" / "bin" / "python", "-m", "pip", "install", "--disable-pip-version-check", ".", at=tree)
    assert "site-packages" in runs(tree)

    assert "is not this tree any more; it is put back" in set_up(tree)
    assert runs(tree) == ours
    assert set_up(tree) == ""


@pytest.mark.long
def test_two_at_once_do_not_install_over_each_other(tree: Path) -> None:
    (tree / ".venv" / "stamp").unlink()
    with (tree / "scripts" / "setup").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        run = subprocess.run(
            ["sh", "scripts/setup"],
            cwd=tree,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 1
        assert run.stderr == "setup: another scripts/setup runs in this tree: wait for its end.\n"
    assert "setup: done" in set_up(tree)


def test_an_environment_whose_tree_was_moved_runs_the_tree_where_it_is(tree: Path) -> None:
    moved = tree.with_name("moved")
    tree.rename(moved)
    assert "it is put back" in set_up(moved)
    assert runs(moved) == str(moved / "slotferry" / "__init__.py")
