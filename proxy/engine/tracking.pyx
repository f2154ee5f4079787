"""Which sessions have read which keys (CLIENT TRACKING), and what they are told when a key changes.

The servers tell a worker of every key that changes (:mod:`proxy.commands.tracking`), over other connections than those
that its sessions read by. So word of a change may come before a value that was read earlier. What a client has to drop is
therefore told by one rule, which does not depend on any order between connections:

- A read is remembered in the step that sends it, or before, and until its session is told.
- A session is told at once, and again behind all replies that it is owed. So it is told after every value that was read
  while the read was remembered.
- A request that has waited at the front may have been remembered too early: nothing is owed for it while it waits. So
  the session is told of its keys behind its reply.

To tell too often costs a client one more read, and nothing else. **bounded**: above ``limit`` bytes, the keys that have
been remembered longest are forgotten, and their readers are told that they have changed, as a Redis server does. A
session that is owed twice as much as it may ask for is told to drop everything, once behind all of that.
"""

from itertools import islice

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp

from proxy.engine.records cimport REQUEST_PLACE, client_t, request_t
from proxy.engine.session cimport Session
from slots.requests.commandlookup cimport PATH_KEYED, PATH_SPLIT, command_t
from slots.requests.parsing cimport argument_t
from slots.reserved import RESERVED

cdef enum:
    # What is counted for a key with one reader, beyond its length; for a set of readers, and for each in it.
    KEY_BYTES = 220
    SET_BYTES = 220
    READER_BYTES = 64
    # This part of the keys is forgotten at once.
    FORGOTTEN_PART = 64
    HEAD_SIZE = 21

cdef bytes HEAD = b">2\r\n$10\r\ninvalidate\r\n"
cdef bytes EVERYTHING = HEAD + b"_\r\n"
cdef const char* HEAD_DATA = HEAD


cdef bytes message(list keys, bytes hidden):
    """That these keys have changed, to a client that does not see the prefix ``hidden`` before them."""
    cdef bytes key
    if hidden:
        keys = [key[len(hidden):] for key in keys if key.startswith(hidden)]
    return b"%b*%d\r\n%b" % (HEAD, len(keys), b"".join([b"$%d\r\n%b\r\n" % (len(key), key) for key in keys]))


cdef object tell(Tracker tracker, bytes data):
    """Tell a session, or its target, now, and behind all that it is owed. With RESP2 it cannot be told anything itself."""
    cdef Session session = tracker.session
    cdef client_t* client
    cdef bint is_owed
    cdef bint is_crowded
    if session is None or session.closed or (session.protocol != 3 and tracker.target is None):
        return
    if tracker.broadcast and session.in_some_databases:
        # It has logged in as a user who may not see all databases. It would be told of the others.
        session.close()
        return
    if tracker.target is not None:
        tracker.table.on_redirected(tracker, session, data, session.taken if session.client.owed else -1)
        return
    client = &session.client
    is_owed = client.owed > 0
    # bounded: each message has a place of its own in the session's queue, whatever its size. There is room for as many
    # as for replies.
    is_crowded = client.owed >= 2 * session.most_owed
    if is_crowded:
        data = EVERYTHING
    if not (is_crowded and client.streaming):
        session.loop.push(client, data, len(data))
    if is_owed and not is_last(client, data):
        session.loop.answer(client, data, len(data))


cdef bint is_last(const client_t* client, bytes data) noexcept:
    """Whether this is what a client hears behind all that it is owed."""
    cdef const request_t* last = client.tail
    return (
        last != NULL
        and last.kind == REQUEST_PLACE
        and last.done
        and last.reply_size == <uint64_t> len(data)
        and memcmp(last.reply, <const char*> data, len(data)) == 0
    )


cdef object tell_of(object readers, list keys):
    """Tell one reader, or a collection of them, that these keys have changed."""
    cdef dict forms
    cdef bytes hidden
    if type(readers) is Tracker:
        tell(<Tracker> readers, message(keys, (<Tracker> readers).hidden))
        return
    forms = {}
    for tracker in readers:
        hidden = (<Tracker> tracker).hidden
        if hidden not in forms:
            forms[hidden] = message(keys, hidden)
        tell(<Tracker> tracker, forms[hidden])


