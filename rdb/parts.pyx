"""The elements of lists, sets, sorted sets and hashes, part by part, without an object of Python for any.

An element has one part, or two: member and score, name and value. A part is valid until the next one is read, so
whoever needs it copies it at once.

**bounded**: one string of the value is held, be it an element or a collection in one string (a listpack and the like):
at most :data:`rdb.input.MOST_CONTIGUOUS` bytes.
"""

from libc.math cimport signbit
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, strlen

from rdb.input cimport INTEGER, PLAIN, Input, Stored
from rdb.lzf cimport lzf_decompress
from rdb.numbers cimport decimal, signed_little
from rdb.packed cimport (
    ENDED, FOUND, INTSET_FORM, LISTPACK_FORM, ZIPLIST_FORM, ZIPMAP_FORM, Item, fault_of, next_item, open_collection,
)
from rdb.values cimport HASH, LIST, SET, ZSET, type_of

from rdb.errors import UnsupportedRdb
from rdb.input import MOST_CONTIGUOUS, PIECE

cdef extern from "Python.h":
    char* PyOS_double_to_string(double value, char code, int precision, int flags, int* kind) except NULL
    void PyMem_Free(void* memory)

cdef size_t _MOST = MOST_CONTIGUOUS
# Memory that is kept for the next value.
cdef size_t _KEPT = PIECE

cdef enum:
    # How the head of a list's node says that it is one element, or several in one string.
    ONE = 1
    SEVERAL = 2

# Doubles below are whole if they are equal to a number without a fraction.
cdef double WHOLE = 1e15


