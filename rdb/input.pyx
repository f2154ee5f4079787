"""Reads the bytes of an RDB file in pieces, computes the checksum, and takes the bytes apart into lengths and strings.

**bounded**: at most :data:`PIECE` bytes of the file are held, or :data:`MOST_CONTIGUOUS` bytes of a string whose
content is needed, or as many as :meth:`Input.hold` allows and a piece more. Bytes that are only measured are skipped. A loop over elements that a file announces takes at least
one byte in each round, so it ends with the file.

The checksum is CRC-64/Jones as Redis has it: polynomial 0xad93d23594c935a9, reflected, initial value and final
exclusive or of zero; eight bytes a step, as in :mod:`slots.functions`.
"""

from cpython.buffer cimport PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memmove

from rdb.lzf cimport lzf_decompress
from rdb.numbers cimport little, signed_little

from rdb.errors import CorruptRdb, HeldTooMuch, TruncatedRdb, UnreadableRdb

PIECE = 256 << 10
"""Bytes that are read from the file at once."""

MOST_CONTIGUOUS = 64 << 20
"""The most bytes of a string whose content is needed. A longer key cannot be read."""

cdef size_t _PIECE = PIECE
cdef size_t _MOST = MOST_CONTIGUOUS

cdef enum:
    NOT_HELD = -1
    # Three bytes of LZF give 264 at most.
    MOST_GAIN = 88

# The bits are reversed, as the CRC is reflected.
cdef uint64_t POLYNOMIAL = 0x95AC9329AC4BC9B5
cdef uint64_t[8][256] crc_rows


cdef void fill_rows() noexcept nogil:
    cdef uint64_t crc
    cdef int byte, i
    for byte in range(256):
        crc = byte
        for i in range(8):
            crc = (crc >> 1) ^ (POLYNOMIAL if crc & 1 else 0)
        crc_rows[0][byte] = crc
    for i in range(1, 8):
        for byte in range(256):
            crc = crc_rows[i - 1][byte]
            crc_rows[i][byte] = (crc >> 8) ^ crc_rows[0][crc & 0xFF]


fill_rows()


cdef uint64_t summed(uint64_t crc, const uint8_t* p, size_t length) noexcept nogil:
    while length >= 8:
        crc ^= little(p, 8)
        crc = (
            crc_rows[7][crc & 0xFF] ^ crc_rows[6][(crc >> 8) & 0xFF]
            ^ crc_rows[5][(crc >> 16) & 0xFF] ^ crc_rows[4][(crc >> 24) & 0xFF]
            ^ crc_rows[3][(crc >> 32) & 0xFF] ^ crc_rows[2][(crc >> 40) & 0xFF]
            ^ crc_rows[1][(crc >> 48) & 0xFF] ^ crc_rows[0][crc >> 56]
        )
        p += 8
        length -= 8
    while length:
        crc = (crc >> 8) ^ crc_rows[0][(crc ^ p[0]) & 0xFF]
        p += 1
        length -= 1
    return crc


def crc64(bytes data not None, before: int = 0) -> int:
    """The checksum of ``data``, in the form of the last eight bytes of an RDB file: little-endian, over all bytes
    before them. ``before`` is the checksum of what stands before ``data``."""
    return summed(before, data, len(data))


def decompress(bytes data not None, length: int) -> bytes:
    """``data`` decompressed with LZF to at most ``length`` bytes. Raises ValueError for bad data."""
    cdef size_t room = length
    cdef uint8_t* target = <uint8_t*>malloc(room + 1)
    cdef int64_t written
    if target == NULL:
        raise MemoryError
    try:
        written = lzf_decompress(data, len(data), target, room)
        if written < 0:
            raise ValueError("not LZF")
        return target[:written]
    finally:
        free(target)


cdef int digits(int64_t number) noexcept nogil:
    """Length of ``number`` written in decimal."""
    cdef int count = 1
    if number < 0:
        count += 1
        number = -number
    while number >= 10:
        number //= 10
        count += 1
    return count


