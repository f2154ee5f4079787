"""Slot rules: what a pattern says, what is refused, and that compiled rules say the same as regular expressions."""

import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slots import functions
from slots.keyslots import KeySlots
from slots.rules import MOST_BYTES, MOST_RULES, MOST_STARS, RuleError, SlotRule, checked
from tests.unit.slots.test_functions import NAMES

LETTERS = "ab:*()\\"


def readable(pattern: str) -> SlotRule | None:
    try:
        return SlotRule(pattern, tag=None)
    except RuleError:
        pass
    try:
        return SlotRule(pattern, tag="tag")
    except RuleError:
        return None


PATTERNS = st.text(LETTERS, min_size=1, max_size=12).map(readable).filter(lambda rule: rule is not None)
KEYS = st.text("ab:*()\\{}", max_size=30).map(str.encode)


def as_expression(rule: SlotRule) -> re.Pattern[bytes]:
    """What a rule says, in the words of regular expressions: each star as short as it can be."""
    said, escaped = b"", False
    for letter in rule.pattern:
        if escaped or letter not in "*()\\":
            said += re.escape(letter.encode())
            escaped = False
        elif letter == "\\":
            escaped = True
        else:
            said += b".*?" if letter == "*" else letter.encode()
    return re.compile(said, re.DOTALL)


def hashed(rules: list[SlotRule], database: int, key: bytes) -> bytes:
    """What stands in for a key, by regular expressions."""
    for rule in rules:
        found = as_expression(rule).fullmatch(key)
        if rule.database not in (None, database) or found is None:
            continue
        if rule.tag is not None:
            return rule.tag.encode()
        if found.group(1):
            return found.group(1)
    return key


@given(NAMES, st.lists(PATTERNS, max_size=5, unique_by=lambda rule: rule.pattern), st.lists(KEYS, max_size=20))
def test_compiled_rules_say_what_regular_expressions_say(
    function: str, rules: list[SlotRule], keys: list[bytes]
) -> None:
    key_slots = KeySlots(function, 1024, rules)
    assert key_slots.slots_of(0, keys) == [functions.slot(function, hashed(rules, 0, key), 1024) for key in keys]
    for key in keys:
        rule = key_slots.rule_of(0, key)
        assert hashed([] if rule is None else [rule], 0, key) == hashed(rules, 0, key)


BEGINNINGS = st.sampled_from(["a", "abababa", "abababab", "ababababa"])
"""All rules that begin alike are looked at together, up to eight bytes."""
DATABASES = st.sampled_from([None, 5, 69])
"""Two whose last six bits are the same."""


@given(
    BEGINNINGS,
    st.lists(st.tuples(PATTERNS, DATABASES), max_size=6),
    st.lists(st.tuples(BEGINNINGS, KEYS), max_size=10),
    st.sampled_from([0, 5, 69, 133]),
)
def test_whatever_they_begin_with_and_in_every_database(
    beginning: str, chosen: list[tuple[SlotRule, int | None]], ends: list[tuple[str, bytes]], database: int
) -> None:
    said = {(beginning + rule.pattern, where): rule.tag for rule, where in chosen}
    rules = [SlotRule(pattern, where, tag) for (pattern, where), tag in said.items()]
    keys = [*(begin.encode() + end for begin, end in ends), *(beginning[:length].encode() for length in range(10))]
    key_slots = KeySlots("crc32", 1024, rules)
    expected = [functions.slot("crc32", hashed(rules, database, key), 1024) for key in keys]
    assert key_slots.slots_of(database, keys) == expected
    for key in keys:
        assert key_slots.hashed(database, key) == hashed(rules, database, key)


ONE_BYTE = st.tuples(
    st.text("ab", max_size=9), st.sampled_from(["*:*", "(*):*", "(*:)*", "(*:*)", "*(:*)", "*:(*)"])
).map("".join)
"""Patterns of a beginning, and one byte behind it."""


@given(
    st.lists(ONE_BYTE, min_size=1, max_size=3, unique=True).map(lambda patterns: [SlotRule(one) for one in patterns]),
    st.lists(st.builds(str.encode, st.text("ab:{}", max_size=30)), max_size=10),
    st.text("ab:", max_size=30).map(str.encode),
)
def test_one_byte_behind_a_beginning(rules: list[SlotRule], keys: list[bytes], end: bytes) -> None:
    keys = [*keys, *(rule.literals[0] + end for rule in rules)]
    assert KeySlots("crc32", 1024, rules).slots_of(0, keys) == [
        functions.slot("crc32", hashed(rules, 0, key), 1024) for key in keys
    ]


