"""Requests under way: their records, and how many of each slot there are."""

from libc.stdint cimport int16_t, int32_t

from proxy.engine.memory cimport memory_t
from proxy.engine.records cimport client_t, request_kind, request_t
from proxy.engine.sending cimport Sending
from proxy.engine.worktime cimport WorkTime


cdef class UnderWay(Sending):
    """The part of :class:`proxy.engine.requests.Loop` for the requests as such."""

    cdef:
        request_t* free_requests
        # The memory blocks that the requests are cut from.
        void** blocks
        int block_count
        memory_t memory
        # Number of the present command.
        int16_t command
        # Requests under way of each slot.
        int32_t* in_flight
        readonly int number_of_slots
        readonly WorkTime work_time
        # Set while a lock waits for slots to drain; called when one of them may be drained.
        public object on_drained
        bint drain_watched
        bint drain_changed

    cdef bint more_requests(self) noexcept
    cdef bint have_requests(self, int count) noexcept
    cdef request_t* new_request(self, request_kind kind, client_t* client, int32_t slot) noexcept
    cdef void free_request(self, request_t* request) noexcept
    cdef inline void leave_slot(self, int32_t slot) noexcept:
        """A request of the slot is answered, or will never be."""
        if slot >= 0:
            self.in_flight[slot] -= 1
            if self.drain_watched and self.in_flight[slot] == 0:
                self.drain_changed = True
    cpdef check_drained(self)
