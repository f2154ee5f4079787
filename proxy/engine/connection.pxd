"""A client's connection: bytes in and out, and when to read no more."""

from libc.stdint cimport int64_t

from proxy.engine.backend cimport Backend
from proxy.engine.buffer cimport buffer_t
from proxy.engine.poller cimport watch_t
from proxy.engine.records cimport client_t
from proxy.engine.requests cimport Loop


cdef class ClientConnection:
    """The connection under a :class:`proxy.engine.session.Session`."""

    cdef:
        Loop loop
        client_t client
        buffer_t inbox
        # As much of it as is counted among what is kept for all clients.
        size_t counted
        # Bytes of requests that plain Python keeps for later, which are counted there as well.
        int64_t queued
        # No parse can succeed before this many bytes are there.
        size_t need
        set open_connections
        object sock
        # The socket, if it is an ssl.SSLSocket.
        object tls
        int fd
        watch_t watch
        # Reading stops (**bounded**): the request at the front waits; too much is
        # owed to the client; or its server's queue is too long.
        bint stopped
        bint paused
        bint held_back
        bint reading
        bint writing
        # Its replies have been kept for those behind them once already.
        bint deferred
        # Another connection to the servers is in use from here on: what is owed comes first (**in-order**).
        bint switched
        # The request at the front may wait for long: a client that hangs up is to be noticed.
        bint leaving_watched
        bint processing
        bint woken
        bint closing
        # Who is given the socket once the client is between two requests; None: it is to stay.
        object parting
        bint released
        readonly bint closed
        size_t pause_bytes
        # Replies that may be owed: never more than the first, and now, by how large they have been.
        int most_owed
        int window
        double last_progress
        readonly double created
        readonly double last_active
        readonly object peer

    cdef size_t process(self, const char* data, size_t size)
    cdef size_t take(self, const char* data, size_t size) noexcept
    cdef bint over_limits(self) noexcept
    cdef void set_window(self) noexcept
    cdef void count_inbox(self) noexcept
    cdef void hold_back(self, Backend backend)
    cdef void send_out(self) noexcept
    cdef void watch_leaving(self)
    cpdef bint has_left(self) noexcept
    cdef int take_in(self) noexcept
    cdef bint gives_up(self)
    cdef bint amid(self)
    cdef object _part_between_requests(self)
    cdef object _part(self)
    cdef void watch_again(self) noexcept
    cdef object readable(self)
    cdef object writable(self)
