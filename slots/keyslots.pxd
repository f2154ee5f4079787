"""The slot of a key, for compiled modules."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from slots.functions cimport slot_function
from slots.patterns cimport FIRST_BYTES, pattern_t

cdef enum:
    # A power of two.
    DATABASES = 64


@cython.final
cdef class KeySlots:
    """Which slot each key of a product has."""

    cdef slot_function hash_key
    cdef readonly str function
    cdef readonly uint32_t number_of_slots
    # Of slots.rules.SlotRule; `patterns` are the same, compiled.
    cdef readonly tuple rules
    cdef pattern_t* patterns
    # Which rules may match a key, by the first bytes that it may have, and by its database, of which the last bits
    # count. Bit n is for rule n, so that a look rules out all rules at once that begin with something else.
    cdef uint64_t[FIRST_BYTES][256] beginning
    cdef uint64_t[DATABASES] about

    cdef inline uint32_t of(self, int database, const char* key, size_t length) noexcept nogil:
        """The slot of the ``length`` bytes at ``key``, a key of a database."""
        # Most keys cost no more than this look. An empty key can be matched by what may match any first byte.
        if self.beginning[0][<uint8_t>key[0] if length else 0] == 0:
            return self.hash_key(key, length, self.number_of_slots)
        return self.by_rules(database, key, length)

    cdef inline uint32_t of_channel(self, const char* channel, size_t length) noexcept nogil:
        """The slot of a channel of pub/sub. It is no key, so no rule says anything about it."""
        return self.hash_key(channel, length, self.number_of_slots)

    cdef int add(self, int number, rule) except -1
    cdef uint32_t by_rules(self, int database, const char* key, size_t length) noexcept nogil
    cdef uint32_t by_candidates(
        self, uint64_t candidates, int database, const char* key, size_t length
    ) noexcept nogil
