"""What becomes of a copy's batches on their way to the target, of which only the commands are looked at here."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, cast

import pytest

from migrator.connection import Connection, pack
from migrator.errors import SourceUnavailable
from migrator.pieces.abilities import Abilities
from migrator.progress import Progress
from migrator.stream.applying import Applier, CopyVoid
from migrator.stream.batches import Batch
from migrator.stream.copying import LATE_BYTES, LATE_ELEMENTS, LATE_STEP_BYTES, SETTLING_KEYS, Copy
from migrator.stream.deadlines import MARGIN_MS, PLACEHOLDER_MS, Deadlines
from migrator.stream.errors import TooManyLate
from migrator.stream.values import atonce
from migrator.stream.words import CLAIM_KEPT, GONE, Words
from rdb.snapshot import Snapshot
from slots.keyslots import KeySlots
from slots.requests.reading import Requests

NOW = 1_000_000
LATEST = NOW + 1_000_000


class Target:
    """Takes down the commands of each batch."""

    copy = "c"

    def __init__(self, replies: Sequence[Any] = ()) -> None:
        self.batches: list[list[list[bytes]]] = []
        self.replies = replies

    async def apply(self, database: int, commands: bytes, count: int, at: str) -> list[Any]:
        requests = Requests()
        requests.feed(commands)
        self.batches.append([argv for argv, _ in requests])
        assert len(self.batches[-1]) == count
        return [*self.replies]


class Expiring:
    """Tells when keys expire: -1 for never, -2 for keys that are gone. The first connection to it was closed."""

    address = "source"

    def __init__(self, deadlines: dict[bytes, int]) -> None:
        self.deadlines = deadlines
        self.connected = 0

    async def connect(self) -> Connection:
        self.connected += 1
        return cast(Connection, self)

    async def select(self, database: int) -> None:
        assert database == 3

    async def send(self, commands: bytes, count: int) -> list[Any]:
        if self.connected == 1 and count < SETTLING_KEYS:
            raise SourceUnavailable("it was idle")
        requests = Requests()
        requests.feed(commands)
        return [self.deadlines.get(argv[1], -2) for argv, _ in requests]

    @contextmanager
    def understood(self, command: str) -> Iterator[None]:
        yield

    def close(self) -> None:
        pass


async def none() -> Connection:
    raise AssertionError("nothing is asked")


async def test_deadlines_that_came_as_a_rest_of_life_are_those_of_the_source() -> None:
    target, source = Target(), Expiring({})
    copy = a_copy(target, source.connect)
    for number in range(SETTLING_KEYS + 1):
        if number == SETTLING_KEYS - 1:
            await copy.write("there")
            await copy.correct("there")
            assert source.connected == 0
        copy.follow(3, [b"PSETEX", b"key %d" % number, b"60000", b"value"], lambda: NOW + 500)
    source.deadlines = {b"key 0": NOW + 60_000, b"key 1": NOW + 5, b"key 2": -1}
    await copy.correct("there")
    # The keys are asked for in two parts, in the order of a set.
    assert sorted([*target.batches[-2], *target.batches[-1]]) == [
        [b"PEXPIREAT", b"key 0", b"%d" % (NOW + 60_000)],
        [b"PEXPIREAT", b"key 1", b"%d" % PLACEHOLDER_MS],
    ]
    written = len(target.batches)
    await copy.correct("there")
    assert len(target.batches) == written


def a_copy(target: Target, connect: Callable[[], Awaitable[Connection]] = none) -> Copy:
    return Copy(
        1,
        bytearray([1]) * 1024,
        KeySlots("crc32", 1024),
        cast(Applier, target),
        Deadlines(LATEST),
        Progress(),
        cast(Abilities, None),
        connect,
        clock=lambda: NOW,
    )


def a_batch(*deadlines: tuple[int, bytes], withheld_until_ms: int) -> Batch:
    """Of one key for each deadline, as the filter makes it. Those of up to then are withheld."""
    commands = [
        pack("RESTORE", key, PLACEHOLDER_MS if at <= withheld_until_ms else at, b"\x00*2\r\n", "ABSTTL", "FREQ", "7")
        for at, key in deadlines
    ]
    told = [one for one in deadlines if one[0] > withheld_until_ms]
    withheld = [key for at, key in deadlines if at <= withheld_until_ms]
    return Batch(1, 0, b"".join(commands), len(commands), len(deadlines), told, withheld)


async def test_a_deadline_that_was_overtaken_by_a_long_wait_is_withheld() -> None:
    target = Target()
    copy = a_copy(target)
    made_until = NOW - 60_000
    past, near, far = NOW - 1, NOW + MARGIN_MS, NOW + MARGIN_MS + 1

    await copy.restore(a_batch((past, b"past"), (near, b"near"), (far, b"far"), withheld_until_ms=made_until), "here")

    [commands] = target.batches
    assert [(argv[1], int(argv[2]), *argv[3:]) for argv in commands] == [
        (b"past", PLACEHOLDER_MS, b"\x00*2\r\n", b"ABSTTL", b"FREQ", b"7"),
        (b"near", PLACEHOLDER_MS, b"\x00*2\r\n", b"ABSTTL", b"FREQ", b"7"),
        (b"far", far, b"\x00*2\r\n", b"ABSTTL", b"FREQ", b"7"),
    ]
    assert set(copy.deadlines.withheld()) == {(0, b"past"), (0, b"near")}


async def test_a_deadline_of_a_value_that_came_as_commands_is_withheld_and_nothing_else_is_changed() -> None:
    target = Target()
    copy = a_copy(target)
    commands = [
        [b"UNLINK", b"near"],
        [b"HSET", b"near", b"f", b"v", b"ABSTTL", b"x"],
        [b"PEXPIREAT", b"near", b"%d" % (NOW + 1)],
    ]
    packed = b"".join(pack(*argv) for argv in commands)

    await copy.restore(Batch(1, 0, packed, 3, 1, [(NOW + 1, b"near")], [], True), "here")

    assert target.batches == [[*commands[:2], [b"PEXPIREAT", b"near", b"%d" % PLACEHOLDER_MS]]]


@pytest.mark.parametrize("there", [0, 1])
async def test_a_key_that_stands_at_the_target_already_voids_the_copy(there: int) -> None:
    copy = a_copy(Target([there, b"OK"]))
    packed = pack("UNLINK", "key") + pack("SET", "key", "value")

    with pytest.raises(CopyVoid, match="1 of the 1 keys") if there else nullcontext():
        await copy.restore(Batch(1, 0, packed, 2, 1, [], [], True), "here")


async def test_what_the_filter_has_withheld_counts_as_withheld() -> None:
    target = Target()
    copy = a_copy(target)
    until = NOW + 15_000

    await copy.restore(a_batch((until, b"a"), (until + 1, b"b"), withheld_until_ms=until), "here")

    assert [int(argv[2]) for argv in target.batches[0]] == [PLACEHOLDER_MS, until + 1]
    assert set(copy.deadlines.withheld()) == {(0, b"a")}
    assert copy.deadlines.due(NOW + 15_000) == [(0, b"b")]


@pytest.mark.parametrize("count", [199, 200])
async def test_a_batch_of_the_stream_is_full_by_its_commands(count: int) -> None:
    copy = a_copy(Target())

    for number in range(count):
        assert not copy.full
        copy.follow(0, [b"SET", b"%d" % number, b"x"], lambda: NOW)

    assert copy.full == (count == 200)


@pytest.mark.parametrize("name", [b"DEL", b"unlink"])
async def test_what_is_known_to_be_the_copys_own_runs_as_it_came(name: bytes) -> None:
    target = Target()
    copy = a_copy(target)
    copy.deadlines.withhold(3, b"key")
    copy.become_late(3, b"late")
    commands = [[b"set", b"key", b"x"], [b"HSET", b"hash", b"f", b"v"], [name, b"key"]]

    for argv in [*commands, [b"SET", b"late", b"y"]]:
        copy.follow(3, argv, lambda: NOW, whole=True)
    await copy.write("here")

    assert target.batches == [[*commands[:2], [b"UNLINK", b"key"]]]
    assert list(copy.deadlines.withheld()) == []


@pytest.mark.parametrize("whole", [True, False])
async def test_what_an_older_target_cannot_be_told_makes_its_keys_late(whole: bool) -> None:
    target = Target()
    copy = a_copy(target)
    copy.words = Words("target t:1", Abilities(False, False), frozenset({b"DEL", b"SET", b"XSETID", b"XTRIM"}))

    for argv in (
        [b"XSETID", b"s", b"1-1", b"ENTRIESADDED", b"7"],
        [b"XTRIM", b"late", b"MAXLEN", b"5", b"DELREF"],
        [b"HSET", b"unknown", b"f", b"v"],
        [b"XSETID", b"late", b"1-1"],
        [b"SET", b"unknown", b"v"],
        [b"DEL", b"s"],
    ):
        copy.follow(3, argv, lambda: NOW, whole=whole)
    await copy.write("here")

    assert target.batches == [[[b"XSETID", b"s", b"1-1"], [b"UNLINK", b"s"]]]
    assert copy._late == {(3, b"late"), (3, b"unknown")}


CLAIM = [b"XCLAIM", b"s", b"g", b"one", b"0", b"1-1", b"TIME", b"5", b"FORCE", b"JUSTID"]


@pytest.mark.parametrize(
    ("replies", "late"), [([b"OK", [b"1-1"]], set()), ([b"OK", GONE], {(3, b"s")}), ([], {(3, b"s")})]
)
async def test_level_a_stream_whose_entry_cannot_be_claimed_at_the_target_becomes_late(
    replies: list[Any], late: set[tuple[int, bytes]]
) -> None:
    """So does one of which nobody knows whether that could be done."""
    target = Target(replies)
    copy = a_copy(target)
    copy.words = Words("target t:1", Abilities(), frozenset({b"SET", b"XCLAIM"}), counts_entries=False)

    for argv in ([b"SET", b"key", b"v"], CLAIM):
        copy.follow(3, argv, lambda: NOW, whole=True)
    assert not copy.ends_batch(3, b"SET")
    assert copy.ends_batch(3, b"RENAME"), "it is known first what the other key gets"
    await copy.write("here")

    assert target.batches[0][1] == [b"EVAL", CLAIM_KEPT.text.encode(), b"1", *CLAIM[1:]]
    assert copy._late == late


async def test_few_commands_that_read_whole_collections_are_in_a_batch() -> None:
    copy = a_copy(Target())

    for number in range(10):
        assert not copy.full, number
        copy.follow(0, [b"sunionstore", b"{a}to", b"{a}1", b"{a}2"], lambda: NOW, whole=True)
    assert copy.full
    await copy.write("here")
    assert not copy.full


class Source:
    """Has late keys of given sizes."""

    def __init__(self, sizes: dict[bytes, int], value: bytes = b"value") -> None:
        self.sizes = sizes
        self.value = value

    async def select(self, database: int) -> None:
        pass

    async def send(self, commands: bytes, count: int) -> list[Any]:
        requests = Requests()
        requests.feed(commands)
        replies: list[Any] = []
        for argv, _ in requests:
            if argv[0] == b"MEMORY":
                replies.append(self.sizes[argv[2]])
            else:
                replies.append(-1 if argv[0] == b"PEXPIRETIME" else self.value)
        return replies

    @contextmanager
    def understood(self, command: str) -> Iterator[None]:
        yield


async def settled(*sizes: int) -> list[list[list[bytes]]]:
    target = Target()
    copy = a_copy(target)
    keys = {b"%d" % number: size for number, size in enumerate(sizes)}
    for key in keys:
        copy.become_late(0, key)
    await copy.settle(cast(Connection, Source(keys)), range(1024), "here")
    return target.batches


async def test_late_keys_are_written_in_steps_of_bounded_size() -> None:
    size = LATE_STEP_BYTES // 3

    batches = await settled(*[size] * 8)

    assert [len(batch) for batch in batches] == [3, 3, 2]
    assert {argv[1] for batch in batches for argv in batch} == {b"%d" % number for number in range(8)}


async def test_late_keys_that_are_too_large_void_the_copy() -> None:
    await settled(LATE_STEP_BYTES)
    with pytest.raises(TooManyLate, match="a key that the copy could not follow has"):
        await settled(LATE_STEP_BYTES + 1)
    await settled(*[8192] * (LATE_BYTES // 8192))
    with pytest.raises(TooManyLate, match="keys that the copy could not follow have"):
        # They are asked for in two parts.
        await settled(*[8192] * (LATE_BYTES // 8192 + 1))


def a_set(members: int) -> bytes:
    """What DUMP gives of a set that has so many members, of one byte each."""
    return b"".join((b"\x02\x80", members.to_bytes(4, "big"), b"\x01m" * members, b"\x09\x00", bytes(8)))


async def settled_as_commands(keys: int, members: int) -> list[list[list[bytes]]]:
    target = Target()
    copy = a_copy(target)
    copy.words = Words("target t:1", Abilities(), frozenset())
    source = Source({b"%d" % number: 100 for number in range(keys)}, a_set(members))
    for key in source.sizes:
        copy.become_late(0, key)
    await copy.settle(cast(Connection, source), range(1024), "here")
    return target.batches


async def test_late_keys_that_go_as_commands_are_bounded_by_their_elements() -> None:
    batches = await settled_as_commands(2, LATE_ELEMENTS // 2)
    written = [argv for batch in batches for argv in batch if argv[0] == b"SADD"]
    assert sum(len(argv) - 2 for argv in written) == LATE_ELEMENTS
    for keys, members in ((1, LATE_ELEMENTS + 1), (2, LATE_ELEMENTS // 2 + 1)):
        with pytest.raises(TooManyLate, match="more elements than are read within a lock"):
            await settled_as_commands(keys, members)


async def test_late_keys_are_taken_apart_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop has other copies, and the connection to topom."""
    threads: set[int] = set()

    def noted(*about: Any) -> Snapshot:
        threads.add(threading.get_ident())
        return Snapshot(*about)

    monkeypatch.setattr(atonce, "Snapshot", noted)
    await settled_as_commands(3, 1000)
    assert threads
    assert threading.get_ident() not in threads
