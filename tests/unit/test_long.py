"""What a run of the tests leaves out."""

from tests.conftest import LONG, TESTS, left_out


def test_what_searches_for_long_runs_if_it_is_asked_for_or_named() -> None:
    assert left_out(long=False, named=False) == [str(TESTS / name) for name in LONG]
    assert left_out(long=True, named=False) == left_out(long=False, named=True) == []


def test_what_is_left_out_is_there() -> None:
    assert all((TESTS / name).exists() for name in LONG)
