"""docs/commands.md says what slots/commands.tsv says, of every command."""

import subprocess
import sys
from pathlib import Path

from slots import commands

ROOT = Path(__file__).parents[2]


def test_the_page_is_current() -> None:
    script = ROOT / "scripts" / "command-docs"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stderr


def test_every_command_is_on_the_page() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    missing = []
    for name in commands.table():
        command, _, subcommand = name.partition("|")
        shown = [f"`{command} {subcommand}`" if subcommand else f"`{command}`", f"`{command}` with all subcommands"]
        if not any(text in page for text in shown) and not commands.table()[name].container:
            missing.append(name)
    assert not missing
