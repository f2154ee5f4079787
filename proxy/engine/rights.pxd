"""Which requests of a limited user the engine lets through by itself."""

from libc.stdint cimport int16_t, uint8_t

from slots.requests.commandlookup cimport command_t
from slots.requests.parsing cimport argument_t

ctypedef struct pattern_t:
    const char* text
    size_t size
    uint8_t allows


cdef class CommandRights:
    """What one user may do, by the number of a command."""

    cdef:
        bytes needs
        const uint8_t* need
        int count
        list texts
        pattern_t* patterns
        int number_of_patterns

    cdef bint has_key(self, argument_t key, int need) noexcept
    cdef bint passes(
        self, int16_t number, const command_t* row, const argument_t* arguments, int count
    ) noexcept
