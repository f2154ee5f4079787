"""The operator's verbs from the command line to the API and back, with a topom that is played by a function."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from cli import __version__
from cli.client import TopomClient
from cli.main import app
from cli.operator import options, waiting
from cli.operator.waiting import MoveAbandoned, WaitedTooLong, wait_moved

MIGRATION = {
    "paused": False,
    "settings": {"parallel_slots": 256, "keys_per_second": 0},
    "slots_pending": 1,
    "slots_moving": 2,
    "slots_moved": 3,
    "keys_moved": 4000,
    "bytes_moved": 5_000_000,
    "keys_per_second": 123.0,
    "remaining_keys": 77,
    "batches": [
        {
            "source": 1,
            "target": 2,
            "state": "migrating",
            "slots": "0-1",
            "keys_moved": 10,
            "bytes_moved": 20,
            "remaining_keys": None,
            "passes": 1,
            "message": "waits for [proxy 3]",
        }
    ],
}
PROXY = {
    "id": 3,
    "instance": "a" * 32,
    "address": "127.0.0.1:6380",
    "hostname": "here",
    "pid": 77,
    "workers": 2,
    "state": "online",
    "epoch": 9,
    "counters": {"clients": 5, "requests": 1234567, "errors": 0},
}
SLOTS = {
    "epoch": 9,
    "slots": [
        {"id": 0, "group_id": 1, "action": {"state": "migrating", "target_id": 2}},
        {"id": 1, "group_id": 1, "action": {}},
        {"id": 2, "group_id": 1, "action": {}},
        {"id": 3, "group_id": 0, "action": {}},
    ],
}
STATUS = {
    "product": "demo",
    "epoch": 9,
    "number_of_slots": 4,
    "slot_function": "crc32",
    "databases": 16,
    "groups": [
        {
            "id": 1,
            "slots": 3,
            "servers": [
                {"address": "127.0.0.1:6379", "role": "master", "up": True, "keys": 10, "used_memory": 2048},
                {"address": "127.0.0.1:6378", "role": None, "up": False, "keys": None, "used_memory": None},
            ],
        },
        {"id": 2, "slots": 0, "servers": []},
    ],
    "proxies": [PROXY],
    "slots": {"total": 4, "assigned": 3, "offline": 1, "moving": 1},
    "migration": MIGRATION,
}
MOVES = [{"slot": 2, "from": 1, "to": 2}, {"slot": 3, "from": 0, "to": 2}]
ANSWERS: dict[tuple[str, str], Any] = {
    ("GET", "/api/v1/status"): STATUS,
    ("GET", "/api/v1/slots"): SLOTS,
    ("GET", "/api/v1/proxies"): {"proxies": [PROXY]},
    ("GET", "/api/v1/migration"): MIGRATION,
    ("PATCH", "/api/v1/migration"): MIGRATION,
    ("POST", "/api/v1/migration/pause"): MIGRATION,
    ("POST", "/api/v1/migration/resume"): MIGRATION,
    ("POST", "/api/v1/rebalance"): {"policy": "codis", "dry_run": True, "moves": MOVES},
    ("POST", "/api/v1/groups"): {"epoch": 10, "id": 5, "servers": ["h:1"]},
    ("DELETE", "/api/v1/groups/5"): {"epoch": 10},
    ("POST", "/api/v1/groups/5/servers"): {"epoch": 10, "id": 5, "servers": ["h:1"]},
    ("PATCH", "/api/v1/groups/5/servers/h:1"): {"epoch": 10, "id": 5, "servers": ["h:1"]},
    ("DELETE", "/api/v1/groups/5/servers/h:1"): {"epoch": 10, "id": 5, "servers": []},
    ("DELETE", "/api/v1/proxies/3"): {"id": 3, "not_fenced": {"h:1": "[refused]"}},
    ("POST", "/api/v1/slots/assign"): {"epoch": 10, "slots": [0, 1]},
    ("POST", "/api/v1/slots/move"): {"epoch": 10, "slots": []},
    ("POST", "/api/v1/slots/offline"): {"epoch": 10, "slots": [2]},
}

VERBS: list[tuple[str, str, str]] = [
    ("status", "status", "127.0.0.1:6378"),
    ("group add 5 h:1", "groups", "group 5 added"),
    ("group remove 5", "groups", "group 5 removed"),
    ("server add 5 h:1", "groups", "server h:1 added to group 5"),
    ("group add 5 h:1 --datacenter rome", "groups", "group 5 added"),
    ("server add 5 h:1 --datacenter rome", "groups", "server h:1 added to group 5"),
    ("server set 5 h:1 --datacenter rome", "groups", "server h:1 is in datacenter rome"),
    ("server remove 5 h:1", "groups", "server h:1 removed from group 5"),
    ("proxy list", "proxies", "1,234,567"),
    ("proxy remove 3 --force", "proxies", "could not be cut off h:1: [refused]"),
    ("slots show", "slots", "1-2"),
    ("slots assign 0-1 --to 2", "slots", "assigned to group 2: slots 0-1"),
    ("slots move 0-1 --to 2", "slots", "on the way to group 2: nothing to change"),
    ("slots offline 2", "slots", "offline: slots 2"),
    ("rebalance --dry-run", "rebalance", "2 slots would move"),
    ("migration status", "migration", "waits for [proxy 3]"),
    ("migration pause", "migration", "paused"),
    ("migration resume", "migration", "goes on"),
    ("migration set --batch-keys 9", "migration", "parallel_slots"),
]
runner = CliRunner()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[httpx.Request]:
    """What topom was asked, by verbs that reach the topom played here."""
    requests: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        if request.headers["Authorization"] != "Bearer right":
            return httpx.Response(401, json={"error": "Unauthorized", "message": "no"})
        answer = ANSWERS.get((request.method, request.url.path))
        if answer is None:
            return httpx.Response(404, json={"error": "NotFound", "message": "there is no such thing"})
        return httpx.Response(200, json=answer)

    def connect(topom: str, token: str) -> TopomClient:
        return TopomClient(topom, token, httpx.MockTransport(handler))

    monkeypatch.setattr(options, "connect", connect)
    monkeypatch.setenv("SLOTFERRY_TOKEN", "right")
    monkeypatch.delenv("SLOTFERRY_TOPOM", raising=False)
    return requests


@pytest.mark.parametrize(("line", "family", "expected"), VERBS, ids=[verb[0] for verb in VERBS])
def test_a_verb_says_what_it_did(seen: list[httpx.Request], line: str, family: str, expected: str) -> None:
    result = runner.invoke(app, line.split())
    assert result.exit_code == 0, result.output
    assert expected in result.stdout
    assert f"/api/v1/{family}" in str(seen[0].url)


@pytest.mark.parametrize(("line", "family", "expected"), VERBS, ids=[verb[0] for verb in VERBS])
def test_a_verb_prints_one_line_of_json(seen: list[httpx.Request], line: str, family: str, expected: str) -> None:
    result = runner.invoke(app, [*line.split(), "--json"])
    assert result.exit_code == 0, result.output
    assert result.stdout.count("\n") == 1
    assert json.loads(result.stdout) == ANSWERS[seen[0].method, seen[0].url.path]


def test_every_verb_of_the_help_is_tested() -> None:
    served = {"topom", "local", "demo", "slot", "plan"}
    named = {verb[0].split()[0] for verb in VERBS}
    groups = {group.name for group in app.registered_groups}
    assert groups | {command.name for command in app.registered_commands} == named | served


def test_address_and_token_by_option_go_before_the_environment(
    seen: list[httpx.Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOTFERRY_TOPOM", "http://environment:1")
    assert runner.invoke(app, ["status"]).exit_code == 0
    assert runner.invoke(app, ["status", "--topom", "http://option:2", "--token", "other"]).exit_code == 1
    assert [request.url.host for request in seen] == ["environment", "option"]
    assert seen[1].headers["Authorization"] == "Bearer other"


@pytest.mark.parametrize("line", ["status", "status --json"])
def test_a_wrong_token_is_a_sentence_and_a_status(seen: list[httpx.Request], line: str) -> None:
    result = runner.invoke(app, [*line.split(), "--token", "wrong"])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "does not accept the token" in result.stderr
    assert "Traceback" not in result.stderr
    assert "wrong" not in result.stderr


def test_a_refusal_is_topoms_sentence(seen: list[httpx.Request]) -> None:
    result = runner.invoke(app, ["group", "remove", "9"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there is no such thing" in result.stderr


def test_nobody_there() -> None:
    result = runner.invoke(app, ["status", "--topom", "http://127.0.0.1:1"])
    assert result.exit_code == 1
    assert "check that it runs" in result.stderr


def test_setting_nothing_is_wrong_usage(seen: list[httpx.Request]) -> None:
    result = runner.invoke(app, ["migration", "set"])
    assert result.exit_code == 2
    assert not seen


def test_help_and_version() -> None:
    result = runner.invoke(app, ["--help"])
    assert result.exit_code == 0
    for word in ("proxy", "topom", "local", "demo", "status", "group", "server", "slots", "rebalance", "migration"):
        assert word in result.stdout
    assert runner.invoke(app, ["--version"]).stdout == f"slotferry {__version__}\n"


# Waiting for moves


def topom_showing(*tables: list[dict[str, Any]], **migration: Any) -> TopomClient:
    """A topom whose slots are these, one after the other, then the last for ever."""
    left = list(tables)

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/migration"):
            return httpx.Response(200, json=MIGRATION | migration)
        return httpx.Response(200, json={"epoch": 1, "slots": left.pop(0) if len(left) > 1 else left[0]})

    return TopomClient("http://topom.test", "x", httpx.MockTransport(handler))


def slot(group_id: int, target_id: int = 0) -> list[dict[str, Any]]:
    return [{"id": 7, "group_id": group_id, "action": {"state": "migrating", "target_id": 2} if target_id else {}}]


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(waiting, "LINE_SECONDS", 0.01)


@pytest.mark.usefixtures("_impatient")
async def test_waiting_ends_when_all_slots_rest_in_their_group(capfd: pytest.CaptureFixture[str]) -> None:
    async with topom_showing(slot(1, 2), slot(1, 2), slot(2)) as topom:
        await asyncio.wait_for(wait_moved(topom, {7: 2}, 5), 5)


@pytest.mark.usefixtures("_impatient")
async def test_waiting_has_a_limit_and_says_that_the_move_goes_on() -> None:
    async with topom_showing(slot(1, 2)) as topom:
        with pytest.raises(WaitedTooLong, match=r"1 of 1 slots have not moved .* the move goes on"):
            await wait_moved(topom, {7: 2}, 0.05)


@pytest.mark.usefixtures("_impatient")
async def test_waiting_ends_when_the_move_was_called_off() -> None:
    async with topom_showing(slot(1, 2), slot(1)) as topom:
        with pytest.raises(MoveAbandoned, match="slot 7 is at rest in group 1 instead of group 2"):
            await wait_moved(topom, {7: 2}, 5)


@pytest.mark.usefixtures("_impatient")
async def test_waiting_outlives_a_restart_of_topom() -> None:
    answers: list[Callable[[], httpx.Response]] = []

    def refuse() -> httpx.Response:
        raise httpx.ConnectError("refused")

    answers += [refuse, refuse, lambda: httpx.Response(200, json={"slots": slot(2)})]

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/migration"):
            return httpx.Response(200, json=MIGRATION)
        return answers.pop(0)()

    async with TopomClient("http://topom.test", "x", httpx.MockTransport(handler)) as topom:
        await wait_moved(topom, {7: 2}, 5)
    assert not answers
