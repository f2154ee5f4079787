"""The parts of reading that need no server: positions of cursors, partitions, pace, samples, scripts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sizing.cluster import Cluster, Server
from sizing.cursors import POSITIONS, CursorRange, reached, reverse
from sizing.look import ScanLook
from sizing.options import ReadOptions
from sizing.pace import FEWEST, Pace
from sizing.partitions import plan_partitions
from sizing.sampling import sampled

CURSORS = st.integers(0, POSITIONS - 1)


def redis_next(cursor: int, bits: int) -> int:
    """The cursor after a bucket of a table of 2^bits, as Redis's dictScan counts."""
    cursor |= ~((1 << bits) - 1) & (POSITIONS - 1)
    return reverse((reverse(cursor) + 1) % POSITIONS)


@given(CURSORS)
def test_reversing_twice_gives_the_cursor(cursor: int) -> None:
    assert reverse(reverse(cursor)) == cursor


@given(st.integers(0, 6), st.integers(0, 8), st.data())
def test_ranges_hold_each_bucket_of_a_table_that_has_enough_once(n: int, more: int, data: st.DataObject) -> None:
    bits, of = n + more, 1 << n
    index = data.draw(st.integers(0, of - 1))
    cursors = CursorRange(index, of)
    cursor, visited = cursors.first, []
    while True:
        visited.append(cursor & ((1 << bits) - 1))
        cursor = redis_next(cursor, bits)
        if cursors.ends_at(cursor):
            break
        assert not cursors.goes_over(cursor)
    # It ends exactly where the next one begins, after its share of the buckets: those whose low bits are its own.
    assert cursor == cursors.end
    assert not cursors.goes_over(cursor)
    assert len(visited) == len(set(visited)) == 1 << more
    assert {bucket & (of - 1) for bucket in visited} == {cursors.first & (of - 1)}


@given(st.integers(1, 6), st.integers(0, 12), st.integers(1, 10), st.data())
def test_a_cursor_shows_narrow_buckets_only_where_they_are(n: int, bits: int, steps: int, data: st.DataObject) -> None:
    cursors = CursorRange(data.draw(st.integers(0, (1 << n) - 2)), 1 << n)
    cursor = cursors.end
    for _ in range(steps):
        cursor = redis_next(cursor, bits)
        if cursor == 0:
            break
    if cursors.shows_narrow_buckets(cursor):
        assert bits > n
    # With many more buckets than ranges, as a database has that is split, a few steps do show it.
    if bits >= n + 4:
        assert cursors.shows_narrow_buckets(cursor)


def test_the_end_of_the_table_is_reached_by_the_cursor_0() -> None:
    assert reached(0) == POSITIONS
    assert CursorRange(1, 2).ends_at(0)
    assert CursorRange(1, 2).is_last
    with pytest.raises(ValueError, match="no range"):
        CursorRange(0, 3)


def server(name: str, keys: dict[int, int], positions: bool = True) -> Server:
    return Server(name, None, False, keys, positions, False)


def test_partitions_share_databases_and_lie_apart_by_server() -> None:
    cluster = Cluster(
        None,
        "crc32",
        1024,
        (
            server("a:1", {0: 100_000, 1: 50, 2: 60, 5: 25_000}),
            server("b:1", {0: 500}),
            server("c:1", {0: 90_000}, False),
            server("d:1", {}),
        ),
    )
    options = ReadOptions(servers=("a:1",), partitions_per_server=4)
    partitions = plan_partitions(cluster, options)
    assert [each.server for each in partitions] == ["a:1", "b:1", "c:1", "a:1", "a:1", "a:1"]
    assert [each.of for each in partitions] == [4, 1, 1, 4, 4, 4]
    of_a = [each for partition in partitions if partition.server == "a:1" for each in partition.ranges]
    assert sum(each.keys for each in of_a) == 125_110
    assert sorted((each.database, each.cursors.index, each.cursors.of) for each in of_a) == [
        *((0, index, 4) for index in range(4)),
        (1, 0, 1),
        (2, 0, 1),
        *((5, index, 2) for index in range(2)),
    ]
    assert [each.cursors.of for each in partitions[2].ranges] == [1]
    (only,) = plan_partitions(cluster, ReadOptions(servers=("a:1",), databases=frozenset({1, 9})))
    assert [each.database for each in only.ranges] == [1]


def test_calls_shrink_until_they_take_their_time_and_grow_up_to_the_most() -> None:
    pace = Pace(500, 0.001)
    pace.knows_way(0.0002)
    for _ in range(100):
        pace.took(0.0002 + pace.count * 0.00001)
    # 10 µs a key: 100 keys take the millisecond, the way there and back left out.
    assert 70 <= pace.count <= 110
    for _ in range(100):
        pace.took(0.0002)
    assert pace.count == 500
    for _ in range(200):
        pace.took(10)
    assert pace.count == FEWEST


def test_under_a_limit_of_keys_a_second_calls_are_small() -> None:
    assert Pace(500, 1, rate=300).count <= 30
    pace = Pace(500, 1, rate=300)
    for _ in range(100):
        pace.took(0)
    assert pace.count == 30


def test_what_passes_between_calls_is_what_their_keys_take_at_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [1000.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr("sizing.pace.time.monotonic", lambda: now[0])
    monkeypatch.setattr("sizing.pace.time.sleep", sleep)
    pace = Pace(500, 1, rate=1_000)
    for _ in range(50):
        pace.wait(100)
        now[0] += 0.03  # The call itself takes some of it.
    assert sum(slept) + 50 * 0.03 == pytest.approx(5.0, abs=0.2)


@given(st.lists(st.binary(), unique=True, max_size=50), st.floats(0.01, 1), st.floats(0.01, 1))
def test_a_smaller_sample_is_part_of_a_larger_one(keys: list[bytes], one: float, other: float) -> None:
    small, large = sorted((one, other))
    assert set(sampled(keys, small)) <= set(sampled(keys, large))
    assert sampled(keys, 1.0) == list(range(len(keys)))


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.5])
def test_each_slot_has_its_share_of_a_sample(fraction: float) -> None:
    from slots.keyslots import KeySlots

    keys = [f"user:{number}".encode() for number in range(200_000)]
    slots = KeySlots("crc32", 8).slots_of(0, keys)
    chosen = sampled(keys, fraction)
    for slot in range(8):
        mine = slots.count(slot)
        share = sum(slots[place] == slot for place in chosen) / mine
        assert share == pytest.approx(fraction, abs=4 * (fraction / mine) ** 0.5)


def test_one_type_is_left_to_scan_where_it_knows_it() -> None:
    assert ScanLook(None, ("hash",))._options == ("TYPE", "hash")  # type: ignore[arg-type]
    assert ScanLook(None, ("ReJSON-RL",))._options == ()  # type: ignore[arg-type]
