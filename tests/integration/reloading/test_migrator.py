"""A running migrator reads its settings anew: its token is rotated, and a hangup ends neither it nor its stream."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from slotferry.processes import ManagedProcess
from tests.integration.reloading.processes import (
    LIMIT_SECONDS,
    NEW,
    OLD,
    OWN,
    File,
    client_of,
    filed_topom,
    hang_up,
)

NOW = f"migrator:movers:{OLD}-mover"
NEXT = f"migrator:movers:{NEW}-mover"


@pytest.mark.long
async def test_a_migrators_token_is_rotated_and_a_wrong_file_changes_nothing(tmp_path: Path) -> None:
    topoms_file = File(tmp_path / "topom.toml", token=OWN)
    topoms_file.write(tokens=[NOW])
    async with filed_topom(tmp_path / "data", topoms_file) as topom, client_of(topom) as client:
        file = File(tmp_path / "migrator.toml", topom=[topom.url], spool=str(tmp_path / "spool"), token=f"{OLD}-mover")
        command = [sys.executable, "-m", "slotferry", "migrator", "--config", str(file.path)]
        process = ManagedProcess("migrator", command, tmp_path / "migrator.log")

        def said(event: str) -> list[dict[str, Any]]:
            return [one for one in map(json.loads, process.log.read_text().splitlines()) if one["event"] == event]

        async def until(event: str, number: int) -> dict[str, Any]:
            """Wait for so many events of a name; the last of them."""
            async with asyncio.timeout(LIMIT_SECONDS):
                while len(found := said(event)) < number:
                    assert process.running, process.log.read_text()
                    await asyncio.sleep(0.02)
            return found[-1]

        process.start()
        try:
            await until("registered", 1)
            file.write(token=f"{NEW}-mover", log_level="loud")
            os.kill(process.pid, signal.SIGHUP)
            assert "log_level" in (await until("settings_refused", 1))["reason"]
            file.write(token=f"{NEW}-mover", node="n1")
            os.kill(process.pid, signal.SIGHUP)
            reloaded = await until("settings_reloaded", 1)
            assert (reloaded["changed"], reloaded["restart"]) == (["token"], ["node"])
            topoms_file.write(tokens=[NOW, NEXT])
            await hang_up(topom, client)
            assert len(said("registered")) == 1, "neither hangup ends the stream"
            topoms_file.write(tokens=[NEXT])
            await hang_up(topom, client)
            await until("registered", 2)
            status = (await client.get("/api/v1/status")).json()
            assert [one["pid"] for one in status["migrators"]] == [process.pid]
        finally:
            await process.stop()
    text = process.log.read_text()
    assert not any(secret in text for secret in (OLD, NEW))
    assert "Traceback" not in text
