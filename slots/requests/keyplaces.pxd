"""The keys of a request whose arguments say where they are."""

from slots.requests.commandlookup cimport command_t
from slots.requests.parsing cimport argument_t

cdef int find_keys(const command_t* row, const argument_t* arguments, int count, argument_t* keys) noexcept
