"""The cursor of a SCAN over all groups: everything a scan has to remember, in one number below 2^63.

::

    | 32 bits: the server's own cursor | 2 bits: pass | 15 bits: epoch | 14 bits: group |

Redis reads it as an unsigned number of 64 bits. Most clients keep it as text or as a signed one; some have nothing
but floating-point numbers, exact below 2^53. A server's cursor is the number of a bucket of its hash table, and
stands at the top so that the whole is as small as that table allows: below 2^53 for tables of up to 2^22 buckets,
which have about as many keys. 32 bits are enough for four thousand million keys of one server's database. The epoch
is kept modulo 2^15.
"""

from dataclasses import dataclass
from typing import Self

PASS_BITS = 2
EPOCH_BITS = 15
GROUP_BITS = 14
SERVER_BITS = 32
TOTAL_BITS = PASS_BITS + EPOCH_BITS + GROUP_BITS + SERVER_BITS

EPOCHS = 1 << EPOCH_BITS
GROUPS = 1 << GROUP_BITS
"""A group's id has to be below this."""


class CursorError(ValueError):
    """A value does not fit into a cursor. The message says which, as an error reply."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """One place in one scan.

    ``number`` is the pass, see :mod:`proxy.commands.keyspace.scanning`. ``epoch`` is the epoch of the table by which
    the scan, or its latest new start, began, modulo :data:`EPOCHS`. ``group`` is the group to ask next, and
    ``position`` is the place where that group's server goes on.
    """

    number: int
    epoch: int
    group: int
    position: int

    def pack(self) -> int:
        """The number that a client gets. Raises :class:`CursorError`."""
        if self.group >= GROUPS:
            raise CursorError(
                f"ERR SCAN cannot be used with a group of id {self.group}: a cursor has room for ids below {GROUPS}"
            )
        if self.position >> SERVER_BITS:
            raise CursorError(
                f"ERR the server of group {self.group} gave the cursor {self.position}, and SCAN over all groups has"
                f" room for cursors below {1 << SERVER_BITS}; scan that server by itself"
            )
        packed = self.position
        for value, bits in ((self.number, PASS_BITS), (self.epoch % EPOCHS, EPOCH_BITS), (self.group, GROUP_BITS)):
            packed = packed << bits | value
        return packed

    @classmethod
    def unpack(cls, packed: int) -> Self:
        """The reverse of :meth:`pack`, for any number of 63 bits."""
        values = []
        for bits in (GROUP_BITS, EPOCH_BITS, PASS_BITS):
            values.append(packed & ((1 << bits) - 1))
            packed >>= bits
        group, epoch, number = values
        return cls(number, epoch, group, packed)
