"""What other compiled modules may use of :mod:`rdb.lastvalue`."""

from rdb.records cimport Records


cdef class LastValue:
    cdef Records _records
    # Whether it is still to be read; and its elements, if somebody reads these.
    cdef bint unread
    cdef object _elements

    cdef int pass_over(self) except -1
    cdef object elements(self)
