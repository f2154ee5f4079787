"""Child processes: they end when told, when made to, and when their parent is gone."""

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from slotferry import processes
from slotferry.families import children_of
from slotferry.processes import ManagedProcess, ProcessError, free_ports, free_run, port_is_free, port_taken, until
from tests.forking import ROOT

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # A zombie of another parent answers signals too.
        return sys.platform == "linux" and "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return True


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


async def test_a_process_that_ends_when_asked(log: Path) -> None:
    process = ManagedProcess("sleeper", ["sleep", "60"], log)
    process.start()
    assert process.running
    with pytest.raises(ProcessError, match="runs already"):
        process.start()
    assert await process.stop() == -signal.SIGTERM
    assert gone(process.pid)


async def test_a_process_that_has_to_be_made_to_end(log: Path) -> None:
    process = ManagedProcess("stubborn", [sys.executable, "-c", STUBBORN], log)
    process.start()

    async def said_so() -> bool:
        return process.logged("up")

    await until(said_so, "a word", 10, [process])
    assert await process.stop(limit=0.2) == -signal.SIGKILL
    assert gone(process.pid)


WITH_CHILDREN = """
import subprocess, sys, time
nested = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
for start in ([sys.executable, "-c", sys.argv[1]], [sys.executable, "-c", nested, sys.argv[1]]):
    subprocess.Popen(start, start_new_session=True)
time.sleep(60)
"""


async def test_a_process_that_is_made_to_end_takes_all_that_it_has_started_along(log: Path) -> None:
    ignoring = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + WITH_CHILDREN
    process = ManagedProcess("parent", [sys.executable, "-c", ignoring, STUBBORN.replace("60", "600")], log)
    process.start()

    async def all_up() -> bool:
        return process.tail().split().count("up") == 2

    await until(all_up, "the children", 60, [process])
    children = children_of(process.pid)
    assert len(children) == 2
    grandchildren = [one for child in children for one in children_of(child)]
    assert len(grandchildren) == 1
    try:
        assert await process.stop(limit=0.2) == -signal.SIGKILL
        # What is nobody's child any more is taken by the system, at its own time.
        async with asyncio.timeout(60):
            while not all(gone(pid) for pid in [*children, *grandchildren]):
                await asyncio.sleep(0.02)
    finally:
        for pid in [*children, *grandchildren]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


async def test_a_process_may_be_started_again(log: Path) -> None:
    process = ManagedProcess("echo", ["sh", "-c", "echo once more"], log)
    for _ in range(2):
        process.start()
        assert await process.wait(10) == 0
    assert process.tail() == "once more\nonce more"


async def test_what_cannot_be_started(log: Path) -> None:
    with pytest.raises(ProcessError, match="nothing could not be started: /nowhere/x: No such file"):
        ManagedProcess("nothing", ["/nowhere/x"], log).start()


async def test_waiting_tells_of_the_process_that_ended(log: Path) -> None:
    process = ManagedProcess("short", ["sh", "-c", "echo out of luck; exit 3"], log)
    process.start()

    async def never() -> bool:
        return False

    with pytest.raises(ProcessError, match=r"short ended with status 3 while waiting for it(.|\n)*out of luck"):
        await until(never, "it", 10, [process])


async def test_waiting_has_a_limit(log: Path) -> None:
    process = ManagedProcess("sleeper", ["sleep", "60"], log)
    process.start()

    async def refused() -> bool:
        raise ConnectionRefusedError("nobody there")

    try:
        with pytest.raises(ProcessError, match=r"gave up waiting for it after 0\.1 s \(nobody there\)"):
            await until(refused, "it", 0.1, [process])
    finally:
        await process.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent is gone")
def test_a_killed_parent_leaves_no_child(log: Path) -> None:
    code = (
        "import time; from pathlib import Path; from slotferry.processes import ManagedProcess\n"
        f"p = ManagedProcess('child', ['sleep', '60'], Path({str(log)!r})); p.start(); print(p.pid, flush=True)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert not gone(child)
        parent.kill()
    deadline = time.monotonic() + 60
    while not gone(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert gone(child)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux tells whether another one's child runs")
def test_a_killed_test_leaves_nothing_that_was_forked() -> None:
    code = (
        "import os; from tests.forking import fork\n"
        "print(fork('timeit', ['-n1', '-r1', 'import time; time.sleep(60)'], {}, os.environ).pid, flush=True)\n"
        "input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        forked = int(parent.stdout.readline())
        os.kill(forked, signal.SIGSTOP)
        parent.kill()
    deadline = time.monotonic() + 60
    while not gone(forked) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert gone(forked)


def test_a_port_that_another_process_was_given_is_not_free_until_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though nobody listens there yet."""
    program = "from slotferry.processes import free_ports, sys; print(*free_ports(1), flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        port = int(other.stdout.readline())
        monkeypatch.setattr(processes, "_PORTS", range(port, port + 1))
        assert port_is_free(port)
        with pytest.raises(ProcessError, match="no 1 free TCP ports"):
            free_ports(1)
        other.stdin.close()
        other.wait(60)
    assert free_ports(1) == [port]


def test_free_ports_are_different_and_free(monkeypatch: pytest.MonkeyPatch) -> None:
    # All look from the same port on, and few are kept from other processes.
    monkeypatch.setattr(random.SystemRandom, "randrange", lambda self, stop: stop // 2)
    monkeypatch.setattr(processes, "_MOST_RESERVED", 10)
    ports = free_ports(20)
    assert set(free_ports(20)).isdisjoint(ports), "whoever was given one may not have begun to listen there"
    assert len(set(ports)) == 20
    assert all(port_is_free(port) for port in ports)


def test_ports_beside_each_other_are_given_as_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random.SystemRandom, "randrange", lambda self, stop: stop // 2)
    first = free_run(3)
    run = {first, first + 1, first + 2}
    assert run <= set(processes._PORTS), "other ports are those of other processes of tests"
    assert run.isdisjoint(free_ports(20))
    # Another process that looks for ports does not get them.
    with socket.socket(type=socket.SOCK_DGRAM) as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", first + 2))
    monkeypatch.setattr(processes, "_PORTS", [port for port in processes._PORTS if port % 3])
    with pytest.raises(ProcessError, match="no 3 free TCP ports beside each other"):
        free_run(3)


UNPRIVILEGED = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")


@pytest.mark.skipif(not UNPRIVILEGED.exists() or int(UNPRIVILEGED.read_text()) < 2, reason="everybody has every port")
def test_a_port_that_is_not_for_this_user_is_not_said_to_be_in_use() -> None:
    ours, theirs = os.pipe()
    if (child := os.fork()) == 0:
        with suppress(PermissionError):
            os.setuid(65534)
        os.write(theirs, port_taken(1, "127.0.0.1").encode())
        os._exit(0)
    os.close(theirs)
    with open(ours) as said:
        assert "is not for this user" in said.read()
    os.waitpid(child, 0)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert port_taken(listening.getsockname()[1], "127.0.0.1") == "is in use"
