"""The slot of a key, for compiled modules."""

from libc.stdint cimport uint32_t

from slots.functions cimport slot_function


cdef class KeySlots:
    """Which slot each key of a product has."""

    cdef slot_function hash_key
    cdef readonly str function
    cdef readonly uint32_t number_of_slots

    cdef inline uint32_t of(self, int database, const char* key, size_t length) noexcept nogil:
        """The slot of the ``length`` bytes at ``key``, a key of a database."""
        return self.hash_key(key, length, self.number_of_slots)
