"""Finding a command's row by its name, without a Python object.

It is a hash table of upper-cased names with open addressing. It is built once, from :mod:`slots.commands`.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from proxy.engine.records cimport SPLIT_ELEMENTS, SPLIT_STATUS, SPLIT_SUM
from proxy.engine.statistics cimport Statistics

from slots.commands import Route

SPLIT_KINDS = {
    "MGET": SPLIT_ELEMENTS,
    "MSET": SPLIT_STATUS,
    "DEL": SPLIT_SUM,
    "UNLINK": SPLIT_SUM,
    "EXISTS": SPLIT_SUM,
    "TOUCH": SPLIT_SUM,
}


cdef inline char upper(char letter) noexcept nogil:
    return letter - 32 if c'a' <= letter <= c'z' else letter


cdef inline uint32_t hash_name(const char* name, size_t size) noexcept nogil:
    """FNV-1a of the name in capital letters."""
    cdef uint32_t value = 2166136261
    cdef size_t index
    for index in range(size):
        value = (value ^ <uint32_t> upper(name[index])) * 16777619
    return value


cdef inline bint is_named(const command_t* row, const char* name, size_t size) noexcept nogil:
    cdef size_t index
    if row.length != size:
        return False
    for index in range(size):
        if row.name[index] != upper(name[index]):
            return False
    return True


cdef class CommandLookup:
    """A hash table of :data:`command_t`, filled from :mod:`slots.commands`.

    Args:
        commands: name to :class:`slots.commands.Command`; subcommands (``OBJECT|ENCODING``) are left to the
            slow path.
        statistics: gives each command its number.
    """

    def __cinit__(self, commands, Statistics statistics):
        cdef size_t size = 256
        while size < <size_t> len(commands) * 4:
            size *= 2
        self.mask = size - 1
        self.rows = <command_t*> calloc(size, sizeof(command_t))
        if self.rows == NULL:
            raise MemoryError

    def __init__(self, commands, Statistics statistics):
        cdef command_t row
        cdef size_t place
        cdef bytes name
        for command in commands.values():
            name = command.name.encode()
            if "|" in command.name or len(name) > LONGEST_NAME:
                continue
            memcpy(row.name, <const char*> name, len(name))
            row.length = len(name)
            row.number = statistics.number(command.name.lower())
            row.arity = command.arity
            # PUBLISH: its channel counts as a key here.
            channel = command.keys == "at:1"
            row.first = 1 if channel else command.first
            row.last = 1 if channel else command.last
            row.step = 1 if channel else command.step
            row.writes = command.writes
            row.reads = command.from_replica
            row.takes_away = command.takes_away
            row.split = 0
            row.path = PATH_SLOW
            # For an administrator's command, the user has to be checked.
            if command.route is Route.KEYED and row.first > 0 and row.step > 0 and "admin" not in command.flags:
                row.path = PATH_KEYED
            elif command.route is Route.SPLIT:
                row.path = PATH_SPLIT
                row.split = SPLIT_KINDS[command.name]
            elif command.name == "PING":
                row.path = PATH_PING
            place = hash_name(name, len(name)) & self.mask
            while self.rows[place].length:
                place = (place + 1) & self.mask
            self.rows[place] = row

    def __dealloc__(self):
        free(self.rows)

    cdef const command_t* find(self, const char* name, size_t size) noexcept:
        """The row of a name in any case; NULL where there is none."""
        cdef size_t place
        if size == 0 or size > LONGEST_NAME:
            return NULL
        place = hash_name(name, size) & self.mask
        while self.rows[place].length:
            if is_named(&self.rows[place], name, size):
                return &self.rows[place]
            place = (place + 1) & self.mask
        return NULL
