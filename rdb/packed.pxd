"""What other compiled modules may use of :mod:`rdb.packed`."""

from libc.stdint cimport uint8_t

# Their order is that of FORMS.
cdef enum:
    LISTPACK_FORM = 0
    ZIPLIST_FORM = 1
    INTSET_FORM = 2
    ZIPMAP_FORM = 3


cdef class Packed:
    cdef bytes _blob
    cdef int _form
    # The next item; NULL behind a fault.
    cdef const uint8_t* _at
    cdef const uint8_t* _end
    # Of an intset: bytes of a number. Of a zipmap: whether a value comes next.
    cdef int _width
    cdef bint _of_value
