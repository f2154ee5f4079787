"""Reads the requests of a stream whose keys are wanted. Most of the others are stepped over without a Python object.

Only what is plain is stepped over: a request whose keys stand where the command table says, none of them in a wanted
slot. All else is given whole, so a rule that is missing here costs time and nothing else.

**level**: a change of a wanted key that was stepped over would be missing at the target. A test compares what is given
with what plain Python says of random requests.
"""

from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr

from slots.keyslots cimport KeySlots
from slots.requests.commandlookup cimport (
    CODE_NONE,
    PATH_CHANNEL,
    PATH_CONTAINER,
    PATH_COUNTED,
    PATH_KEYED,
    PATH_SPLIT,
    CommandLookup,
    command_t,
)
from slots.requests.keyplaces cimport find_keys
from slots.requests.parsing cimport argument_t
from slots.requests.reading cimport Stream
from slots.reserved cimport slotferry_is_reserved

from slots import commands
from slots.requests.reading import LONGEST_REQUEST

MIXED = -1
"""The keys of a request are in a wanted slot and elsewhere, or in slots of two copies."""
UNKNOWN = 0
"""A request has no keys, names a key of Slotferry's own beside unwanted ones, or only plain Python knows its keys."""

cdef enum:
    OF_TWO = -1
    UNCLEAR = 0
    UNWANTED = -2

# Rows that were learned from a server are not in it: their keys are what that server said.
cdef CommandLookup COMMANDS = CommandLookup(commands.table())


cdef class WantedRequests(Stream):
    """The requests of a stream that matter: ``for argv, end, copies in requests`` gives those that have come whole.

    ``argv`` has the arguments; ``end`` is the place in the stream where the request ends, in bytes; ``copies`` is the
    number of the copy whose slots have all keys of the request, or :data:`MIXED`, or :data:`UNKNOWN`. A channel is
    no key. ``offset`` is the place up to which all requests were given or stepped over.

    Args:
        key_slots: which slot each key has.
        wanted: one byte a slot: 0 if it is not wanted, else the number of its copy. It is not copied: a change counts
            from the next request on.
        offset, longest_request: as of :class:`~slots.requests.reading.Requests`.

    Attributes:
        database: the database of the requests to come. Whoever reads sets it at each SELECT, which is given.

    Raises:
        ValueError: ``wanted`` has not as many bytes as there are slots.
        NotRequests: the stream holds something that is not a request, once all requests before it were given.
    """

    cdef:
        KeySlots key_slots
        const uint8_t[::1] wanted
        argument_t* keys
        int room_for_keys
        public int database

    def __init__(self, KeySlots key_slots not None, wanted, offset=0, longest_request=LONGEST_REQUEST):
        Stream.__init__(self, offset, longest_request)
        self.key_slots = key_slots
        self.wanted = wanted
        if len(self.wanted) != key_slots.number_of_slots:
            raise ValueError(
                f"{len(self.wanted)} slots are marked as wanted or not; there are {key_slots.number_of_slots}"
            )

    def __dealloc__(self):
        free(self.keys)

    def __next__(self):
        cdef int copies
        while self.find():
            copies = self.copies()
            if copies == UNWANTED:
                self.take()
                continue
            argv = self.argv()
            self.take()
            return argv, self.offset, copies
        raise StopIteration

    cdef int copies(self) noexcept:
        """Of which copies the keys of the request at the front are."""
        cdef const argument_t* arguments = self.parse.arguments
        cdef int count = self.parse.count
        cdef const command_t* row = COMMANDS.find(arguments[0].data, arguments[0].size)
        cdef int last
        cdef int found
        if row != NULL and row.path == PATH_CONTAINER and count > 1:
            row = COMMANDS.find_within(row, arguments[1].data, arguments[1].size)
        elif row != NULL and memchr(arguments[0].data, c'|', arguments[0].size) != NULL:
            # A subcommand's row, which no request names as one word.
            return UNCLEAR
        # A script may touch keys that it does not name.
        if row == NULL or row.code != CODE_NONE:
            return UNCLEAR
        if count != row.arity if row.arity >= 0 else count < -row.arity:
            return UNCLEAR
        if row.path == PATH_KEYED or row.path == PATH_SPLIT:
            last = row.last if row.last >= 0 else count + row.last
            if last < row.first or last >= count or (row.last == -1 and (count - row.first) % row.step):
                return UNCLEAR
            return self.copies_of(arguments + row.first, last - row.first + 1, row.step)
        if row.path == PATH_CHANNEL:
            return UNWANTED
        if row.path == PATH_COUNTED and self.has_room_for_keys(count):
            found = find_keys(row, arguments, count, self.keys)
            return self.copies_of(self.keys, found, 1) if found else UNCLEAR
        return UNCLEAR

    cdef int copies_of(self, const argument_t* keys, int count, int step) noexcept:
        """Of which copies these keys are, each ``step`` places behind the one before it; at least one."""
        cdef int copy = UNWANTED
        cdef int one
        cdef bint reserved = False
        cdef int index = 0
        while index < count:
            one = 0
            if slotferry_is_reserved(keys[index].data, keys[index].size):
                reserved = True
            else:
                one = self.wanted[self.key_slots.of(self.database, keys[index].data, keys[index].size)]
            if index and one != copy:
                return OF_TWO
            copy = one
            index += step
        if copy == 0 and not reserved:
            return UNWANTED
        return copy

    cdef bint has_room_for_keys(self, int count) noexcept:
        cdef argument_t* keys
        if count > self.room_for_keys:
            keys = <argument_t*> realloc(self.keys, sizeof(argument_t) * self.parse.capacity)
            if keys == NULL:
                return False
            self.keys = keys
            self.room_for_keys = self.parse.capacity
        return True
