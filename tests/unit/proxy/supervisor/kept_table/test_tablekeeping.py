"""The file with the proxy's last table: whole or not there, and never behind what was acknowledged."""

import asyncio
import json
import os
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from proxy.supervisor.kept_table import tablefile
from proxy.supervisor.kept_table.tablefile import Kept, TableFile
from proxy.supervisor.kept_table.tablekeeping import EVERYTHING, TableKeeping
from slots.formats import TABLE_FILE
from slots.messages.control import KeptUsers, KnownUsers
from slots.messages.message import Product
from slots.rules import SlotRule
from tests.unit.proxy.proxy_fakes import Director, FakeTopom, table
from tests.unit.proxy.supervisor.test_supervisor import running

PRODUCT = Product(name="demo", number_of_slots=1, slot_function="crc32", databases=16)
INSTANCE = "a" * 32
LOCK = (1, "prepared", 2)
LIMIT = 60.0


def kept(epoch: int, *owners: Any) -> Kept:
    return Kept(INSTANCE, PRODUCT, table(epoch, *(owners or (1,))))


async def until(condition: Any) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(0.005)


def test_what_is_written_is_read_by_nobody_else(tmp_path: Path) -> None:
    file = TableFile(tmp_path / "table")
    assert file.read() is None
    file.write(kept(3, 1))
    file.write(kept(4, 2))
    assert file.read() == kept(4, 2)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert file.age() < 10.0
    file.remove()
    file.remove()
    assert file.read() is None


@pytest.mark.parametrize("damage", [b"", b"slotferry-table 1 0\n{}", b"\xff\x00"])
def test_a_damaged_file_is_as_none(tmp_path: Path, damage: bytes) -> None:
    file = TableFile(tmp_path / "table")
    file.path.write_bytes(damage)
    assert file.read() is None


@pytest.mark.parametrize("number", [0, TABLE_FILE.number + 1])
def test_a_file_of_another_format_is_as_none_and_is_named(tmp_path: Path, number: int) -> None:
    file = TableFile(tmp_path / "table")
    file.write(kept(3))
    _, _, rest = file.path.read_bytes().split(b" ", 2)
    later = b"slotferry-table %d %s" % (number, rest)
    file.path.write_bytes(later)
    with capture_logs() as said:
        assert file.read() is None
    assert [entry["event"] for entry in said] == ["table_file_of_another_format"]
    assert f"the table file has format {number}, " in said[0]["reason"]
    assert f"reads format {TABLE_FILE.number}" in said[0]["reason"]
    assert file.path.read_bytes() == later


def test_every_cut_of_a_file_is_noticed(tmp_path: Path) -> None:
    file = TableFile(tmp_path / "table")
    file.write(kept(3))
    whole = file.path.read_bytes()
    for size in range(len(whole)):
        file.path.write_bytes(whole[:size])
        assert file.read() is None
    file.path.write_bytes(whole.replace(b'"epoch":3', b'"epoch":4'))
    assert file.read() is None


def test_one_uses_the_file_at_a_time(tmp_path: Path) -> None:
    first, second = TableFile(tmp_path / "table"), TableFile(tmp_path / "table")
    inherited = first.lock()
    assert inherited is not None
    worker = os.dup(inherited.fileno())
    first.unlock()
    assert second.lock() is None, "a worker of the one before still lives"
    os.close(worker)
    assert second.lock() is not None


async def test_while_a_slot_is_being_locked_there_is_no_file(tmp_path: Path) -> None:
    keeping = TableKeeping(str(tmp_path / "table"), lambda: None, lambda epoch, reason: None)
    assert await keeping.open() is None
    file = TableFile(tmp_path / "table")
    for epoch, owner in enumerate((1, (1, "preparing", 2), LOCK, (1, "migrating", 2), (1, "finished", 2), 2), 1):
        assert keeping.covered < epoch or keeping.covered == EVERYTHING
        keeping.received(INSTANCE, PRODUCT, table(epoch, owner))
        await until(lambda epoch=epoch: keeping.covered >= epoch and keeping._working is None)  # type: ignore[misc]
        assert file.read() == (None if epoch in (2, 3) else kept(epoch, owner))
    await keeping.close()


def users(version: int) -> KnownUsers:
    entries = [{"name": f"u{version}", "no_password": True, "of_a_later_version": {"x": 1}}]
    return KnownUsers(cluster="c", kept=KeptUsers(version=version, users=entries))


