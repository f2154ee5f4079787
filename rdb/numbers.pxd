"""Numbers as RDB files have them in a fixed number of bytes: little-endian, whatever the machine is. And in decimal."""

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


cdef inline size_t decimal(uint8_t* target, int64_t number) noexcept nogil:
    """Writes ``number`` in decimal, at most 20 bytes; gives their number."""
    cdef uint8_t[20] backwards
    cdef uint64_t left = <uint64_t>number
    cdef size_t count = 0, size = 0
    if number < 0:
        # Without a sign, as the least number has no opposite.
        left = 0 - left
        target[0] = c"-"
        size = 1
    while True:
        backwards[count] = <uint8_t>(c"0" + left % 10)
        count += 1
        left //= 10
        if not left:
            break
    while count:
        count -= 1
        target[size] = backwards[count]
        size += 1
    return size
