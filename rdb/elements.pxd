"""What other compiled modules may use of :mod:`rdb.elements`."""

from rdb.input cimport Input

cdef object elements(Input source, int code, bint valkey)
