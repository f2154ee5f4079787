"""What workers have counted is told to topom once, within what it asks for, and waits until then within a bound."""

import asyncio
import base64
import json
import struct

import pytest

from proxy.channel import ChannelError
from proxy.supervisor import loads
from proxy.supervisor.loads import Loads
from slots.messages import channel
from slots.messages.control import Heard, Load, TellLoad
from slots.messages.load import MOST_NOTABLE, HotKey, Notable, ServerTraffic, Traffic
from slots.messages.message import encode
from tests.unit.proxy.proxy_fakes import Director, FakeTopom
from tests.unit.proxy.supervisor.test_supervisor import running

MANY = TellLoad(number=1, slots=16384, names=10_000)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def rows(*slots: int) -> str:
    return base64.b64encode(b"".join(struct.pack("<HIIQQ", slot, 1, 0, 10, 20) for slot in slots)).decode()


def hot(key: bytes, rate: float, excess: float = 0.0) -> HotKey:
    return HotKey(0, 1, base64.b64encode(key).decode(), len(key), rate, excess)


def notable(number: int, seconds: float = 0.0) -> Notable:
    return Notable("slow", "get", 0, 1, "", 0, "u", "", "", seconds, 0.0, number, 0, 0)


def begun(sent: list[Load] | None = None, clock: Clock | None = None) -> Loads:
    made = Loads([].append if sent is None else sent.append, False, clock or Clock())
    made.begin(16)
    return made


def slots_of(load: Load) -> list[int]:
    return [row[0] for row in struct.iter_unpack("<HIIQQ", base64.b64decode(load.slots))]


def test_counts_of_all_workers_are_added_and_told_once() -> None:
    clock = Clock()
    waiting = begun(clock=clock)
    for worker in range(2):
        waiting.take(
            worker,
            channel.Load(
                slots=rows(3, 4),
                servers={"a:1": ServerTraffic(2, 1, 30, 40, 500.5, 2)},
                users={"one": Traffic(2, 1, 30, 40), f"of {worker}": Traffic(1, 0, 1, 1)},
            ),
        )
    clock.now += 2.5
    told = waiting.told(MANY)

    assert (told.number, told.seconds, told.hashed, told.untold) == (1, 2.5, False, 0)
    assert list(struct.iter_unpack("<HIIQQ", base64.b64decode(told.slots))) == [(3, 2, 0, 20, 40), (4, 2, 0, 20, 40)]
    assert told.servers == {"a:1": ServerTraffic(4, 2, 60, 80, 1001.0, 4)}
    assert told.users == {"one": Traffic(4, 2, 60, 80), "of 0": Traffic(1, 0, 1, 1), "of 1": Traffic(1, 0, 1, 1)}
    assert told.all == Traffic(6, 2, 62, 82)
    clock.now += 1
    assert waiting.told(MANY) == Load(number=1, seconds=1.0)


def test_notable_requests_are_told_once_the_oldest_first_and_how_long_ago() -> None:
    clock = Clock()
    waiting = begun(clock=clock)
    waiting.take(0, channel.Load(notable=[notable(1, 0.75), notable(2, 0.5)]))
    clock.now += 2.0
    waiting.take(1, channel.Load(notable=[notable(3, 0.25)]))
    waiting.ended(0)
    told = waiting.told(MANY).notable
    assert [(each.bytes_in, each.seconds) for each in told] == [(1, 2.75), (2, 2.5), (3, 0.25)]
    assert waiting.told(MANY).notable == []


def test_bounded_of_many_notable_requests_the_oldest_go() -> None:
    waiting = begun()
    for start in range(0, 2 * loads.MOST_NOTABLE_WAITING, MOST_NOTABLE):
        waiting.take(0, channel.Load(notable=[notable(start + number) for number in range(MOST_NOTABLE)]))
    told = []
    while more := waiting.told(MANY).notable:
        assert len(more) <= MOST_NOTABLE
        told += [each.bytes_in for each in more]
    assert told == list(range(loads.MOST_NOTABLE_WAITING, 2 * loads.MOST_NOTABLE_WAITING))


def test_what_has_no_room_waits_and_comes_first() -> None:
    waiting = begun()
    busy = channel.Load(
        slots=rows(*range(8)),
        servers={f"s:{number + 1}": ServerTraffic(1, 0, 1, 1, 1.0, 1) for number in range(4)},
        users={f"u{number}": Traffic(1, 0, 1, 1) for number in range(4)},
    )
    waiting.take(0, busy)
    first = waiting.told(TellLoad(number=1, slots=3, names=5))
    assert (slots_of(first), list(first.servers), list(first.users), first.untold) == (
        [0, 1, 2],
        ["s:1", "s:2", "s:3", "s:4"],
        ["u0"],
        5 + 3,
    )
    # All of them have more, but what has waited is told first.
    waiting.take(0, busy)
    second = waiting.told(TellLoad(number=2, slots=5, names=3))
    assert (slots_of(second), list(second.servers), second.users) == (
        [3, 4, 5, 6, 7],
        [],
        dict.fromkeys(("u1", "u2", "u3"), Traffic(2, 0, 2, 2)),
    )
    # The sum is of all users, whoever is named.
    assert first.all == second.all == Traffic(4, 0, 4, 4)
    assert waiting.told(TellLoad(number=3, slots=0, names=0)).untold == 3 + 5


