"""Finding a command's row by its name, without a Python object."""

from libc.stdint cimport int16_t, uint8_t

cdef enum:
    LONGEST_NAME = 24

ctypedef enum command_path:
    # Keys at fixed places; all of them have to share a slot.
    PATH_KEYED
    # A number says how many keys follow it; they have to share a slot, too.
    PATH_COUNTED
    # The keys follow the word STREAMS.
    PATH_STREAMS
    # It takes something away, or waits until there is something; its keys stand as above.
    PATH_POP
    PATH_SCAN
    # The second word names the row that counts.
    PATH_CONTAINER
    # Split over slots; the replies are put together again.
    PATH_SPLIT
    # Answered on the spot.
    PATH_PING
    # The bounds of a transaction.
    PATH_MULTI
    PATH_EXEC
    PATH_WATCH
    # Goes by a channel, which is no key.
    PATH_CHANNEL
    # Everything else: plain Python decides.
    PATH_SLOW

ctypedef enum code_kind:
    CODE_NONE
    # The request brings a script.
    CODE_TEXT
    # The request names a script that the server has to have.
    CODE_DIGEST
    # The request calls a function of a library that the server has to have.
    CODE_FUNCTION

ctypedef enum split_kind:
    # Each key has one element in the reply (MGET).
    SPLIT_ELEMENTS
    # Parts answer with numbers that add up (DEL, EXISTS, ...).
    SPLIT_SUM
    # Parts answer OK (MSET).
    SPLIT_STATUS

ctypedef struct command_t:
    char name[LONGEST_NAME]
    uint8_t length
    uint8_t path
    # A split_kind, of PATH_SPLIT.
    uint8_t split
    # The command has the flag write, or readonly.
    uint8_t writes
    uint8_t reads
    # It may be kept for EXEC without a further look at it: its keys stand at fixed places.
    uint8_t queueable
    # The command may remove a key that it names.
    uint8_t takes_away
    # The number that the user of the table gave it.
    int16_t number
    int16_t arity
    int16_t first
    int16_t last
    int16_t step
    # Of keys that are counted: the place of the number, and the least number of arguments behind the keys. ``first`` is
    # the place of another key then, or 0.
    int16_t count_at
    int16_t following
    # Of PATH_STREAMS: the command reads as a member of a group.
    uint8_t grouped
    # A code_kind: what else the server has to have.
    uint8_t code
    # If its keys are of several slots, plain Python has a way.
    uint8_t apart


cdef inline char upper(char letter) noexcept nogil:
    return letter - 32 if c'a' <= letter <= c'z' else letter


cdef class CommandLookup:
    """A hash table of :data:`command_t`, filled from :mod:`slots.commands`."""

    cdef:
        command_t* rows
        size_t mask

    cdef const command_t* find(self, const char* name, size_t size) noexcept
    cdef const command_t* find_within(self, const command_t* container, const char* name, size_t size) noexcept
