"""Sizes as documents: topom reads what a newer version stores."""

import json

from topom.balance import size_records
from topom.balance.sizes import KnownSizes, SlotSize, Taking
from topom.store import Stored


def test_sizes_of_a_newer_version_are_read() -> None:
    known = KnownSizes({3: SlotSize(10, 1, (), 5.0)}, Taking(5.0, 1.0, True))
    documents = {name: json.loads(value) for name, value in size_records.differences(KnownSizes(), known).items()}
    documents["taking"]["new"] = 1
    documents["slots/0000"]["3"].append("new")
    stored = Stored(1, {name: json.dumps(value).encode() for name, value in documents.items()})
    assert size_records.decode(stored) == known
