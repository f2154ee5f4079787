"""Goes through an RDB file from key to key.

What belongs to a key stands before it: its deadline, how long it was idle, how often it was used. Records of other
kinds, such as functions and notes of the file about itself, stand between keys and are skipped, but for those that tell
when and by which server the file was written, and where the stream of changes goes on.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from rdb.input cimport INTEGER, PLAIN, Input, Stored, summed
from rdb.layout cimport REDIS_6, REDIS_7, REDIS_7_2, VALKEY_8_1, VALKEY_9, Layout
from rdb.lzf cimport lzf_decompress
from rdb.numbers cimport decimal, little, signed_little
from rdb.values cimport STRING, Measured, measure, skip_module_value, work_of

from rdb.errors import ChecksumMismatch, HeldTooMuch, NotAnRdbFile, UnsupportedRdb
from rdb.input import MOST_CONTIGUOUS

NONE = -(1 << 63)
"""Stands for a time that is not known."""

MOST_NOTE = 1024
"""The most bytes of a file's note about itself that are read."""

cdef int64_t _NONE = NONE
cdef size_t _MOST_KEY = MOST_CONTIGUOUS


cdef enum:
    CODE_STRING = 0

cdef enum:
    # The longest number in decimal.
    DECIMAL = 20

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


cdef class Records:
    """The keys of one file, in its order.

    Call :meth:`next` until it is false. After each key, read its value to its end, for instance with :meth:`measure`.

    Args:
        source: the file's bytes.
        checksum: whether the checksum at its end is compared.
        allocator: a number of :mod:`rdb.layout`.

    Raises:
        RdbError: by all methods; keys before the fault are valid.
    """

    def __init__(self, Input source not None, bint checksum, int allocator) -> None:
        self.input = source
        self._checked = checksum
        self.layout.allocator = allocator
        self.created_ms = _NONE
        self.stream_database = -1

    def __dealloc__(self) -> None:
        free(self._name)

    cdef bint next(self) except -1:
        """Find the next key; false at the end of the file."""
        cdef int code
        cdef bint of_key = False
        if not self._begun:
            self.begin()
        self.deadline = _NONE
        self.idle = self.frequency = -1
        self.metadata = 0
        while not self._ended:
            if not of_key:
                self.start = self.input.offset()
            code = self.input.byte()
            if code < OP_FIRST:
                self.code = code
                self.take_key()
                return True
            if self.before_key(code):
                of_key = True
            elif of_key:
                raise self.input.corrupt(f"opcode {code} stands where a key should")
            else:
                self.other(code)
        return False

    cdef int measure(self, Measured* found) except -1:
        """Read the value of the key that :meth:`next` found to its end, and measure it."""
        found.memory = 0
        measure(
            self.input, &self.layout, self.code, self.valkey, self.key_length, self.deadline != _NONE, found
        )
        return 0

    cdef int skip(self) except -1:
        """Read the value of the key that :meth:`next` found to its end."""
        cdef Measured found
        cdef uint64_t length
        if self.code == CODE_STRING:
            return self.input.skip_string(&length)
        return self.measure(&found)

    cdef const uint8_t* value(self, size_t most, uint64_t most_work, size_t* size, uint64_t* work) except? NULL:
        """Read the value of the key that :meth:`next` found. It gives its content, valid until more is read, and the
        :func:`~rdb.values.work_of` it. It gives NULL if the content has more than ``most`` bytes or is more than
        ``most_work``; then it is still to be read."""
        cdef Measured found
        cdef Stored stored
        cdef const uint8_t* content
        self.input.hold(most)
        if self.code == CODE_STRING:
            # Its head tells its size.
            self.input.string(&stored)
            self.input.held(size)
            if size[0] > most or stored.stored > most - size[0]:
                self.input.go_back()
                return NULL
            self.input.skip(stored.stored)
            found.type = STRING
            found.memory = stored.length
        else:
            try:
                self.measure(&found)
            except HeldTooMuch:
                self.input.go_back()
                return NULL
        content = self.input.held(size)
        work[0] = work_of(&found)
        if size[0] > most or work[0] > most_work:
            self.input.go_back()
            return NULL
        self.input.let_go()
        return content

    cdef bint fits(self, size_t most, uint64_t most_work, size_t* size) except -1:
        """Whether :meth:`value` would give the value of the key that :meth:`next` found, which is still to be read. If
        so its bytes are held: they are in memory, all of them, and can be read once more."""
        cdef uint64_t work
        if self.value(most, most_work, size, &work) == NULL:
            return False
        self.input.hold_again(size[0])
        return True

    cdef void seal(self, uint8_t* p, size_t size) noexcept:
        """Make what RESTORE takes of the ``size`` bytes at ``p``, a type code and a content: write :data:`FOOT` bytes
        behind them."""
        cdef uint64_t crc
        cdef int i
        p[size] = self.version & 255
        p[size + 1] = self.version >> 8
        crc = summed(0, p, size + 2)
        for i in range(8):
            p[size + 2 + i] = <uint8_t>(crc >> (8 * i))

    cdef bytes payload(self, size_t most):
        """Read the value of the key that :meth:`next` found, as RESTORE takes it and DUMP gives it: its type code and
        content, the version of the format, and the checksum of all this. None if its content has more than ``most``
        bytes; then it is still to be read."""
        cdef size_t size
        cdef uint64_t work
        cdef bytes whole
        cdef uint8_t* p
        cdef const uint8_t* content = self.value(most, <uint64_t>-1, &size, &work)
        if content == NULL:
            return None
        whole = PyBytes_FromStringAndSize(NULL, 1 + size + FOOT)
        p = <uint8_t*><char*>whole
        p[0] = <uint8_t>self.code
        memcpy(p + 1, content, size)
        self.seal(p, 1 + size)
        return whole

    cdef uint64_t module(self) except? 0:
        """The number of the module's type of a value that is still to be read."""
        cdef uint64_t number
        self.input.hold(0)
        self.input.count(&number)
        self.input.go_back()
        return number

    cdef int begin(self) except -1:
        """Reads the nine bytes at the head: ``REDIS`` and four digits, or ``VALKEY`` and three."""
        cdef bytes magic = self.input.take(9)[:9]
        self.valkey = magic.startswith(b"VALKEY")
        number = magic[6:] if self.valkey else magic[5:]
        if not (self.valkey or magic.startswith(b"REDIS")) or not number.isdigit():
            raise NotAnRdbFile(self.input.name, 0, f"it begins with {magic!r}, not as an RDB file does")
        self.version = int(number)
        self._begun = True
        if self.valkey:
            self.layout.generation = VALKEY_9
        elif self.version <= 9:
            self.layout.generation = REDIS_6
        elif self.version == 10:
            self.layout.generation = REDIS_7
        else:
            self.layout.generation = REDIS_7_2
        return 0

    cdef bint before_key(self, int code) except -1:
        """Read what stands before a key and belongs to it; false for other opcodes."""
        cdef uint64_t value
        if code == OP_EXPIRE_MS:
            self.deadline = signed_little(self.input.take(8), 8)
        elif code == OP_EXPIRE_S:
            self.deadline = 1000 * <int64_t>little(self.input.take(4), 4)
        elif code == OP_IDLE:
            self.input.count(&value)
            self.idle = <int64_t>(value >> 1 if value >> 63 else value)
        elif code == OP_FREQUENCY:
            self.frequency = self.input.byte()
        elif code == OP_SLOT_IMPORT_OR_KEY_META and not self.valkey:
            self.input.count(&value)
            self.metadata = value
            while value:
                self.input.skip(4)
                skip_module_value(self.input)
                value -= 1
        else:
            return False
        return True

    cdef int other(self, int code) except -1:
        cdef uint64_t value, i, ranges
        if code == OP_DATABASE:
            self.input.count(&value)
            if value > 0x7FFFFFFF:
                raise self.input.corrupt(f"there is no database {value}")
            self.database = <int32_t>value
        elif code == OP_RESIZE:
            self.input.count(&value)
            self.input.count(&value)
        elif code == OP_AUX:
            self.note()
        elif code == OP_FUNCTION:
            self.input.skip_string(&value)
        elif code == OP_MODULE_AUX:
            self.input.count(&value)
            skip_module_value(self.input)
        elif code == OP_SLOT_INFO:
            for i in range(3):
                self.input.count(&value)
        elif code == OP_SLOT_IMPORT_OR_KEY_META:
            self.input.skip_string(&value)
            self.input.count(&ranges)
            for i in range(ranges):
                self.input.count(&value)
                self.input.count(&value)
        elif code == OP_END:
            self.end()
        else:
            raise UnsupportedRdb(
                self.input.name, self.input.offset() - 1,
                f"opcode {code} is not known here; what follows cannot be read",
            )
        return 0

    cdef int note(self) except -1:
        """Reads a note of the file about itself; the writer, the time and the stream's database are used."""
        cdef bytes name = self.input.short_string(MOST_NOTE, "a field's name")
        cdef uint64_t length
        cdef bytes text
        if name not in (b"ctime", b"valkey-ver", b"repl-stream-db"):
            self.input.skip_string(&length)
            return 0
        text = self.input.short_string(MOST_NOTE, "a field")
        if name == b"ctime":
            if text.isdigit() and len(text) <= 12:
                self.created_ms = 1000 * int(text)
        elif name == b"repl-stream-db":
            if text.isdigit() and len(text) <= 9:
                self.stream_database = int(text)
        else:
            parts = [int(part) for part in text.split(b".")[:2] if part.isdigit() and len(part) < 9]
            self.layout.generation = VALKEY_9 if parts >= [9] else VALKEY_8_1 if parts >= [8, 1] else REDIS_7_2
        return 0

    cdef int end(self) except -1:
        self._ended = True
        if self.version < 5:
            return self.nothing_follows()
        computed, written = self.input.check()
        # A server that was told to write no checksum writes 0.
        if self._checked and written and computed != written:
            raise ChecksumMismatch(
                self.input.name, self.input.offset() - 8,
                f"the checksum of its bytes is {computed:016x}, the server's {written:016x}: it was changed since",
            )
        return self.nothing_follows()

    cdef int nothing_follows(self) except -1:
        """Only an append-only file goes on, with a command or a remark. This check finds an end by mistake."""
        cdef int next = -1 if self.input.ended() else self.input.byte()
        if next not in (-1, c"*", c"#"):
            self.input._at -= 1
            raise self.input.corrupt("the file says that it ends here, and goes on")
        return 0

    cdef int take_key(self) except -1:
        cdef Stored stored
        self.input.string(&stored)
        self.key_length = stored.length
        if stored.kind == INTEGER:
            self.make_room(DECIMAL)
            self.key_length = decimal(self._name, stored.number)
            self.key = self._name
        elif stored.length > _MOST_KEY or stored.stored > _MOST_KEY:
            raise self.input.corrupt(f"a key of {stored.length} bytes is longer than {_MOST_KEY}")
        elif stored.kind == PLAIN:
            self.key = self.input.take(stored.length)
        else:
            # A name with one byte too many is none that a server writes.
            self.make_room(stored.length + 1)
            if <uint64_t>lzf_decompress(
                self.input.take(stored.stored), stored.stored, self._name, stored.length + 1
            ) != stored.length:
                raise self.input.corrupt("a compressed string cannot be decompressed")
            self.key = self._name
        return 0

    cdef int make_room(self, size_t size) except -1:
        """Makes room for a name that is not stored as it is."""
        cdef uint8_t* larger
        if size > self._name_room:
            larger = <uint8_t*>realloc(self._name, size)
            if larger == NULL:
                raise self.input.corrupt(f"no memory for a key of {size} bytes")
            self._name = larger
            self._name_room = size
        return 0
