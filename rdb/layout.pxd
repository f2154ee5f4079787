"""Computes sizes in a server's memory, as MEMORY USAGE counts them, for the column ``bytes``.

A block of n bytes has the size that the allocator gives for n: a size class of jemalloc, or the usable size of glibc's
malloc. jemalloc has four classes in each doubling, and below that multiples of its quantum: 8 in the jemalloc bundled
with Redis and Valkey, 16 in the package that Debian and Ubuntu build against. A string (sds) has a header of 1, 3, 5 or
9 bytes by its length, and a byte after it.

In Redis, and up to Valkey 8.0, a key takes its string, a dictEntry of 24 bytes and a robj of 16; a dict takes its struct,
a pointer for each of the next power of two slots, and an entry of 24 bytes an element. From Valkey 8.1 on, the key is in
the robj (and a short string with it, and the deadline; MEMORY USAGE of 8.1 leaves the key out), and a hashtable takes buckets of 64 bytes for 7 elements each, the next
power of two of them, and as many chained ones as elements that fall at random into buckets need (Poisson).

A node of a skiplist has one more level with probability 1/4; the mean of the allocated sizes is counted.
"""

from libc.math cimport exp
from libc.stdint cimport int64_t, uint64_t

# Servers that use the same layout.
cdef enum:
    REDIS_6 = 0
    REDIS_7 = 1
    REDIS_7_2 = 2
    VALKEY_8_1 = 3
    VALKEY_9 = 4

cdef enum:
    JEMALLOC = 0
    JEMALLOC_16 = 1
    GLIBC = 2

cdef struct Layout:
    int generation
    int allocator

cdef enum:
    ROBJ = 16
    DICT_ENTRY = 24
    EMBEDDED_STRING_LIMIT = 44
    # Valkey: sizes of a robj with its key and string, in 8.1 and since, and of an entry of a hash with its value.
    EMBEDDED_LIMIT_8_1 = 64
    EMBEDDED_LIMIT = 128
    BUCKET = 64
    QUICKLIST = 40
    STREAM_NODE = 4096


cdef inline uint64_t allocated(const Layout* layout, uint64_t count) noexcept nogil:
    cdef uint64_t quantum, spacing
    cdef int power = 0
    if layout.allocator == GLIBC:
        if count >= 128 << 10:
            # A block of its own, mapped in pages.
            return (count + 16 + 4095) // 4096 * 4096 - 16
        return 24 if count <= 24 else (count + 8 + 15) // 16 * 16 - 8
    if count <= 8:
        return 8
    quantum = 8 if layout.allocator == JEMALLOC else 16
    if count <= 8 * quantum:
        return (count + quantum - 1) // quantum * quantum
    spacing = count - 1
    while spacing > 1:
        spacing >>= 1
        power += 1
    spacing = <uint64_t>1 << (power - 2)
    return (count + spacing - 1) & ~(spacing - 1)


cdef inline uint64_t sds(uint64_t length) noexcept nogil:
    """Bytes of a string with its header and end."""
    if length == 0:
        return 4
    if length < 32:
        return length + 2
    if length < 256:
        return length + 4
    if length < 65536:
        return length + 6
    return length + 10


cdef inline uint64_t sds_allocated(const Layout* layout, uint64_t length) noexcept nogil:
    return allocated(layout, sds(length))


cdef inline uint64_t power_of_two(uint64_t count) noexcept nogil:
    cdef uint64_t power = 1
    while power < count and power < <uint64_t>1 << 62:
        power <<= 1
    return power


cdef inline uint64_t chained(uint64_t elements, uint64_t buckets) noexcept nogil:
    """Buckets that are chained to others: one if 8 elements or more share a bucket, two if 14 do."""
    cdef double mean = <double>elements / <double>buckets
    cdef double term = exp(-mean)
    cdef double below = 0
    cdef double expected = 0
    cdef int i
    if buckets == 1:
        return 0
    for i in range(20):
        if i == 8 or i == 14:
            expected += 1 - below
        below += term
        term *= mean / (i + 1)
    return <uint64_t>(expected * <double>buckets + 0.5)


