"""What a later version has kept is refused by whole processes, with a sentence, and stays as it is."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from migrator.errors import OtherFormat
from migrator.sweep import stop
from proxy.supervisor.kept_table.tablefile import HEAD, TableFile
from slotferry.redis_server import start_redis
from slots.access import ServerAccess
from slots.formats import CONTEXTS, FORMATS, SERVERS, SIZING, STORE, TABLE_FILE, Format
from slots.reserved import LEADER
from tests.integration.cluster.harness import plain_client
from tests.integration.topom_process import TopomProcess
from topom.term.stores import STORE_FILE


def sentence(format: Format) -> str:
    return f"has format {format.number + 1}, and this version of Slotferry"


def said_by_command(folder: Path, *words: str) -> str:
    """What ``slotferry WORDS`` says that fails."""
    done = subprocess.run(
        [sys.executable, "-m", "slotferry", *words],
        env={**os.environ, "XDG_CONFIG_HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


async def store(folder: Path) -> str:
    """A later version may keep everything elsewhere in the file: it is not taken for an empty one."""
    process = TopomProcess(folder / "topom")
    await process.start()
    assert process.stop() == 0
    with closing(sqlite3.connect(folder / "topom" / STORE_FILE)) as file:
        file.executescript(f"DROP TABLE documents; PRAGMA user_version = {STORE.number + 1};")
        before = list(file.iterdump())
        await process.ends_at_start()
        assert list(file.iterdump()) == before
    return process.log()


async def servers(folder: Path) -> str:
    server = await start_redis("redis", folder)
    try:
        async with plain_client(server.address) as client:
            await client.hset(LEADER, "format", str(SERVERS.number + 1))
            with pytest.raises(OtherFormat) as refused:
                await stop(server.address, access=ServerAccess(), instance="1" * 32)
            assert await client.hgetall(LEADER) == {b"format": b"%d" % (SERVERS.number + 1)}
        return str(refused.value)
    finally:
        await server.stop()


async def table_file(folder: Path) -> str:
    file = TableFile(folder / "table")
    file.path.write_text(f"{HEAD} {TABLE_FILE.number + 1} other things\n")
    with capture_logs() as said:
        assert file.read() is None
    assert file.path.read_text() == f"{HEAD} {TABLE_FILE.number + 1} other things\n"
    return "".join(entry["reason"] for entry in said)


async def contexts(folder: Path) -> str:
    file = folder / "slotferry" / "contexts.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"format": CONTEXTS.number + 1, "clusters": {}}))
    file.chmod(0o600)
    before = file.read_bytes()
    said_by_command(folder, "context", "set", "one", "--topom", "http://127.0.0.1:1", "--token", "a")
    assert file.read_bytes() == before
    return said_by_command(folder, "context", "list")


async def sizing(folder: Path) -> str:
    run = folder / "sizes" / "work" / "run.json"
    run.parent.mkdir(parents=True)
    run.write_text(json.dumps({"format": SIZING.number + 1, "what": []}))
    before = run.read_bytes()
    said = said_by_command(folder, "sizing", "run", "--rdb", str(folder / "*.rdb"), "--into", str(folder / "sizes"))
    assert run.read_bytes() == before
    assert "--fresh" in said
    return said


LATER: dict[Format, Callable[[Path], object]] = {
    STORE: store,
    SERVERS: servers,
    TABLE_FILE: table_file,
    CONTEXTS: contexts,
    SIZING: sizing,
}
"""For each format: keeps something as a later version may, has this version read it, and gives what that says."""


@pytest.mark.long
@pytest.mark.parametrize("format", FORMATS, ids=[one.name for one in FORMATS])
async def test_what_a_later_version_keeps_is_refused_with_a_sentence(format: Format, tmp_path: Path) -> None:
    assert sentence(format) in await LATER[format](tmp_path)  # type: ignore[misc]