async def test_users_of_topom_are_in_the_file_whatever_comes_first(tmp_path: Path) -> None:
    keeping = TableKeeping(str(tmp_path / "table"), lambda: None, lambda epoch, reason: None)
    assert await keeping.open() is None
    file = TableFile(tmp_path / "table")

    async def has(epoch: int, version: int) -> None:
        await until(lambda: keeping._working is None and keeping.covered >= epoch)
        assert file.read() == replace(kept(epoch), users=users(version))

    keeping.keeps_users(users(1))
    assert not file.path.exists(), "there is no table yet"
    keeping.received(INSTANCE, PRODUCT, table(1, 1))
    await has(1, 1)
    keeping.keeps_users(users(2))
    await has(1, 2)
    # While a table is being written
    keeping.received(INSTANCE, PRODUCT, table(2, 1))
    await asyncio.sleep(0)
    keeping.keeps_users(users(3))
    await has(2, 3)
    # While there is no file
    keeping.received(INSTANCE, PRODUCT, table(3, LOCK))
    await until(lambda: keeping._working is None)
    keeping.keeps_users(users(4))
    assert file.read() is None
    keeping.received(INSTANCE, PRODUCT, table(4, 1))
    await has(4, 4)
    await keeping.close()
    # The next process goes on with them.
    following = TableKeeping(str(tmp_path / "table"), lambda: None, lambda epoch, reason: None)
    found = await following.open()
    assert found is not None
    following.served(found)
    following.received(INSTANCE, PRODUCT, table(5, 1))
    await until(lambda: following._working is None and following.covered >= 5)
    assert file.read() == replace(kept(5), users=users(4))
    await following.close()


async def test_users_are_kept_once_no_file_with_former_ones_is_left_or_under_way(tmp_path: Path) -> None:
    assert TableKeeping("", lambda: None, lambda epoch, reason: None).has_users(users(1))
    keeping = TableKeeping(str(tmp_path / "table"), lambda: seen.append(keeping.has_users(users(2))), lambda *_: None)
    seen: list[bool] = []
    assert await keeping.open() is None
    keeping.keeps_users(users(1))
    assert keeping.has_users(users(1)), "no process starts without a file"
    keeping.received(INSTANCE, PRODUCT, table(1, 1))
    assert not keeping.has_users(users(1)), "a file is under way"
    await until(lambda: keeping.has_users(users(1)))
    assert not keeping.has_users(users(2))
    keeping.keeps_users(users(2))
    await until(lambda: keeping.has_users(users(2)))
    assert seen == [False, True], "whoever waits for it hears of it"
    keeping.received(INSTANCE, PRODUCT, table(2, LOCK))
    await until(lambda: keeping.has_users(users(3)))
    assert not keeping._file.path.exists()  # type: ignore[union-attr]
    await keeping.close()


def test_a_file_of_an_earlier_version_has_no_users(tmp_path: Path) -> None:
    file = TableFile(tmp_path / "table")
    file.write(kept(3))
    body = json.loads(file.path.read_bytes().partition(b"\n")[2])
    del body["users"]
    earlier = json.dumps(body).encode()
    file.path.write_bytes(tablefile._head(earlier) + b"\n" + earlier)
    assert file.read() == kept(3)


async def test_while_slot_rules_change_there_is_no_file(tmp_path: Path) -> None:
    keeping = TableKeeping(str(tmp_path / "table"), lambda: None, lambda epoch, reason: None)
    assert await keeping.open() is None
    file = TableFile(tmp_path / "table")
    for epoch, coming in enumerate((None, (), (SlotRule("rq:*"),), None), 1):
        keeping.received(INSTANCE, PRODUCT, replace(table(epoch, 1), coming=coming, unknown=()))
        await until(lambda epoch=epoch: keeping.covered >= epoch and keeping._working is None)  # type: ignore[misc]
        assert (file.read() is None) is (coming is not None)
    await keeping.close()


