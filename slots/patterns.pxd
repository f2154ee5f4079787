"""Patterns of slot rules, for compiled modules."""

from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum:
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
    # The first bytes of its first literal, and which of the eight there are: head_of() of a key that matches is the
    # same there.
    uint64_t head
    uint64_t head_mask
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

cdef inline uint64_t head_of(const char* text, size_t length) noexcept nogil:
    """Its first eight bytes, with zeros behind a shorter one."""
    cdef uint64_t head = 0
    # Of a known length, it is one load.
    if length >= 8:
        memcpy(&head, text, 8)
    else:
        memcpy(&head, text, length)
    return head

# Takes a slots.rules.SlotRule, which has to live as long as the pattern.
cdef int compile_rule(rule, pattern_t* pattern) except -1

# Whether the key matches. Then `part` and `part_length` are what is hashed, if the pattern has a part in parentheses.
cdef bint matches(
    const pattern_t* pattern, const char* key, size_t length, const char** part, size_t* part_length
) noexcept nogil
