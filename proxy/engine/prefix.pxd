"""The prefix of a user's keys, in the form for the engine."""

from libc.stdint cimport int16_t, uint8_t

from proxy.engine.buffer cimport buffer_t
from slots.requests.parsing cimport argument_t


cdef class Prefix:
    """What stands before every key that a user names."""

    cdef:
        readonly bytes text
        # Gives a request with the prefix where the engine cannot tell the places of keys.
        readonly object changed
        bytes naming
        const uint8_t* names
        int count

    cdef bint put(
        self, const char* data, size_t size, const argument_t* keys, int found, buffer_t* real
    ) noexcept
    cdef bytes hide(self, int16_t number, bytes reply)


cdef bytes without_arguments(bytes error)
