"""Values of hot keys, from which a worker answers GET by itself."""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t

from proxy.engine.session cimport Session
from slots.requests.commandlookup cimport command_t
from slots.requests.parsing cimport argument_t

cdef enum:
    # Values of a worker at once.
    VALUE_PLACES = 64
    VALUE_CHAINS = 128

ctypedef struct value_t:
    # The place of a value that is not there has no reply.
    uint64_t hash
    int32_t database
    int32_t slot
    # Of the slot's route, and of the router, when the value was asked for.
    uint32_t changes
    int64_t ruling
    # The number of the question whose answer it is.
    int64_t number
    # On the loop's clock.
    double until
    # The next value of its chain.
    int16_t following
    # As in RESP2, and whether it is nothing, which RESP3 says in another way.
    bint is_nothing


@cython.final
cdef class HotValues:
    """The values of one worker."""

    cdef:
        value_t values[VALUE_PLACES]
        int16_t chains[VALUE_CHAINS]
        # By place: the key, or None; and the reply.
        list keys
        list replies
        # How many questions have been asked.
        readonly int64_t asked
        # Until when the worker is told of every change, on the loop's clock.
        public double until
        # Requests that were answered from here.
        readonly int64_t answered
        # Called with database and key where a session needs a value that is asked for later.
        public object on_old

    cdef int find(self, int database, const char* key, size_t size) noexcept


cdef bint answers(Session session, const command_t* row, const argument_t* arguments, int count) except -1