cdef class Tracker:
    """One session's tracking, which begins now.

    Args:
        table: the worker's.
        session: it has no tracker yet.
        prefixes: with BCAST, the beginnings of the real names of keys that it is told of; none without BCAST.
        opt_in, opt_out, no_loop: the options of CLIENT TRACKING of these names.
        target: the number of the session that is told in its place, by ``table.on_redirected``; None for none.
    """

    def __init__(
        self,
        TrackedKeys table,
        Session session,
        tuple prefixes=(),
        bint opt_in=False,
        bint opt_out=False,
        bint no_loop=False,
        object target=None,
    ):
        self.table = table
        self.session = session
        # The session stays with it: no other user logs in there while it tracks.
        self.hidden = session.hides
        self.broadcast = len(prefixes) > 0
        self.prefixes = prefixes
        self.opt_in = opt_in
        self.opt_out = opt_out
        self.no_loop = no_loop
        self.target = target
        self.chosen = -1
        self.queued = []
        table.trackers.add(self)
        table.listen(self)

    def end(self):
        """The session is told nothing more."""
        cdef TrackedKeys table = self.table
        self.session = None
        # What it has read may be remembered for long.
        self.noted = None
        self.queued = []
        table.trackers.discard(self)
        table.unlisten(self)
        if not table.trackers:
            table.readers.clear()
            table.size = 0

    def drop(self):
        """The session is told to drop everything: what it had read before this began is not remembered."""
        tell(self, EVERYTHING)

    # -- CLIENT CACHING ------------------------------------------------------------------------------------

    def choose(self):
        """CLIENT CACHING, about the next request."""
        self.is_next = True

    @property
    def choice(self):
        """Whether CLIENT CACHING was said about what comes next."""
        return self.is_next or self.is_open

    cdef void begin_request(self) noexcept:
        if self.is_next:
            self.is_next = False
            self.chosen = self.session.taken

    cdef bint is_chosen(self) noexcept:
        return self.is_open or self.chosen == self.session.taken

    cdef bint remembers(self) noexcept:
        """Whether what the present request reads is remembered."""
        if self.opt_in:
            return self.is_chosen()
        return not (self.opt_out and self.is_chosen())

    # -- what is read --------------------------------------------------------------------------------------

    cdef object note(self, list keys):
        self.noted = keys
        if not self.broadcast:
            for key in keys:
                self.table.remember(self, key)

    def begin(self):
        """A request is at the front. It may have been looked at before."""
        self.begin_request()

    def read(self, list keys):
        """The request at the front reads these keys."""
        if self.remembers():
            self.note(keys)

    def open(self):
        """The request at the front is MULTI."""
        self.is_open = self.is_chosen()

    def queue(self, list keys):
        """The request at the front is queued, and reads these keys with EXEC."""
        if self.remembers():
            self.queued += keys

    def run(self):
        """The request at the front is EXEC."""
        self.note(self.queued)
        self.discard()

    def discard(self):
        """The transaction is over."""
        self.is_open = False
        self.queued = []


