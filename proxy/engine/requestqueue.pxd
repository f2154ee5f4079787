"""The queue of a connection to a Redis server."""

from libc.stdint cimport int32_t, int64_t, uint32_t

from proxy.engine.buffer cimport buffer_t
from proxy.engine.records cimport REQUEST_PART, prefetch, request_t, sender_t
from proxy.engine.serverconnection cimport ServerConnection
from proxy.engine.traffic cimport ServerTraffic

from slots.slotload cimport SlotLoad


cdef enum:
    # A server that takes longer for a reply is slow: 50 ms. Requests of sheddable users are refused meanwhile.
    SLOW_TICKS = 12207


cdef class Recipient:
    """Gets the reply to a request of the proxy's own. A client may take a long one in parts."""

    cdef bint begin(self, request_t* request, const char* data, size_t size) except -1


cdef class RequestQueue(ServerConnection):
    """The part of :class:`proxy.engine.backend.Backend` for the requests as such."""

    cdef:
        sender_t sender
        buffer_t out
        # The part of ``out`` that is counted as memory for requests that wait for servers.
        int64_t counted
        # Whether the client of the oldest request has a part of its reply already, and the bytes of that part.
        bint streaming
        size_t passed
        bint writing
        request_t* head
        request_t* tail
        # The first request that was queued since bytes were last sent; NULL for none.
        request_t* unsent
        readonly int queued
        double next_try
        double wait
        # The latest attempt to connect failed: until one succeeds, requests are refused at once.
        readonly bint broken
        readonly object failure
        bytes failure_reply
        bytes slow_reply
        size_t pause_bytes
        # Where its requests are counted.
        ServerTraffic traffic
        SlotLoad slots
        # Recent replies and their bytes.
        int64_t replies
        int64_t reply_bytes
        object paused_sessions
        # How long the oldest request may wait for its reply.
        public double reply_seconds
        # Whether all sessions share it.
        bint shared
        # Called when the connection is ready, and with the reason when it is lost.
        public object on_ready
        public object on_down
        # The ticks of the loop's clock when a part of a request or a reply last got through.
        uint32_t progress

    cdef void push(self, request_t* request, const char* data, size_t size) noexcept
    cpdef bint was_lost(self) noexcept
    cdef bint reserve(self, size_t size) noexcept
    cdef bint ready_to_take(self) noexcept
    cdef object share(self)
    cdef bint is_slow(self) noexcept
    cdef void refuse(self, request_t* request) noexcept
    cdef bytes refusal(self, int32_t slot)
    cdef void queue(self, request_t* request, size_t size) noexcept
    cdef void count_parts(self, request_t* request, size_t size, bint failed) noexcept
    cdef inline void count_reply(self, request_t* request, size_t size, bint failed) noexcept:
        """A request has left the queue: with a reply of ``size`` bytes, or because it failed."""
        cdef size_t bytes_in = request.reply_size >> 32
        cdef uint32_t ticks = self.loop.ticks - <uint32_t> request.reply_size
        self.traffic.count(1, bytes_in, size, ticks, self.shared)
        if failed:
            self.traffic.errors += 1
        if request.slot >= 0:
            self.slots.count(request.slot, bytes_in, size)
            if failed:
                self.slots.count_error(request.slot)
        elif request.kind == REQUEST_PART:
            self.count_parts(request, size, failed)
    cdef inline request_t* take_head(self) noexcept:
        """Take the oldest request off the queue; NULL if there is none."""
        cdef request_t* request = self.head
        if request == NULL:
            return NULL
        self.head = request.next_at_backend
        if self.head == NULL:
            self.tail = NULL
        else:
            # The next request is here by now. Its effects are handled when its turn comes.
            prefetch(self.head.next_at_backend)
            prefetch(self.head.next_at_client)
        self.queued -= 1
        self.replies += 1
        return request
    cdef inline bint is_late(self) noexcept:
        """Whether the oldest request waits longer than :data:`SLOW_TICKS` for its reply to begin."""
        # Unsigned, so that the clock may wrap.
        return (
            self.head != NULL
            and not self.streaming
            and <uint32_t> (self.loop.ticks - <uint32_t> self.head.reply_size) > SLOW_TICKS
        )
    cdef inline bint is_full(self) noexcept:
        """Whether nothing more should be given to this server before some bytes have been sent."""
        return self.out.end - self.out.start > self.pause_bytes
    cdef void count(self) noexcept
    cdef bint congested(self, bint sparse) noexcept
    cdef bint relieved(self) noexcept
    cdef void forget_received(self) noexcept
