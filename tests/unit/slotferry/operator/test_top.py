"""``slotferry top``: what it prints of each look, and when it ends."""

import asyncio
import io
from collections.abc import Mapping
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from slotferry.calls import Answer, TopomUnreachable
from slotferry.main import app
from slotferry.operator import options, top
from slotferry.operator.addressing import Where
from slots.topomtls import NO_FILES, Files
from tests.unit.slotferry.operator.answers import LOAD, MIGRATION

MOVING: Mapping[str, Any] = MIGRATION


class Client:
    """Stands for topom: it is away at the looks that a test names."""

    looks = 0
    away: frozenset[int] = frozenset()

    def __init__(self, *_: str, tls: Files) -> None: ...

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def load(self) -> Answer:
        type(self).looks += 1
        if self.looks in self.away:
            raise TopomUnreachable("topom at h:1 does not answer")
        return LOAD

    async def migration(self) -> Answer:
        return dict(MOVING)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    class One(Client): ...

    monkeypatch.setattr(options, "TopomClient", One)
    return One


def test_one_look_is_printed_once(client: type[Client]) -> None:
    outcome = CliRunner().invoke(app, ["top", "--once"])
    assert outcome.exit_code == 0, outcome.output
    for text in ("1,234 requests/s", "h:[1]", "user:[7]", "32.4%", "2 moving, 1 pending", "waits for [proxy 3]"):
        assert text in outcome.stdout
    assert client.looks == 1


def test_looks_follow_each_other_without_a_terminal(client: type[Client]) -> None:
    outcome = CliRunner().invoke(app, ["top", "-n", "2", "--interval", "0.5"])
    assert outcome.exit_code == 0, outcome.output
    assert outcome.stdout.count("hot keys") == 2


def test_one_look_at_a_topom_that_is_away_fails(client: type[Client]) -> None:
    client.away = frozenset({1})
    outcome = CliRunner().invoke(app, ["top", "--once"])
    assert outcome.exit_code == 1
    assert "does not answer" in outcome.stderr


@pytest.mark.parametrize("terminal", [False, True])
async def test_without_an_end_it_goes_on_while_topom_is_away(
    client: type[Client], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    written = io.StringIO()
    monkeypatch.setattr(top, "out", Console(file=written, force_terminal=terminal, width=200))
    client.away = frozenset({2})
    task = asyncio.create_task(top._watch(Where("", "", NO_FILES), 0.01, None))
    async with asyncio.timeout(30):
        while client.looks < 4:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    text = written.getvalue()
    assert "does not answer; trying again" in text
    assert "user:[7]" in text
    assert text.endswith("\x1b[?25h\x1b[?1049l") is terminal, "the terminal has its cursor and its text back"
