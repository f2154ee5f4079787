"""Numbers as RDB files have them in a fixed number of bytes: little-endian, whatever the machine is."""

from libc.stdint cimport int64_t, uint8_t, uint64_t


cdef inline uint64_t little(const uint8_t* p, int count) noexcept nogil:
    """A number of ``count`` bytes, at most 8."""
    cdef uint64_t value = 0
    cdef int i
    for i in range(count):
        value |= <uint64_t>p[i] << (8 * i)
    return value


cdef inline int64_t signed_little(const uint8_t* p, int count) noexcept nogil:
    """The same, negative if its highest bit is set."""
    cdef int shift = 64 - 8 * count
    return <int64_t>(little(p, count) << shift) >> shift
