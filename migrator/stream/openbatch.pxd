"""What other compiled modules may use of :mod:`migrator.stream.openbatch`."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from migrator.stream.output cimport Output


cdef class OpenBatch:
    cdef int _copy
    cdef bint _looks
    cdef size_t _most_bytes
    cdef size_t _most_room
    # The commands; they may be followed by those of a key that does not count yet.
    cdef Output out
    # The names of keys that have to be absent, in the form in which they are sent; likewise.
    cdef Output names
    cdef size_t _keys
    cdef size_t _count
    cdef uint64_t _work
    cdef list _deadlines
    cdef list _withheld

    cdef int room(self, size_t size) except -1
    cdef int room_for_name(self, size_t size) except -1
    cdef bint has_room(self, uint64_t work, uint64_t most_work) noexcept
    cdef int add(self, size_t commands, uint64_t work) noexcept
    cdef bint is_full(self, size_t most_keys) noexcept
    cdef int note(self, int64_t deadline, bytes name) except -1
    cdef int withhold(self, bytes name) except -1
    cdef object close(self, int32_t database, size_t size, size_t names)
    cdef bytes _commands(self, size_t size, size_t names)