def test_what_was_counted_long_ago_is_not_told_as_if_it_were_of_late() -> None:
    """given an hour without a topom, and more than its first question has room for."""
    clock = Clock()
    waiting = begun(clock=clock)
    for _ in range(3600):
        waiting.take(0, channel.Load(slots=rows(1, 2), users={"a": Traffic(1, 0, 1, 1), "b": Traffic(1, 0, 1, 1)}))
    clock.now += 3600
    first = waiting.told(TellLoad(number=1, slots=1, names=1))
    assert (slots_of(first), first.users, first.untold) == ([1], {"a": Traffic(3600, 0, 3600, 3600)}, 0)
    for _ in range(5):
        waiting.take(0, channel.Load(slots=rows(1, 2), users={"a": Traffic(1, 0, 1, 1), "b": Traffic(1, 0, 1, 1)}))
    clock.now += 5
    second = waiting.told(MANY)
    assert second.seconds == 5
    assert [row[1] for row in struct.iter_unpack("<HIIQQ", base64.b64decode(second.slots))] == [5, 5]
    assert second.users == dict.fromkeys("ab", Traffic(5, 0, 5, 5))


def test_a_topom_that_does_not_ask_costs_a_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "MOST_WAITING", 10)
    waiting = begun()
    for number in range(100):
        waiting.take(0, channel.Load(slots=rows(1), servers={f"s:{number + 1}": ServerTraffic(1, 0, 1, 1, 1.0, 1)}))
    told = waiting.told(MANY)
    assert list(told.servers) == [f"s:{number}" for number in range(91, 101)]
    assert struct.unpack("<HIIQQ", base64.b64decode(told.slots)) == (1, 100, 0, 1000, 2000)


def test_hot_keys_of_all_workers_are_one_list() -> None:
    clock = Clock()
    waiting = begun(clock=clock)
    waiting.take(0, channel.Load(hot_keys=[hot(b"a", 100.0), hot(b"c", 50.0, 49.0), hot(b"\xff", 30.0)]))
    waiting.take(1, channel.Load(hot_keys=[hot(b"b", 120.0), hot(b"a", 80.04, 10.0)]))
    waiting.take(2, channel.Load(hot_keys=[hot(b"of one that ends", 500.0)]))
    waiting.ended(2)
    told = waiting.told(MANY).hot_keys
    assert told == [hot(b"a", 180.0, 10.0), hot(b"b", 120.0), hot(b"\xff", 30.0), hot(b"c", 50.0, 49.0)]

    waiting.take(3, channel.Load(hot_keys=[hot(b"%d" % number, 1.0) for number in range(256)]))
    assert len(waiting.told(MANY).hot_keys) == loads.MOST_TOLD_HOT_KEYS
    clock.now += 6
    assert waiting.told(MANY).hot_keys == []


def test_each_question_is_answered_and_nothing_else() -> None:
    sent: list[Load] = []
    waiting = begun(sent)
    waiting.heard(Heard(number=1))
    waiting.heard(TellLoad(number=7, slots=1, names=1))
    waiting.lost()
    assert [load.number for load in sent] == [7]
    assert Loads(sent.append, True).told(MANY).hashed


def test_rows_that_are_none_end_the_channel() -> None:
    for wrong in (rows(16), base64.b64encode(b"x").decode(), "====", "\x00\x00\x00\x00"):
        with pytest.raises(ChannelError, match="message 'load' came that cannot be used"):
            begun().take(0, channel.Load(slots=wrong))


async def test_topom_asks_a_proxy(topom: FakeTopom, director: Director) -> None:
    async with running(topom, director) as proxy:
        stream, (worker, _), _ = await proxy.begin()
        said = channel.Load(
            slots=rows(3), servers={"a:1": ServerTraffic(1, 0, 10, 20, 5.0, 1)}, hot_keys=[hot(b"a", 9.0)]
        )
        worker.order(do="say", message=json.loads(encode(said)))
        async with asyncio.timeout(60):
            while True:
                await stream.send({"type": "tell_load", "number": 3, "slots": 10, "names": 10})
                answer = await stream.next("load")
                if answer["slots"]:
                    break
    assert (answer["number"], answer["slots"], answer["servers"]) == (3, rows(3), {"a:1": [1, 0, 10, 20, 5.0, 1]})
    assert answer["hot_keys"] == [list(hot(b"a", 9.0))]
