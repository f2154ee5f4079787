"""The checks together, on facts; ``tests/integration/test_doctor.py`` asks real servers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from slots.access import ServerAccess
from tests.unit.topom.doctor.patients import TOPOM, cluster, found, server
from tests.unit.topom.topom_fakes import FakeMover, MemoryStore
from topom.cluster import topology
from topom.doctor import examining
from topom.doctor.examining import AT_ONCE, CHECKS, RULES, Doctor
from topom.doctor.facts import ServerFacts
from topom.doctor.findings import Severity
from topom.term.service import Topom
from topom.term.settings import TopomSettings


def test_nothing_is_found_in_good_health() -> None:
    assert found() == []


def test_nothing_is_said_about_what_is_not_known() -> None:
    unknown = tuple(ServerFacts(one.address, one.group, one.master) for one in cluster().servers)
    assert found(servers=unknown) == []


def test_the_worst_comes_first_and_one_rule_together() -> None:
    ill = {"save": "", "appendonly": "no", "repl-timeout": "5", "repl-backlog-size": "1"}
    said = found(server(1, config=ill), server(3, config=ill))
    assert [finding.severity for finding in said] == sorted((one.severity for one in said), key=lambda one: one.rank)
    assert [finding.rule for finding in said] == [
        *("nothing-on-disk", "nothing-on-disk", "repl-timeout-short", "repl-timeout-short"),
        *("backlog-small", "backlog-small"),
    ]
    assert said[0].severity is Severity.CRITICAL


def test_every_rule_is_of_a_check() -> None:
    assert len(RULES) == sum(len(module.RULES) for module in CHECKS) > 40


@pytest.fixture
async def topom(tmp_path: Path) -> AsyncIterator[Topom]:
    settings = TopomSettings.load(None, data=tmp_path, number_of_slots=16, redis_timeout_seconds=60)
    one = Topom(settings, MemoryStore(), FakeMover())
    await one.start()
    yield one
    await one.close()


class Hanging:
    """Servers that take a connection and say nothing, and how many were asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        await reader.read()
        writer.close()


