"""Keys known to be absent from the source of their slot's migration."""

from libc.stdint cimport uint32_t, uint64_t

ctypedef struct tag_t:
    uint64_t low
    uint64_t high


cdef class AbsentKeys:
    """A bounded memory of (migration, database, key) triples."""

    cdef:
        tag_t* tags
        size_t sets
        size_t mask
        uint64_t secret_low
        uint64_t secret_high
        uint32_t turn
        readonly size_t capacity

    cdef tag_t tag(self, uint32_t migration, int database, const char* key, size_t size) noexcept
    cdef bint has(self, uint32_t migration, int database, const char* key, size_t size) noexcept
    cdef void add(self, uint32_t migration, int database, const char* key, size_t size) noexcept
