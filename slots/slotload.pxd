"""Counts by slot, for compiled modules that count."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

# A row, as messages carry it.
cdef extern from *:
    """
    #include <stdint.h>
    typedef struct __attribute__((packed)) {
        uint16_t slot;
        uint32_t requests, errors;
        uint64_t bytes_in, bytes_out;
    } slotferry_row_t;
    #if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "rows of slots are little-endian, and so has the machine to be"
    #endif
    """
    ctypedef struct row_t "slotferry_row_t":
        uint16_t slot
        uint32_t requests
        uint32_t errors
        uint64_t bytes_in
        uint64_t bytes_out

ctypedef struct slot_count_t:
    uint64_t requests
    uint64_t errors
    uint64_t bytes_in
    uint64_t bytes_out
    # Whether the slot is in the queue of those that have something.
    uint64_t queued


cdef class SlotLoad:
    """What was counted of each slot, until it is told."""

    cdef:
        slot_count_t* counts
        # The slots that have something, as a ring: the one that has waited longest to be told comes first.
        uint16_t* queue
        uint32_t first
        uint32_t waiting
        readonly uint32_t number_of_slots

    cdef inline void put_in_queue(self, uint32_t slot) noexcept nogil:
        self.counts[slot].queued = 1
        # The number of slots is a power of two.
        self.queue[(self.first + self.waiting) & (self.number_of_slots - 1)] = <uint16_t> slot
        self.waiting += 1

    cdef inline void count_in(self, uint32_t slot, uint64_t bytes_in) noexcept nogil:
        """Bytes of a request, whose reply is counted later. ``slot`` is below the number of slots."""
        self.counts[slot].bytes_in += bytes_in
        if not self.counts[slot].queued:
            self.put_in_queue(slot)

    cdef inline void count_out(self, uint32_t slot, uint64_t bytes_out, bint failed) noexcept nogil:
        """A request's reply."""
        cdef slot_count_t* count = &self.counts[slot]
        count.requests += 1
        count.errors += failed
        count.bytes_out += bytes_out
        if not count.queued:
            self.put_in_queue(slot)
