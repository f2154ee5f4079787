"""How verbs wait for moves and checks, with a topom that is played by a function."""

import asyncio
import io
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from rich.console import Console
from rich.progress import BarColumn, TextColumn
from typer.testing import CliRunner

from slotferry.client import TopomClient
from slotferry.main import app
from slotferry.operator import digest, waiting
from slotferry.operator.waiting import (
    STUCK_SECONDS,
    MoveAbandoned,
    MoveStuck,
    Standstill,
    WaitedTooLong,
    wait_moved,
)
from tests.unit.slotferry.operator.answers import BATCH, DIGEST, MIGRATION, because
from tests.unit.slotferry.played_topom import play_topom

runner = CliRunner()


def topom_showing(*tables: list[dict[str, Any]], **migration: Any) -> TopomClient:
    """A topom that shows these lists of slots one after the other, and then the last one for ever."""
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
        await asyncio.wait_for(wait_moved(topom, {7: 2}, 60), 60)


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

    answers += [refuse, refuse, lambda: httpx.Response(200, json={"epoch": 1, "slots": slot(2)})]

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/migration"):
            return httpx.Response(200, json=MIGRATION)
        return answers.pop(0)()

    async with TopomClient("http://topom.test", "x", httpx.MockTransport(handler)) as topom:
        await wait_moved(topom, {7: 2}, 5)
    assert not answers


@pytest.mark.usefixtures("_impatient")
async def test_waiting_outlives_an_election() -> None:
    refusal = {"error": "NotLeading", "message": "no topom leads at present; try again in a while"}
    answers = [httpx.Response(503, json=refusal), httpx.Response(200, json={"epoch": 1, "slots": slot(2)})]

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/migration"):
            return httpx.Response(200, json=MIGRATION)
        return answers.pop(0)

    async with TopomClient("http://topom.test", "x", httpx.MockTransport(handler)) as topom:
        await wait_moved(topom, {7: 2}, 5)
    assert not answers


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("resting", [1, 2])
async def test_waiting_goes_by_no_table_from_before_the_move(resting: int) -> None:
    """A topom that follows has not read the move yet, and later another one is behind what was seen."""
    tables = [(4, slot(resting)), (5, slot(1, 2)), (7, slot(1, 2)), (6, slot(resting)), (8, slot(2))]
    left = list(tables)

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/migration"):
            return httpx.Response(200, json=MIGRATION | {"epoch": 5})
        epoch, slots = left.pop(0)
        return httpx.Response(200, json={"epoch": epoch, "slots": slots})

    async with TopomClient("http://topom.test", "x", httpx.MockTransport(handler)) as topom:
        await wait_moved(topom, {7: 2}, 5)
    assert not left


@pytest.mark.usefixtures("_impatient")
async def test_waiting_goes_by_the_table_that_has_the_change_and_no_older_one() -> None:
    """Also if the topom that led is gone by now, and another one that does not know of the move yet is asked."""
    left = [(4, slot(1)), (4, slot(1)), (5, slot(1, 2)), (6, slot(2))]

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/migration"):
            return httpx.Response(200, json=MIGRATION | {"epoch": left[0][0]})
        epoch, slots = left.pop(0)
        return httpx.Response(200, json={"epoch": epoch, "slots": slots})

    async with TopomClient("http://topom.test", "x", httpx.MockTransport(handler)) as topom:
        await wait_moved(topom, {7: 2}, 5, epoch=5)
    assert not left


