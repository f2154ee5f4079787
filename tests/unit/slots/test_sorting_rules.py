"""SORT's patterns under slot rules: what is served has one slot, whatever the elements are."""

import random

import pytest

from slots.keyslots import KeySlots
from slots.rules import RuleError, SlotRule
from slots.sorting import may_have_several_slots


@pytest.mark.parametrize(
    ("rules", "several"),
    [
        ((), False),
        ([SlotRule("other*")], False),
        ([SlotRule("w{a}-*")], False),
        ([SlotRule("w*", tag="one")], False),
        ([SlotRule("(*)")], False),
        ([SlotRule("*", 5, "one")], False),
        ([SlotRule("*", 4, "one"), SlotRule("*:done")], True),
        ([SlotRule("*", 5, "one"), SlotRule("*:done")], False),
        ([SlotRule("*:done")], True),
        ([SlotRule("w{a}-(*)")], True),
        ([SlotRule("w{a}-1")], True),
        ([SlotRule("w{a}-*x*")], True),
        ([SlotRule("w(*)")], False),
        ([SlotRule("w{(*)")], True),
    ],
)
def test_one_slot_or_perhaps_several(rules: list[SlotRule], several: bool) -> None:
    assert may_have_several_slots(b"w{a}-*", 5, rules) == several


@pytest.mark.parametrize(
    ("rules", "several"),
    [
        ((), True),
        ([SlotRule("other*")], True),
        ([SlotRule("w:*")], False),
        ([SlotRule("w*", tag="one")], False),
        ([SlotRule("*", 5, "one")], False),
        ([SlotRule("*", 4, "one")], True),
        ([SlotRule("other*"), SlotRule("*", tag="one")], False),
        ([SlotRule("w:*:done"), SlotRule("*", tag="one")], True),
        ([SlotRule("*", tag="one"), SlotRule("w:*:done")], False),
        ([SlotRule("w:(*)")], True),
        ([SlotRule("w:1")], True),
    ],
)
def test_without_a_tag_only_a_rule_makes_it_one_slot(rules: list[SlotRule], several: bool) -> None:
    assert may_have_several_slots(b"w:*", 5, rules) == several


@pytest.mark.parametrize("pattern", [b"*", b"_*", b"__slotferry:*", b"*->name"])
def test_what_may_name_keys_of_slotferry(pattern: bytes) -> None:
    assert may_have_several_slots(pattern, 5, [SlotRule("*", tag="one")])


def test_what_has_one_slot_has_it_for_all_elements() -> None:
    chance = random.Random(7)
    said = {True: 0, False: 0}
    while min(said.values()) < 300:
        rules = []
        for _ in range(chance.randrange(1, 4)):
            text = "".join(chance.choices(["a", "b", "{a}", ":", "*", "(*)"], k=chance.randrange(1, 4)))
            try:
                rules.append(SlotRule(text, chance.choice((None, 5)), chance.choice((None, "one"))))
            except RuleError:
                continue
        pattern = (
            "".join(chance.choices(["a", "b", ":", "{a}", "{b}"], k=3)).encode() + b"*" + chance.choice((b"", b":a"))
        )
        if len(set(rules)) < len(rules):
            continue
        several = may_have_several_slots(pattern, 5, rules)
        said[several] += 1
        try:
            key_slots = KeySlots("crc32", 1024, rules)
        except RuleError:
            continue
        if not several:
            elements = ["".join(chance.choices(["a", "b", ":", "{b}", "}"], k=3)).encode() for _ in range(20)]
            found = {key_slots.slot_of(5, pattern.replace(b"*", element)) for element in elements}
            assert found == {key_slots.slot_of(5, pattern)}, (pattern, rules)
