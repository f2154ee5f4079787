"""Sizes as documents: topom reads what a newer version stores, and prefixes take little room."""

import json

from topom.balance import size_records
from topom.balance.sizes import LONGEST_PREFIX, MOST_PREFIXES, KnownSizes, Prefix, SlotSize, Taking
from topom.store import Stored


def test_sizes_of_a_newer_version_are_read() -> None:
    known = KnownSizes({3: SlotSize(10, 1, (), 5.0)}, Taking(5.0, 1.0, True))
    documents = {name: json.loads(value) for name, value in size_records.differences(KnownSizes(), known).items()}
    documents["taking"]["new"] = 1
    documents["slots/0000"]["3"].append("new")
    stored = Stored(1, {name: json.dumps(value).encode() for name, value in documents.items()})
    assert size_records.decode(stored) == known


def test_the_largest_prefixes_take_at_most_32_kib() -> None:
    # A character takes at most four bytes: what is shorter in UTF-8 and escaped in JSON takes two.
    largest = Prefix(8, "\U0001f98a" * LONGEST_PREFIX, 2**63 - 1, 2**63 - 1)
    without, known = (KnownSizes({}, Taking(5.0, 1.0, True, prefixes=(largest,) * many)) for many in (0, MOST_PREFIXES))
    [room, taken] = [len(size_records.differences(KnownSizes(), one)["taking"]) for one in (without, known)]
    assert taken - room <= 32 * 1024
    documents = size_records.differences(KnownSizes(), known)
    assert size_records.decode(Stored(1, documents)) == known
