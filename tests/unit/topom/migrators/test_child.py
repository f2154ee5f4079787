"""topom starts a migrator of its own once one is wanted and there is no other, again if it ends, and ends it."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.unit.topom.migrators.fakes import FakeLink, registration
from topom.migrators import child
from topom.migrators.child import Child
from topom.migrators.members import Migrators

READS = "import json, sys; assert json.loads(sys.stdin.readline()) == {'token': 's'}; sys.stdin.read()"
SECONDS = 30.0


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "COMMAND", (sys.executable, "-S", "-c", READS))
    monkeypatch.setattr(child, "OTHERS_SECONDS", 0.0)
    monkeypatch.setattr(child, "RETRY_SECONDS_MIN", 0.001)
    monkeypatch.setattr(child, "RETRY_SECONDS_MAX", 0.002)


@pytest.fixture
def migrators() -> Migrators:
    return Migrators()


@pytest.fixture
async def own(migrators: Migrators) -> AsyncIterator[Child]:
    own = Child(migrators, {"token": "s"})
    running = asyncio.create_task(own.run())
    yield own
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert own.pid is None


async def until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not met():
            await asyncio.sleep(0.005)


async def test_it_is_started_again_and_ends_with_topom(migrators: Migrators, own: Child) -> None:
    await asyncio.sleep(0.05)
    assert own.pid is None, "nobody wants it"
    migrators.wanted.set()
    await until(lambda: own.pid is not None)
    first = own.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await until(lambda: own.pid not in (None, first))


async def test_it_is_not_started_while_there_is_another(migrators: Migrators, own: Child) -> None:
    other = migrators.register(registration(), False, FakeLink())
    migrators.wanted.set()
    await until(lambda: not migrators.wanted.is_set())
    assert own.pid is None
    migrators.disconnected(other)
    near = asyncio.create_task(migrators.near("a:1"))
    await until(lambda: own.pid is not None)
    near.cancel()
    await asyncio.gather(near, return_exceptions=True)


async def test_one_that_does_not_end_is_killed(
    migrators: Migrators, own: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "STOP_SECONDS", 0.05)
    migrators.wanted.set()
    await until(lambda: own.pid is not None)
    assert own.pid is not None
    os.kill(own.pid, signal.SIGSTOP)


async def test_what_cannot_be_started_is_tried_again(
    migrators: Migrators, own: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = child.COMMAND
    monkeypatch.setattr(child, "COMMAND", ("/nonexistent/migrator",))
    migrators.wanted.set()
    await asyncio.sleep(0.05)
    assert own.pid is None
    monkeypatch.setattr(child, "COMMAND", good)
    await until(lambda: own.pid is not None)


async def test_it_is_told_settings_that_change_and_so_is_the_next_one(
    migrators: Migrators, own: Child, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    copies = f"import sys\nfor line in sys.stdin: open({str(told)!r}, 'a').write(line)"
    monkeypatch.setattr(child, "COMMAND", (sys.executable, "-S", "-c", copies))
    told.touch()

    def lines() -> list[object]:
        return [json.loads(line) for line in told.read_text().splitlines()]

    migrators.wanted.set()
    await until(lambda: lines() == [{"token": "s"}])
    own.configure({"token": "s"})
    own.configure({"token": "s", "topom_tls_ca": "new"})
    await until(lambda: lines() == [{"token": "s"}, {"token": "s", "topom_tls_ca": "new"}])
    assert own.pid is not None
    os.kill(own.pid, signal.SIGKILL)
    await until(lambda: lines()[2:] == [{"token": "s", "topom_tls_ca": "new"}])
