"""The queue of a connection to a Redis server."""

from libc.stdint cimport int64_t, uint32_t

from proxy.engine.buffer cimport buffer_t
from proxy.engine.records cimport prefetch, request_t, sender_t
from proxy.engine.serverconnection cimport ServerConnection


cdef class RequestQueue(ServerConnection):
    """The part of :class:`proxy.engine.backend.Backend` for the requests as such."""

    cdef:
        sender_t sender
        buffer_t out
        # The part of ``out`` that is counted as memory for requests that wait for servers.
        int64_t counted
        # Whether the client of the oldest request has a part of its reply already.
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
        # Recent replies and their bytes.
        int64_t replies
        int64_t reply_bytes
        object paused_sessions
        # How long the oldest request may wait for its reply.
        public double reply_seconds
        # Whether all sessions share it.
        public bint shared
        # Called when the connection is ready, and with the reason when it is lost.
        public object on_ready
        public object on_down
        # The ticks of the loop's clock when a part of a request or a reply last got through.
        uint32_t progress

    cdef void push(self, request_t* request, const char* data, size_t size) noexcept
    cpdef bint was_lost(self) noexcept
    cdef bint reserve(self, size_t size) noexcept
    cdef bint ready_to_take(self) noexcept
    cdef void queue(self, request_t* request) noexcept
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
    cdef inline bint is_full(self) noexcept:
        """Whether nothing more should be given to this server before some bytes have been sent."""
        return self.out.end - self.out.start > self.pause_bytes
    cdef void count(self) noexcept
    cdef bint congested(self, bint sparse) noexcept
    cdef bint relieved(self) noexcept
    cdef void forget_received(self) noexcept
