"""The supervisor as a process of its own: signals, log events, exit status, what its death leaves."""

import asyncio
import contextlib
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from tests.certificates import Authority
from tests.unit.proxy.proxy_fakes import SECONDS, DirectedWorker, Director, FakeTopom, TopomStream, table

SCRIPT = """
import json, sys
from proxy.settings import ProxySettings
from proxy.supervisor.supervisor import run
settings, command = json.loads(sys.argv[1])
sys.exit(run(ProxySettings.load(**settings), command))
"""


class Process:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.logged = b""

    async def event(self, name: str) -> dict[str, Any]:
        """The next log event of that name."""
        assert self.process.stderr is not None
        async with asyncio.timeout(SECONDS):
            while line := await self.process.stderr.readline():
                self.logged += line
                event: dict[str, Any] = json.loads(line)
                if event["event"] == name:
                    return event
        raise EOFError(name)

    async def status(self) -> int:
        return await asyncio.wait_for(self.process.wait(), SECONDS)


@contextlib.asynccontextmanager
async def started(topom: FakeTopom, director: Director, **settings: Any) -> AsyncIterator[Process]:
    fixed = {"listen": "127.0.0.1:0", "metrics": "", "workers": 1, "topom": [topom.url]}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        SCRIPT,
        json.dumps([{**fixed, **settings}, director.command]),
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 20,
    )
    try:
        yield Process(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def begin(process: Process, topom: FakeTopom, director: Director) -> tuple[TopomStream, DirectedWorker, str]:
    """Bring a proxy of one worker to the point where it is ready."""
    stream = await topom.stream()
    address = (await stream.register(number_of_slots=1))["address"]
    worker, _ = await director.worker()
    await stream.send_table(table(1, 1))
    await worker.apply()
    worker.say("ready", address=address)
    ready = await process.event("proxy_ready")
    assert (ready["address"], ready["workers"], ready["level"]) == (address, 1, "info")
    return stream, worker, address


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=str)
async def test_a_signal_drains(topom: FakeTopom, director: Director, number: signal.Signals) -> None:
    async with started(topom, director) as process:
        stream, worker, _ = await begin(process, topom, director)
        process.process.send_signal(number)
        await worker.next("drain")
        worker.order(do="exit", status=0)
        await stream.next("leave")
        await stream.send({"type": "left"})
        assert await process.status() == 0


@pytest.mark.parametrize("nohup", [False, True])
async def test_a_hangup_has_settings_read_anew_and_ends_nothing(
    topom: FakeTopom, director: Director, nohup: bool
) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
    try:
        async with started(topom, director) as process:
            stream, worker, _ = await begin(process, topom, director)
            process.process.send_signal(signal.SIGHUP)
            assert "token" not in (await process.event("settings_reloaded"))["restart"]
            assert (await worker.next("settings"))["settings"]["workers"] == 1
            for epoch in (2, 3, 4):
                await stream.send_table(table(epoch, 1))
                assert (await worker.next("table", "drain"))["table"]["epoch"] == epoch
                worker.say("ack", epoch=epoch)
                await stream.next("ack")
    finally:
        signal.signal(signal.SIGHUP, before)


async def test_a_second_signal_does_not_wait(topom: FakeTopom, director: Director) -> None:
    async with started(topom, director) as process:
        _, worker, _ = await begin(process, topom, director)
        process.process.send_signal(signal.SIGINT)
        await worker.next("drain")
        process.process.send_signal(signal.SIGTERM)
        assert await process.status() == 1
        await worker.end()


async def test_workers_do_not_outlive_a_killed_supervisor(topom: FakeTopom, director: Director) -> None:
    async with started(topom, director) as process:
        _, worker, _ = await begin(process, topom, director)
        process.process.kill()
        await worker.end()


@pytest.mark.long
async def test_a_port_in_use_is_explained(topom: FakeTopom, director: Director) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        async with started(topom, director, listen=listen) as process:
            reason = (await process.event("cannot_start"))["reason"]
            assert reason.startswith(f"Cannot listen on {listen}: another process listens there.")
            assert await process.status() == 1


