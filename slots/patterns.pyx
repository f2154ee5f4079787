"""Patterns of slot rules, as :mod:`slots.rules` explains them, over C memory.

Each literal is looked for once, from the end of the one before on. The leftmost place leaves most room for what
follows, so nothing is tried twice. The time is at most the length of the key by that of the pattern, which is bounded.
"""

from libc.stdint cimport SIZE_MAX
from libc.string cimport memcmp


cdef extern from *:
    """
    #include <string.h>
    /* The first place of a text that is not empty, in at least as many bytes; NULL if there is none. */
    static const char *slotferry_find(const char *from, size_t size, const char *text, size_t length) {
        const char *end = from + size - length, *found;
        while (from <= end) {
            found = (const char *) memchr(from, text[0], (size_t) (end - from) + 1);
            if (found == NULL || memcmp(found, text, length) == 0) return found;
            from = found + 1;
        }
        return NULL;
    }
    """
    const char* slotferry_find(const char* start, size_t size, const char* text, size_t length) noexcept nogil


cdef int compile_rule(rule, pattern_t* pattern) except -1:
    cdef bytes text
    cdef int i = 0
    pattern.database = EVERY_DATABASE if rule.database is None else rule.database
    pattern.literals = len(rule.literals)
    for text in rule.literals:
        pattern.literal[i].text = text
        pattern.literal[i].length = len(text)
        i += 1
    pattern.opened = NO_PART
    if rule.part is not None:
        pattern.opened, pattern.opened_at, pattern.closed, pattern.closed_at = rule.part
    pattern.one_byte_behind = SIZE_MAX
    if (
        pattern.literals == 3
        and pattern.literal[0].length <= FIRST_BYTES
        and pattern.literal[1].length == 1
        and pattern.literal[2].length == 0
    ):
        pattern.one_byte_behind = pattern.literal[0].length
    pattern.enough = SIZE_MAX
    if rule.literals[1:] == (b"",) and pattern.literal[0].length <= FIRST_BYTES:
        # A part is not empty.
        pattern.enough = pattern.literal[0].length
        if rule.part is not None and pattern.opened_at == pattern.enough:
            pattern.enough += 1
    return 0


cdef bint matches(
    const pattern_t* pattern, const char* key, size_t length, const char** part, size_t* part_length
) noexcept nogil:
    cdef size_t first = pattern.literal[0].length
    cdef const char* end = key + length
    cdef const char* position = key + first
    cdef const char* found
    cdef const char* opened = key + pattern.opened_at
    cdef int last = pattern.literals - 1
    cdef int i
    if length < first or (
        first > FIRST_BYTES
        and memcmp(key + FIRST_BYTES, pattern.literal[0].text + FIRST_BYTES, first - FIRST_BYTES)
    ):
        return False
    if last == 0:
        return position == end
    for i in range(1, last + 1):
        if i < last:
            if <size_t>(end - position) < pattern.literal[i].length:
                return False
            found = slotferry_find(
                position, <size_t>(end - position), pattern.literal[i].text, pattern.literal[i].length
            )
        else:
            found = end - pattern.literal[i].length
            if <size_t>(end - position) < pattern.literal[i].length or (
                pattern.literal[i].length and memcmp(found, pattern.literal[i].text, pattern.literal[i].length)
            ):
                return False
        if found == NULL:
            return False
        if i == pattern.opened:
            opened = found + pattern.opened_at
        if i == pattern.closed and pattern.opened != NO_PART:
            part[0] = opened
            part_length[0] = <size_t>(found + pattern.closed_at - opened)
            if part_length[0] == 0:
                return False
        position = found + pattern.literal[i].length
    return True
