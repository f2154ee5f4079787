"""A throw-away cluster's context, where none can be kept."""

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slotferry.lending import own_context
from slotferry.local import LocalCluster
from slotferry.main import app


def test_without_a_context_the_command_line_that_is_told_works_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file" / "folder"))
    (tmp_path / "file").touch()
    cluster = LocalCluster()
    cluster.topom_url = "http://127.0.0.1:1"

    async def told() -> str:
        async with own_context(cluster, "local") as line:
            return line

    # CliRunner has event loops of its own.
    *variables, command = asyncio.run(told()).split()
    assert command == "slotferry"
    environment = dict(variable.split("=", 1) for variable in variables)
    said = CliRunner().invoke(app, ["status"], env=environment)
    assert said.exit_code == 1
    assert "topom does not answer at http://127.0.0.1:1" in said.stderr
