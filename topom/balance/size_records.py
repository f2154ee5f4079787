"""Which document of the store holds which sizes, as JSON, in a book besides that of :mod:`topom.cluster.records`.

| document | holds |
|---|---|
| ``taking`` | how sizes were last taken, with the biggest prefixes |
| ``slots/0000`` | the sizes of slots 0 to 63 as far as they are known, and so on: up to 256 documents |

A slot has at most ten keys here, and a key has at most 256 characters. So no document is larger than a few hundred KB.
There are at most a hundred prefixes of at most 60 characters, which take at most 32 KiB.
"""

import json
from dataclasses import asdict
from typing import Any

from topom.balance.sizes import BigKey, KnownSizes, SlotSize, Taking
from topom.store import Stored, StoreDamaged
from topom.store.known import made

SLOTS_A_DOCUMENT = 64


def decode(stored: Stored) -> KnownSizes:
    """What the documents say. Raises :class:`StoreDamaged`."""
    slots: dict[int, SlotSize] = {}
    last = None
    try:
        for name, value in stored.documents.items():
            document = json.loads(value)
            if name == "taking":
                last = made(Taking, document)
            else:
                for slot, size in document.items():
                    slots[int(slot)] = _size(size)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StoreDamaged(
            f"the sizes in the store cannot be read ({error!r}); measure them again with `slotferry sizing run`"
        ) from error
    return KnownSizes(slots, last)


def differences(old: KnownSizes, new: KnownSizes) -> dict[str, bytes]:
    """The documents to put so that a store with ``old`` gets ``new``, which knows all slots that ``old`` knows."""
    documents = {} if new.last is None or new.last == old.last else {"taking": _encode(asdict(new.last))}
    changed = {slot // SLOTS_A_DOCUMENT for slot, size in new.slots.items() if old.slots.get(slot) is not size}
    for number in sorted(changed):
        first = number * SLOTS_A_DOCUMENT
        documents[f"slots/{number:04d}"] = _encode(
            {
                str(slot): _described(new.slots[slot])
                for slot in range(first, first + SLOTS_A_DOCUMENT)
                if slot in new.slots
            }
        )
    return documents


def _described(size: SlotSize) -> list[Any]:
    biggest = [[key.key, key.database, key.type, key.bytes] for key in size.biggest]
    return [size.bytes, size.keys, size.taken_at, biggest]


def _size(described: list[Any]) -> SlotSize:
    size, keys, taken_at, biggest = described[:4]
    return SlotSize(int(size), int(keys), tuple(BigKey(*key[:4]) for key in biggest), float(taken_at))


def _encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