async def test_drained_nothing_is_acknowledged_before_it_is_on_the_disk(
    topom: FakeTopom, director: Director, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = TableFile(tmp_path / "table")
    seen: list[int] = []
    write = TableFile.write

    def slow(self: TableFile, it: Kept) -> None:
        time.sleep(0.1)
        assert proxy.supervisor.member.registration().epoch < it.table.epoch or file.read() is None
        write(self, it)
        seen.append(it.table.epoch)

    monkeypatch.setattr(TableFile, "write", slow)
    async with running(topom, director, workers=1, table_file=str(file.path)) as proxy:
        stream, workers, starts = await proxy.begin(number_of_slots=1)
        await stream.send_table(table(3, 1))
        await workers[0].apply()
        assert (await stream.next("ack"))["epoch"] == 3
        assert seen == [3]
        found = file.read()
        assert found is not None
        assert (found.instance, found.table) == (starts[0]["instance"], table(3, 1))
        # The lock costs no write: the file went with the table before.
        await stream.send_table(table(4, (1, "preparing", 2)))
        await workers[0].apply()
        assert (await stream.next("ack"))["epoch"] == 4
        assert file.read() is None
        await stream.send_table(table(5, LOCK))
        await workers[0].apply()
        assert (await stream.next("ack"))["epoch"] == 5
        await stream.send_table(table(6, 2))
        await workers[0].apply()
        # No file can be older than what is acknowledged: the file comes afterwards.
        assert (await stream.next("ack"))["epoch"] == 6
        await until(lambda: seen == [3, 6])
        await stream.send_table(table(7, 1))
        await workers[0].apply()
        assert (await stream.next("ack"))["epoch"] == 7
        assert seen == [3, 6, 7]
        proxy.supervisor.stop()
        await workers[0].next("drain")
        workers[0].order(do="exit", status=0)
        await stream.next("leave")
        assert file.read() is None, "one-owner: who has left is not fenced"
        await stream.send({"type": "left"})
        assert await proxy.ended() == 0


async def test_a_file_that_cannot_be_written_is_told_to_topom(
    topom: FakeTopom, director: Director, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = [True]
    write = TableFile.write

    def failing(self: TableFile, it: Kept) -> None:
        if full[0]:
            raise OSError("no space left")
        write(self, it)

    monkeypatch.setattr(TableFile, "write", failing)
    monkeypatch.setattr("proxy.supervisor.kept_table.tablekeeping.RETRY_SECONDS", 0.01)
    async with running(topom, director, workers=1, table_file=str(tmp_path / "table")) as proxy:
        stream, workers, _ = await proxy.begin(number_of_slots=1)
        await stream.send_table(table(3, 1))
        await workers[0].apply()
        assert "no space left" in (await stream.next("nack", "ack"))["reason"]
        full[0] = False
        assert (await stream.next("ack"))["epoch"] == 3


async def test_the_rule_by_which_a_proxy_stands_down_is_in_the_file_before_it_is_counted_on(tmp_path: Path) -> None:
    keeping = TableKeeping(str(tmp_path / "table"), lambda: None, lambda epoch, reason: None)
    assert await keeping.open() is None
    assert keeping.keeps_rule(None)
    keeping.received(INSTANCE, PRODUCT, table(3, 1))
    await until(lambda: keeping.covered == 3)
    file = TableFile(tmp_path / "table")
    for rule, kept_at_once in ((5.0, False), (2.0, False), (8.0, True), (None, True)):
        assert keeping.keeps_rule(rule) is kept_at_once, "a stricter one will do meanwhile"
        await until(lambda rule=rule: keeping.keeps_rule(rule))
        await until(lambda rule=rule: (now := file.read()) is not None and now.stand_down == rule)
    # Tables that come later have it, too.
    keeping.keeps_rule(5.0)
    keeping.received(INSTANCE, PRODUCT, table(4, 1))
    await until(lambda: keeping.covered == 4)
    assert file.read() == replace(kept(4), stand_down=5.0)
    await keeping.close()


async def test_the_processes_of_servers_are_kept_with_the_identity_that_they_know_fences_of(tmp_path: Path) -> None:
    """run-id: a server that was started since may have forgotten a fence, whatever the clock of its machine says."""
    keeping = TableKeeping(str(tmp_path / "table"), lambda: None, lambda epoch, why: None)
    file = TableFile(tmp_path / "table")
    assert await keeping.open() is None
    keeping.received(INSTANCE, PRODUCT, table(3, 1))
    await until(lambda: keeping.covered == 3)
    keeping.confirmed("b" * 32, {"m:1": "of another identity"})
    keeping.confirmed(INSTANCE, {"m:1": "process"})
    known = replace(kept(3, 1), processes={"m:1": "process"})
    await until(lambda: file.read() == known)
    assert keeping.covered == 3
    # Tables that come later have them, too; another identity begins with none.
    keeping.received(INSTANCE, PRODUCT, table(4, 1))
    await until(lambda: keeping.covered == 4)
    assert file.read() == replace(kept(4, 1), processes={"m:1": "process"})
    keeping.received("b" * 32, PRODUCT, table(4, 1))
    await until(lambda: keeping.covered == 4)
    assert file.read() == replace(kept(4, 1), instance="b" * 32)
    await keeping.close()


async def test_nobody_starts_under_an_identity_that_was_fenced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """final-fence: the file goes, however often that has to be tried, and comes back with the next identity."""
    monkeypatch.setattr("proxy.supervisor.kept_table.tablekeeping.RETRY_SECONDS", 0.01)
    keeping = TableKeeping(str(tmp_path / "table"), lambda: None, lambda epoch, why: None)
    file = TableFile(tmp_path / "table")
    assert await keeping.open() is None
    keeping.over()
    keeping.received(INSTANCE, PRODUCT, table(3, 1))
    await until(lambda: keeping.covered == 3)
    failures = [OSError("the disk is read-only")]
    remove = TableFile.remove

    def fail_once(self: TableFile) -> None:
        if failures:
            raise failures.pop()
        remove(self)

    monkeypatch.setattr(TableFile, "remove", fail_once)
    keeping.over()
    await until(lambda: file.read() is None)
    keeping.confirmed(INSTANCE, {"m:1": "process"})
    keeping.received("b" * 32, PRODUCT, table(3, 1))
    await until(lambda: keeping.covered == 3)
    kept_now = file.read()
    assert kept_now is not None
    assert kept_now.instance == "b" * 32
    await keeping.close()