cdef class Input:
    """One file, from its first byte to the present place. ``size`` in bytes shows early that a file was cut; None if
    unknown."""

    def __cinit__(self, file: object, str name not None, size: object = None, bint checked = True) -> None:
        self._file = file
        self.name = name
        self._limit = <uint64_t>-1 if size is None else <uint64_t>size
        self._checked = checked
        self._room = _PIECE
        self._held = NOT_HELD
        self._buffer = <uint8_t*>malloc(self._room)
        if self._buffer == NULL:
            raise MemoryError

    def __dealloc__(self) -> None:
        free(self._buffer)

    cdef uint64_t offset(self) noexcept:
        """The number of bytes of the file before the next one."""
        return self._base + self._at

    cdef object corrupt(self, str reason):
        return CorruptRdb(self.name, self.offset(), reason)

    cdef int sum_up(self, size_t end) noexcept:
        """Includes the bytes before the place ``end`` in the checksum."""
        if self._checked and end > self._summed:
            self._crc = summed(self._crc, self._buffer + self._summed, end - self._summed)
        self._summed = end
        return 0

    cdef int refill(self, size_t need) except -1:
        """Makes sure that the next ``need`` bytes are in the buffer. Raises if there are too few, or more than may be
        held."""
        cdef size_t first = self._at if self._held == NOT_HELD else <size_t>self._held
        cdef size_t got
        cdef uint8_t* larger
        if need > self._limit or self.offset() > self._limit - need:
            raise self.cut(need)
        if need > _MOST:
            raise self.corrupt(f"a string of {need} bytes has to be read at once; at most {_MOST} can be")
        if self._held != NOT_HELD:
            if self._at - first + need > self._most_held:
                raise HeldTooMuch
            self._held = 0
        self.sum_up(first)
        self._end -= first
        if first:
            memmove(self._buffer, self._buffer + first, self._end)
        self._base += first
        self._at -= first
        self._summed = 0
        while self._end - self._at < need:
            if self._end == self._room:
                # The buffer grows with the bytes that come, not with an announced length.
                larger = <uint8_t*>realloc(self._buffer, self._room * 2)
                if larger == NULL:
                    raise self.corrupt(f"no memory for a string of {need} bytes")
                self._buffer = larger
                self._room *= 2
            try:
                got = self._file.readinto(
                    PyMemoryView_FromMemory(<char*>self._buffer + self._end, self._room - self._end, PyBUF_WRITE)
                )
            except OSError as error:
                raise UnreadableRdb(self.name, self._base + self._end, f"it cannot be read: {error}") from error
            if got == 0:
                raise self.cut(need)
            self._end += got
        return 0

    cdef int hold(self, size_t most) except -1:
        """Keeps the bytes that are read from here on, until they are let go. Reading more than ``most``, or one
        :data:`PIECE`, may raise :class:`HeldTooMuch`: bytes that are in the buffer already are read."""
        self._held = self._at
        self._most_held = most if most > _PIECE else _PIECE
        return 0

    cdef const uint8_t* held(self, size_t* size) noexcept:
        """The bytes that were read since :meth:`hold`, valid until more is read."""
        size[0] = self._at - self._held
        return self._buffer + self._held

    cdef void let_go(self) noexcept:
        """The bytes are no longer held."""
        self._held = NOT_HELD

    cdef void go_back(self) noexcept:
        """Reads the bytes that are held once more, and holds them no longer."""
        self._at = self._held
        self._held = NOT_HELD

    cdef void hold_again(self, size_t size) noexcept:
        """Goes back to the first of the last ``size`` bytes, which :meth:`held` gave, and holds them once more."""
        self._at -= size
        self._held = self._at
        self._most_held = size

    def cut(self, need: int) -> TruncatedRdb:
        return TruncatedRdb(self.name, self.offset(), f"the file ends where {need} more bytes should come; it was cut")

    cdef const uint8_t* take(self, size_t count) except NULL:
        """The next ``count`` bytes, valid until anything else is read."""
        cdef const uint8_t* found
        if count > self._end - self._at:
            self.refill(count)
        found = self._buffer + self._at
        self._at += count
        return found

    cdef int skip(self, uint64_t count) except -1:
        cdef uint64_t some
        if count > self._limit or self.offset() > self._limit - count:
            raise self.cut(count)
        while count:
            some = self._end - self._at
            if some == 0:
                self.refill(1)
                continue
            if some > count:
                some = count
            self._at += some
            count -= some
        return 0

    cdef int byte(self) except -1:
        if self._at == self._end:
            self.refill(1)
        self._at += 1
        return self._buffer[self._at - 1]

    cdef bint ended(self) except -1:
        """Whether there are no more bytes."""
        if self._at < self._end:
            return False
        try:
            self.refill(1)
        except TruncatedRdb:
            return True
        return False

    cdef int length(self, uint64_t* value) except -1:
        """Reads a length, or with ``special`` set the number of a special encoding of a string."""
        cdef int first = self.byte()
        cdef int top = first >> 6
        cdef const uint8_t* p
        cdef int i
        self.special = False
        if top == 0:
            value[0] = first
        elif top == 1:
            value[0] = (first & 63) << 8 | self.byte()
        elif top == 3:
            self.special = True
            value[0] = first & 63
        elif first <= 0x81:
            p = self.take(4 if first == 0x80 else 8)
            value[0] = 0
            for i in range(4 if first == 0x80 else 8):
                value[0] = value[0] << 8 | p[i]
        else:
            raise self.corrupt(f"byte {first:#x} begins no length")
        return 0

    cdef int count(self, uint64_t* value) except -1:
        """Reads a length that must not be a special encoding."""
        self.length(value)
        if self.special:
            raise self.corrupt("a number should stand here, and a string does")
        return 0

    cdef int string(self, Stored* found) except -1:
        """Reads the header of a string, up to the first byte of its content; an integer is read to its end."""
        cdef uint64_t value
        self.length(&value)
        if not self.special:
            found.kind = PLAIN
            found.length = found.stored = value
        elif value == 3:
            found.kind = COMPRESSED
            self.count(&found.stored)
            self.count(&found.length)
            if found.length // MOST_GAIN > found.stored:
                raise self.corrupt(f"{found.stored} compressed bytes cannot give {found.length}")
        elif value <= 2:
            found.kind = INTEGER
            found.number = signed_little(self.take(<size_t>1 << value), 1 << value)
            found.stored = 0
            found.length = digits(found.number)
        else:
            raise self.corrupt(f"there is no string encoding {value}")
        return 0

    cdef int skip_string(self, uint64_t* length) except -1:
        """Skips a string, and gives its length in bytes."""
        cdef Stored found
        self.string(&found)
        length[0] = found.length
        return self.skip(found.stored)

    cdef bytes text(self):
        """The content of a string."""
        cdef Stored found
        self.string(&found)
        if found.kind == INTEGER:
            return b"%d" % found.number
        if found.length > _MOST:
            raise self.corrupt(f"a string of {found.length} bytes has to be read at once; at most {_MOST} can be")
        return self.content(&found)

    cdef bytes short_string(self, size_t most, str what):
        """The content of a string of at most ``most`` bytes. Raises for a longer one; ``what`` names it in the
        error."""
        cdef Stored found
        self.string(&found)
        if found.kind == INTEGER:
            return b"%d" % found.number
        if found.length > most or found.stored > most:
            raise self.corrupt(f"{what} of {found.length} bytes is longer than {most}")
        return self.content(&found)

    cdef bytes content(self, const Stored* found):
        """The content of a string whose header was read and that is no integer."""
        cdef const uint8_t* p = self.take(found.stored)
        if found.kind == PLAIN:
            return p[:found.length]
        return self.inflated(p[:found.stored], found.length)

    def inflated(self, bytes data not None, length: int) -> bytes:
        try:
            # A string with one byte too many is none that a server writes.
            content = decompress(data, length + 1)
        except ValueError:
            content = b""
        if len(content) != length:
            raise self.corrupt("a compressed string cannot be decompressed")
        return content

    def check(self) -> tuple[int, int]:
        """The checksum of all bytes so far, and the one in the next eight bytes."""
        self.sum_up(self._at)
        computed = self._crc
        return computed, little(self.take(8), 8)
