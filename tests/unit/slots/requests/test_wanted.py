"""What is given of a stream is what plain Python would choose, and nothing that is wanted is stepped over."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slots import commands
from slots.commands import Code, Command, CommandError, KeysError, Multi, Route
from slots.keyslots import KeySlots
from slots.requests.reading import NotRequests
from slots.requests.wanted import MIXED, UNKNOWN, WantedRequests
from slots.reserved import RESERVED, STATE
from slots.rules import SlotRule

SLOTS = 16
KEY_SLOTS = KeySlots("crc32", SLOTS)
KEYS = {KEY_SLOTS.slot_of(0, b"k%d" % number): b"k%d" % number for number in range(200)}
"""A key of each slot."""
UNWANTED, FIRST, ALSO_FIRST, SECOND = KEYS[0], KEYS[1], KEYS[2], KEYS[3]
WANTED = bytes([0, 1, 1, 2]) + bytes(SLOTS - 4)

PLAIN = (Route.KEYED, Route.SPLIT)
NAMES = [name.replace("|", " ").encode().split() for name in commands.table()]
NUMBERS = st.sampled_from([*b"0 1 2 3 01 -1 9 99999999999".split(), b""])
OPTIONS = st.sampled_from(b"STREAMS COUNT GROUP STORE WEIGHTS LIMIT BY EX $ >".split())
KEY = st.sampled_from([*KEYS.values(), UNWANTED, UNWANTED, FIRST, FIRST, STATE, RESERVED, b"__slotferry", b""])


def encode(argv: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(argv) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in argv)


def is_plain(row: Command) -> bool:
    """Whether the keys of a command's requests have to be known without plain Python."""
    if row.code or "admin" in row.flags:
        return False
    return row.route in PLAIN or (row.route is Route.MOVABLE and row.keys.rpartition("+")[2].startswith("count:"))


def chosen(argv: list[bytes]) -> int | None:
    """What plain Python says of a request: the copies of its keys, or None if nothing of it is wanted."""
    try:
        row = commands.find(argv)
        keys = commands.keys_of(row, argv)
    except (CommandError, KeysError):
        return UNKNOWN
    if row.multi is Multi.CHANNEL:
        return None
    if not keys or not is_plain(row):
        return UNKNOWN
    reserved = [key.startswith(RESERVED) for key in keys]
    marks = {0 if own else WANTED[KEY_SLOTS.slot_of(0, key)] for key, own in zip(keys, reserved, strict=True)}
    if len(marks) > 1:
        return MIXED
    [mark] = marks
    return mark if mark or any(reserved) else None


REQUESTS = st.one_of(
    st.tuples(st.sampled_from(NAMES), st.lists(st.one_of(KEY, KEY, NUMBERS, OPTIONS), max_size=7)).map(
        lambda both: [*both[0], *both[1]]
    ),
    st.builds(
        lambda before, keys, number: [*before.split(), number or b"%d" % len(keys), *keys],
        st.sampled_from([b"ZUNION", b"ZUNIONSTORE k1", b"zinterstore k2", b"SINTERCARD", b"EVAL x", b"FCALL f"]),
        st.lists(KEY, min_size=1, max_size=3),
        st.one_of(st.none(), NUMBERS),
    ),
    st.tuples(st.sampled_from([b"SET", b"MSET", b"del", b"SUNIONSTORE"]), st.lists(KEY, min_size=1, max_size=4)).map(
        lambda both: [both[0], *both[1]]
    ),
    st.lists(st.one_of(KEY, st.sampled_from([b"XGROUP|CREATE", b"OBJECT|FREQ", b"NOSUCH"])), min_size=1, max_size=4),
)


@given(st.lists(REQUESTS, max_size=12), st.data())
def test_level_what_is_given_is_what_plain_python_would_give(requests: list[list[bytes]], data: st.DataObject) -> None:
    stream = b"".join(map(encode, requests))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    reader = WantedRequests(KEY_SLOTS, bytearray(WANTED), 70)
    found, expected, end = [], [], 70
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        reader.feed(stream[start:stop])
        found += list(reader)
    for argv in requests:
        end += len(encode(argv))
        if (copies := chosen(argv)) is not None:
            expected.append((argv, end, copies))
    assert found == expected
    assert (reader.offset, reader.pending) == (end, 0)


@pytest.mark.parametrize("row", commands.table().values(), ids=lambda row: row.name)
def test_every_command_that_has_plain_keys_is_stepped_over(row: Command) -> None:
    name = row.name.replace("|", " ").encode().split()
    count = max(abs(row.arity), 3)
    for key, expected in ((UNWANTED, None), (ALSO_FIRST, 1), (SECOND, 2), (STATE, UNKNOWN)):
        argv = [*name, *[key] * (count - len(name))]
        if row.keys.startswith(("count:", "at:1+count:")):
            place = int(row.keys.split("count:")[1].partition(":")[0])
            argv = [*name, *[key] * (place - 1), b"1", key, key]
        reader = WantedRequests(KEY_SLOTS, WANTED)
        reader.feed(encode(argv))
        plain = is_plain(row) and row.arity in (len(argv), *range(-len(argv), 0))
        if row.multi is Multi.CHANNEL:
            expected = None
        assert list(reader) == (
            [] if plain and expected is None else [(argv, len(encode(argv)), (expected or 0) if plain else UNKNOWN)]
        )


