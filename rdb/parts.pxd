"""What other compiled modules may use of :mod:`rdb.parts`."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from rdb.input cimport Input, Stored
from rdb.packed cimport Collection

cdef enum:
    # Stands for a field that has no deadline.
    NEVER = -1


# Of an element: a member, a score in decimal, the name of a field or its value.
cdef struct Part:
    const uint8_t* data
    size_t length


cdef class Parts:
    cdef Input _source
    cdef int _code
    cdef bint _valkey
    cdef int _type
    # How many parts an element has, and which of them comes next.
    cdef readonly int width
    cdef int _place
    # Strings or nodes that are still to come; whether they are strings.
    cdef uint64_t _left
    cdef bint _of_strings
    # A collection in one string that is taken apart.
    cdef Collection _opened
    cdef bint _is_open
    # Of the field of a hash; whether it stands behind the value and was not read yet.
    cdef int64_t _deadline
    cdef int64_t _earliest
    cdef bint _due
    # What is not stored as it is: a number, and a compressed string.
    cdef uint8_t[32] _digits
    cdef uint8_t* _inflated
    cdef size_t _room

    cdef int begin(self, int code, bint valkey) except -1
    cdef bint next(self, Part* part) except -1
    cdef int64_t deadline(self) except? -2
    cdef int _begin_element(self) except -1
    cdef bint _next_node(self, Part* part) except -1
    cdef int _next_string(self, Part* part) except -1
    cdef bint _next_item(self, Part* part) except -1
    cdef object _without(self)
    cdef int _text(self, Part* part) except -1
    cdef int _score(self, Part* part) except -1
    cdef int _number(self, Part* part, double value) except -1
    cdef int _content(self, const Stored* stored, Part* part) except -1
    cdef int _open(self, int form) except -1
