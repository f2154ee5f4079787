"""Finds the keys of a request whose arguments say where they are, as the rules of :mod:`slots.keys` do.

Only requests that are plainly right are looked at here. Whatever else there is goes to plain Python, which has the same
rules and gives Redis's own errors. So a rule that is missing here costs time and nothing else.

**one-owner**: a key that was missed would go to a server that does not own its slot. A test compares both readings on
random arguments.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from slots.requests.commandlookup cimport PATH_COUNTED, PATH_POP, PATH_STREAMS, CommandLookup, command_t, upper
from slots.requests.parsing cimport argument_t

cdef enum:
    # Digits of a number of keys; a longer one is more than a request may have arguments.
    MOST_DIGITS = 7


cdef inline bint is_word(const argument_t* argument, const char* word, size_t size) noexcept nogil:
    """Whether an argument is this word, which is in capital letters."""
    cdef size_t index
    if argument.size != size:
        return False
    for index in range(size):
        if upper(argument.data[index]) != word[index]:
            return False
    return True


cdef inline int64_t number_of(const argument_t* argument) noexcept nogil:
    """A number above 0 as Redis reads it; 0 for anything else."""
    cdef int64_t value = 0
    cdef size_t index
    if argument.size == 0 or argument.size > MOST_DIGITS or argument.data[0] == c'0':
        return 0
    for index in range(argument.size):
        if not c'0' <= argument.data[index] <= c'9':
            return 0
        value = value * 10 + argument.data[index] - c'0'
    return value


cdef int find_keys(const command_t* row, const argument_t* arguments, int count, argument_t* keys) noexcept:
    """Copy the places of a request's keys to ``keys``, which has room for ``count``; give their number.

    0 where there are none, or where plain Python has to look.
    """
    if row.path == PATH_STREAMS:
        return streams(row, arguments, count, keys)
    if row.count_at:
        return counted(row, arguments, count, keys)
    return fixed(row, arguments, count, keys)


cdef int fixed(const command_t* row, const argument_t* arguments, int count, argument_t* keys) noexcept:
    """Keys at places that the row names."""
    cdef int last = row.last if row.last >= 0 else count + row.last
    cdef int index
    cdef int found = 0
    if count != row.arity if row.arity >= 0 else last >= count:
        return 0
    index = row.first
    while index < last + 1:
        keys[found] = arguments[index]
        found += 1
        index += row.step
    return found


cdef int counted(const command_t* row, const argument_t* arguments, int count, argument_t* keys) noexcept:
    """A number, and so many keys behind it; for a command that stores, its target too."""
    cdef int64_t number
    cdef int target = row.first
    if row.count_at >= count:
        return 0
    number = number_of(&arguments[row.count_at])
    if number < 1 or number > count - row.count_at - 1 - row.following:
        return 0
    if target:
        keys[0] = arguments[target]
        keys += 1
    memcpy(keys, arguments + row.count_at + 1, sizeof(argument_t) * number)
    return <int> number + (target > 0)


cdef int streams(const command_t* row, const argument_t* arguments, int count, argument_t* keys) noexcept:
    """The first half of what follows STREAMS. A request that blocks is for plain Python."""
    cdef int index = 1
    cdef int more
    cdef bint grouped = False
    while index < count:
        more = count - index - 1
        if is_word(&arguments[index], b"STREAMS", 7):
            if more == 0 or more % 2 or grouped != row.grouped:
                return 0
            memcpy(keys, arguments + index + 1, sizeof(argument_t) * (more // 2))
            return more // 2
        if is_word(&arguments[index], b"COUNT", 5) and more and number_of(&arguments[index + 1]):
            index += 2
        elif row.grouped and is_word(&arguments[index], b"GROUP", 5) and more >= 2:
            grouped = True
            index += 3
        elif row.grouped and is_word(&arguments[index], b"NOACK", 5):
            index += 1
        else:
            return 0
    return 0


def keys_of(CommandLookup lookup, list argv):
    """The keys of a request, for tests; None where plain Python has to look."""
    cdef argument_t* arguments = <argument_t*> malloc(sizeof(argument_t) * 2 * len(argv))
    cdef const command_t* row
    cdef bytes argument
    cdef int index
    cdef int found = 0
    if arguments == NULL:
        raise MemoryError
    try:
        for index in range(len(argv)):
            argument = argv[index]
            arguments[index].data = argument
            arguments[index].size = len(argument)
        row = lookup.find(arguments[0].data, arguments[0].size)
        if row != NULL and row.path in (PATH_COUNTED, PATH_POP, PATH_STREAMS):
            found = find_keys(row, arguments, len(argv), arguments + len(argv))
        keys = [arguments[index].data[:arguments[index].size] for index in range(len(argv), len(argv) + found)]
    finally:
        free(arguments)
    return keys or None
