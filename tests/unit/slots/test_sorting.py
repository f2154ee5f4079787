"""Which patterns of SORT name keys, and which of them name keys of one slot only."""

import pytest

from slots.sorting import patterns, tag_is_fixed


def test_patterns() -> None:
    argv = b"sort k BY a* limit by* 2 get # GET b*->c get c store get*"
    assert patterns(argv.split()) == [(b"BY", b"a*"), (b"GET", b"b*->c")]
    assert patterns(b"sort_ro k by nosort get # get x".split()) == []


@pytest.mark.parametrize(
    ("pattern", "fixed"),
    [
        (b"{a}*", True),
        (b"x{a}y*z", True),
        (b"x}{a}*", True),
        (b"{a}*{b}", True),
        (b"{a{b}*", True),
        (b"*{a}", False),
        (b"{a*}", False),
        (b"{}*{a}", False),
        (b"{}{a}*", False),
        (b"{a*", False),
        (b"a}*", False),
        (b"*", False),
    ],
)
def test_a_tag_before_the_elements_place_is_that_of_all_keys(pattern: bytes, fixed: bool) -> None:
    assert tag_is_fixed(pattern) == fixed