async def test_a_port_that_is_given_up_in_time_is_taken(topom: FakeTopom, director: Director) -> None:
    """as workers do that end a moment after their supervisor was killed."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        async with started(topom, director, listen=listen) as process:
            # Its program is loaded by then, and it tries.
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(process.process.wait(), 1.5)
            other.close()
            assert (await process.event("proxy_starts"))["address"] == listen


SECRETS = [
    *({"token": "geheim"}, {"password": "geheim"}, {"redis_password": "geheim"}),
    {"users": [{"name": "app", "password": "geheim"}]},
]


@pytest.mark.parametrize("secret", SECRETS)
async def test_secrets_are_not_logged(topom: FakeTopom, director: Director, secret: dict[str, Any]) -> None:
    async with started(topom, director, log_level="debug", **secret) as process:
        _, worker, _ = await begin(process, topom, director)
        process.process.send_signal(signal.SIGTERM)
        await worker.next("drain")
        process.process.send_signal(signal.SIGTERM)
        with pytest.raises(EOFError):
            await process.event("none of this name")
        assert b"proxy_ready" in process.logged
        assert b"geheim" not in process.logged


@pytest.fixture
def full_disk() -> Iterator[IO[bytes]]:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with open("/dev/full", "wb") as full:
        yield full


async def test_a_log_that_cannot_be_written_costs_nothing_but_the_log(
    topom: FakeTopom, director: Director, full_disk: IO[bytes]
) -> None:
    settings = {"listen": "127.0.0.1:0", "metrics": "", "workers": 1, "topom": [topom.url], "log_level": "debug"}
    arguments = json.dumps([settings, director.command])
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SCRIPT, arguments, stderr=full_disk)
    try:
        stream = await topom.stream()
        address = (await stream.register(number_of_slots=1))["address"]
        worker, _ = await director.worker()
        await stream.send_table(table(1, 1))
        await worker.apply()
        worker.say("ready", address=address)
        assert (await stream.next("ack"))["epoch"] == 1
        process.send_signal(signal.SIGTERM)
        await worker.next("drain")
        worker.order(do="exit", status=0)
        await stream.next("leave")
        await stream.send({"type": "left"})
        assert await asyncio.wait_for(process.wait(), SECONDS) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.long
async def test_the_unix_socket_is_one_for_all_workers_and_gone_at_the_end(
    topom: FakeTopom, director: Director, tmp_path: Path
) -> None:
    path = tmp_path / "proxy.sock"
    async with started(topom, director, listen="", unix_socket=str(path), workers=2) as process:
        stream = await topom.stream()
        assert (await stream.register(number_of_slots=1))["address"] == str(path)
        starts = [(await director.worker())[1] for _ in range(2)]
        assert [start["settings"]["unix_socket"] for start in starts] == [str(path)] * 2
        assert [set(start["listen_fds"]) for start in starts] == [{"unix_socket"}] * 2
        # Inherited under the number that it has here.
        assert starts[0]["listen_fds"] == starts[1]["listen_fds"]
        # A second proxy does not take it away.
        async with started(topom, director, listen="", unix_socket=str(path)) as second:
            reason = (await second.event("cannot_start"))["reason"]
            assert reason.startswith(f"Cannot listen on {path}: another process listens there.")
            assert await second.status() == 1
        assert path.is_socket()
        process.process.send_signal(signal.SIGTERM)
        await process.event("proxy_drains")
        # Before the workers are done: a successor may have the path.
        assert not path.exists()


async def test_true_ports_are_told_to_workers(topom: FakeTopom, director: Director, tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue("proxy")
    tls = {"tls_listen": "127.0.0.1:0", "tls_certificate": issued.certificate, "tls_key": issued.key}
    async with started(topom, director, **tls):
        stream = await topom.stream()
        address = (await stream.register(number_of_slots=1))["address"]
        settings = (await director.worker())[1]["settings"]
        assert settings["listen"] == address
        assert not settings["tls_listen"].endswith(":0")
        assert settings["tls_listen"] != address


@pytest.mark.parametrize("setting", ["tls_certificate", "redis_tls_ca"])
async def test_certificates_that_cannot_be_used_are_explained(
    topom: FakeTopom, director: Director, tmp_path: Path, setting: str
) -> None:
    issued = Authority(tmp_path).issue("proxy")
    tls: dict[str, Any] = {"tls_certificate": issued.certificate, "tls_key": issued.key, "redis_tls": True}
    nowhere = str(tmp_path / "nowhere.pem")
    async with started(topom, director, **{**tls, "tls_listen": "127.0.0.1:0", setting: nowhere}) as process:
        assert (await process.event("cannot_start"))["reason"] == f"{nowhere} cannot be read: No such file or directory"
        assert await process.status() == 1