cdef inline uint64_t table(const Layout* layout, uint64_t elements) noexcept nogil:
    """A dict or hashtable without its elements."""
    cdef uint64_t slots
    if layout.generation >= VALKEY_8_1:
        slots = power_of_two((elements + 6) // 7)
        return 80 + BUCKET * (slots + chained(elements, slots))
    slots = power_of_two(elements)
    return (96 if layout.generation == REDIS_6 else 56) + 8 * (4 if slots < 4 else slots)


cdef inline uint64_t set_entries(const Layout* layout, uint64_t elements) noexcept nogil:
    """Entries of a dict without values."""
    return 0 if layout.generation >= VALKEY_8_1 else DICT_ENTRY * elements


cdef inline double skiplist_node(const Layout* layout, uint64_t length) noexcept nogil:
    """The node of an element of ``length`` bytes, with the element, without its entry in the table."""
    cdef uint64_t base = 24
    cdef double expected = 0
    cdef double chance = 0.75
    cdef int level
    if layout.generation == VALKEY_9:
        # The element follows the node's fields; one byte gives the size of its header.
        base = 16 + 1 + sds(length)
    for level in range(1, 9):
        expected += chance * <double>allocated(layout, base + 16 * level)
        chance *= 0.25
    if layout.generation == VALKEY_9:
        return expected
    return expected + <double>sds_allocated(layout, length)


cdef inline uint64_t hash_entry(const Layout* layout, uint64_t field, uint64_t value, bint expires) noexcept nogil:
    """A field and its value in a hashtable."""
    cdef uint64_t whole
    # A header of one byte has no room for the information that there is more than a field and a value.
    cdef uint64_t with_room = field + 4 if field < 32 else sds(field)
    # 8 bytes for the deadline, and 8 for its place among those of the hash.
    cdef uint64_t deadline = 8 if expires else 0
    if layout.generation >= VALKEY_8_1:
        whole = (with_room if expires else sds(field)) + deadline + value + 4
        if whole <= EMBEDDED_LIMIT:
            return allocated(layout, whole) + deadline
        return allocated(layout, with_room + deadline + 8) + sds_allocated(layout, value) + deadline
    return DICT_ENTRY + sds_allocated(layout, value) + allocated(layout, sds(field) + (16 if expires else 0))


cdef inline uint64_t key_with_object(const Layout* layout, uint64_t key, bint expires) noexcept nogil:
    """A key in the database with the head of its value."""
    if layout.generation >= VALKEY_8_1:
        return allocated(layout, ROBJ + 1 + sds(key) + (8 if expires else 0))
    return sds_allocated(layout, key) + DICT_ENTRY + ROBJ


cdef inline uint64_t string_value(
    const Layout* layout, uint64_t key, uint64_t length, bint expires, bint* embedded
) noexcept nogil:
    """The total of a key whose value is a string and not a number; also whether its string is in the robj."""
    cdef uint64_t whole
    if layout.generation == VALKEY_8_1:
        whole = ROBJ + 1 + sds(key) + (8 if expires else 0) + 3 + length + 1
        embedded[0] = whole <= EMBEDDED_LIMIT_8_1
        if embedded[0]:
            return allocated(layout, whole)
        return key_with_object(layout, key, expires) + sds_allocated(layout, length)
    if layout.generation == VALKEY_9:
        whole = 8 + 1 + sds(key) + 3 + length + 1
        # The deadline is added to an existing string.
        embedded[0] = whole <= EMBEDDED_LIMIT
        if embedded[0]:
            return allocated(layout, whole + (8 if expires else 0))
        return key_with_object(layout, key, expires) + sds_allocated(layout, length)
    embedded[0] = length <= EMBEDDED_STRING_LIMIT
    whole = key_with_object(layout, key, expires)
    if not embedded[0]:
        return whole + sds_allocated(layout, length)
    if layout.generation == REDIS_6:
        # Version 6.2 does not ask the allocator here.
        return whole + length + 2
    return whole - ROBJ + allocated(layout, ROBJ + 3 + length + 1)
