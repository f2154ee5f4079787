"""The rule that is suggested for two keys gives them one slot."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slots.helpfulrules import helpful
from slots.keyslots import KeySlots

PARTS = st.sampled_from([b"", b"a", b"bull", *(b"%c" % one for one in b":-_{}*\\()\n"), b"::", b"{b}"])
KEYS = st.one_of(
    st.binary(max_size=20),
    st.lists(st.one_of(PARTS, st.text(max_size=3).map(str.encode)), max_size=12).map(b"".join),
)


@pytest.mark.parametrize(
    ("one", "other", "pattern"),
    [
        ("bull:mail:wait", "bull:mail:id", "bull:(*):*"),
        ("app:bull:mail:repeat:1", "app:bull:mail:wait", "app:bull:(*):*"),
        ("friends:1", "friends:2", "friends:*"),
        ("friends", "friends:2", "friends*"),
        ("unacked_mutex", "unacked", "unacked*"),
        ("unacked_mutex", "unacked_index", "unacked_*"),
        ("2*3:é1", "2*3:è1", r"2\*3:*"),
        ("a", "b", None),
        ("friends", "friendship", None),
        ("{a}x", "{b}y", None),
        (":1", ":2", None),
        ("", "-", None),
        ("same", "same", None),
        ("x" * 200 + ":1", "x" * 200 + ":2", None),
        ("x" * 150 + ":" + "y" * 80 + ":1", "x" * 150 + ":" + "y" * 80 + ":2", "x" * 150 + ":*"),
    ],
)
def test_the_rule_goes_by_the_last_word_that_both_begin_with(one: str, other: str, pattern: str | None) -> None:
    for pair in ((one, other), (other, one)):
        rule = helpful(*map(str.encode, pair))
        assert (None if rule is None else rule.pattern) == pattern


@example(b"a:b:", b"1", b"2")
@given(KEYS, KEYS, KEYS)
def test_a_rule_gives_both_keys_one_slot(begin: bytes, one: bytes, other: bytes) -> None:
    one, other = begin + one, begin + other
    rule = helpful(one, other)
    if rule is not None:
        found = KeySlots("crc32", 1024, (rule,))
        assert found.rule_of(0, one) == found.rule_of(0, other) == rule
        assert found.slot_of(0, one) == found.slot_of(0, other)


def test_keys_of_any_length_cost_little() -> None:
    long = b"x" * 50_000_000
    assert str(helpful(b"a:b:1" + long, b"a:b:2" + long)) == "slot rule 'a:(*):*'"
