"""Which slot each key of a product has. Everybody who needs the slot of a key asks here: the engine, the migrator, the
checks of copies, and the sizing, by whose figures is planned.

A slot function does not look at the database; a product's rules (:mod:`slots.rules`) may.
"""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from slots.functions cimport checked, find
from slots.patterns cimport EVERY_DATABASE, FIRST_BYTES, NO_PART, compile_rule, matches, pattern_t, slotferry_first

from slots import rules as slot_rules


cdef extern from *:
    """
    #define slotferry_lowest(bits) __builtin_ctzll(bits)
    """
    int slotferry_lowest(uint64_t bits) noexcept nogil


cdef inline uint64_t candidates_of(KeySlots slots, int database, const char* key, size_t length) noexcept nogil:
    """The rules that match a key's first bytes, and that may be about its database."""
    cdef uint64_t found = slots.about[database & (DATABASES - 1)]
    cdef int i
    if length < FIRST_BYTES:
        for i in range(<int>length):
            found &= slots.beginning[i][<uint8_t>key[i]]
        return found
    # A number of looks that is known needs no loop.
    for i in range(FIRST_BYTES):
        found &= slots.beginning[i][<uint8_t>key[i]]
    return found


cdef inline int deciding(
    KeySlots slots,
    uint64_t candidates,
    int database,
    const char* key,
    size_t length,
    const char** part,
    size_t* part_length,
) noexcept nogil:
    """The number of the candidate that decides the slot of a key, -1 for none; what it hashes is as for ``matches``."""
    cdef const pattern_t* pattern
    cdef int number
    while candidates:
        number = slotferry_lowest(candidates)
        pattern = &slots.patterns[number]
        if (pattern.database == EVERY_DATABASE or pattern.database == database) and matches(
            pattern, key, length, part, part_length
        ):
            return number
        candidates &= candidates - 1
    return -1


