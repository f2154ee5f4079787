"""Patterns of slot rules, for compiled modules."""

from libc.stdint cimport int32_t, uint32_t

cdef enum:
    # So many first bytes of a key are looked at for all rules at once.
    FIRST_BYTES = 8
    # slots.rules.MOST_STARS and one more.
    MOST_LITERALS = 9
    EVERY_DATABASE = -1
    # Of pattern_t.opened: no part in parentheses.
    NO_PART = -1

ctypedef struct literal_t:
    const char* text
    size_t length

ctypedef struct pattern_t:
    # The database whose keys it is about, or EVERY_DATABASE.
    int32_t database
    # There is a star between each two literals.
    int literals
    literal_t[MOST_LITERALS] literal
    # The part that is hashed: indices of literals, and offsets in them.
    int opened
    size_t opened_at
    int closed
    size_t closed_at
    # Without such a part: the slot of all that match.
    uint32_t slot
    # A key of so many bytes matches if its first ones, up to FIRST_BYTES, are those of the first literal. What is hashed
    # is then all from `opened_at` on.
    size_t enough

# Takes a slots.rules.SlotRule, which has to live as long as the pattern.
cdef int compile_rule(rule, pattern_t* pattern) except -1

# Whether the key matches, whose first bytes, up to FIRST_BYTES, are known to be those of the first literal. Then `part` and `part_length` are what is hashed, if the pattern has a part in parentheses.
cdef bint matches(
    const pattern_t* pattern, const char* key, size_t length, const char** part, size_t* part_length
) noexcept nogil
