"""The bytes of a stream of requests, for the classes that read it."""

from libc.stdint cimport int64_t

from slots.requests.parsing cimport request_parse_t


cdef class Stream:
    """Bytes that were fed and not taken."""

    cdef:
        char* data
        size_t start
        size_t end
        size_t room
        size_t longest_request
        # So many bytes are not enough for the request at the front.
        size_t too_few
        # Of a request that was not whole when it was looked at: how far its arguments are known, and how many are not.
        size_t walked
        int64_t left
        request_parse_t parse
        readonly int64_t offset
        str broken

    cdef bint find(self) except -1
    cdef bint walk(self) noexcept
    cdef bint needs(self, size_t known, int64_t others) noexcept
    cdef list argv(self)
    cdef void take(self) noexcept
    cdef bint fail(self, str what, size_t place) except -1
    cdef bint reserve(self, size_t size) except -1
