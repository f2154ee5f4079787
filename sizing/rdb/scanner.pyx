"""Goes through an RDB file from key to key, and fills batches: one block of memory a column, as Arrow has them.

**bounded**: a batch ends after the wanted number of rows, or after :data:`KEY_BYTES` of names of keys. Only the batch
and the buffer of :mod:`sizing.rdb.input` are held. A fault ends the scan; rows before it are valid.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from sizing.rdb.input cimport INTEGER, PLAIN, Input, Stored
from sizing.rdb.layout cimport REDIS_6, REDIS_7, REDIS_7_2, VALKEY_8_1, VALKEY_9, Layout
from sizing.rdb.values cimport MODULE, Measured, measure, skip_module_value
from slots.keyslots cimport KeySlots


from sizing.rdb.errors import ChecksumMismatch, NotAnRdbFile, RdbError, UnsupportedRdb
from sizing.rdb.input import MOST_CONTIGUOUS
from sizing.rdb.values import TYPES
from slots.reserved import RESERVED

cdef bytes _RESERVED = RESERVED

ALLOCATORS = ("jemalloc", "jemalloc16", "glibc")
"""The allocators that servers are built with; see :mod:`sizing.rdb.layout`."""

NONE = -(1 << 63)
"""Means null in a column of 64 bits."""

KEY_BYTES = 4 << 20
"""The most bytes of names of keys in one batch, not counting the last one."""

cdef int64_t _NONE = NONE
cdef size_t _KEY_BYTES = KEY_BYTES
cdef size_t _MOST_KEY = MOST_CONTIGUOUS

MOST_MODULE_TYPES = 1024
"""The most types of modules in one file. A damaged file may seem to have one for each key."""

MOST_NOTE = 1024
"""The most bytes of a file's note about itself that are read."""

cdef str MODULE_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


cdef enum:
    OP_SLOT_IMPORT_OR_KEY_META = 243
    OP_SLOT_INFO = 244
    OP_FUNCTION = 245
    OP_MODULE_AUX = 247
    OP_IDLE = 248
    OP_FREQUENCY = 249
    OP_AUX = 250
    OP_RESIZE = 251
    OP_EXPIRE_MS = 252
    OP_EXPIRE_S = 253
    OP_DATABASE = 254
    OP_END = 255
    # The first opcode; numbers below are types of values. 242 is an opcode of Valkey that no file on a disk has.
    OP_FIRST = 242


