"""The keys of a snapshot with their values as RESTORE takes them, for Python."""

from typing import NamedTuple

from rdb.input cimport Input
from rdb.records cimport Records
from rdb.values cimport Measured

from rdb.records import NONE


class Restorable(NamedTuple):
    """One key.

    Attributes:
        database: its number.
        key: its name.
        deadline_ms: when it expires, in milliseconds since 1970; None if it does not.
        idle_seconds: for how long it was not used; None if the server does not tell.
        frequency: how often it was used, as OBJECT FREQ tells it; None likewise.
        payload: its value; None if that has more bytes than may be held.
    """

    database: int
    key: bytes
    deadline_ms: int | None
    idle_seconds: int | None
    frequency: int | None
    payload: bytes | None


cdef class Payloads:
    """Iterates over the keys of one snapshot, in its order.

    Args:
        file: has ``readinto``.
        name: of the snapshot, for errors.
        most: bytes of a value, from which on it is passed over; at least :data:`rdb.input.PIECE`.
        size: bytes of the snapshot; None if they are not known.

    Raises:
        RdbError: while it iterates; keys before the fault are valid.
    """

    cdef Records _records
    cdef size_t _most

    def __init__(self, file, str name not None, size_t most, size=None) -> None:
        self._records = Records(Input(file, name, size, True), True, 0)
        self._most = most

    @property
    def version(self) -> int:
        """The version of the snapshot's format; 0 until a key was read. Valkey's numbers begin at 80."""
        return self._records.version

    def __iter__(self):
        return self

    def __next__(self):
        cdef Records records = self._records
        cdef Measured found
        if not records.next():
            raise StopIteration
        key = records.key[:records.key_length] if records.key_length else b""
        payload = records.payload(self._most)
        if payload is None:
            records.measure(&found)
        return Restorable(
            records.database,
            key,
            None if records.deadline == NONE else records.deadline,
            None if records.idle < 0 else records.idle,
            None if records.frequency < 0 else records.frequency,
            payload,
        )