async def test_servers_that_hang_cost_the_time_that_there_is_and_come_last_the_next_time(
    topom: Topom, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = Hanging()
    listening = await asyncio.start_server(hanging.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    addresses = [f"127.0.0.{number}:{port}" for number in range(1, 100)]
    # Only the first is listened at; the others refuse at once.
    hung = [f"127.0.0.1:{port}", f"localhost:{port}"]
    await topom.edits.edit(lambda table, epoch: topology.add_group(table, epoch, 1, [*addresses[1:40], *hung], "", ""))
    doctor = Doctor(topom.ledger, topom.servers, topom.health, topom.members, ServerAccess(), seconds=0.5)
    # The answer comes although a server may take 60 s for its own.
    async with asyncio.timeout(30):
        seen = await doctor.examine(TOPOM)
    silent = [finding for finding in seen.findings if finding.rule == "server-silent"]
    assert seen.servers == 41
    assert seen.not_asked == 2
    assert len(silent) == 39
    assert [finding.subject for finding in seen.findings if finding.rule == "servers-not-asked"] == [
        f"server {address} (replica of group 1)" for address in hung
    ]
    # Whoever asks again at once gets the same, and the servers are left in peace.
    asked = hanging.asked
    assert (await doctor.examine(TOPOM)).at == seen.at
    assert hanging.asked == asked
    # Later, those that there was no time for come first.
    monkeypatch.setattr(examining, "FRESH_SECONDS", 0.0)
    order: list[str] = []

    async def refuse(address: str, work: object, seconds: float = 0.0) -> str:
        order.append(address)
        return "no"

    monkeypatch.setattr(topom.servers, "guarded", refuse)
    again = await doctor.examine(TOPOM)
    assert order[:2] == hung
    assert again.not_asked == 0
    listening.close()


async def test_in_the_end_all_servers_are_asked_however_little_time_there_is(
    topom: Topom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examining, "FRESH_SECONDS", 0.0)
    addresses = [f"10.0.0.{number}:1" for number in range(1, 100)]
    await topom.edits.edit(lambda table, epoch: topology.add_group(table, epoch, 1, addresses, "", ""))
    doctor = Doctor(topom.ledger, topom.servers, topom.health, topom.members, ServerAccess(), seconds=0.1)
    asked: list[str] = []

    async def first_forty(address: str, work: object, seconds: float = 0.0) -> str:
        asked.append(address)
        if len(asked) > 40:
            await asyncio.Event().wait()
        return "it refuses"

    monkeypatch.setattr(topom.servers, "guarded", first_forty)
    left, seen = [], []
    for _ in range(3):
        asked.clear()
        found = await doctor.examine(TOPOM)
        seen += asked[:40]
        left.append(found.not_asked)
    # What was said before counts while there is no time to ask again.
    assert left == [59, 19, 0]
    assert set(seen) == set(addresses)
    # But not for ever.
    monkeypatch.setattr(examining, "KEPT_SECONDS", 0.0)
    asked.clear()
    assert (await doctor.examine(TOPOM)).not_asked == 59


@pytest.mark.parametrize("hung", [AT_ONCE, 2 * AT_ONCE])
async def test_servers_that_hang_for_as_long_as_there_is_time_keep_nobody_from_the_others(
    topom: Topom, monkeypatch: pytest.MonkeyPatch, hung: int
) -> None:
    monkeypatch.setattr(examining, "FRESH_SECONDS", 0.0)
    addresses = [f"10.0.0.{number}:1" for number in range(1, hung + 41)]
    await topom.edits.edit(lambda table, epoch: topology.add_group(table, epoch, 1, addresses, "", ""))
    doctor = Doctor(topom.ledger, topom.servers, topom.health, topom.members, ServerAccess(), seconds=0.1)
    asked: list[str] = []

    async def hanging(address: str, work: object, seconds: float = 0.0) -> str:
        asked.append(address)
        if address in addresses[:hung]:
            await asyncio.Event().wait()
        return "it refuses"

    monkeypatch.setattr(topom.servers, "guarded", hanging)
    for _ in range(1 + 2 * hung // AT_ONCE):
        await doctor.examine(TOPOM)
    # Now each of them has been asked, and from here on the others are asked each time.
    assert set(asked) == set(addresses)
    for _ in range(2):
        asked.clear()
        assert (await doctor.examine(TOPOM)).not_asked == hung
        assert set(addresses[hung:]) < set(asked)


async def test_few_servers_are_asked_at_once(topom: Topom, monkeypatch: pytest.MonkeyPatch) -> None:
    for group in range(1, 301):
        servers = [f"10.0.{group // 100}.{group % 100}:{port}" for port in (1, 2)]
        await topom.edits.edit(
            lambda table, epoch, group=group, servers=servers: topology.add_group(table, epoch, group, servers, "", "")
        )
    doctor = Doctor(topom.ledger, topom.servers, topom.health, topom.members, ServerAccess())
    now, most = 0, 0

    async def slow(address: str, work: object, seconds: float = 0.0) -> str:
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        await asyncio.sleep(0)
        now -= 1
        return "no answer within 1 s"

    monkeypatch.setattr(topom.servers, "guarded", slow)
    seen = await doctor.examine(TOPOM)
    assert most == AT_ONCE
    assert (seen.servers, seen.not_asked) == (600, 0)


def test_what_was_not_asked_is_said_by_name() -> None:
    said = found(not_asked=(ServerFacts("a:1", 7, False), ServerFacts("b:1", None)))
    assert [(one.rule, one.subject) for one in said] == [
        ("servers-not-asked", "server a:1 (replica of group 7)"),
        ("servers-not-asked", "server b:1 (of the pool)"),
    ]


async def test_a_server_that_was_asked_may_be_a_master_by_now(topom: Topom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examining, "FRESH_SECONDS", 0.0)
    await topom.edits.edit(lambda table, epoch: topology.add_group(table, epoch, 1, ["a:1", "b:1"], "", ""))
    doctor = Doctor(topom.ledger, topom.servers, topom.health, topom.members, ServerAccess(), seconds=0.1)
    answers = True

    async def guarded(address: str, work: object, seconds: float = 0.0) -> str:
        if not answers:
            await asyncio.Event().wait()
        return "it refuses"

    monkeypatch.setattr(topom.servers, "guarded", guarded)
    subjects = ["server a:1 (master of group 1)", "server b:1 (replica of group 1)"]
    assert [one.subject for one in (await doctor.examine(TOPOM)).findings if one.rule == "server-silent"] == subjects
    answers = False
    await topom.edits.edit(lambda table, epoch: topology.remove_server(table, epoch, 1, "b:1"))
    await topom.edits.edit(lambda table, epoch: topology.add_group(table, epoch, 2, ["b:1"], "", ""))
    subjects[1] = "server b:1 (master of group 2)"
    assert [one.subject for one in (await doctor.examine(TOPOM)).findings if one.rule == "server-silent"] == subjects
