"""Rules that find keys among arguments; ``test_commands.py`` checks that they find what a server finds."""

import pytest

from slots.keys import INVALID_ARGUMENTS, NOT_AN_INTEGER, SYNTAX_ERROR, KeysError, KeysRefused, positions


def found(rule: str, line: str) -> list[int]:
    return positions(rule, line.encode().split())


@pytest.mark.parametrize(
    ("rule", "line", "places"),
    [
        ("at:1", "GET k", [1]),
        ("at:2+at:1", "X a b", [2, 1]),
        ("count:1:set", "SINTERCARD 2 a b LIMIT 3", [2, 3]),
        ("at:1+store:2", "GEORADIUS k 1 2 3 km STORE a STOREDIST b", [1, 7, 9]),
        ("at:1+store:2", "GEORADIUS k 1 2 3 km STORE STORE", [1, 7]),
        ("at:1+store:2", "GEORADIUS k 1 2 3 km STORE", [1]),
        ("streams", "XREADGROUP GROUP STREAMS me COUNT 2 NOACK STREAMS a b > >", [8, 9]),
        ("sort", "SORT k BY nosort GET # LIMIT 0 5 ALPHA STORE to", [1, 11]),
        ("sort_ro", "SORT_RO k BY {t}w_* GET {t}x_*", [1]),
        ("spec:index:1:range:-1:2:0", "MSET a 1 b 2", [1, 3]),
        ("spec:index:1:range:-1:1:2", "X a b c d", [1, 2]),
        ("spec:index:1:range:0:1:0", "X", []),
        ("spec:index:1:keynum:0:1:1", "X 2 a b", [2, 3]),
        ("spec:index:1:keynum:0:1:1", "X 0", []),
        ("spec:keyword:KEYS:1:range:-1:1:0", "X 1 KEYS a b", [3, 4]),
        ("spec:keyword:KEYS:1:keynum:0:1:1", "X KEYS 1 a KEYS 1 b", [3]),
        ("spec:keyword:KEYS:-1:range:0:1:0", "X KEYS a KEYS b", [4]),
        ("spec:keyword:KEYS:1:range:-1:1:0", "X 1 KEYS", []),
    ],
)
def test_where_keys_are(rule: str, line: str, places: list[int]) -> None:
    assert found(rule, line) == places


@pytest.mark.parametrize(
    ("rule", "line", "error"),
    [
        ("count:1:script", "EVALX 01 a", NOT_AN_INTEGER),
        ("count:1:script", "EVALX 9223372036854775808 a", NOT_AN_INTEGER),
        ("count:1:script", "EVALX -1 a", "ERR Number of keys can't be negative"),
        ("count:1:sorted", "ZDIFF 0 a", "ERR at least 1 input key is needed for 'zdiff' command"),
        ("count:1:pop", "LMPOP 1 a", SYNTAX_ERROR),
        ("streams", "XREAD COUNT 1", SYNTAX_ERROR),
        ("streams", "XREAD WHAT STREAMS a 0", SYNTAX_ERROR),
        ("streams", "XREAD STREAMS a b 0", "ERR Unbalanced XREAD list of streams: for each stream key"),
        ("sort", "SORT k LIMIT 0 x", NOT_AN_INTEGER),
        ("sort", "SORT k BY", SYNTAX_ERROR),
        ("sort_ro", "SORT_RO k STORE to", SYNTAX_ERROR),
        ("spec:index:1:keynum:0:1:1", "X two a", INVALID_ARGUMENTS),
        ("spec:index:1:keynum:0:1:1", "X -1 a", INVALID_ARGUMENTS),
        ("spec:index:1:keynum:0:1:1", "X 3 a b", INVALID_ARGUMENTS),
        ("spec:index:1:range:5:1:0", "X a", INVALID_ARGUMENTS),
    ],
)
def test_what_does_not_hold_together_is_answered_as_redis_does(rule: str, line: str, error: str) -> None:
    with pytest.raises(KeysError) as raised:
        found(rule, line)
    assert str(raised.value).startswith(error)
    assert not isinstance(raised.value, KeysRefused)


def test_one_owner_keys_that_cannot_be_known_are_refused() -> None:
    with pytest.raises(KeysRefused):
        found("asked", "X a")


@pytest.mark.parametrize(
    "rule", ["", "at", "count:1", "spec:index:1:range", "spec:word:X:1:range:0:1:0", "spec:index:1:list:0:1:0"]
)
def test_what_is_no_rule_is_a_mistake_of_ours(rule: str) -> None:
    with pytest.raises(ValueError, match=r"rule|specification") as raised:
        found(rule, "X a b c")
    assert not isinstance(raised.value, KeysError)
