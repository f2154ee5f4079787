"""Finding a command's row by its name, without a Python object."""

from libc.stdint cimport int16_t, uint8_t

cdef enum:
    LONGEST_NAME = 24

ctypedef enum command_path:
    # Keys at fixed places; all of them have to share a slot.
    PATH_KEYED
    # Split over slots; the replies are put together again.
    PATH_SPLIT
    # Answered on the spot.
    PATH_PING
    # Everything else: plain Python decides.
    PATH_SLOW

ctypedef struct command_t:
    char name[LONGEST_NAME]
    uint8_t length
    uint8_t path
    uint8_t split
    # The command has the flag write, or readonly.
    uint8_t writes
    uint8_t reads
    # The command may remove a key that it names.
    uint8_t takes_away
    # Of proxy.engine.statistics.
    int16_t number
    int16_t arity
    int16_t first
    int16_t last
    int16_t step


cdef class CommandLookup:
    """A hash table of :data:`command_t`, filled from :mod:`slots.commands`."""

    cdef:
        command_t* rows
        size_t mask

    cdef const command_t* find(self, const char* name, size_t size) noexcept
