"""One shared connection to a Redis server."""

from libc.stdint cimport int64_t, uint32_t

from proxy.engine.buffer cimport buffer_t
from proxy.engine.records cimport client_t, request_t
from proxy.engine.requestqueue cimport RequestQueue
from proxy.engine.resp cimport reply_meter_t
from proxy.engine.statistics cimport REPLY_HEAD, tally_t

# Replies to one client, next to each other in the bytes that were read.
ctypedef struct run_t:
    client_t* client
    # The request of the first reply, if the replies came before their turn; NULL if it is their turn.
    request_t* early
    size_t start


cdef class Backend(RequestQueue):
    """One connection to one server, database and RESP version, used by every session of the worker."""

    cdef:
        buffer_t inbox
        size_t scanned
        # Of a long reply that is passed on in parts.
        char beginning[REPLY_HEAD]
        reply_meter_t meter
        # Of what is handed out now: how long it took to receive it, from where on that was, and up to where the time
        # has been counted.
        int64_t receiving
        size_t received_from
        size_t counted_to
        # The most bytes that are kept of a reply to a request of the proxy's own.
        size_t most_held
        # Called with a RESP3 push.
        public object on_push

    cdef void look_at(self, const request_t* request, const char* data, size_t size, size_t passed) noexcept
    cdef void end_run(self, run_t* run, const char* data, size_t end) noexcept
    cdef void begin_tally(self, tally_t* tally, const request_t* request) noexcept
    cdef void count_tally(self, tally_t* tally) noexcept
    cdef void count_error(self, const request_t* request) noexcept
    cdef size_t take_received(self, const char* data, size_t size, int64_t began)
    cdef size_t take_replies(self, const char* data, size_t size)
    cdef void turn_to(self, int user, size_t scan, size_t size) noexcept
    cdef void count_sending(self, int64_t nanoseconds) noexcept
    cdef object take_unasked(self, bytes reply)
    cdef bint passes_on(self, const char* data, size_t size)
    cdef void send_out(self) noexcept
    cdef void _end_over(self) noexcept
    cdef object _refuse_reply(self, request_t* request)
    cdef size_t most_held_of(self, const request_t* request) noexcept
    cdef void acknowledge(self) noexcept
    cdef object ready(self, uint32_t events)
    cdef object readable(self)
    cdef object writable(self)
