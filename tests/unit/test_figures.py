"""The page of figures: each stands on the page that it names, and says where, when and how it was measured."""

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "figures.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and not line.startswith(("| what", "|---"))
]
UNKNOWN = "not recorded"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_figure_stands_on_its_page_and_says_how_it_came(row: list[str]) -> None:
    _, figure, machine, written, command, more = row
    [target] = re.findall(r"\]\(([^)#]+)", more)
    text = " ".join((PAGE.parent / target).read_text(encoding="utf-8").split())
    assert [part for part in figure.split("; ") if part not in text] == []
    assert machine
    assert re.fullmatch(r"2\d{3}-\d\d-\d\d, (?:[0-9a-f]{8}|not recorded)", written)
    named = re.findall(r"benchmarks\.[a-z]+", command)
    assert all(importlib.util.find_spec(name) is not None for name in named)
    assert named or command.startswith(UNKNOWN) or (ROOT / command.strip("`")).exists()


def test_its_commits_are_in_the_history() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("there is no history here")
    shallow = subprocess.run(
        ["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    if shallow.stdout.strip() == "true":
        pytest.skip("the history is not whole here")
    for commit in {found for row in ROWS for found in re.findall(r", ([0-9a-f]{8})$", row[3])}:
        assert subprocess.run(["git", "merge-base", "--is-ancestor", commit, "HEAD"], cwd=ROOT).returncode == 0, commit
