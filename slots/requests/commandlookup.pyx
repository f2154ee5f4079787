"""Finding a command's row by its name, without a Python object.

It is a hash table of upper-cased names with open addressing. It is built once, from :mod:`slots.commands`.
"""

import re

from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from slots.commands import Code, Multi, Route
from slots.keys import KINDS

SPLIT_KINDS = {"": 0, "elements": SPLIT_ELEMENTS, "status": SPLIT_STATUS, "sum": SPLIT_SUM}
CODE_KINDS = {Code.TEXT: CODE_TEXT, Code.DIGEST: CODE_DIGEST, Code.FUNCTION: CODE_FUNCTION}
PATHS = {"PING": PATH_PING, "MULTI": PATH_MULTI, "EXEC": PATH_EXEC, "WATCH": PATH_WATCH, "SCAN": PATH_SCAN}
COUNTED = re.compile(r"(?:at:(?P<target>\d+)\+)?count:(?P<place>\d+):(?P<kind>\w+)")
"""The rule of :mod:`slots.keys` for keys behind their number."""


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


def is_special(command):
    """Whether only plain Python can tell where a command's keys are, or who may send it."""
    return command.learned or "admin" in command.flags


cdef class CommandLookup:
    """A hash table of :data:`command_t`, filled from :mod:`slots.commands`.

    Args:
        commands: name to :class:`slots.commands.Command`. A subcommand (``OBJECT|ENCODING``) has a row if it has keys
            at fixed places; all others are left to the slow path.
        number: gives each command a number, by its name in small letters. Without it, all have 0.
    """

    def __cinit__(self, commands, number=None):
        cdef size_t size = 256
        while size < <size_t> len(commands) * 4:
            size *= 2
        self.mask = size - 1
        self.rows = <command_t*> calloc(size, sizeof(command_t))
        if self.rows == NULL:
            raise MemoryError

    def __init__(self, commands, number=None):
        cdef command_t row
        cdef size_t place
        cdef bytes name
        within = {
            command.name
            for command in commands.values()
            if "|" in command.name and command.route is Route.KEYED and command.first and not command.learned
        }
        containers = {one.partition("|")[0] for one in within}
        for command in commands.values():
            name = command.name.encode()
            if len(name) > LONGEST_NAME or ("|" in command.name and command.name not in within):
                continue
            memcpy(row.name, <const char*> name, len(name))
            row.length = len(name)
            row.number = number(command.name.lower()) if number is not None else 0
            row.arity = command.arity
            row.first = command.first
            row.last = command.last
            row.step = command.step
            row.writes = command.writes
            # What a subcommand such as OBJECT IDLETIME says may be the server's own.
            row.reads = command.from_replica and "|" not in command.name
            row.takes_away = command.takes_away
            row.split = SPLIT_KINDS.get(command.split, 0)
            row.apart = command.apart
            row.count_at = row.following = row.grouped = 0
            row.code = CODE_KINDS.get(command.code, CODE_NONE)
            row.path = PATH_SLOW
            if command.multi is Multi.CHANNEL:
                row.path = PATH_CHANNEL
            # For an administrator's command, the user has to be checked.
            elif command.route is Route.KEYED and row.first > 0 and row.step > 0 and "admin" not in command.flags:
                row.path = PATH_KEYED
            elif command.route is Route.SPLIT:
                row.path = PATH_SPLIT
            elif command.name in PATHS:
                row.path = PATHS[command.name]
            elif command.name in containers:
                row.path = PATH_CONTAINER
            elif command.route is Route.BLOCKING and not command.keys and not command.learned:
                row.path = PATH_POP
            elif command.route in (Route.MOVABLE, Route.BLOCKING) and not is_special(command):
                counted = COUNTED.fullmatch(command.keys)
                if counted is not None:
                    row.path = PATH_COUNTED if command.route is Route.MOVABLE else PATH_POP
                    row.first = int(counted["target"] or 0)
                    row.count_at = int(counted["place"])
                    row.following = KINDS[counted["kind"]].following
                elif command.keys == "streams":
                    row.path = PATH_STREAMS
                    row.grouped = command.name == "XREADGROUP"
            row.queueable = (
                (row.path == PATH_KEYED or row.path == PATH_SPLIT)
                and not command.learned
                and "no_multi" not in command.flags
            )
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

    cdef const command_t* find_within(self, const command_t* container, const char* name, size_t size) noexcept:
        """The row of a container's subcommand in any case; NULL where there is none."""
        cdef char whole[LONGEST_NAME]
        if container.length + 1 + size > LONGEST_NAME:
            return NULL
        memcpy(whole, container.name, container.length)
        whole[container.length] = c'|'
        memcpy(whole + container.length + 1, name, size)
        return self.find(whole, container.length + 1 + size)
