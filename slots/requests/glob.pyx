"""Redis's patterns of names, without a Python object.

``*`` stands for any bytes, ``?`` for one, ``[a-z]`` for one of some, ``[^a-z]`` for one other than these; ``\\`` takes
away the meaning of the next. What is odd is read as Redis reads it: a ``[`` that does not end takes all that follows
for the bytes that it allows, bytes from 128 on come before the others in a range, and the empty name is only of the
empty pattern.

**bounded**: a ``*`` that fails is not tried again for an earlier ``*``, so the time is at most the product of the two
lengths. What Redis finds, this finds: the later ``*`` may take whatever the earlier one could.
"""


cdef inline bint is_in_set(
    const signed char* pattern, size_t size, size_t* place, signed char letter
) noexcept nogil:
    """Whether a byte is of the set at ``place``, behind its ``[``; ``place`` is moved behind the set."""
    cdef size_t at = place[0]
    cdef bint negated = at < size and pattern[at] == c'^'
    cdef bint found = False
    cdef signed char first
    cdef signed char last
    if negated:
        at += 1
    while at < size and pattern[at] != c']':
        if pattern[at] == c'\\' and size - at >= 2:
            at += 1
            found = found or pattern[at] == letter
        elif size - at >= 3 and pattern[at + 1] == c'-':
            first, last = pattern[at], pattern[at + 2]
            if first > last:
                first, last = last, first
            at += 2
            found = found or first <= letter <= last
        else:
            found = found or pattern[at] == letter
        at += 1
    place[0] = at + 1 if at < size else size
    return found != negated


cdef bint matches(const char* pattern, size_t pattern_size, const char* text, size_t size) noexcept nogil:
    """Whether the whole text is of the pattern."""
    cdef const signed char* letters = <const signed char*> pattern
    cdef size_t at = 0
    cdef size_t place = 0
    cdef size_t behind_star = 0
    cdef size_t tried = 0
    cdef size_t following
    cdef bint starred = False
    cdef bint fits
    if size == 0:
        return pattern_size == 0
    while True:
        if at < pattern_size and letters[at] == c'*':
            at += 1
            if at == pattern_size:
                return True
            starred, behind_star, tried = True, at, place
            continue
        if place == size:
            return at == pattern_size
        fits = False
        following = at
        if at < pattern_size:
            if letters[at] == c'?':
                fits = True
                following = at + 1
            elif letters[at] == c'[':
                following = at + 1
                fits = is_in_set(letters, pattern_size, &following, <signed char> text[place])
            else:
                if letters[at] == c'\\' and pattern_size - at >= 2:
                    following = at + 1
                fits = letters[following] == <signed char> text[place]
                following += 1
        if fits:
            at = following
            place += 1
        elif starred:
            tried += 1
            at, place = behind_star, tried
        else:
            return False


def match(bytes pattern, bytes text):
    """Whether the whole text is of the pattern."""
    return matches(pattern, len(pattern), text, len(text))