@pytest.mark.parametrize(
    ("pattern", "key", "part"),
    [
        ("bull:(*):*", b"bull:mail:wait", b"mail"),
        ("bull:(*):*", b"bull:mail:12:lock", b"mail"),
        ("bull:(*):*", b"bull:{mail}:wait", b"mail"),
        ("bull:(*):*", b"bull::wait", None),
        ("bull:(*):*", b"bull:mail", None),
        ("bull:(*):*", b"abull:mail:x", None),
        ("(*):lock", b"a:lock:lock", b"a:lock"),
        ("(a*b)", b"a\x00\nb", b"a\x00\nb"),
        (r"\((*)\*", b"(key*", b"key"),
        ("*:(*)", b":x:y", b"x:y"),
        ("*:(*)", b"w:x:y", b"x:y"),
        ("bull:(*:)*", b"bull:mail:12", b"mail:"),
        ("bull:*(:*)", b"bull:mail:12", b":12"),
        ("bull:(*)", b"bull:", None),
        ("bull:(*)", b"bull:x", b"x"),
        ("bu(ll:*)", b"bull:", b"ll:"),
        ("bull:mail:(*)", b"bull:mail:", None),
        ("bull:mail:(*)", b"bull:male:1", None),
        ("bull:mail:(*)", b"bull:mail:1", b"1"),
    ],
)
def test_the_part_in_parentheses(pattern: str, key: bytes, part: bytes | None) -> None:
    key_slots = KeySlots("crc32", 1024, [SlotRule(pattern)])
    assert (key_slots.rule_of(0, key) is not None) == (part is not None)
    assert key_slots.slot_of(0, key) == functions.slot("crc32", key if part is None else part, 1024)


def test_a_tag_is_that_of_other_keys() -> None:
    key_slots = KeySlots("crc32", 1024, [SlotRule("celery*"), SlotRule("_kombu.binding.*", tag="celery")])
    for key in (b"celery", b"celery-task-meta-1", b"_kombu.binding.mail", b"mine:{celery}"):
        assert key_slots.slot_of(3, key) == functions.slot("crc32", b"celery", 1024)


def test_the_first_rule_that_matches_decides() -> None:
    general, special = SlotRule("*", tag="rest"), SlotRule("a:(*)")
    assert KeySlots("crc32", 1024, [special, general]).rule_of(0, b"a:1") == special
    assert KeySlots("crc32", 1024, [general, special]).rule_of(0, b"a:1") == general
    assert KeySlots("crc32", 1024, [general]).slot_of(0, b"") == functions.slot("crc32", b"rest", 1024)


def test_a_database_may_be_one_slot() -> None:
    key_slots = KeySlots("crc32", 1024, [SlotRule("*", 5, "queues")])
    one = functions.slot("crc32", b"queues", 1024)
    assert key_slots.slots_of(5, [b"", b"a", b"{b}", b"c" * 1000]) == [one] * 4
    assert key_slots.slot_of(4, b"{b}c") == functions.slot("crc32", b"b", 1024)


def test_the_most_rules_are_all_looked_at() -> None:
    rules = [SlotRule(f"{number}:*", tag=f"t{number}") for number in range(MOST_RULES)]
    key_slots = KeySlots("crc32", 1024, rules)
    assert [key_slots.rule_of(0, f"{number}:x".encode()) for number in range(MOST_RULES)] == rules
    with pytest.raises(RuleError, match=f"{MOST_RULES + 1} slot rules; {MOST_RULES} is the most"):
        checked([*rules, SlotRule("more*")])


def test_rules_go_to_other_processes() -> None:
    rules = (SlotRule("bull:(*):*"), SlotRule("*", 5, "queues"))
    copy = pickle.loads(pickle.dumps(KeySlots("crc16", 16384, rules)))
    assert copy.rules == rules
    assert copy.slot_of(0, b"bull:foo:wait") == 12182
    assert [SlotRule.from_wire(rule.to_wire()) for rule in rules] == list(rules)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (("",), "1 to"),
        (("a" * (MOST_BYTES + 1),), "1 to"),
        (("a**",), "two stars in a row"),
        (("a*" * (MOST_STARS + 1),), f"{MOST_STARS} is the most"),
        (("*",), "give a tag"),
        (("a*", None, ""), "a tag has 1 to"),
        (("a(*", None, "t"), "one part may stand in parentheses"),
        (("a)*(",), "one part may stand in parentheses"),
        (("(*):(*)",), "one part may stand in parentheses"),
        (("(a)*",), "needs a star"),
        (("(*)", None, "t"), "has no tag"),
        (("a\\",), "a backslash stands before"),
        (("\\a",), "a backslash stands before"),
        (("\udcff*",), "not UTF-8"),
        (("a*", -1), "no database -1"),
        (("a*", 2**31), "no database"),
    ],
)
def test_what_is_refused(rule: tuple[str, int, str], words: str) -> None:
    with pytest.raises(RuleError, match=words):
        SlotRule(*rule)


def test_a_rule_is_there_once() -> None:
    with pytest.raises(RuleError, match="twice"):
        KeySlots("crc32", 1024, [SlotRule("a*"), SlotRule("a*", tag="b")])
    checked([SlotRule("a*"), SlotRule("a*", 1)])


@pytest.mark.parametrize(
    "wire", [{}, {"pattern": 1}, {"pattern": "a*", "database": True}, {"pattern": "a*", "tag": 1}, {"pattern": "(*"}]
)
def test_what_is_no_rule(wire: dict[str, object]) -> None:
    with pytest.raises(RuleError):
        SlotRule.from_wire(wire)
