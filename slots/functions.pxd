"""What other compiled modules may use of :mod:`slots.functions`."""

from libc.stdint cimport uint32_t

# Gives the slot of the `length` bytes at `key`. `number_of_slots` is a power of two; the slot is below it.
ctypedef uint32_t (*slot_function)(const char* key, size_t length, uint32_t number_of_slots) noexcept nogil

# Raises ValueError for a name that names() does not give. Ask once and keep the pointer.
cdef slot_function find(str name) except NULL

# Raises ValueError unless it is a power of two up to 16384.
cdef uint32_t checked(number_of_slots) except 0
