"""The loop's list of what has bytes to send, and its clock."""

from libc.stdint cimport uint32_t

from proxy.engine.poller cimport Poller
from proxy.engine.records cimport sender_t, senders_t


cdef class Sending:
    """What of :class:`proxy.engine.requests.Loop` is about sending and time."""

    cdef:
        readonly object event_loop
        Poller poller
        senders_t clients
        senders_t backends
        # Clients whose turn is after the next look at what is ready.
        senders_t deferred
        bint scheduled
        object flush_bound
        # The coarse clock: time.monotonic() as of the last loop iteration.
        readonly double now
        # The same in ticks of 4.096 microseconds, and as of when the request in hand was read.
        uint32_t ticks
        uint32_t since
        # When ``on_alarm`` is to be called, by the coarse clock, before anything of that batch is looked at.
        public double alarm
        public object on_alarm

    cdef void list_client(self, sender_t* sender) noexcept
    cdef void list_backend(self, sender_t* sender) noexcept
    cdef void list_backend_first(self, sender_t* sender) noexcept
    cdef bint defer(self, sender_t* sender) noexcept
    cdef void unlist(self, sender_t* sender) noexcept
    cdef void schedule(self) noexcept
    cdef void send_all(self) noexcept
    cdef void sent(self) noexcept
    cdef void set_clock(self) noexcept
