"""What other compiled modules may use of :mod:`rdb.input`."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

# How a string is stored.
cdef enum:
    PLAIN = 0
    INTEGER = 1
    COMPRESSED = 2


cdef struct Stored:
    int kind
    # The length of the string itself, and of its bytes in the file after its header.
    uint64_t length
    uint64_t stored
    int64_t number


# The checksum of more bytes behind those of which it is `crc` so far.
cdef uint64_t summed(uint64_t crc, const uint8_t* p, size_t length) noexcept nogil


cdef class Input:
    cdef object _file
    cdef readonly str name
    cdef object _size
    cdef bint _checked
    cdef uint64_t _limit
    cdef uint8_t* _buffer
    cdef size_t _room
    cdef size_t _at
    cdef size_t _end
    cdef size_t _summed
    cdef uint64_t _base
    cdef uint64_t _crc
    # The place in the buffer from which bytes are held, or NOT_HELD; and the most bytes that may be.
    cdef ssize_t _held
    cdef size_t _most_held
    cdef bint special

    cdef uint64_t offset(self) noexcept
    cdef int sum_up(self, size_t end) noexcept
    cdef int refill(self, size_t need) except -1
    cdef int hold(self, size_t most) except -1
    cdef const uint8_t* held(self, size_t* size) noexcept
    cdef void let_go(self) noexcept
    cdef void go_back(self) noexcept
    cdef void hold_again(self, size_t size) noexcept
    cdef const uint8_t* take(self, size_t count) except NULL
    cdef int skip(self, uint64_t count) except -1
    cdef int byte(self) except -1
    cdef bint ended(self) except -1
    cdef int length(self, uint64_t* value) except -1
    cdef int count(self, uint64_t* value) except -1
    cdef int string(self, Stored* found) except -1
    cdef int skip_string(self, uint64_t* length) except -1
    cdef bytes text(self)
    cdef bytes content(self, const Stored* found)
    cdef bytes short_string(self, size_t most, str what)
    cdef object corrupt(self, str reason)