@pytest.mark.usefixtures("_impatient")
async def test_a_slot_that_has_arrived_is_waited_for_no_more() -> None:
    """topom may send it on at once, by itself."""
    other = {"id": 8, "group_id": 1, "action": {"state": "migrating", "target_id": 2}}
    there = {"id": 8, "group_id": 2, "action": {}}
    async with topom_showing([*slot(2), other], [*slot(2, 3), other], [*slot(3), there]) as topom:
        await wait_moved(topom, {7: 2, 8: 2}, 5)


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("arguments", [["slot", "move", "7", "--to", "2"], ["migration", "cancel"], ["rebalance"]])
@pytest.mark.parametrize("path", ["/slots", "/migration"])
def test_every_wait_bears_a_topom_that_is_away_for_a_moment(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], path: str
) -> None:
    """It may be that nobody answers, that no topom leads, or that what stands before topom finds none."""
    away: list[Callable[[], httpx.Response]] = []

    def nobody() -> httpx.Response:
        raise httpx.ConnectError("refused")

    away += [nobody, lambda: httpx.Response(502, text="<html>"), lambda: httpx.Response(503, json={"error": "Store"})]
    changed = {"epoch": 1, "slots": [7], "returning": [7], "ended": [], "too_late": [], "dry_run": False, "cost": None}
    changed |= {"moves": [{"slot": 7, "from": 1, "to": 2}], "policy": "codis"}

    def handler(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(200, json=changed)
        if request.url.path.endswith(path) and away:
            return away.pop(0)()
        if request.url.path.endswith("/migration"):
            return httpx.Response(200, json=MIGRATION)
        slots = [{"id": number, "group_id": 2, "action": {}} for number in range(8)]
        return httpx.Response(200, json={"epoch": 1, "slots": slots})

    play_topom(monkeypatch, handler)
    result = runner.invoke(app, [*arguments, "--wait", "--timeout", "20", "--topom", "http://topom.test"])
    assert result.exit_code == 0, result.output
    assert not away


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("arguments", [["run", "1"], ["run", "1", "--slots"], ["resync", "1"]])
def test_a_wait_for_a_digest_bears_a_topom_that_is_away_for_a_moment(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(digest, "POLL_SECONDS", 0.01)
    running = {"group_id": 1, "replicas": [DIGEST | {"stage": "running", "resyncing": True}], "known": []}
    over = {"group_id": 1, "replicas": [DIGEST | {"stage": "same", "resyncing": False}], "known": []}
    away = {"error": "NotLeading", "message": "no topom leads at present; try again in a while"}
    answers = [(200, running), (503, away), (502, {}), (200, over), *[(200, over)] * ("--slots" in arguments)]

    def handler(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(202, json={**running, "servers": ["h:2"]})
        status, said = answers.pop(0)
        return httpx.Response(status, json=said)

    play_topom(monkeypatch, handler)
    result = runner.invoke(app, ["digest", *arguments, "--topom", "http://topom.test"])
    assert result.exit_code == 0, result.output
    assert not answers


def test_a_check_that_was_lost_with_its_topom_is_not_taken_for_one_that_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The group may have a stored difference, so the topom that leads by now has an answer."""
    running = {"group_id": 1, "replicas": [DIGEST | {"stage": "running"}], "known": []}

    def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=running if request.method == "POST" else {**running, "replicas": []})

    play_topom(monkeypatch, handler)
    result = runner.invoke(app, ["digest", "run", "1", "--topom", "http://topom.test"])
    assert result.exit_code == 1
    assert "the check of h:2 is over without an outcome" in " ".join(result.output.split())


@pytest.mark.usefixtures("_impatient")
async def test_the_limit_holds_although_topom_hangs() -> None:
    async def hang(request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with TopomClient("http://topom.test", "x", httpx.MockTransport(hang)) as topom:
        with pytest.raises(WaitedTooLong, match=r"1 of 1 slots have not moved after 0.1 s"):
            await asyncio.wait_for(wait_moved(topom, {7: 2}, 0.1), 20)


def waiting_slot(number: int, state: str, reason: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    said = {"reason": reason} if reason else {}
    return {"id": number, "group_id": 1, "action": {"state": state, "target_id": 2}, **said, **more}


FULL = {**because("h:1 is full", "raise its maxmemory"), "kind": "server"}
GOES = {**MIGRATION, "halted": None}


@pytest.mark.parametrize(
    ("left", "migration", "expected"),
    [
        ([waiting_slot(7, "migrating", FULL)], GOES, "raise its maxmemory"),
        ([waiting_slot(7, "pending", FULL), waiting_slot(8, "pending")], GOES, "h:1 is full"),
        ([waiting_slot(7, "pending", because("an operator wanted it so"), skipped=True)], GOES, "skipped: an operator"),
        ([waiting_slot(7, "pending")], {**GOES, "paused": True}, "slotferry migration resume"),
        ([waiting_slot(7, "pending")], {**GOES, "halted": {**FULL, "kind": "paused"}}, "raise its maxmemory"),
        # Something goes on, or ends by itself.
        ([waiting_slot(7, "migrating", FULL), waiting_slot(8, "migrating")], GOES, ""),
        ([waiting_slot(7, "migrating", FULL), waiting_slot(8, "migrating", because("soon"))], GOES, ""),
        ([waiting_slot(7, "migrating", because("a proxy has yet to answer"))], GOES, ""),
        ([waiting_slot(7, "pending", {**FULL, "kind": "busy"})], GOES, ""),
        ([waiting_slot(7, "pending")], {**GOES, "halted": {**FULL, "kind": "hours"}}, ""),
        ([waiting_slot(7, "pending")], GOES, ""),
    ],
)
def test_a_move_is_stuck_where_only_an_operator_can_help(
    left: list[dict[str, Any]], migration: dict[str, Any], expected: str
) -> None:
    standstill = Standstill()
    assert standstill.reason(100.0, left, migration) == ""
    assert standstill.reason(100.0 + STUCK_SECONDS / 2, left, migration) == ""
    said = standstill.reason(100.0 + STUCK_SECONDS, left, migration)
    assert expected in said if expected else said == ""


def test_a_move_that_gets_on_is_not_stuck() -> None:
    standstill = Standstill()
    one, two = waiting_slot(7, "migrating", FULL), waiting_slot(8, "migrating", FULL)
    assert standstill.reason(0.0, [one, two], GOES) == ""
    assert standstill.reason(STUCK_SECONDS, [one], GOES) == ""
    moving = {**GOES, "batches": [{**BATCH, "slots": "7-8", "keys_moved": 5000}]}
    assert standstill.reason(2 * STUCK_SECONDS - 1, [one], moving) == ""
    assert standstill.reason(3 * STUCK_SECONDS - 2, [one], moving) == ""
    assert "h:1 is full" in standstill.reason(3 * STUCK_SECONDS, [one], moving)


def test_a_move_is_stuck_although_slots_of_others_move() -> None:
    standstill = Standstill()
    one = waiting_slot(7, "migrating", FULL)
    for second in range(int(STUCK_SECONDS)):
        batches = [{**BATCH, "slots": "7", "keys_moved": 5}, {**BATCH, "slots": "1-2", "keys_moved": second}]
        assert standstill.reason(second, [one], {**GOES, "keys_moved": second, "batches": batches}) == ""
    assert "h:1 is full" in standstill.reason(STUCK_SECONDS, [one], {**GOES, "keys_moved": 99, "batches": batches})


@pytest.mark.usefixtures("_impatient")
async def test_waiting_ends_with_the_reason_when_the_move_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "STUCK_SECONDS", 0.05)
    async with topom_showing([waiting_slot(7, "migrating", FULL)]) as topom:
        with pytest.raises(MoveStuck, match=r"1 of 1 slots do not move.*h:1 is full.*raise its maxmemory.*cancel"):
            await wait_moved(topom, {7: 2}, 60)


@pytest.mark.usefixtures("_impatient")
async def test_waiting_for_an_earlier_topom_goes_by_the_tables_that_were_seen() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/migration"):
            return httpx.Response(200, json={name: said for name, said in MIGRATION.items() if name != "epoch"})
        return httpx.Response(200, json={"epoch": 1, "slots": slot(2)})

    async with TopomClient("http://topom.test", "x", httpx.MockTransport(handler)) as topom:
        await wait_moved(topom, {7: 2}, 5)


async def test_the_bar_is_there_whatever_the_details_say() -> None:
    drawn = io.StringIO()
    console = Console(file=drawn, width=80, force_terminal=True, no_color=True)
    progress = waiting._Moving(TextColumn("{task.description}"), BarColumn(), console=console)
    progress.add_task("moving", total=2, completed=1)
    progress.detail = "waits for a proxy; " * 20
    console.print(progress.get_renderable())
    first, *below = drawn.getvalue().splitlines()
    assert first.startswith("moving")
    assert first.count("━") == 20
    assert "waits for a proxy" in below[0]
