"""SCAN's pages in the middle of a group's server, as long as the table stays the same.

Most pages of a scan are neither the last one of a server nor the first one under a new table. Such a page goes to its
server with the server's own cursor, and comes back with the scan's, and without hidden keys. For all others the page is
thrown away, and plain Python decides (:mod:`proxy.commands.keyspace.scanwalk`). It has all the rules, so a rule that is
missing here costs time and nothing else.

**bounded**: a page that takes long to look at is for plain Python, which lets others go first.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp

from proxy.engine.asking cimport ServerQuestion, ask, let_python_decide
from proxy.engine.backend cimport Backend
from proxy.engine.buffer cimport buffer_append
from proxy.engine.decisions cimport decide
from proxy.engine.front cimport finish_front
from proxy.engine.keylist cimport KeyList
from proxy.engine.router cimport Router
from proxy.engine.session cimport Session
from proxy.engine.verdicts cimport VERDICT_FAILED, VERDICT_HELD, VERDICT_WAIT, verdict
from slots.requests.parsing cimport argument_t

from proxy.engine.refusals import OUT_OF_MEMORY

cdef enum:
    # The most digits of a cursor: below 2^63.
    MOST_DIGITS = 19
    # The longest number among the options: the most keys that are looked at here are below 1,000.
    MOST_COUNT_DIGITS = 3
    MOST_KEYS = 1000
    # A server's cursor stands above so many bits of the scan's, and has no more than so many.
    REST_BITS = 31
    SERVER_BITS = 32

cdef uint64_t REST = (<uint64_t> 1 << REST_BITS) - 1


cdef class Pages:
    """What is known about scanning the groups, by one table.

    Args:
        generation: of the router, while that table is in force.
        groups: by the rest of a scan's cursor (:mod:`proxy.commands.keyspace.scancursor`) in each group, without the
            server's own: the group's server and the bytes of its slots (:mod:`proxy.engine.keylist`).
        first: where a scan begins: one of the keys of ``groups``; None if there is no group.
        reserved: the prefix of keys that are never shown.
    """

    def __init__(self, int64_t generation, dict groups, first, bytes reserved):
        self.generation = generation
        self.groups = groups
        self.first = first
        self.reserved = reserved


cdef class Page(ServerQuestion):
    """A server's page."""

    cdef:
        Pages pages
        uint64_t rest
        bytes shown

    cdef object go_on(self):
        cdef Session session = self.session
        cdef uint64_t position
        cdef Py_ssize_t at
        cdef KeyList keys
        if self.pages.generation != session.router.generation:
            let_python_decide(session)
            return
        position = cursor_of(self.reply, &at)
        if position == 0 or position >> SERVER_BITS:
            # The server's last page, or no page at all.
            let_python_decide(session)
            return
        try:
            keys = KeyList(session.router, session.database, self.reply, self.shown, self.pages.reserved, at)
            more = keys.read(MOST_KEYS)
        except ValueError:
            more = True
        if more:
            let_python_decide(session)
            return
        finish_front(session, page_of(position << REST_BITS | self.rest, keys))


cdef uint64_t cursor_of(bytes reply, Py_ssize_t* at) noexcept:
    """The cursor in a page, and where its keys begin; 0 for something else."""
    cdef const char* data = reply
    cdef Py_ssize_t size = len(reply)
    cdef Py_ssize_t place = 6
    cdef uint64_t value = 0
    # As all servers write it: *2, $ and the number of digits, the digits.
    if size < 9 or memcmp(data, b"*2\r\n$", 5):
        return 0
    while place < size and data[place] != c"\n":
        place += 1
    place += 1
    while place < size and c"0" <= data[place] <= c"9" and value >> 60 == 0:
        value = value * 10 + (data[place] - c"0")
        place += 1
    at[0] = place + 2
    return value if place + 2 < size and data[place] == c"\r" else 0


cdef bytes page_of(uint64_t cursor, KeyList keys):
    """A page for the client."""
    cdef bytes text = b"%d" % cursor
    cdef dict uncertain = dict.fromkeys(keys.uncertain)
    parts = [b"*2\r\n$%d\r\n%b\r\n*%d\r\n" % (len(text), text, keys.kept + len(uncertain)), *keys.parts]
    for key in uncertain:
        parts.append(b"$%d\r\n%b\r\n" % (len(key), key))
    return b"".join(parts)


cdef int64_t number_of(const argument_t* argument) noexcept:
    """A cursor; -1 for what plain Python has to read."""
    cdef uint64_t value = 0
    cdef size_t index
    if argument.size == 0 or argument.size > MOST_DIGITS:
        return -1
    for index in range(argument.size):
        if not c"0" <= argument.data[index] <= c"9":
            return -1
        value = value * 10 + (argument.data[index] - c"0")
    return -1 if value >> 63 else value


cdef bint is_long(const argument_t* arguments, int count) noexcept:
    """Whether a page may be long: one of the options may be a large COUNT."""
    cdef int index
    for index in range(3, count, 2):
        if arguments[index].size > MOST_COUNT_DIGITS and c"0" <= arguments[index].data[0] <= c"9":
            return True
    return False


cdef verdict scan(
    Session session, const argument_t* arguments, int count, const char* data, size_t size
) except VERDICT_FAILED:
    """Have a server give a page for the request at the front."""
    cdef Router router = session.router
    cdef Pages pages = <Pages> router.pages
    cdef int64_t cursor
    cdef Backend backend
    cdef Page page
    cdef char head[96]
    cdef char digits[24]
    cdef int length
    cdef size_t behind
    cursor = number_of(&arguments[1])
    if pages is None or pages.generation != router.generation or cursor < 0 or is_long(arguments, count):
        return decide(session, arguments, count, data, size)
    rest = <uint64_t> cursor & REST if cursor else pages.first
    found = pages.groups.get(rest)
    if found is None:
        return decide(session, arguments, count, data, size)
    backend = session.shared(found[0])
    if session.sheddable and session.gives_way_at(backend):
        return session.shed(backend)
    if (session.loop.waiting or backend.is_full()) and session.has_to_wait(backend, size):
        return VERDICT_HELD
    if not backend.ready_to_take():
        return session.refuse(backend.refusal(-1))
    # Before anything is in the output: whatever is there has to be a whole request.
    page = Page(session)
    page.pages = pages
    page.rest = rest
    page.shown = found[1]
    if not session.loop.have_requests(1) or not backend.reserve(sizeof(head) + size):
        return session.refuse_or_reply(OUT_OF_MEMORY)
    length = snprintf(digits, sizeof(digits), b"%llu", <unsigned long long> (cursor >> REST_BITS))
    length = snprintf(head, sizeof(head), b"*%d\r\n$4\r\nSCAN\r\n$%d\r\n%s\r\n", count, length, digits)
    buffer_append(&backend.out, head, length)
    behind = arguments[1].data - data + arguments[1].size + 2
    buffer_append(&backend.out, data + behind, size - behind)
    ask(page, backend, 0, -1, length + size - behind)
    return VERDICT_WAIT
