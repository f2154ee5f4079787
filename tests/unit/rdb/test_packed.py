"""Collections that are stored as one string, by hand and at random."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdb.packed import FORMS, Packed
from tests.unit.rdb.packing import intset, listpack, ziplist, zipmap

NUMBERS = [0, 1, 127, -1, 4095, -4096, 4096, -4097, 2**15 - 1, -(2**15), 2**23 - 1, -(2**23)]
NUMBERS += [2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]


def take_apart(form: str, blob: bytes) -> list[bytes] | None:
    try:
        return list(Packed(blob, FORMS.index(form)))
    except ValueError:
        return None


def shown(items: list[bytes | int]) -> list[bytes]:
    return [b"%d" % item if isinstance(item, int) else item for item in items]


TEXTS = [
    b"",
    b"a",
    b"x" * 63,
    b"x" * 64,
    b"y" * 253,
    b"y" * 254,
    b"z" * 4095,
    b"z" * 4096,
    b"w" * 16384,
    b"v" * 300_000,
]
ITEMS = st.lists(
    st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from(NUMBERS), st.binary(max_size=300)), max_size=40
)


def test_all_numbers_and_lengths() -> None:
    items: list[bytes | int] = [*NUMBERS, *TEXTS, *range(-20, 20)]

    assert take_apart("listpack", listpack(*items)) == shown(items)
    assert take_apart("ziplist", ziplist(*items)) == shown(items)
    pairs = [(text, text[::-1], free) for text in TEXTS for free in (0, 4)]
    assert take_apart("zipmap", zipmap(pairs)) == [part for name, value, _ in pairs for part in (name, value)]


@pytest.mark.parametrize(("code", "width"), [("h", 2), ("i", 4), ("q", 8)])
def test_numbers_of_each_width_in_a_set(code: str, width: int) -> None:
    numbers = [-(1 << 8 * width - 1), -1, 0, 1, (1 << 8 * width - 1) - 1]
    blob = struct.pack("<II", width, len(numbers)) + struct.pack(f"<{len(numbers)}{code}", *numbers)

    assert take_apart("intset", blob) == [b"%d" % number for number in numbers]


@pytest.mark.parametrize("ones", [14, 21])
def test_a_size_of_ones_alone_may_take_a_byte_more(ones: int) -> None:
    """as ``lpEncodeBacklen`` of listpack.c of Redis writes it."""
    text = b"x" * ((1 << ones) - 6)
    coded = b"\xf0" + struct.pack("<I", len(text)) + text
    assert len(coded) == (1 << ones) - 1
    back = bytes([0]) + bytes([255] * (ones // 7))
    blob = struct.pack("<IH", 6 + len(coded) + len(back) + 3, 2) + coded + back + b"\x05\x01\xff"

    assert take_apart("listpack", blob) == [text, b"5"]
    assert take_apart("listpack", listpack(text, 5)) == [text, b"5"]


@given(ITEMS)
def test_what_is_put_together_is_taken_apart(items: list[bytes | int]) -> None:
    assert take_apart("listpack", listpack(*items)) == shown(items)
    assert take_apart("ziplist", ziplist(*items)) == shown(items)


@given(ITEMS, st.data())
def test_a_damaged_one_is_refused_or_read_within_its_bytes(items: list[bytes | int], data: st.DataObject) -> None:
    for form, blob in (("listpack", listpack(*items)), ("ziplist", ziplist(*items))):
        place = data.draw(st.integers(0, len(blob) - 1))
        damaged = blob[:place] + bytes([data.draw(st.integers(0, 255))]) + blob[place + 1 :]
        found = take_apart(form, damaged)
        # Each item takes two bytes or more.
        assert found is None or 2 * len(found) + sum(map(len, found)) <= 25 * len(damaged)


@pytest.mark.parametrize("form", ["listpack", "ziplist", "intset", "zipmap"])
def test_each_one_that_was_cut_is_refused(form: str) -> None:
    whole = {
        "listpack": listpack(b"a", 1, b"b" * 100),
        "ziplist": ziplist(b"a", b"b" * 100),
        "intset": intset(1, 2, 3),
        "zipmap": zipmap([(b"name", b"value", 3)]),
    }[form]
    assert take_apart(form, whole) is not None
    for size in range(len(whole)):
        cut = whole[:size]
        assert take_apart(form, cut) is None
        if form in ("listpack", "ziplist") and size >= 4:
            # Also if it says that this is all of it.
            assert take_apart(form, struct.pack("<I", size) + cut[4:]) is None
