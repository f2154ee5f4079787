"""SCAN's pages in the middle of a group's server."""

from libc.stdint cimport int64_t

from proxy.engine.session cimport Session
from proxy.engine.verdicts cimport VERDICT_FAILED, verdict
from slots.requests.parsing cimport argument_t


cdef class Pages:
    """What is known about scanning the groups, by one table."""

    cdef:
        readonly int64_t generation
        dict groups
        object first
        bytes reserved


cdef verdict scan(
    Session session, const argument_t* arguments, int count, const char* data, size_t size
) except VERDICT_FAILED
