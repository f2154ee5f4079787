"""One shared connection to a Redis server."""

from libc.stdint cimport int64_t, uint32_t

from proxy.engine.buffer cimport buffer_t
from proxy.engine.records cimport client_t, request_t, sender_t
from proxy.engine.resp cimport reply_meter_t
from proxy.engine.serverconnection cimport ServerConnection

# Replies to one client, next to each other in the bytes that were read.
ctypedef struct run_t:
    client_t* client
    # The request of the first reply, if the replies came before their turn; NULL if it is their turn.
    request_t* early
    size_t start


cdef class Backend(ServerConnection):
    """One connection to one server, database and RESP version, used by every session of the worker."""

    cdef:
        sender_t sender
        buffer_t out
        buffer_t inbox
        # The part of ``out`` that is counted as memory for requests that wait for servers.
        int64_t counted
        size_t scanned
        reply_meter_t meter
        bint streaming
        bint writing
        request_t* head
        request_t* tail
        readonly int queued
        double next_try
        double wait
        readonly object failure
        bytes failure_reply
        size_t pause_bytes
        # The most bytes that are kept of a reply to a request of the proxy's own.
        size_t most_held
        # Recent replies and their bytes.
        int64_t replies
        int64_t reply_bytes
        object paused_sessions
        # How long the oldest request may wait for its reply.
        public double reply_seconds
        # Whether all sessions share it.
        public bint shared
        # Called with a RESP3 push, when the connection is ready, and with the reason when the connection is lost.
        public object on_push
        public object on_ready
        public object on_down
        # The ticks of the loop's clock when a part of a request or a reply last got through.
        uint32_t progress

    cdef void push(self, request_t* request, const char* data, size_t size) noexcept
    cpdef bint was_lost(self) noexcept
    cdef bint reserve(self, size_t size) noexcept
    cdef bint ready_to_take(self) noexcept
    cdef void queue(self, request_t* request) noexcept
    cdef inline bint is_full(self) noexcept:
        """Whether nothing more should be given to this server before some bytes have been sent."""
        return self.out.end - self.out.start > self.pause_bytes
    cdef void count(self) noexcept
    cdef bint congested(self, bint sparse) noexcept
    cdef bint relieved(self) noexcept
    cdef void end_run(self, run_t* run, const char* data, size_t end) noexcept
    cdef size_t take_replies(self, const char* data, size_t size)
    cdef object take_unasked(self, bytes reply)
    cdef bint passes_on(self, const char* data, size_t size)
    cdef void send_out(self) noexcept
    cdef void _end_over(self) noexcept
    cdef object _refuse_reply(self, request_t* request)
    cdef void acknowledge(self) noexcept
    cdef object ready(self, uint32_t events)
    cdef object readable(self)
    cdef object writable(self)
