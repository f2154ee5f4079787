"""Which replies a request takes for right: the heart of the checking."""

from typing import Any

import pytest

from slotferry.traffic.content import Counter, Text
from slotferry.traffic.keys import Keys
from slotferry.traffic.requests import CountMany, Difference, Read, ReadMany, ReadOwnWrite, Resolve, Write, WriteMany
from slotferry.traffic.sources import Compare, Load, Mixed


@pytest.fixture
def keys() -> Keys:
    """Ten strings of 100 bytes, each written once."""
    found = Keys(10, "fixed:100")
    for request in Load(found).next_batch(0) or []:
        request.check(b"OK")
    return found


def value(keys: Keys, index: int, version: int) -> Any:
    return keys.kind_of(index).whole(index).expected(version)


def read_of(keys: Keys, index: int) -> Read:
    return Read(keys, index, keys.kind_of(index).whole(index))


def test_a_read_at_rest_takes_the_last_written_value_only(keys: Keys) -> None:
    read_of(keys, 3).check(value(keys, 3, 1))
    for wrong in (value(keys, 3, 2), value(keys, 4, 1), None, b"", 1, []):
        with pytest.raises(Difference, match="traffic:3"):
            read_of(keys, 3).check(wrong)


def test_a_read_beside_a_write_takes_either_version(keys: Keys) -> None:
    before, write = read_of(keys, 3), Write(keys, 3)
    beside = read_of(keys, 3)
    for read in (before, beside):
        read.check(value(keys, 3, 1))
        read.check(value(keys, 3, 2))
        with pytest.raises(Difference):
            read.check(value(keys, 3, 3))
    write.check(b"OK")


def test_a_read_sent_after_the_acknowledgement_takes_the_new_version_only(keys: Keys) -> None:
    sent_before = read_of(keys, 3)
    Write(keys, 3).check(b"OK")
    sent_before.check(value(keys, 3, 1))
    with pytest.raises(Difference):
        read_of(keys, 3).check(value(keys, 3, 1))


def test_a_read_behind_a_write_in_a_pipeline_has_to_see_it(keys: Keys) -> None:
    write = Write(keys, 3)
    behind = ReadOwnWrite(keys, write, keys.kind_of(3).whole(3))
    write.check(b"OK")
    behind.check(value(keys, 3, 2))
    with pytest.raises(Difference):
        behind.check(value(keys, 3, 1))


def test_a_read_behind_a_failed_write_may_see_either(keys: Keys) -> None:
    write = Write(keys, 3)
    behind = ReadOwnWrite(keys, write, keys.kind_of(3).whole(3))
    write.failed()
    behind.check(value(keys, 3, 1))
    behind.check(value(keys, 3, 2))


def test_a_write_checks_its_reply(keys: Keys) -> None:
    with pytest.raises(Difference):
        Write(keys, 3).check(b"KO")


@pytest.mark.parametrize("version", [1, 2])
def test_a_write_of_unknown_outcome_is_resolved_by_a_read(keys: Keys, version: int) -> None:
    Write(keys, 3).failed()
    assert not keys.at_rest(3)
    assert 3 in keys.doubtful
    Resolve(keys, 3, keys.kind_of(3).whole(3)).check(value(keys, 3, version))
    assert keys.window(3) == (version, version)
    assert not keys.doubtful


def test_doubt_is_looked_into_after_a_while(keys: Keys) -> None:
    Write(keys, 3).failed()
    mixed = Mixed(keys, pipeline=1)
    assert not any(isinstance(request, Resolve) for _ in range(20) for request in mixed.next_batch(0) or [])
    keys.doubtful[3] = 0.0
    [request] = mixed.next_batch(0) or []
    assert isinstance(request, Resolve)
    assert not any(isinstance(request, Resolve) for _ in range(20) for request in mixed.next_batch(0) or [])


def test_several_keys_at_once(keys: Keys) -> None:
    right = [value(keys, index, 1) for index in (1, 2)]
    ReadMany(keys, [1, 2]).check(right)
    for wrong in (right[:1], right[::-1], [right[0], None], None):
        with pytest.raises(Difference):
            ReadMany(keys, [1, 2]).check(wrong)
    write = WriteMany(keys, b"MSET", [1, 2])
    assert write.arguments[1::2] == (b"traffic:1", b"traffic:2")
    assert write.arguments[2::2] == (value(keys, 1, 2), value(keys, 2, 2))
    write.check(b"OK")
    ReadMany(keys, [1, 2]).check([value(keys, 1, 2), value(keys, 2, 2)])
    CountMany(keys, [1, 2]).check(2)
    with pytest.raises(Difference):
        CountMany(keys, [1, 2]).check(1)


def test_a_counter_shows_a_doubled_write() -> None:
    keys = Keys(1, "fixed:1")
    keys._kinds = [Counter()]
    Write(keys, 0).check(1)
    with pytest.raises(Difference):
        Write(keys, 0).check(3)


def test_load_and_comparison_name_every_key_once() -> None:
    for source_of in (Load, Compare):
        keys = Keys(500, "mixed", databases=(0, 3))
        named: list[bytes] = []
        for database in (0, 3):
            source = source_of(keys)
            while (batch := source.next_batch(database)) is not None:
                named += {bytes(request.arguments[1]) for request in batch}  # type: ignore[arg-type]
        assert len(named) == len(set(named)) == 500


def test_processes_share_the_keys_without_overlap() -> None:
    parts = [Keys(101, "mixed", part=part, parts=3) for part in range(3)]
    indices = [list(part.indices(0)) for part in parts]
    assert sorted(index for part in indices for index in part) == list(range(101))
    for part, mine in zip(parts, indices, strict=True):
        assert all(part.mine(index) for index in mine)
        assert {part.pick(0) for _ in range(2000)} <= set(mine)


def test_strings_with_ttl_without_and_deleted_all_come_up() -> None:
    text = Text(lambda index: 50)
    states = {(text.present(version), text.has_ttl(version)) for version in range(1, 23)}
    assert states == {(True, True), (True, False), (False, False)}


def test_an_unknown_profile() -> None:
    with pytest.raises(ValueError, match="fixed:BYTES"):
        Keys(1, "fixed:x")