cdef class Parts:
    """Reads the value that comes next in the input. Call :meth:`begin`, then :meth:`next` until it is false.

    Raises:
        RdbError: by all methods; parts before the fault are valid.
    """

    def __init__(self, Input source not None) -> None:
        self._source = source

    def __dealloc__(self) -> None:
        free(self._inflated)

    cdef int begin(self, int code, bint valkey) except -1:
        """A value whose type has the number ``code`` comes next."""
        cdef Input source = self._source
        self._code = code
        self._valkey = valkey
        self._type = type_of(code, valkey)
        self.width = 2 if self._type in (ZSET, HASH) else 1
        self._place = 0
        self._left = 0
        self._of_strings = code in (1, 2, 3, 4, 5, 22, 24)
        self._is_open = False
        self._deadline = NEVER
        self._due = False
        if self._room > _KEPT:
            free(self._inflated)
            self._inflated = NULL
            self._room = 0
        if self._type not in (LIST, SET, ZSET, HASH):
            raise UnsupportedRdb(source.name, source.offset(), f"values of type {code} have no such elements")
        if code in (24, 25):
            self._earliest = signed_little(source.take(8), 8)
        if self._of_strings or code in (14, 18):
            source.count(&self._left)
        elif code == 11:
            self._open(INTSET_FORM)
        elif code == 9:
            self._open(ZIPMAP_FORM)
        elif code in (10, 12, 13):
            self._open(ZIPLIST_FORM)
        else:
            self._open(LISTPACK_FORM)
        return 0

    cdef bint next(self, Part* part) except -1:
        """Read the next part; false behind the last one."""
        if self._due:
            self.deadline()
        if self._of_strings:
            if self._place == 0:
                if not self._left:
                    return False
                self._begin_element()
            self._next_string(part)
        else:
            while not (self._is_open and self._next_item(part)):
                if not self._left:
                    return False
                if self._next_node(part):
                    break
        self._place = (self._place + 1) % self.width
        self._due = self._place == 0 and (self._code in (23, 25) or (self._code == 22 and self._valkey))
        return True

    cdef int64_t deadline(self) except? -2:
        """That of the field whose value was the last part, in milliseconds since 1970, or NEVER. The part is not valid
        any more."""
        cdef Item item
        cdef int outcome
        if not self._due:
            return self._deadline
        self._due = False
        if self._code == 22:
            self._deadline = signed_little(self._source.take(8), 8)
            return self._deadline
        outcome = next_item(&self._opened, &item)
        if outcome != FOUND:
            raise self._without()
        if item.data != NULL:
            text = item.data[:item.length]
            try:
                item.number = int(text)
            except (ValueError, OverflowError):
                raise self._source.corrupt(f"{text!r} is no deadline of a field") from None
        self._deadline = item.number or NEVER
        return self._deadline

    cdef int _begin_element(self) except -1:
        """Go to the first part of an element that is stored as strings."""
        cdef uint64_t after
        self._left -= 1
        if self._code in (22, 24) and not self._valkey:
            self._source.count(&after)
            self._deadline = NEVER
            if after:
                # Of a release candidate the deadline itself, else how long it is after the earliest one.
                self._deadline = <int64_t>(after if self._code == 22 else <uint64_t>self._earliest + after - 1)
        return 0

    cdef int _next_string(self, Part* part) except -1:
        if self._type == ZSET and self._place == 1:
            return self._score(part)
        return self._text(part)

    cdef bint _next_node(self, Part* part) except -1:
        """Go to the next node of a list; whether it is an element itself."""
        cdef uint64_t container = SEVERAL
        self._left -= 1
        if self._code == 18:
            self._source.count(&container)
        if container == ONE:
            self._text(part)
            return True
        if container != SEVERAL:
            raise self._source.corrupt(f"there is no container {container} of a list")
        self._open(LISTPACK_FORM if self._code == 18 else ZIPLIST_FORM)
        return False

    cdef bint _next_item(self, Part* part) except -1:
        """The next item of the collection that is open; false at its end."""
        cdef Item item
        cdef int outcome = next_item(&self._opened, &item)
        if outcome == FOUND:
            part.data = item.data
            part.length = item.length
            if item.data == NULL:
                part.data = self._digits
                part.length = decimal(self._digits, item.number)
            return True
        if outcome != ENDED:
            raise self._source.corrupt(f"a packed collection cannot be taken apart: {fault_of(outcome)}")
        if self._place:
            raise self._without()
        self._is_open = False
        return False

    cdef object _without(self):
        if self._type == ZSET:
            return self._source.corrupt("a sorted set has a member without a score")
        return self._source.corrupt("a hash has a field without a value, or without a deadline")

    cdef int _text(self, Part* part) except -1:
        """A string."""
        cdef Stored stored
        self._source.string(&stored)
        return self._content(&stored, part)

    cdef int _score(self, Part* part) except -1:
        """A score that is not in a packed collection."""
        cdef int64_t bits
        cdef double value
        cdef int size
        if self._code == 5:
            bits = signed_little(self._source.take(8), 8)
            memcpy(&value, &bits, 8)
            return self._number(part, value)
        size = self._source.byte()
        if size >= 253:
            return self._number(part, (float("nan"), float("inf"), float("-inf"))[size - 253])
        if size == 0:
            raise self._source.corrupt("a score has no digits")
        part.data = self._source.take(size)
        part.length = size
        return 0

    cdef int _number(self, Part* part, double value) except -1:
        """The shortest text that reads as the same number."""
        cdef char* text
        part.data = self._digits
        if -WHOLE < value < WHOLE and value == <double><int64_t>value and (value or not signbit(value)):
            part.length = decimal(self._digits, <int64_t>value)
            return 0
        text = PyOS_double_to_string(value, c"r", 0, 0, NULL)
        part.length = strlen(text)
        memcpy(self._digits, text, part.length)
        PyMem_Free(text)
        return 0

    cdef int _content(self, const Stored* stored, Part* part) except -1:
        """The content of a string whose header was read."""
        cdef const uint8_t* source
        cdef uint8_t* larger
        if stored.kind == INTEGER:
            part.data = self._digits
            part.length = decimal(self._digits, stored.number)
            return 0
        if stored.length > _MOST:
            raise self._source.corrupt(
                f"a string of {stored.length} bytes has to be read at once; at most {_MOST} can be"
            )
        part.length = stored.length
        source = self._source.take(stored.stored)
        part.data = source
        if stored.kind == PLAIN:
            return 0
        # A string with one byte too many is none that a server writes.
        if stored.length >= self._room:
            larger = <uint8_t*>realloc(self._inflated, stored.length + 1)
            if larger == NULL:
                raise self._source.corrupt(f"no memory for a string of {stored.length} bytes")
            self._inflated = larger
            self._room = stored.length + 1
        if lzf_decompress(source, stored.stored, self._inflated, stored.length + 1) != <int64_t>stored.length:
            raise self._source.corrupt("a compressed string cannot be decompressed")
        part.data = self._inflated
        return 0

    cdef int _open(self, int form) except -1:
        """Take a collection apart that is stored as one string."""
        cdef Part whole
        self._text(&whole)
        fault = open_collection(&self._opened, whole.data, whole.length, form)
        if fault is not None:
            raise self._source.corrupt(f"a packed collection cannot be taken apart: {fault}")
        self._is_open = True
        return 0
