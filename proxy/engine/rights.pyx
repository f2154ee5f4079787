"""Which requests of a limited user the engine lets through by itself.

A user who may do everything has none of this. For the others there is one byte a command: the request may pass; or it
passes if its keys, at fixed places, are of the user's patterns; or plain Python decides (:mod:`proxy.users`), which is
exact, and gives the error. What does not pass here is not refused, it is only decided there.
"""

from libc.stdint cimport int16_t, uint8_t
from libc.stdlib cimport calloc, free

from slots.requests.commandlookup cimport PATH_KEYED, PATH_SPLIT, command_t
from slots.requests.glob cimport matches
from slots.requests.parsing cimport argument_t

cdef enum:
    MAY_PASS = 0
    # The other bits say what it may do with its keys: those of slots.keyaccess.
    HAS_KEYS = 4
    IS_DECIDED = 255

FREE = MAY_PASS
KEYED = HAS_KEYS
DECIDED = IS_DECIDED


cdef class CommandRights:
    """What one user may do, by the number of a command.

    Args:
        needs: FREE, DECIDED, or KEYED with what the command may do with its keys; a command beyond the end is DECIDED.
        patterns: patterns of keys, each with what the user may do with these keys.
    """

    def __init__(self, bytes needs, patterns):
        cdef bytes text
        cdef int index
        self.needs = needs
        self.need = <const uint8_t*> <const char*> needs
        self.count = len(needs)
        self.texts = [text for text, _ in patterns]
        free(self.patterns)
        self.number_of_patterns = 0
        self.patterns = <pattern_t*> calloc(len(patterns) + 1, sizeof(pattern_t))
        if self.patterns == NULL:
            raise MemoryError
        for index, (_, allows) in enumerate(patterns):
            text = self.texts[index]
            self.patterns[index].text = text
            self.patterns[index].size = len(text)
            self.patterns[index].allows = allows
        self.number_of_patterns = len(patterns)

    def __dealloc__(self):
        free(self.patterns)

    cdef bint passes(
        self, int16_t number, const command_t* row, const argument_t* arguments, int count
    ) noexcept:
        """Whether a request may be sent without a further look at it."""
        cdef uint8_t need = self.need[number] if number < self.count else <uint8_t> IS_DECIDED
        cdef int last
        cdef int place
        if need == MAY_PASS:
            return True
        if need == IS_DECIDED or (row.path != PATH_KEYED and row.path != PATH_SPLIT):
            return False
        if row.first >= count or (count != row.arity if row.arity >= 0 else count < -row.arity):
            return False
        last = row.last if row.last >= 0 else count + row.last
        if last >= count:
            last = count - 1
        place = row.first
        while place <= last:
            if not self.has_key(arguments[place], need - HAS_KEYS):
                return False
            place += row.step
        return True

    cdef bint has_key(self, argument_t key, int need) noexcept:
        cdef pattern_t* pattern
        cdef int index
        for index in range(self.number_of_patterns):
            pattern = &self.patterns[index]
            if pattern.allows & need == need and matches(pattern.text, pattern.size, key.data, key.size):
                return True
        return False
