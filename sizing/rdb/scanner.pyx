"""Fills batches with the keys of an RDB file: one block of memory a column, as Arrow has them.

**bounded**: a batch ends after the wanted number of rows, or after :data:`KEY_BYTES` of names of keys. Only the batch
and the buffer of :mod:`rdb.input` are held. A fault ends the scan; rows before it are valid.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from rdb.input cimport Input
from rdb.records cimport Records
from rdb.values cimport MODULE, Measured, module_name
from slots.keyslots cimport KeySlots

from rdb.errors import RdbError
from rdb.records import NONE
from rdb.values import TYPES
from slots.reserved import RESERVED

cdef bytes _RESERVED = RESERVED

ALLOCATORS = ("jemalloc", "jemalloc16", "glibc")
"""The allocators that servers are built with; see :mod:`rdb.layout`."""

KEY_BYTES = 4 << 20
"""The most bytes of names of keys in one batch, not counting the last one."""

cdef int64_t _NONE = NONE
cdef size_t _KEY_BYTES = KEY_BYTES

MOST_MODULE_TYPES = 1024
"""The most types of modules in one file. A damaged file may seem to have one for each key."""


cdef class Scanner:
    """One file. Call :meth:`batch` until it gives no rows; then ``error`` is the reason if it ended early.

    ``file`` has ``readinto``. ``name`` appears in errors. ``size`` in bytes shows early that a file was cut; None if it
    is not known.

    Raises:
        ValueError: for an unknown slot function or allocator, slot rules that are none, a number of slots that is no power of two up to 16384, or
            a batch without rows.
    """

    cdef Records _records
    cdef KeySlots _key_slots
    cdef bint _ended
    cdef object _modules
    cdef readonly object error
    cdef readonly list types
    # The batch.
    cdef int _rows
    cdef int _room
    cdef int32_t* _databases
    cdef int32_t* _slots
    cdef int32_t* _types
    cdef int32_t* _encodings
    cdef int32_t* _ends
    cdef int64_t* _serialized
    cdef int64_t* _memory
    cdef int64_t* _elements
    cdef int64_t* _deadlines
    cdef uint8_t* _keys
    cdef size_t _keys_room

    def __cinit__(
        self,
        file: object,
        str name not None,
        size: object = None,
        bint checksum = True,
        str function not None = "crc32",
        number_of_slots: int = 1024,
        str allocator not None = "jemalloc",
        int rows = 8192,
        rules: object = (),
    ) -> None:
        if allocator not in ALLOCATORS:
            raise ValueError(f"there is no allocator {allocator!r}; there are {', '.join(ALLOCATORS)}")
        if rows < 1:
            raise ValueError(f"a batch of {rows} rows holds none")
        self._key_slots = KeySlots(function, number_of_slots, rules)
        self._records = Records(Input(file, name, size, checksum), checksum, ALLOCATORS.index(allocator))
        self._modules = {}
        self.types = list(TYPES)
        self._room = rows
        self._databases = <int32_t*>malloc(rows * sizeof(int32_t))
        self._slots = <int32_t*>malloc(rows * sizeof(int32_t))
        self._types = <int32_t*>malloc(rows * sizeof(int32_t))
        self._encodings = <int32_t*>malloc(rows * sizeof(int32_t))
        self._ends = <int32_t*>malloc((rows + 1) * sizeof(int32_t))
        self._serialized = <int64_t*>malloc(rows * sizeof(int64_t))
        self._memory = <int64_t*>malloc(rows * sizeof(int64_t))
        self._elements = <int64_t*>malloc(rows * sizeof(int64_t))
        self._deadlines = <int64_t*>malloc(rows * sizeof(int64_t))
        self._keys_room = _KEY_BYTES
        self._keys = <uint8_t*>malloc(self._keys_room)
        if (
            not self._databases or not self._slots or not self._types or not self._encodings or not self._ends
            or not self._serialized or not self._memory or not self._elements or not self._deadlines or not self._keys
        ):
            raise MemoryError

    def __dealloc__(self) -> None:
        free(self._databases)
        free(self._slots)
        free(self._types)
        free(self._encodings)
        free(self._ends)
        free(self._serialized)
        free(self._memory)
        free(self._elements)
        free(self._deadlines)
        free(self._keys)

    @property
    def offset(self) -> int:
        """The number of bytes of the file that were read."""
        return self._records.input.offset()

    @property
    def version(self) -> int:
        """The version of the file's format; 0 until a batch was read. Valkey's numbers begin at 80."""
        return self._records.version

    def batch(self) -> dict[str, bytes]:
        """The next rows: for each column its values, little-endian; ``{}`` when there are no more.

        Columns of 4 bytes: ``database``, ``slot``, ``type`` (a place in ``types``), ``encoding`` (a place in ENCODINGS)
        and ``ends`` (a 0, then the end of each key in ``keys``). Columns of 8 bytes: ``serialized_bytes``, ``bytes``,
        ``elements`` and ``ttl_ms``, the last two with :data:`NONE` for null.
        """
        cdef int rows
        self._rows = 0
        self._ends[0] = 0
        if not self._ended:
            try:
                while self._rows < self._room and <size_t>self._ends[self._rows] < _KEY_BYTES:
                    if not self._records.next():
                        self._ended = True
                        break
                    self.row()
            except RdbError as error:
                self.error = error
                self._ended = True
        rows = self._rows
        if rows == 0:
            return {}
        return {
            "database": (<uint8_t*>self._databases)[:4 * rows],
            "slot": (<uint8_t*>self._slots)[:4 * rows],
            "type": (<uint8_t*>self._types)[:4 * rows],
            "encoding": (<uint8_t*>self._encodings)[:4 * rows],
            "ends": (<uint8_t*>self._ends)[:4 * (rows + 1)],
            "keys": self._keys[:self._ends[rows]],
            "serialized_bytes": (<uint8_t*>self._serialized)[:8 * rows],
            "bytes": (<uint8_t*>self._memory)[:8 * rows],
            "elements": (<uint8_t*>self._elements)[:8 * rows],
            "ttl_ms": (<uint8_t*>self._deadlines)[:8 * rows],
        }

    cdef int row(self) except -1:
        """Add the key that was found, unless it is Slotferry's own."""
        cdef Records records = self._records
        cdef Measured found
        cdef int row = self._rows
        cdef size_t at = self._ends[row]
        cdef size_t length = records.key_length
        cdef uint64_t start = records.start
        cdef uint8_t* larger
        if at + length > self._keys_room:
            larger = <uint8_t*>realloc(self._keys, at + length)
            if larger == NULL:
                raise records.input.corrupt(f"no memory for a key of {length} bytes")
            self._keys = larger
            self._keys_room = at + length
        if length:
            memcpy(self._keys + at, records.key, length)
        records.measure(&found)
        if length >= <size_t>len(_RESERVED) and not memcmp(
            self._keys + at, <const char*>_RESERVED, len(_RESERVED)
        ):
            return 0
        self._databases[row] = records.database
        self._slots[row] = self._key_slots.of(records.database, <const char*>self._keys + at, length)
        self._types[row] = self.module(found.module) if found.type == MODULE else found.type
        self._encodings[row] = found.encoding
        self._ends[row + 1] = <int32_t>(at + length)
        self._serialized[row] = records.input.offset() - start
        self._memory[row] = found.memory
        self._elements[row] = _NONE if found.elements < 0 else found.elements
        if records.deadline == _NONE or records.created_ms == _NONE:
            self._deadlines[row] = _NONE
        else:
            # Unsigned, as a damaged deadline may have any value.
            self._deadlines[row] = <int64_t>(<uint64_t>records.deadline - <uint64_t>records.created_ms)
        self._rows = row + 1
        return 0

    cdef int module(self, uint64_t number) except -1:
        """The place in ``types`` of a module's type."""
        name = module_name(number)
        place = self._modules.get(name)
        if place is None:
            if len(self._modules) == MOST_MODULE_TYPES:
                raise self._records.input.corrupt(f"it has more than {MOST_MODULE_TYPES} types of modules")
            place = self._modules[name] = len(self.types)
            self.types.append(name)
        return place
