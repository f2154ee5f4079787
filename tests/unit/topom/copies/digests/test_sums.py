"""The digest check's sums, comparisons, steps and marks."""

import random

import pytest

from topom.copies.digests.asking import PIECE_BYTES, PIECE_ELEMENTS, piece_size
from topom.copies.digests.sums import ABSENT, MOST_NAMED, Difference, Looked, Tally, compare, key_digest, summary
from topom.copies.digests.throttle import LEAST_STEP, MOST_STEP, Throttle

NOW = 1_000_000


def test_a_slots_digest_does_not_depend_on_the_order_of_its_keys() -> None:
    keys = [(database, b"key:%d" % number) for database in (0, 3) for number in range(50)]
    found = []
    for seed in range(3):
        random.Random(seed).shuffle(keys)
        tally = Tally()
        for database, key in keys:
            tally.same(7, database, key, Looked("string", -1, "content of " + key.decode()))
        found.append(summary(tally.slots))
    assert found[0] == found[1] == found[2]
    ((slot, number, master, replica),) = found[0]
    assert (slot, number, master) == (7, 100, replica)
    assert len(master) == 32


def test_a_keys_digest_says_all_that_is_compared() -> None:
    key = Looked("string", 5, "aa", 2, 50)
    others = [
        key_digest(1, b"k", key),
        key_digest(0, b"l", key),
        key_digest(0, b"k", Looked("list", 5, "aa")),
        key_digest(0, b"k", Looked("string", 6, "aa")),
        key_digest(0, b"k", Looked("string", 5, "ab")),
    ]
    assert key_digest(0, b"k", key) not in others
    assert len(set(others)) == 5
    # Memory is not content: servers encode the same thing in different ways.
    assert key_digest(0, b"k", key) == key_digest(0, b"k", Looked("string", 5, "aa", 2, 99))
    assert key_digest(0, b"k", ABSENT) == 0


@pytest.mark.parametrize(
    ("master", "replica", "what"),
    [
        (Looked("string", -1, "a"), Looked("string", -1, "a", bytes=9), None),
        (Looked("string", -1, "a"), Looked("string", -1, "b"), Difference.VALUE),
        (Looked("string", -1, "a"), Looked("list", -1, "a"), Difference.TYPE),
        (Looked("string", -1, "a"), Looked("string", NOW, "a"), Difference.DEADLINE),
        (Looked("string", NOW, "a"), Looked("string", NOW + 1, "a"), Difference.DEADLINE),
        (Looked("string", -1, "a"), ABSENT, Difference.MISSING),
        (ABSENT, Looked("string", -1, "a"), Difference.EXTRA),
        (ABSENT, ABSENT, None),
        # A key that is due is gone, even if a server still shows it.
        (ABSENT, Looked("string", NOW - 5, "a"), None),
        (Looked("string", NOW - 5, "a"), ABSENT, None),
        (Looked("string", NOW + 60_000, "a"), ABSENT, Difference.MISSING),
    ],
)
def test_what_differs(master: Looked, replica: Looked, what: Difference | None) -> None:
    assert compare(master, replica, NOW) is what


def test_deadlines_that_are_computed_may_be_a_little_apart() -> None:
    one, other = Looked("string", NOW, "a"), Looked("string", NOW + 3, "a")
    assert compare(one, other, NOW, exact_deadlines=False) is None
    later = Looked("string", NOW + 3000, "a")
    assert compare(one, later, NOW, exact_deadlines=False) is Difference.DEADLINE
    assert compare(one, Looked("string", -1, "a"), NOW, exact_deadlines=False) is Difference.DEADLINE


def test_lists_of_keys_are_bounded_and_numbers_are_not() -> None:
    tally = Tally()
    for number in range(MOST_NAMED + 50):
        key = b"\xff%d" % number + b"x" * 1000
        tally.differs(1, 0, key, Looked("string"), ABSENT, Difference.MISSING)
        tally.skip(1, 0, key, "why")
    assert (tally.differences, len(tally.named)) == (MOST_NAMED + 50, MOST_NAMED)
    assert (tally.uncompared, len(tally.uncompared_named)) == (MOST_NAMED + 50, MOST_NAMED)
    assert tally.named[0].key.startswith("\\xff0x")
    assert len(tally.named[0].key) < 300
    assert tally.slots[1].master != tally.slots[1].replica == 0


def test_pieces_have_few_elements_and_few_bytes() -> None:
    assert piece_size(Looked("hash", length=1_000_000, bytes=50_000_000)) == PIECE_ELEMENTS
    assert piece_size(Looked("hash", length=100, bytes=100 * PIECE_BYTES)) == 1
    assert piece_size(Looked("list", length=1000, bytes=1000 * PIECE_BYTES // 4)) == 4
    assert piece_size(Looked("string", length=10**9, bytes=10**9)) == PIECE_BYTES


def test_steps_follow_the_time_they_take() -> None:
    throttle = Throttle(0, 0.002)
    for _ in range(20):
        throttle.took(0.0001)
    assert throttle.step_keys == MOST_STEP
    throttle.took(0.0015)
    assert throttle.step_keys == MOST_STEP
    for _ in range(20):
        throttle.took(0.05)
    assert throttle.step_keys == LEAST_STEP
