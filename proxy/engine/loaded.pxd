"""Code of clients at the servers: which scripts and libraries a request surely finds."""

from libc.stdint cimport int32_t, uint8_t, uint32_t

from proxy.engine.tags cimport Tags
from slots.requests.parsing cimport argument_t

cdef enum:
    # A script's SHA1 in hexadecimal digits.
    DIGEST_LENGTH = 40


cdef class LoadedCode:
    """What is known of one worker's servers."""

    cdef:
        Tags tags
        # By server: the number under which its scripts are remembered.
        uint32_t* numbers
        uint8_t* complete
        int servers
        # The number under which texts are remembered; and the newest of all numbers.
        uint32_t texts
        uint32_t newest

    cdef bint has_script(self, int32_t server, const argument_t* digest) noexcept
    cdef bint has_text(self, const argument_t* body) noexcept
    cdef bint has_libraries(self, int32_t server) noexcept
    cdef bint make_room(self, int32_t server) except False
