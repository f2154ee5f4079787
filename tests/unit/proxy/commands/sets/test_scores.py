"""Scores as servers of each version write them; tests/integration/worker/test_sets_over_slots.py compares with some."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.commands.sets.scores import as_before_7_2, as_since_7_2, writer

WRITTEN = [
    (0.1, "0.10000000000000001", "0.1"),
    (1e16, "10000000000000000", "10000000000000000"),
    (1e17, "1e+17", "100000000000000000"),
    (2.0**62, "4.6116860184273879e+18", "4611686018427387904"),
    (-9223372036854775808.0, "-9.2233720368547758e+18", "-9223372036854776000"),
    (1e19, "1e+19", "1e+19"),
    (123456789012345678901.0, "1.2345678901234568e+20", "123456789012345680000"),
    (-1.3303412894674683e23, "-1.3303412894674683e+23", "-133034128946746830000000"),
    (1e-6, "9.9999999999999995e-07", "0.000001"),
    (1e-7, "9.9999999999999995e-08", "1e-7"),
    (1.5e-7, "1.4999999999999999e-07", "1.5e-7"),
    (-12345678.9, "-12345678.9", "-12345678.9"),
    (5e-324, "4.9406564584124654e-324", "5e-324"),
    (float("-inf"), "-inf", "-inf"),
    (-0.0, "-0", "-0"),
    (0.0, "0", "0"),
]
"""Scores with what Redis 7.0.15, and Redis 8.2.3 and Valkey 9.1.2 write."""


@pytest.mark.parametrize(("score", "before", "since"), WRITTEN)
def test_scores(score: float, before: str, since: str) -> None:
    assert (as_before_7_2(score), as_since_7_2(score)) == (before, since)


@given(st.floats(allow_nan=False))
def test_a_written_score_is_the_same_number(score: float) -> None:
    for write in (as_before_7_2, as_since_7_2):
        assert float(write(score)) == score
    # Its sign comes before up to 24 digits.
    assert len(as_since_7_2(score).removeprefix("-")) <= max(len(repr(abs(score))), 24)


def test_versions() -> None:
    assert [writer(version) is as_since_7_2 for version in ("6.2.14", "7.0.15", "7.2.4", "8.2", "10.0.1", "3.2")] == [
        False,
        False,
        True,
        True,
        True,
        False,
    ]
