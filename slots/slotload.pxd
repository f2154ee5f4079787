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

# Half a cache line, for each reply counts here. A slot that has something is in the queue of those to be told.
ctypedef struct slot_count_t:
    uint64_t requests
    uint64_t errors
    uint64_t bytes_in
    uint64_t bytes_out


cdef inline bint has_something(const slot_count_t* count) noexcept nogil:
    return (count.requests | count.errors | count.bytes_in | count.bytes_out) != 0


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
        # The number of slots is a power of two.
        self.queue[(self.first + self.waiting) & (self.number_of_slots - 1)] = <uint16_t> slot
        self.waiting += 1

    cdef inline void count_bytes(self, uint32_t slot, uint64_t bytes_in) noexcept nogil:
        """Bytes of a request that counts itself later. ``slot`` is below the number of slots."""
        cdef slot_count_t* count = &self.counts[slot]
        if bytes_in and not has_something(count):
            self.put_in_queue(slot)
        count.bytes_in += bytes_in

    cdef inline void count(self, uint32_t slot, uint64_t bytes_in, uint64_t bytes_out) noexcept nogil:
        """A request and its reply. ``slot`` is below the number of slots."""
        cdef slot_count_t* count = &self.counts[slot]
        if count.requests == 0 and not has_something(count):
            self.put_in_queue(slot)
        count.requests += 1
        count.bytes_in += bytes_in
        count.bytes_out += bytes_out

    cdef inline void count_error(self, uint32_t slot) noexcept nogil:
        """A request that was counted, and has failed."""
        self.counts[slot].errors += 1
