"""The loop's list of senders, and its clock."""

from libc.stdint cimport uint32_t

from proxy.engine.poller cimport Poller
from proxy.engine.records cimport sender_t, senders_t


cdef class Sending:
    """The part of :class:`proxy.engine.requests.Loop` for sending and time."""

    cdef:
        readonly object event_loop
        Poller poller
        senders_t clients
        senders_t backends
        # Clients that send after the next look at the ready sockets.
        senders_t deferred
        bint scheduled
        object flush_bound
        # The coarse clock: time.monotonic() as of the last loop iteration.
        readonly double now
        # The same in ticks of 4.096 microseconds; it is the time when the present request was read.
        uint32_t ticks
        uint32_t since
        # When ``on_alarm`` has to be called, by the coarse clock. The call comes before the other work of that batch.
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
