"""Reads a snapshot for Python: its keys, each with its value as RESTORE takes it, or with the elements of its value."""

from typing import NamedTuple

from rdb.input cimport Input
from rdb.lastvalue cimport LastValue
from rdb.records cimport Records
from rdb.values cimport MODULE, UNKNOWN, type_of

from rdb.records import NONE
from rdb.values import TYPES


class SnapshotKey(NamedTuple):
    """One key.

    Attributes:
        database: its number.
        name: its bytes.
        type: of its value, as TYPE tells it; None for a type of a module.
        deadline_ms: when it expires, in milliseconds since 1970; None if it does not.
        idle_seconds: for how long it was not used; None if the server does not tell.
        frequency: how often it was used, as OBJECT FREQ tells it; None likewise.
        payload: its value as RESTORE takes it; None if that has more bytes than may be in one.
    """

    database: int
    name: bytes
    type: str | None
    deadline_ms: int | None
    idle_seconds: int | None
    frequency: int | None
    payload: bytes | None


cdef class Snapshot:
    """Iterates over the keys of one snapshot, in its order.

    Args:
        file: has ``readinto``.
        name: of the snapshot, for errors.
        most: bytes of a value that becomes a payload. 0: no payload is made.
        size: bytes of the snapshot; None if they are not known.

    Raises:
        RdbError: while it iterates; keys before the fault are valid.
    """

    cdef Records _records
    cdef LastValue _value
    cdef size_t _most

    def __init__(self, file, str name not None, size_t most, size=None) -> None:
        self._records = Records(Input(file, name, size, True), True, 0)
        self._value = LastValue(self._records)
        self._most = most

    @property
    def version(self) -> int:
        """The version of the snapshot's format; 0 until a key was read. Valkey's numbers begin at 80."""
        return self._records.version

    def __iter__(self):
        return self

    def __next__(self):
        cdef Records records = self._records
        cdef int type
        self._value.pass_over()
        if not records.next():
            raise StopIteration
        name = records.key[:records.key_length]
        type = type_of(records.code, records.valkey)
        payload = records.payload(self._most) if self._most else None
        self._value.unread = payload is None
        return SnapshotKey(
            records.database,
            name,
            None if type == MODULE or type == UNKNOWN else TYPES[type],
            None if records.deadline == NONE else records.deadline,
            None if records.idle < 0 else records.idle,
            None if records.frequency < 0 else records.frequency,
            payload,
        )

    def elements(self):
        """Iterates over the elements of the last key's value: those of :mod:`rdb.elements`. It can be done once, before
        the next key is asked for.

        Raises:
            ValueError: the key has a payload, or its elements are being read already.
            UnsupportedRdb: the value is a module's.
            RdbError: while it iterates.
        """
        return self._value.elements()