@pytest.mark.parametrize(
    ("argv", "copies"),
    [
        ([b"SET", UNWANTED, b"x"], None),
        ([b"set", FIRST, b"x", b"PXAT", b"1"], 1),
        ([b"MSET", FIRST, UNWANTED, ALSO_FIRST, SECOND], 1),
        ([b"MSET", FIRST, b"x", SECOND, b"x"], MIXED),
        ([b"MSET", FIRST, b"x", SECOND], UNKNOWN),
        ([b"DEL", UNWANTED, FIRST], MIXED),
        ([b"DEL", FIRST, UNWANTED], MIXED),
        ([b"UNLINK", UNWANTED, UNWANTED], None),
        ([b"RENAME", STATE, FIRST], MIXED),
        ([b"RENAME", STATE, UNWANTED], UNKNOWN),
        ([b"RENAME", UNWANTED, STATE], UNKNOWN),
        ([b"SET", STATE, b"x"], UNKNOWN),
        ([b"XGROUP", b"CREATE", SECOND, b"g", b"$"], 2),
        ([b"XGROUP", b"NOSUCH", UNWANTED], UNKNOWN),
        ([b"XGROUP|CREATE", b"CREATE", UNWANTED, b"g", b"$"], UNKNOWN),
        ([b"ZUNIONSTORE", FIRST, b"2", UNWANTED, UNWANTED], MIXED),
        ([b"ZUNIONSTORE", UNWANTED, b"3", UNWANTED, UNWANTED], UNKNOWN),
        ([b"EVAL", b"x", b"1", UNWANTED], UNKNOWN),
        ([b"GET", UNWANTED, b"x"], UNKNOWN),
        ([b"PUBLISH", FIRST, b"x"], None),
        ([b"PUBLISH", FIRST], UNKNOWN),
        ([b"SELECT", b"1"], UNKNOWN),
        ([b"PING"], UNKNOWN),
        ([b"MULTI"], UNKNOWN),
        ([b"EXEC"], UNKNOWN),
        ([b"FLUSHALL"], UNKNOWN),
        ([b"COPY", UNWANTED, UNWANTED], UNKNOWN),
        ([b"JSON.SET", UNWANTED, b"$", b"1"], UNKNOWN),
        ([b""], UNKNOWN),
    ],
)
def test_whose_a_request_is(argv: list[bytes], copies: int | None) -> None:
    assert chosen(argv) == copies
    reader = WantedRequests(KEY_SLOTS, WANTED)
    reader.feed(encode(argv))
    assert list(reader) == ([] if copies is None else [(argv, len(encode(argv)), copies)])


def test_requests_with_few_and_with_many_keys_behind_their_number() -> None:
    reader = WantedRequests(KEY_SLOTS, WANTED)
    for count in (1, 1_000, 2, 50_000):
        unwanted = [b"ZUNIONSTORE", UNWANTED, b"%d" % count, *[UNWANTED] * count]
        reader.feed(encode(unwanted))
        reader.feed(encode([*unwanted[:-1], FIRST]))
        assert [copies for _, _, copies in reader] == [MIXED]
        assert reader.pending == 0


def test_commands_that_run_code_are_never_stepped_over() -> None:
    running = [row for row in commands.table().values() if row.code is not Code.NONE]
    assert len(running) >= 6
    assert not any(map(is_plain, running))


def test_cut_at_every_place_the_same_is_given() -> None:
    requests = [[b"SET", UNWANTED, b"x" * 30], [b"SET", FIRST, b"x"], [b"PING"], [b"DEL", UNWANTED], [b"DEL", SECOND]]
    stream = b"".join(map(encode, requests))
    given = []
    for cut in range(len(stream) + 1):
        reader = WantedRequests(KEY_SLOTS, WANTED)
        reader.feed(stream[:cut])
        found = list(reader)
        assert reader.offset + reader.pending == cut
        reader.feed(stream[cut:])
        given.append(found + list(reader))
        assert reader.offset == len(stream)
    assert given == [given[0]] * len(given)
    assert [(argv, copies) for argv, _, copies in given[0]] == [(requests[1], 1), (requests[2], 0), (requests[4], 2)]


def test_a_slot_that_is_no_longer_wanted_counts_from_the_next_request_on() -> None:
    wanted = bytearray(WANTED)
    reader = WantedRequests(KEY_SLOTS, wanted)
    reader.feed(encode([b"DEL", FIRST]) * 2 + encode([b"DEL", SECOND]))
    assert next(reader)[2] == 1
    wanted[1] = 0
    assert [copies for _, _, copies in reader] == [2]


def test_the_stream_ends_where_something_else_comes() -> None:
    reader = WantedRequests(KEY_SLOTS, WANTED)
    before = encode([b"SET", UNWANTED, b"x"])
    reader.feed(before + b"+OK\r\n")
    with pytest.raises(NotRequests) as raised:
        next(reader)
    assert raised.value.offset == reader.offset == len(before)


def test_each_slot_has_a_mark() -> None:
    with pytest.raises(ValueError, match="15 slots are marked"):
        WantedRequests(KEY_SLOTS, bytes(SLOTS - 1))


def test_level_what_another_database_gets_is_given_whatever_slot_it_has_here() -> None:
    """The name of the key is of an unwanted slot in the database of the request, and of a wanted one elsewhere."""
    key_slots = KeySlots("crc32", SLOTS, [SlotRule("*", 5, FIRST.decode())])
    reader = WantedRequests(key_slots, bytearray(WANTED))
    requests = [[b"SET", UNWANTED, b"x"], [b"MOVE", UNWANTED, b"5"], [b"COPY", UNWANTED, UNWANTED, b"DB", b"5"]]
    reader.feed(b"".join(map(encode, requests)))
    assert [argv for argv, _, _ in reader] == requests[1:]
    reader.database = 5
    reader.feed(encode(requests[0]))
    assert [(argv, copies) for argv, _, copies in reader] == [(requests[0], 1)]
