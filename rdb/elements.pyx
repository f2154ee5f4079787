"""The elements of one value, one after another, for values that do not move as a whole.

**bounded**: of a value, one element is held, beside those that the server keeps in one string (a listpack and the like;
at most :data:`rdb.input.MOST_CONTIGUOUS` bytes). A long string comes in parts.

Of a stream, the entries come first, then its counters, then its groups: after each one its pending entries, then its
consumers, after each one the ids that are pending for it.
"""

from typing import NamedTuple

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove

from rdb.input cimport INTEGER, PLAIN, Input, Stored
from rdb.numbers cimport signed_little
from rdb.packed cimport LISTPACK_FORM
from rdb.parts cimport Part, Parts
from rdb.values cimport HASH, LIST, SET, STREAM, STRING, ZSET, type_of

from rdb.errors import UnsupportedRdb
from rdb.input import PIECE
from rdb.packed import Packed

cdef enum:
    # How far back LZF copies from, and the most bytes that one of its instructions gives.
    WINDOW = 8192
    LONGEST = 264
    ID_BYTES = 16

cdef size_t _PIECE = PIECE

LARGEST = 2**64 - 1
"""The largest number in either half of an id."""

NEVER = -1
"""Stands for a field that has no deadline."""


class Scored(NamedTuple):
    """A member of a sorted set."""

    member: bytes
    score: float


class Field(NamedTuple):
    """A field of a hash. ``deadline_ms`` is in milliseconds since 1970, or :data:`NEVER`."""

    name: bytes
    value: bytes
    deadline_ms: int


class Entry(NamedTuple):
    """An entry of a stream. ``fields`` has names and values in turn."""

    id: tuple[int, int]
    fields: list[bytes]


class Counters(NamedTuple):
    """What a stream counts. The last three are None where the server does not know them."""

    entries: int
    last_id: tuple[int, int]
    first_id: tuple[int, int] | None
    most_deleted_id: tuple[int, int] | None
    entries_added: int | None


class Group(NamedTuple):
    """A group of a stream. ``entries_read`` is -1 if it is not known, and None where the server does not count."""

    name: bytes
    last_id: tuple[int, int]
    entries_read: int | None


class Pending(NamedTuple):
    """A pending entry of the group before it, with the time of its delivery in milliseconds since 1970."""

    id: tuple[int, int]
    delivered_ms: int
    deliveries: int


class Consumer(NamedTuple):
    """A consumer of the group before it. Times are in milliseconds since 1970; ``active_ms`` is None where the server
    does not keep it, -1 if it was never active."""

    name: bytes
    seen_ms: int
    active_ms: int | None


class Owned(NamedTuple):
    """An entry that is pending for the consumer before it."""

    id: tuple[int, int]


Element = bytes | Scored | Field | Entry | Counters | Group | Pending | Consumer | Owned


cdef class Inflating:
    """A compressed string, part by part."""

    cdef Input _source
    cdef uint64_t _stored
    cdef uint64_t _left
    cdef uint8_t* _out
    cdef size_t _size

    def __cinit__(self, Input source, uint64_t stored, uint64_t length) -> None:
        self._source = source
        self._stored = stored
        self._left = length
        self._out = <uint8_t*>malloc(WINDOW + _PIECE + LONGEST)
        if self._out == NULL:
            raise MemoryError

    def __dealloc__(self) -> None:
        free(self._out)

    cdef bytes part(self):
        """The next bytes; none at the end."""
        cdef size_t old = self._size if self._size < WINDOW else <size_t>WINDOW
        cdef size_t size, back
        cdef const uint8_t* p
        cdef int control
        memmove(self._out, self._out + self._size - old, old)
        self._size = old
        while self._stored and self._size - old < _PIECE:
            control = self.next_byte()
            if control < 32:
                size = control + 1
                if size > self._stored:
                    raise self.faulty()
                p = self._source.take(size)
                self._stored -= size
                memcpy(self._out + self._size, p, size)
                self._size += size
            else:
                size = control >> 5
                if size == 7:
                    size += self.next_byte()
                size += 2
                back = ((control & 31) << 8 | self.next_byte()) + 1
                if back > self._size:
                    raise self.faulty()
                # Source and target may overlap: what was written a moment ago is copied as well.
                while size:
                    self._out[self._size] = self._out[self._size - back]
                    self._size += 1
                    size -= 1
        size = self._size - old
        if size > self._left or (size == 0 and self._left):
            raise self.faulty()
        self._left -= size
        return PyBytes_FromStringAndSize(<char*>self._out + old, size)

    cdef int next_byte(self) except -1:
        if self._stored == 0:
            raise self.faulty()
        self._stored -= 1
        return self._source.byte()

    cdef object faulty(self):
        return self._source.corrupt("a compressed string cannot be decompressed")


cdef int64_t milliseconds(Input source) except? -2:
    return signed_little(source.take(8), 8)


cdef tuple stored_id(Input source):
    """An id of a stream in two lengths."""
    cdef uint64_t first, second
    source.count(&first)
    source.count(&second)
    return (first, second)


cdef tuple raw_id(const uint8_t* p):
    """An id of a stream in 16 bytes, big-endian."""
    cdef uint64_t first = 0, second = 0
    cdef int i
    for i in range(8):
        first = first << 8 | p[i]
        second = second << 8 | p[8 + i]
    return (first, second)


cdef uint64_t counted(Input source) except? 0xFFFFFFFFFFFFFFFF:
    cdef uint64_t value
    source.count(&value)
    return value


