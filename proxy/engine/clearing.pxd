"""Looks for the keys of a request whose slots are not at rest."""

from libc.stdint cimport int64_t

from proxy.engine.router cimport Router
from proxy.engine.session cimport Session
from proxy.engine.verdicts cimport VERDICT_FAILED, verdict
from slots.requests.parsing cimport argument_t


cdef verdict clear_keys(Session session, const argument_t* keys, int count, int step) except VERDICT_FAILED


cdef class Clearing:
    """The keys of the request at the front of one session, with the number of those known to be absent by now."""

    cdef:
        Router router
        readonly Session session
        # The session's, which changes with what it waits for.
        int64_t stage
        int64_t generation
        int database
        bint asks
        char* data
        size_t* sizes
        int count
        # The next key, and the place where it begins.
        int index
        size_t position
        double deadline
        bint met_big

    cdef bint copy(self, const argument_t* keys, int count, int step) noexcept
    cdef object collect(self)
