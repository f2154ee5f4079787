"""A client's connection: bytes in and out, and when reading stops."""

from libc.stdint cimport int64_t

from proxy.engine.backend cimport Backend
from proxy.engine.buffer cimport buffer_t
from proxy.engine.poller cimport watch_t
from proxy.engine.records cimport client_t
from proxy.engine.requests cimport Loop

# Why a connection takes no request now (**bounded**, **in-order**).
ctypedef enum reason_to_wait:
    # The request at the front waits.
    FOR_FRONT = 1
    # Too much is owed to the client, or all that is owed has to come first.
    FOR_OWED = 2
    # Its server's queue is too long, there is no room for the request, or other sessions have their turn.
    FOR_TURN = 4
    # It is to be closed once all owed replies are sent.
    FOR_GOOD = 8
    # Beside FOR_FRONT: the slot of the request's keys is locked, or they move, so only wake() goes on with its handler.
    FOR_KEYS = 16
    # Beside FOR_FRONT: a server was asked about the request, so only its answer goes on with it.
    FOR_SERVER = 32
    # Beside FOR_SERVER: the request waits there.
    FOR_ELEMENT = 64

# What is looked at before the next request is taken.
ctypedef enum looked_at:
    # From here on another connection to the servers is used: owed replies come first (**in-order**).
    SWITCHED = 1
    # Its user may only ask for so much a second.
    METERED = 2

# What over_limits() gives beside METERED: the limits are reached.
cdef enum:
    IS_OVER = 4


cdef class ClientConnection:
    """The connection under a :class:`proxy.engine.session.Session`."""

    cdef:
        Loop loop
        client_t client
        buffer_t inbox
        # The part of it that is counted as memory kept for all clients.
        size_t counted
        # Bytes of requests that plain Python keeps for later; they are counted there as well.
        int64_t queued
        # The least number of bytes for the next parse to succeed.
        size_t need
        set open_connections
        object sock
        # The socket, if it is an ssl.SSLSocket.
        object tls
        int fd
        watch_t watch
        # Why no request is taken now: bits of reason_to_wait.
        int reasons
        bint reading
        bint writing
        # Its replies have already been kept once, to go with later ones.
        bint deferred
        # Bits of looked_at.
        int before_next
        # The request at the front may wait for long, so it has to be noticed if the client hangs up.
        bint leaving_watched
        bint processing
        bint woken
        # The callable that gets the socket once the client is between two requests; None: the client stays.
        object parting
        bint released
        readonly bint closed
        size_t pause_bytes
        # The most replies that may be owed: first the upper bound, then the present limit, which depends on their size.
        int most_owed
        int window
        double last_progress
        readonly double created
        readonly double last_active
        readonly object peer

    cdef size_t process(self, const char* data, size_t size)
    cdef size_t take(self, const char* data, size_t size) noexcept
    cdef int over_limits(self) noexcept
    cdef void set_window(self) noexcept
    cdef void count_inbox(self) noexcept
    cdef void count_elsewhere(self, int64_t size) noexcept
    cdef void hold_back(self, Backend backend)
    cdef void send_out(self) noexcept
    cdef void watch_leaving(self) noexcept
    cpdef bint has_left(self) noexcept
    cdef int take_in(self) noexcept
    cdef bint gives_up(self)
    cdef bint comes_back(self)
    cdef bint amid(self)
    cdef object _part_between_requests(self)
    cdef object _part(self)
    cdef void watch_again(self) noexcept
    cdef void count_time(self, bint counted) noexcept
    cdef object readable(self)
    cdef object writable(self)