@cython.final
cdef class KeySlots:
    """Which slot each key of a product has.

    Args:
        function: name of the product's slot function, see :mod:`slots.functions`.
        number_of_slots: a power of two up to 16384.
        rules: the product's slot rules, of which the first that matches a key decides.

    Raises:
        ValueError: for an unknown function, another number of slots, or rules that :func:`slots.rules.checked` refuses.
    """

    def __cinit__(self, str function not None, number_of_slots, rules=()):
        self.hash_key = find(function)
        self.function = function
        self.number_of_slots = checked(number_of_slots)
        self.rules = slot_rules.checked(rules)
        self.patterns = <pattern_t*>calloc(len(self.rules) + 1, sizeof(pattern_t))
        if self.patterns == NULL:
            raise MemoryError
        for i, rule in enumerate(self.rules):
            self.add(i, rule)

    def __dealloc__(self):
        free(self.patterns)

    def __reduce__(self):
        return KeySlots, (self.function, self.number_of_slots, self.rules)

    cdef int add(self, int number, rule) except -1:
        cdef pattern_t* pattern = &self.patterns[number]
        cdef uint64_t bit = <uint64_t>1 << number
        cdef int byte, place
        cdef bytes tag
        compile_rule(rule, pattern)
        if rule.tag is not None:
            tag = rule.tag.encode()
            pattern.slot = self.hash_key(tag, len(tag), self.number_of_slots)
        for place in range(FIRST_BYTES):
            for byte in range(256):
                if place >= <int>pattern.literal[0].length or <uint8_t>pattern.literal[0].text[place] == byte:
                    self.beginning[place][byte] |= bit
        for place in range(DATABASES):
            if pattern.database == EVERY_DATABASE or pattern.database & (DATABASES - 1) == place:
                self.about[place] |= bit
        return 0

    cdef uint32_t by_rules(self, int database, const char* key, size_t length) noexcept nogil:
        cdef uint64_t candidates = candidates_of(self, database, key, length)
        cdef const pattern_t* pattern
        cdef const char* found
        cdef const char* part
        cdef const char* end
        # Most keys that begin with a rule's first byte cost no more than this.
        if candidates == 0:
            return self.hash_key(key, length, self.number_of_slots)
        # Most rules ask for no more than a beginning, and maybe for one byte behind it.
        pattern = &self.patterns[slotferry_lowest(candidates)]
        if pattern.database == EVERY_DATABASE or pattern.database == database:
            if length >= pattern.enough:
                if pattern.opened == NO_PART:
                    return pattern.slot
                return self.hash_key(key + pattern.opened_at, length - pattern.opened_at, self.number_of_slots)
            if length > pattern.one_byte_behind:
                found = slotferry_first(
                    key + pattern.one_byte_behind, length - pattern.one_byte_behind, pattern.literal[1].text[0]
                )
                if found != NULL:
                    if pattern.opened == NO_PART:
                        return pattern.slot
                    part = (found if pattern.opened else key) + pattern.opened_at
                    end = found + pattern.closed_at if pattern.closed == 1 else key + length
                    if end > part:
                        return self.hash_key(part, end - part, self.number_of_slots)
        return self.by_candidates(candidates, database, key, length)

    cdef uint32_t by_candidates(
        self, uint64_t candidates, int database, const char* key, size_t length
    ) noexcept nogil:
        cdef const char* part
        cdef size_t part_length
        cdef int number = deciding(self, candidates, database, key, length, &part, &part_length)
        if number < 0:
            return self.hash_key(key, length, self.number_of_slots)
        if self.patterns[number].opened == NO_PART:
            return self.patterns[number].slot
        return self.hash_key(part, part_length, self.number_of_slots)

    def rule_of(self, int database, bytes key not None) -> object:
        """The rule that decides the slot of a key, or ``None``."""
        cdef const char* part
        cdef size_t part_length
        cdef uint64_t candidates = candidates_of(self, database, key, len(key))
        cdef int number = deciding(self, candidates, database, key, len(key), &part, &part_length)
        return None if number < 0 else self.rules[number]

    def hashed(self, int database, bytes key not None) -> bytes:
        """What is hashed of a key; if that has a hash tag, only the tag counts."""
        cdef const char* part
        cdef size_t part_length
        cdef uint64_t candidates = candidates_of(self, database, key, len(key))
        cdef int number = deciding(self, candidates, database, key, len(key), &part, &part_length)
        if number < 0:
            return key
        if self.patterns[number].opened == NO_PART:
            return self.rules[number].tag.encode()
        return part[:part_length]

    def slot_of(self, int database, bytes key not None) -> int:
        """The slot of one key."""
        return self.of(database, key, len(key))

    def slots_of(self, int database, list keys not None) -> list[int]:
        """The slots of many keys of one database, in their order."""
        cdef bytes key
        found = []
        for key in keys:
            found.append(self.of(database, key, len(key)))
        return found

    def select(self, int database, list keys not None, bytes wanted not None) -> list[bytes]:
        """The keys whose slot is marked in ``wanted``, in their order. ``wanted`` has one byte a slot, not zero for a
        wanted slot.

        Raises:
            ValueError: ``wanted`` has not as many bytes as there are slots.
        """
        cdef const uint8_t* marks = wanted
        cdef bytes key
        if len(wanted) != self.number_of_slots:
            raise ValueError(f"{len(wanted)} slots are marked as wanted or not; there are {self.number_of_slots}")
        found = []
        for key in keys:
            if marks[self.of(database, key, len(key))]:
                found.append(key)
        return found

    def misplaced(self, int database, list keys not None, KeySlots other not None, bytes here not None) -> list[bytes]:
        """The keys whose slot is marked in ``here`` by these rules and not by the ``other`` ones, or the other way.

        ``here`` has one byte a slot, not zero for a marked slot. Raises :class:`ValueError` if it does not.
        """
        cdef const uint8_t* marks = here
        cdef bytes key
        if not len(here) == self.number_of_slots == other.number_of_slots:
            raise ValueError(f"{len(here)} slots are marked or not; there are {self.number_of_slots}")
        found = []
        for key in keys:
            if marks[self.of(database, key, len(key))] != marks[other.of(database, key, len(key))]:
                found.append(key)
        return found
