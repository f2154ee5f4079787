"""What other compiled modules may use of :mod:`rdb.packed`."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

# Their order is that of FORMS.
cdef enum:
    LISTPACK_FORM = 0
    ZIPLIST_FORM = 1
    INTSET_FORM = 2
    ZIPMAP_FORM = 3

# What comes of looking for the next item.
cdef enum:
    ENDED = 0
    FOUND = 1
    # Bytes that no server writes.
    TOO_EARLY = 2
    ENDLESS = 3


# One item: a number, or the string at `data`.
cdef struct Item:
    const uint8_t* data
    uint64_t length
    int64_t number


# A collection that is taken apart.
cdef struct Collection:
    int form
    # The next item; NULL behind a fault.
    const uint8_t* at
    const uint8_t* end
    # Of an intset: bytes of a number. Of a zipmap: whether a value comes next.
    int width
    bint of_value


# Begins with the first item of the whole collection in `size` bytes, which have to stay. Gives what is wrong with it, or
# None.
cdef str open_collection(Collection* opened, const uint8_t* start, uint64_t size, int form)
# Its string is valid as long as the collection's bytes.
cdef int next_item(Collection* opened, Item* item) noexcept nogil
# What is wrong, for an outcome that is neither FOUND nor ENDED.
cdef str fault_of(int outcome)
