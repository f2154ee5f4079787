"""One shared connection to a Redis server."""

from libc.stdint cimport int64_t, uint32_t

from proxy.engine.buffer cimport buffer_t
from proxy.engine.requests cimport Loop, client_t, request_t, sender_t
from proxy.engine.resp cimport reply_meter_t

ctypedef enum backend_state:
    # No connection; the next request opens one, once the wait after a failure is over.
    BACKEND_DOWN
    # Requests queue up while the connection is made and introduced.
    BACKEND_CONNECTING
    BACKEND_GREETING
    BACKEND_READY
    # Never to be used again.
    BACKEND_CLOSED


cdef class Backend:
    """One connection to one server, database and RESP version, used by every session of the worker."""

    cdef:
        Loop loop
        readonly object address
        readonly int database
        readonly int protocol
        readonly object name
        object options
        object host
        object sock
        object resolving
        # What the server's name stands for and is yet to be tried: (family, address) each.
        list candidates
        int fd
        backend_state state
        sender_t sender
        buffer_t out
        buffer_t inbox
        size_t scanned
        reply_meter_t meter
        bint streaming
        bint writing
        request_t* head
        request_t* tail
        readonly int queued
        int greetings_left
        list greeting_checks
        double connect_deadline
        double next_try
        double wait
        readonly object failure
        bytes failure_reply
        # Whether anything of a client's was sent on this connection.
        bint used
        size_t pause_bytes
        list paused_sessions
        double reply_seconds
        # Milliseconds of the loop's clock at which a part of a long request or reply got through.
        uint32_t progress
        readonly int64_t connects

    cdef void push(self, request_t* request, const char* data, size_t size) noexcept
    cdef bint reserve(self, size_t size) noexcept
    cdef bint ready_to_take(self) noexcept
    cdef void queue(self, request_t* request) noexcept
    cdef bint congested(self) noexcept
    cdef size_t take_replies(self, const char* data, size_t size)
    cdef void send_out(self) noexcept