cdef class TrackedKeys:
    """The keys that a worker's sessions have read.

    Args:
        limit: of the bytes for keys and their readers.
    """

    def __init__(self, int64_t limit):
        self.readers = {}
        self.limit = limit
        self.trackers = set()
        self.followed = set()
        self.broadcasts = {}
        self.prefixes_of = {}
        self.lengths = []

    def __len__(self):
        return len(self.readers)

    @property
    def sessions(self):
        """How many sessions track."""
        return len(self.trackers)

    cdef object listen(self, Tracker tracker):
        for prefix in tracker.prefixes:
            if prefix not in self.broadcasts:
                self.broadcasts[prefix] = set()
                self.prefixes_of[len(prefix)] = self.prefixes_of.get(len(prefix), 0) + 1
            self.broadcasts[prefix].add(tracker)
        self.lengths = sorted(self.prefixes_of)

    cdef object unlisten(self, Tracker tracker):
        for prefix in tracker.prefixes:
            self.broadcasts[prefix].discard(tracker)
            if not self.broadcasts[prefix]:
                del self.broadcasts[prefix]
                self.prefixes_of[len(prefix)] -= 1
                if not self.prefixes_of[len(prefix)]:
                    del self.prefixes_of[len(prefix)]
        self.lengths = sorted(self.prefixes_of)

    cdef object remember(self, Tracker tracker, bytes key):
        readers = self.readers.get(key)
        if readers is tracker:
            return
        if readers is None:
            self.readers[key] = tracker
            self.size += KEY_BYTES + len(key)
        elif type(readers) is Tracker:
            self.readers[key] = {readers, tracker}
            self.size += SET_BYTES + 2 * READER_BYTES
        elif tracker not in readers:
            if len(readers) & len(readers) - 1 == 0:
                self.leave_out_ended(readers)
            readers.add(tracker)
            self.size += READER_BYTES
        if self.size > self.limit and not self.is_full:
            # Not now: the request that reads the key is not sent yet, and the session has to be told behind its reply.
            self.is_full = True
            tracker.session.loop.event_loop.call_soon(self._make_room)

    cdef object leave_out_ended(self, set readers):
        """Forget those of a key's readers that have ended: one key may be read by many sessions, and never change. This
        is done whenever their number has doubled."""
        for tracker in [tracker for tracker in readers if (<Tracker> tracker).session is None]:
            readers.discard(tracker)
            self.size -= READER_BYTES

    cdef object changed(self, bytes key):
        """Forget who has read a key, and tell them."""
        readers = self.readers.pop(key, None)
        if readers is None:
            return
        self.size -= KEY_BYTES + len(key)
        if type(readers) is not Tracker:
            self.size -= SET_BYTES + READER_BYTES * len(readers)
        tell_of(readers, [key])

    def _make_room(self):
        self.is_full = False
        while self.size > self.limit:
            for key in list(islice(self.readers, len(self.readers) // FORGOTTEN_PART + 1)):
                self.changed(key)

    def flush(self):
        """Tell all sessions to drop everything."""
        self.readers.clear()
        self.size = 0
        if self.on_followed is not None:
            self.on_followed(None)
        for tracker in list(self.trackers):
            tell(<Tracker> tracker, EVERYTHING)

    # -- what servers tell ---------------------------------------------------------------------------------

    def received(self, bytes push):
        """A server's push: tell the sessions, if it says that keys have changed."""
        cdef const char* data = push
        cdef const char* end = data + len(push)
        cdef list keys = []
        cdef bytes key
        cdef int64_t left
        cdef int64_t size
        if len(push) < HEAD_SIZE or memcmp(data, HEAD_DATA, HEAD_SIZE) != 0:
            return
        data += HEAD_SIZE
        if self.is_flush(data, end):
            self.flush()
            return
        data += 1
        left = 0
        while data < end and data[0] != c'\r':
            left = left * 10 + data[0] - c'0'
            data += 1
        # Past the end of the line and the "$".
        data += 3
        while left > 0 and data < end:
            size = 0
            while data < end and data[0] != c'\r':
                size = size * 10 + data[0] - c'0'
                data += 1
            data += 2
            if size < 0 or size > end - data:
                break
            key = data[:size]
            data += size + 3
            left -= 1
            if key in self.readers:
                self.changed(key)
            if key in self.followed:
                self.on_followed(key)
            if self.broadcasts and not key.startswith(RESERVED):
                keys.append(key)
        if left:
            # Not what it should be. Nobody can tell which keys it means.
            self.flush()
        elif keys:
            self._broadcast(keys)

    cdef bint is_flush(self, const char* data, const char* end) noexcept:
        """Whether all keys have changed: there is a null in place of the array of keys."""
        return end - data < 2 or data[0] != c'*' or data[1] < c'0' or data[1] > c'9'

    def _broadcast(self, list keys):
        """Tell those with BCAST. What that takes grows with the lengths of prefixes, and not with their number."""
        cdef dict found = {}
        cdef bytes key
        cdef bytes prefix
        for key in keys:
            for length in self.lengths:
                if length > len(key):
                    break
                prefix = key[:length]
                if prefix in self.broadcasts:
                    found.setdefault(prefix, []).append(key)
        for prefix, some in found.items():
            # To tell one may end others.
            tell_of(list(self.broadcasts.get(prefix, ())), some)


cdef bint stays_fast(
    Session session, const command_t* row, const argument_t* arguments, int count
) except -1:
    """Whether the engine can decide by itself on a request of a session that tracks, and does nothing else that plain
    Python would have to know of. What it reads is remembered."""
    cdef Tracker tracker = <Tracker> session.tracker
    cdef int index
    cdef int last
    cdef list keys
    if row.path != PATH_KEYED and row.path != PATH_SPLIT:
        return False
    if count != row.arity if row.arity >= 0 else count < -row.arity:
        return False
    if row.writes:
        tracker.begin_request()
        return True
    if not row.reads:
        return False
    tracker.begin_request()
    if not tracker.remembers():
        return True
    last = row.last if row.last >= 0 else count + row.last
    if last >= count:
        last = count - 1
    keys = []
    index = row.first
    while index <= last:
        keys.append(arguments[index].data[:arguments[index].size])
        index += row.step
    tracker.note(keys)
    return True


cdef object has_waited(Session session):
    """A request that had to wait has its place in the replies: the session is told of what it has read."""
    cdef Tracker tracker = <Tracker> session.tracker
    cdef list keys
    cdef bytes data
    if tracker.noted is None or session.closed or (session.protocol != 3 and tracker.target is None):
        return
    keys = tracker.noted
    if tracker.prefixes:
        keys = [key for key in keys if key.startswith(tracker.prefixes)]
    if keys and tracker.target is not None:
        # Also behind the present request, which is counted when this is done.
        tracker.table.on_redirected(tracker, session, message(keys, tracker.hidden), session.taken + 1)
    elif keys:
        data = message(keys, tracker.hidden)
        session.loop.answer(&session.client, data, len(data))


cdef void left_front(Session session) noexcept:
    """The request at the front is under way, or answered."""
    (<Tracker> session.tracker).noted = None
