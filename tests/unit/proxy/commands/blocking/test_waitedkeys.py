"""The keys that clients wait for over slots: how many there may be, and whose turn it is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.commands.blocking import waitedkeys
from proxy.commands.blocking.keywait import LIST, STREAM
from proxy.commands.blocking.waitedkeys import FullError, WaitedKeys
from proxy.engine.router import LOCKED, OFFLINE, OPEN
from slots.functions import slot as slot_by
from tests.unit.proxy.engine.inprocess import SLOTS, Engine, engine

KEYS = [b"%d" % number for number in range(8)]


def waiter() -> Any:
    """A client that waits."""
    return SimpleNamespace(session=SimpleNamespace(database=0), stopped=False, parked=None)


async def test_bounded_all_keys_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waitedkeys, "MOST_TOGETHER", 20)
    with engine("127.0.0.1:1") as proxy:
        for key in KEYS:
            proxy.router.set_route(slot_by("crc32", key, SLOTS), OFFLINE, None, 0)
        services: Any = SimpleNamespace(router=proxy.router)
        keys = WaitedKeys(services)
        first, second = (keys.add(waiter(), b"list", KEYS) for _ in range(2))
        with pytest.raises(FullError):
            keys.add(waiter(), b"list", KEYS)
        third = keys.add(waiter(), b"zset", KEYS[:4])
        keys.remove(first)
        assert keys.is_waited_for(0, b"list", KEYS[-1])
        keys.remove(second)
        assert not keys.is_waited_for(0, b"list", KEYS[-1])
        again = keys.add(waiter(), b"list", KEYS)
        for wait in (third, again):
            keys.remove(wait)
        for _ in range(2):
            keys.add(waiter(), b"list", KEYS)


ADDRESS = "127.0.0.1:1"


class Told:
    """It stands in for the connection by which a server tells of changes."""

    def __init__(self) -> None:
        self.tells = True
        self.refused = None
        self.reply = b":1\r\n"
        self.asked: list[Callable[[bytes], None]] = []

    def ask(self, request: bytes, heard: Callable[[bytes], None]) -> None:
        self.asked.append(heard)

    def answer(self) -> None:
        """Answer all that was asked."""
        asked, self.asked = self.asked, []
        for heard in asked:
            heard(self.reply)

    def tick(self) -> None:
        """Nothing has a limit here."""


@contextmanager
def waited_keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[WaitedKeys, Told, Engine]]:
    """The keys, at one server that owns all slots."""
    with engine(ADDRESS) as proxy:
        told = Told()
        services: Any = SimpleNamespace(router=proxy.router, now=lambda: 0.0)
        keys = WaitedKeys(services)
        monkeypatch.setattr(keys, "_server", lambda address: told)
        yield keys, told, proxy


async def test_keys_that_cannot_be_looked_at_are_looked_at_in_the_next_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    with waited_keys(monkeypatch) as (keys, told, _):
        wait = keys.add(waiter(), b"list", KEYS[:2])
        told.answer()
        for name in KEYS[:2]:
            assert wait.turn is not None
            assert wait.turn.name == name
            keys.has_to_look_later(wait)
        # It waits, else it would take turns for ever.
        assert wait.turn is None
        keys.tick()
        assert wait.turn is not None


async def test_a_slot_that_opens_as_another_key_of_it_comes_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    with waited_keys(monkeypatch) as (keys, told, proxy):
        proxy.route(LOCKED, ADDRESS)
        first = keys.add(waiter(), b"list", KEYS[:1])
        proxy.route(OPEN, ADDRESS)
        second = keys.add(waiter(), b"zset", KEYS[:1])
        keys.tick()
        told.answer()
        for wait in (first, second):
            assert wait.turn is not None


async def test_who_begins_to_wait_while_others_end_with_an_error_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with waited_keys(monkeypatch) as (keys, told, _):
        told.reply = b"-NOPERM no\r\n"
        first = keys.add(waiter(), b"list", KEYS[:1])
        told.answer()
        assert first.failed is not None
        second = keys.add(waiter(), b"list", KEYS[:1])
        keys.remove(first)
        told.reply = b":1\r\n"
        keys.tick()
        told.answer()
        assert second.turn is not None


@pytest.mark.parametrize("database", [0, 3])
async def test_a_key_that_is_absent_brings_no_look(monkeypatch: pytest.MonkeyPatch, database: int) -> None:
    with waited_keys(monkeypatch) as (keys, told, _):
        told.reply = b":0\r\n"
        one = waiter()
        one.session.database = database
        wait = keys.add(one, b"list", KEYS[:2])
        told.answer()
        # The question is about database 0.
        assert (wait.turn is None) is (database == 0)


async def test_all_who_read_a_key_are_to_read_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with waited_keys(monkeypatch) as (keys, told, _):
        waits = [keys.add(waiter(), STREAM, KEYS[:3]) for _ in range(4)]
        assert len(told.asked) == 3
        told.answer()
        for _ in range(2):
            for wait in waits:
                assert [key.name for key in wait.take_changed()] == KEYS[:3]
                assert wait.turn is None
            # Only what has changed.
            keys._told(ADDRESS, b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\n1\r\n")
            told.answer()
            for wait in waits:
                assert [key.name for key in wait.take_changed()] == [b"1"]
            keys._told(ADDRESS, b">2\r\n$10\r\ninvalidate\r\n_\r\n")
            told.answer()


async def test_who_comes_to_a_key_that_others_read_reads_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What changed after its first look, and before it began to wait, was told to the others alone."""
    with waited_keys(monkeypatch) as (keys, told, _):
        first = keys.add(waiter(), STREAM, KEYS[:2])
        told.answer()
        assert len(first.take_changed()) == 2
        second = keys.add(waiter(), STREAM, KEYS[1:3])
        assert [key.name for key in second.take_changed()] == KEYS[1:2]
        told.answer()
        assert [key.name for key in second.take_changed()] == KEYS[2:3]
        assert not first.changed


async def test_a_key_that_cannot_be_read_now_is_read_in_the_next_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    with waited_keys(monkeypatch) as (keys, told, proxy):
        wait = keys.add(waiter(), STREAM, KEYS[:2])
        told.answer()
        for key in wait.take_changed():
            keys.has_to_read_later(key)
        assert not wait.changed
        keys.tick()
        assert len(wait.take_changed()) == 2
        # Not while its slot is locked.
        proxy.route(LOCKED, ADDRESS)
        keys.tick()
        told.answer()
        assert not wait.changed
        proxy.route(OPEN, ADDRESS)
        keys.tick()
        told.answer()
        assert len(wait.take_changed()) == 2


async def test_those_who_take_and_those_who_read_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with waited_keys(monkeypatch) as (keys, told, _):
        takes = [keys.add(waiter(), LIST, KEYS[:1]) for _ in range(2)]
        reads = [keys.add(waiter(), STREAM, KEYS[:1]) for _ in range(2)]
        told.answer()
        assert [wait.turn is not None for wait in takes] == [True, False]
        assert [len(wait.changed) for wait in reads] == [1, 1]
        keys.remove(reads[0])
        keys.remove(takes[0])
        assert takes[1].turn is not None
        assert len(reads[1].take_changed()) == 1
