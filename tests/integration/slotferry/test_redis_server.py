"""Throw-away Redis servers, of every kind that is on this machine."""

import shutil
from pathlib import Path

import pytest

from slotferry import redis_server
from slotferry.processes import ProcessError
from slotferry.redis_server import RedisServerNotFound, ask, embedded_binary, find_binary, start_redis

BINARIES = [Path(found) for name in redis_server.NAMES if (found := shutil.which(name))]
BINARIES += [binary for binary in [embedded_binary()] if binary]


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


def executable(path: Path) -> Path:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_environment_goes_first_then_path_then_the_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named, valkey = executable(tmp_path / "mine"), executable(tmp_path / "valkey-server")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(redis_server.VARIABLE, str(named))
    assert find_binary() == named
    monkeypatch.delenv(redis_server.VARIABLE)
    assert find_binary() == valkey
    redis = executable(tmp_path / "redis-server")
    assert find_binary() == redis
    monkeypatch.setenv("PATH", "")
    assert find_binary() == embedded_binary()


def test_no_server_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(redis_server, "embedded_binary", lambda: None)
    monkeypatch.delenv(redis_server.VARIABLE, raising=False)
    with pytest.raises(RedisServerNotFound, match=r"slotferry\[embedded\]"):
        find_binary()
    monkeypatch.setenv(redis_server.VARIABLE, "/nowhere/redis-server")
    with pytest.raises(RedisServerNotFound, match="/nowhere/redis-server"):
        find_binary()
