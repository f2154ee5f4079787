"""Values of hot keys, from which a worker answers GET by itself, for users with ``cached_reads``.

:mod:`proxy.commands.tracking.hotreads` chooses the keys and asks their servers. A value is given only while

- the worker is told of every change, and has been told of none of this key since the value was asked for,
- the key's slot is open, with the server that it had then, under the slot rules of then,
- the key's life and :attr:`HotValues.until` are not over, and
- what the session has written before, if anything, was answered before the value was asked for: it sees its own writes.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcmp, memset

from proxy.engine.hotkeys cimport hash_of_name
from proxy.engine.router cimport Router, route_t

cdef enum:
    NO_PLACE = -1
    # CACHED of proxy.engine.outcomes.
    CACHED_BIT = 64

MOST_VALUES = VALUE_PLACES
"""The most values at once."""


cdef class HotValues:
    """The values of one worker, at most :data:`MOST_VALUES`."""

    def __init__(self):
        memset(self.chains, 0xFF, sizeof(self.chains))
        self.keys = [None] * VALUE_PLACES
        self.replies = [None] * VALUE_PLACES

    def ask(self):
        """The number of a question that is about to be asked. An answer to it is newer than all that sessions have been
        answered before."""
        self.asked += 1
        return self.asked

    def put(
        self, int database, bytes key, int slot, uint32_t changes, int64_t ruling, int64_t number, double until, reply
    ):
        """Keep a value.

        Args:
            changes, ruling: those of the router when the question was asked.
            number: the question's.
            until: when the key's life ends.
            reply: to GET, as in RESP2; None for nothing.

        Returns:
            Whether there was room.
        """
        cdef int place = self.find(database, key, len(key))
        cdef value_t* value
        cdef uint64_t hash = hash_of_name(database, key, len(key))
        if place == NO_PLACE:
            if None not in self.keys:
                return False
            place = self.keys.index(None)
            value = &self.values[place]
            value.following = self.chains[hash & (VALUE_CHAINS - 1)]
            self.chains[hash & (VALUE_CHAINS - 1)] = <int16_t> place
        value = &self.values[place]
        value.hash = hash
        value.database = database
        value.slot = slot
        value.changes = changes
        value.ruling = ruling
        value.number = number
        value.until = until
        value.is_nothing = reply is None
        self.keys[place] = key
        self.replies[place] = b"$-1\r\n" if reply is None else reply
        return True

    def drop(self, int database, bytes key):
        """Forget a value, if it is there."""
        cdef int place = self.find(database, key, len(key))
        cdef int16_t* link
        if place == NO_PLACE:
            return
        link = &self.chains[self.values[place].hash & (VALUE_CHAINS - 1)]
        while link[0] != place:
            link = &self.values[link[0]].following
        link[0] = self.values[place].following
        self.keys[place] = None
        self.replies[place] = None

    def clear(self):
        """Forget all values."""
        memset(self.chains, 0xFF, sizeof(self.chains))
        self.keys = [None] * VALUE_PLACES
        self.replies = [None] * VALUE_PLACES

    cdef int find(self, int database, const char* key, size_t size) noexcept:
        """The place of a key's value, or NO_PLACE."""
        cdef uint64_t hash = hash_of_name(database, key, size)
        cdef int place = self.chains[hash & (VALUE_CHAINS - 1)]
        cdef bytes found
        while place != NO_PLACE:
            if self.values[place].hash == hash and self.values[place].database == database:
                found = <bytes> self.keys[place]
                if <size_t> PyBytes_GET_SIZE(found) == size and memcmp(PyBytes_AS_STRING(found), key, size) == 0:
                    return place
            place = self.values[place].following
        return NO_PLACE


cdef bint answers(Session session, const command_t* row, const argument_t* arguments, int count) except -1:
    """Answer a request of a session whose user has ``cached_reads``, if it is a GET of a value that is here."""
    cdef Router router = session.router
    cdef HotValues hot = <HotValues> router.hot_values
    cdef const char* name = arguments[0].data
    cdef const route_t* route
    cdef const value_t* value
    cdef bytes reply
    cdef int place
    if not row.reads:
        session.has_written = True
        return False
    if arguments[0].size != 3 or count != 2 or (name[0] | 32, name[1] | 32, name[2] | 32) != (c"g", c"e", c"t"):
        return False
    if session.attention != CACHED_BIT or session.loop.now >= hot.until:
        return False
    place = hot.find(session.database, arguments[1].data, arguments[1].size)
    if place == NO_PLACE:
        return False
    value = &hot.values[place]
    route = &router.routes[value.slot]
    if (
        route.changes != value.changes
        or router.ruling != value.ruling
        or session.loop.now >= value.until
    ):
        return False
    if session.has_written:
        if session.client.owed:
            return False
        session.has_written = False
        session.sees_from = hot.asked
    if value.number <= session.sees_from:
        hot.on_old(session.database, hot.keys[place])
        return False
    hot.answered += 1
    session.loop.hot_keys.note(session.database, value.slot, arguments[1].data, arguments[1].size)
    reply = b"_\r\n" if value.is_nothing and session.protocol == 3 else <bytes> hot.replies[place]
    session.reply(reply, len(reply))
    return True
