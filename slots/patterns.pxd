"""Patterns of slot rules, for compiled modules."""

from libc.stdint cimport int32_t, uint8_t, uint32_t

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
    # A longer key matches if its first ones are those of the first literal, and the one byte of the second literal
    # stands behind so many.
    size_t one_byte_behind

# Takes a slots.rules.SlotRule, which has to live as long as the pattern.
cdef int compile_rule(rule, pattern_t* pattern) except -1

# Whether the key matches, whose first bytes, up to FIRST_BYTES, are known to be those of the first literal. Then `part` and `part_length` are what is hashed, if the pattern has a part in parentheses.
cdef bint matches(
    const pattern_t* pattern, const char* key, size_t length, const char** part, size_t* part_length
) noexcept nogil

# The first place of a byte in `size` bytes, NULL if there is none. It is in line, for keys are short.
cdef extern from *:
    """
    #ifndef SLOTFERRY_FIRST
    #define SLOTFERRY_FIRST
    #include <stdint.h>
    #include <string.h>
    /* The bits of a word that are not zero where its byte is zero, exact up to the lowest one (H. Warren: Hacker's
       Delight, 6-1). The word is eight bytes of a text, the first one lowest. */
    static inline uint64_t slotferry_zeros(const char *from, uint64_t bytes) {
        const uint64_t ones = UINT64_C(0x0101010101010101);
        uint64_t word;
        memcpy(&word, from, 8);
    #if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
    #endif
        word ^= bytes;
        return (word - ones) & ~word & ones << 7;
    }
    static inline const char *slotferry_first(const char *from, size_t size, uint8_t byte) {
        const uint64_t bytes = UINT64_C(0x0101010101010101) * byte;
        const char *end = from + size;
        uint64_t zeros;
        if (size < 8) {
            for (; from < end; from++) if ((uint8_t) *from == byte) return from;
            return NULL;
        }
        for (; end - from >= 8; from += 8)
            if ((zeros = slotferry_zeros(from, bytes))) return from + (__builtin_ctzll(zeros) >> 3);
        /* The bytes before the rest are looked at again, and are others. */
        zeros = from < end ? slotferry_zeros(end - 8, bytes) : 0;
        return zeros ? end - 8 + (__builtin_ctzll(zeros) >> 3) : NULL;
    }
    #endif
    """
    const char* slotferry_first(const char* start, size_t size, uint8_t byte) noexcept nogil