def items(Input source):
    """The items of a listpack."""
    try:
        yield from Packed(source.text(), LISTPACK_FORM)
    except ValueError as error:
        raise source.corrupt(f"a packed collection cannot be taken apart: {error}") from None


def _string(Input source):
    cdef Stored stored
    cdef Inflating inflating
    cdef uint64_t left
    cdef size_t some
    source.string(&stored)
    if stored.kind == INTEGER:
        yield b"%d" % stored.number
    elif stored.kind == PLAIN:
        left = stored.length
        while left:
            some = left if left < _PIECE else _PIECE
            yield source.take(some)[:some]
            left -= some
    else:
        inflating = Inflating(source, stored.stored, stored.length)
        while True:
            part = inflating.part()
            if not part:
                break
            yield part


def _members(Input source, int code, bint valkey):
    """Of a list or a set."""
    cdef Parts parts = Parts(source)
    cdef Part part
    parts.begin(code, valkey)
    while parts.next(&part):
        yield part.data[:part.length]


def _scored(Input source, int code, bint valkey):
    """Of a sorted set."""
    cdef Parts parts = Parts(source)
    cdef Part part
    parts.begin(code, valkey)
    while parts.next(&part):
        member = part.data[:part.length]
        parts.next(&part)
        yield Scored(member, number_of(source, part.data[:part.length]))


cdef double number_of(Input source, bytes text) except? -1:
    try:
        return float(text)
    except ValueError:
        raise source.corrupt(f"{text!r} is no score") from None


def _fields(Input source, int code, bint valkey):
    """Of a hash."""
    cdef Parts parts = Parts(source)
    cdef Part part
    parts.begin(code, valkey)
    while parts.next(&part):
        name = part.data[:part.length]
        parts.next(&part)
        value = part.data[:part.length]
        yield Field(name, value, parts.deadline())


def _entries(Input source, bytes node):
    """The entries of one node of a stream. ``node`` is the id to which the ids within it are added."""
    first_ms, first_number = raw_id(node)
    numbers = items(source)
    faulty = source.corrupt("a node of a stream cannot be taken apart")
    try:
        count, gone, fields = (int(next(numbers)) for _ in range(3))
        names = [next(numbers) for _ in range(fields)]
        next(numbers)  # stands where entries have their length
        for _ in range(count + gone):
            flags, ms, number = (int(next(numbers)) for _ in range(3))
            if flags & 2:
                pairs = [part for name in names for part in (name, next(numbers))]
            else:
                pairs = [next(numbers) for _ in range(2 * int(next(numbers)))]
            next(numbers)  # its length in items
            if not flags & 1:
                # What is added may be below zero.
                yield Entry((first_ms + ms & LARGEST, first_number + number & LARGEST), pairs)
        if next(numbers, None) is not None:
            raise faulty
    except (ValueError, StopIteration, RuntimeError):
        raise faulty from None


def _stream(Input source, int code):
    cdef uint64_t number, nodes, inner
    cdef Stored stored
    nodes = counted(source)
    for number in range(nodes):
        source.string(&stored)
        if stored.kind != PLAIN or stored.length != ID_BYTES:
            raise source.corrupt("a part of a stream has no ID of 16 bytes")
        node = source.take(ID_BYTES)[:ID_BYTES]
        yield from _entries(source, node)
    entries = counted(source)
    last_id = stored_id(source)
    if code >= 19:
        first_id = stored_id(source)
        most_deleted_id = stored_id(source)
        yield Counters(entries, last_id, first_id, most_deleted_id, counted(source))
    else:
        yield Counters(entries, last_id, None, None, None)
    for number in range(counted(source)):
        yield from _group(source, code)
    if code >= 26:
        # Producers whose entries are taken once: how long and how many of them are remembered, each with its own IDs.
        counted(source)
        counted(source)
        for number in range(counted(source)):
            source.text()
            for inner in range(counted(source)):
                source.text()
                stored_id(source)
        stored_id(source)


def _group(Input source, int code):
    cdef uint64_t number, inner
    cdef int64_t read
    name = source.text()
    last_id = stored_id(source)
    read = <int64_t>counted(source) if code >= 19 else 0
    yield Group(name, last_id, read if code >= 19 else None)
    for number in range(counted(source)):
        pending = raw_id(source.take(ID_BYTES))
        delivered = milliseconds(source)
        yield Pending(pending, delivered, counted(source))
    for number in range(counted(source)):
        name = source.text()
        seen = milliseconds(source)
        yield Consumer(name, seen, milliseconds(source) if code >= 21 else None)
        for inner in range(counted(source)):
            yield Owned(raw_id(source.take(ID_BYTES)))
    if code >= 27:
        # Entries that were given back.
        for number in range(counted(source)):
            source.take(ID_BYTES)


cdef object elements(Input source, int code, bint valkey):
    """Iterates over the elements of the value that comes next, whose type has the number ``code``.

    Raises:
        UnsupportedRdb: a module's value cannot be taken apart, and values of unknown types cannot.
        RdbError: while it iterates.
    """
    cdef int type = type_of(code, valkey)
    if type == STRING:
        return _string(source)
    if type == LIST or type == SET:
        return _members(source, code, valkey)
    if type == ZSET:
        return _scored(source, code, valkey)
    if type == STREAM:
        return _stream(source, code)
    if type == HASH:
        return _fields(source, code, valkey)
    raise UnsupportedRdb(source.name, source.offset(), f"values of type {code} cannot be taken apart")
