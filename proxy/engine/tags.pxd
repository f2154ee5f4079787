"""A bounded memory of byte strings, each under two numbers."""

from libc.stdint cimport uint32_t, uint64_t

ctypedef struct tag_t:
    uint64_t low
    uint64_t high


cdef class Tags:
    """A bounded memory of (number, place, string) triples."""

    cdef:
        tag_t* tags
        size_t sets
        size_t mask
        uint64_t secret_low
        uint64_t secret_high
        uint32_t turn
        readonly size_t capacity

    cdef tag_t tag(self, uint32_t number, int place, const char* data, size_t size) noexcept
    cdef bint has(self, uint32_t number, int place, const char* data, size_t size) noexcept
    cdef void add(self, uint32_t number, int place, const char* data, size_t size) noexcept