cdef class Scanner:
    """One file. Call :meth:`batch` until it gives no rows; then ``error`` is the reason if it ended early.

    ``file`` has ``readinto``. ``name`` appears in errors. ``size`` in bytes shows early that a file was cut; None if it
    is not known.

    Raises:
        ValueError: for an unknown slot function or allocator, a number of slots that is no power of two up to 16384, or
            a batch without rows.
    """

    cdef Input _input
    cdef Layout _layout
    cdef KeySlots _key_slots
    cdef bint _checked
    cdef bint _begun
    cdef bint _ended
    cdef bint _valkey
    cdef int32_t _database
    cdef int64_t _created_ms
    cdef object _modules
    cdef readonly int version
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
    ) -> None:
        if allocator not in ALLOCATORS:
            raise ValueError(f"there is no allocator {allocator!r}; there are {', '.join(ALLOCATORS)}")
        if rows < 1:
            raise ValueError(f"a batch of {rows} rows holds none")
        self._key_slots = KeySlots(function, number_of_slots)
        self._layout.allocator = ALLOCATORS.index(allocator)
        self._input = Input(file, name, size, checksum)
        self._checked = checksum
        self._created_ms = _NONE
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
        return self._input.offset()

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
                if not self._begun:
                    self.begin()
                while self._rows < self._room and <size_t>self._ends[self._rows] < _KEY_BYTES and not self._ended:
                    self.record()
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

    cdef int begin(self) except -1:
        """Reads the nine bytes at the head: ``REDIS`` and four digits, or ``VALKEY`` and three."""
        cdef bytes magic = self._input.take(9)[:9]
        self._valkey = magic.startswith(b"VALKEY")
        number = magic[6:] if self._valkey else magic[5:]
        if not (self._valkey or magic.startswith(b"REDIS")) or not number.isdigit():
            raise NotAnRdbFile(self._input.name, 0, f"it begins with {magic!r}, not as an RDB file does")
        self.version = int(number)
        self._begun = True
        if self._valkey:
            self._layout.generation = VALKEY_9
        elif self.version <= 9:
            self._layout.generation = REDIS_6
        elif self.version == 10:
            self._layout.generation = REDIS_7
        else:
            self._layout.generation = REDIS_7_2
        return 0

    cdef int record(self) except -1:
        """Reads up to the end of the next key, or of one other record."""
        cdef uint64_t start = self._input.offset()
        cdef uint64_t value
        cdef int64_t deadline = _NONE
        cdef const uint8_t* p
        cdef int code, i
        cdef bint of_key = False
        while True:
            code = self._input.byte()
            if code < OP_FIRST:
                return self.key(code, start, deadline)
            if code == OP_EXPIRE_MS:
                p = self._input.take(8)
                value = 0
                for i in range(8):
                    value |= <uint64_t>p[i] << (8 * i)
                deadline = <int64_t>value
            elif code == OP_EXPIRE_S:
                p = self._input.take(4)
                deadline = 1000 * <int64_t>(
                    p[0] | <uint64_t>p[1] << 8 | <uint64_t>p[2] << 16 | <uint64_t>p[3] << 24
                )
            elif code == OP_IDLE:
                self._input.count(&value)
            elif code == OP_FREQUENCY:
                self._input.byte()
            elif code == OP_SLOT_IMPORT_OR_KEY_META and not self._valkey:
                self._input.count(&value)
                while value:
                    self._input.skip(4)
                    skip_module_value(self._input)
                    value -= 1
            elif of_key:
                raise self._input.corrupt(f"opcode {code} stands where a key should")
            else:
                return self.other(code)
            of_key = True

    cdef int other(self, int code) except -1:
        cdef uint64_t value, i, ranges
        if code == OP_DATABASE:
            self._input.count(&value)
            if value > 0x7FFFFFFF:
                raise self._input.corrupt(f"there is no database {value}")
            self._database = <int32_t>value
        elif code == OP_RESIZE:
            self._input.count(&value)
            self._input.count(&value)
        elif code == OP_AUX:
            self.note()
        elif code == OP_FUNCTION:
            self._input.skip_string(&value)
        elif code == OP_MODULE_AUX:
            self._input.count(&value)
            skip_module_value(self._input)
        elif code == OP_SLOT_INFO:
            for i in range(3):
                self._input.count(&value)
        elif code == OP_SLOT_IMPORT_OR_KEY_META:
            self._input.skip_string(&value)
            self._input.count(&ranges)
            for i in range(ranges):
                self._input.count(&value)
                self._input.count(&value)
        elif code == OP_END:
            self.end()
        else:
            raise UnsupportedRdb(
                self._input.name, self._input.offset() - 1,
                f"opcode {code} is not known here; what follows cannot be read",
            )
        return 0

    cdef int note(self) except -1:
        """Reads a note of the file about itself; the writer and the time are used."""
        cdef bytes name = self._input.short_string(MOST_NOTE, "a field's name")
        cdef uint64_t length
        cdef bytes text
        if name not in (b"ctime", b"valkey-ver"):
            self._input.skip_string(&length)
            return 0
        text = self._input.short_string(MOST_NOTE, "a field")
        if name == b"ctime":
            if text.isdigit() and len(text) <= 12:
                self._created_ms = 1000 * int(text)
        else:
            parts = [int(part) for part in text.split(b".")[:2] if part.isdigit() and len(part) < 9]
            self._layout.generation = VALKEY_9 if parts >= [9] else VALKEY_8_1 if parts >= [8, 1] else REDIS_7_2
        return 0

    cdef int end(self) except -1:
        self._ended = True
        if self.version < 5:
            return self.nothing_follows()
        computed, written = self._input.check()
        # A server that was told to write no checksum writes 0.
        if self._checked and written and computed != written:
            raise ChecksumMismatch(
                self._input.name, self._input.offset() - 8,
                f"the checksum of its bytes is {computed:016x}, the server's {written:016x}: it was changed since",
            )
        return self.nothing_follows()

    cdef int nothing_follows(self) except -1:
        """Only an append-only file goes on, with a command or a remark. This check finds an end by mistake."""
        cdef int next = -1 if self._input.ended() else self._input.byte()
        if next not in (-1, c"*", c"#"):
            self._input._at -= 1
            raise self._input.corrupt("the file says that it ends here, and goes on")
        return 0

    cdef int key(self, int code, uint64_t start, int64_t deadline) except -1:
        cdef Stored stored
        cdef Measured found
        cdef int row = self._rows
        cdef size_t at = self._ends[row]
        cdef const uint8_t* p
        cdef bytes text
        cdef uint8_t* larger
        self._input.string(&stored)
        if stored.kind == INTEGER:
            text = b"%d" % stored.number
            p = text
        elif stored.length > _MOST_KEY or stored.stored > _MOST_KEY:
            raise self._input.corrupt(f"a key of {stored.length} bytes is longer than {_MOST_KEY}")
        elif stored.kind == PLAIN:
            p = self._input.take(stored.length) if stored.length else NULL
        else:
            text = self._input.inflated(self._input.take(stored.stored)[:stored.stored], stored.length)
            p = text
        if at + stored.length > self._keys_room:
            larger = <uint8_t*>realloc(self._keys, at + stored.length)
            if larger == NULL:
                raise self._input.corrupt(f"no memory for a key of {stored.length} bytes")
            self._keys = larger
            self._keys_room = at + stored.length
        if stored.length:
            memcpy(self._keys + at, p, stored.length)
        found.memory = 0
        measure(
            self._input, &self._layout, code, self._valkey, stored.length, deadline != _NONE, &found
        )
        if stored.length >= <size_t>len(_RESERVED) and not memcmp(
            self._keys + at, <const char*>_RESERVED, len(_RESERVED)
        ):
            return 0  # Slotferry's own
        self._databases[row] = self._database
        self._slots[row] = self._key_slots.of(self._database, <const char*>self._keys + at, stored.length)
        self._types[row] = self.module(found.module) if found.type == MODULE else found.type
        self._encodings[row] = found.encoding
        self._ends[row + 1] = <int32_t>(at + stored.length)
        self._serialized[row] = self._input.offset() - start
        self._memory[row] = found.memory
        self._elements[row] = _NONE if found.elements < 0 else found.elements
        if deadline == _NONE or self._created_ms == _NONE:
            self._deadlines[row] = _NONE
        else:
            # Unsigned, as a damaged deadline may have any value.
            self._deadlines[row] = <int64_t>(<uint64_t>deadline - <uint64_t>self._created_ms)
        self._rows = row + 1
        return 0

    cdef int module(self, uint64_t number) except -1:
        """The place in ``types`` of a module's type: nine letters of six bits each, and ten bits of a version."""
        cdef int i
        name = "".join([MODULE_LETTERS[(number >> (10 + 6 * (8 - i))) & 63] for i in range(9)])
        place = self._modules.get(name)
        if place is None:
            if len(self._modules) == MOST_MODULE_TYPES:
                raise self._input.corrupt(f"it has more than {MOST_MODULE_TYPES} types of modules")
            place = self._modules[name] = len(self.types)
            self.types.append(name)
        return place
