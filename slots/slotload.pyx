"""Requests, errors and bytes of each slot, from when they are counted until they are told.

The engine counts here from C, a proxy's supervisor adds up what its workers tell, and topom makes rates of what proxies
tell (:mod:`slots.slotrates`). Each tells on what it has in *rows*: of one slot, little-endian and without gaps, the slot (2 bytes), its requests and errors
(4 each), the bytes of requests and of replies (8 each). What has no room in a message stays, and comes with a later one:
slots are told in the order in which they had something first.

All memory is there from the start: 34 bytes a slot.
"""

from libc.stdint cimport UINT32_MAX, UINT64_MAX, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from slots.functions cimport checked

from slots.messages.load import ROW_BYTES

cdef extern from "<stdlib.h>" nogil:
    void* aligned_alloc(size_t alignment, size_t size)

if sizeof(row_t) != ROW_BYTES:
    raise ImportError(f"a row has {sizeof(row_t)} bytes, and ROW_BYTES of slots.messages.load says {ROW_BYTES}")


cdef inline uint64_t sum_of(uint64_t one, uint64_t other) noexcept nogil:
    """A sum that ends at the largest number."""
    return one + other if other <= UINT64_MAX - one else UINT64_MAX


cdef inline uint32_t told(uint64_t* count) noexcept nogil:
    """Take from a count what a row has room for."""
    cdef uint32_t taken = <uint32_t> count[0] if count[0] < UINT32_MAX else UINT32_MAX
    count[0] -= taken
    return taken


cdef class SlotLoad:
    """What was counted of each slot, until it is told.

    Its length is the number of slots that have something.

    Args:
        number_of_slots: a power of two up to 16384.

    Raises:
        ValueError: for another number of slots.
    """

    def __cinit__(self, number_of_slots):
        self.number_of_slots = checked(number_of_slots)
        # None lies across two cache lines.
        self.counts = <slot_count_t*> aligned_alloc(sizeof(slot_count_t), sizeof(slot_count_t) * self.number_of_slots)
        self.queue = <uint16_t*> calloc(self.number_of_slots, sizeof(uint16_t))
        if self.counts == NULL or self.queue == NULL:
            raise MemoryError
        memset(self.counts, 0, sizeof(slot_count_t) * self.number_of_slots)

    def __dealloc__(self):
        free(self.counts)
        free(self.queue)

    def __len__(self):
        return self.waiting

    def __getitem__(self, slot: int) -> tuple[int, int, int, int]:
        """Requests, errors, bytes of requests and bytes of replies of one slot. Raises IndexError."""
        cdef slot_count_t* count
        if not 0 <= slot < self.number_of_slots:
            raise IndexError(f"there is no slot {slot}; there are {self.number_of_slots}")
        count = &self.counts[<uint32_t> slot]
        return count.requests, count.errors, count.bytes_in, count.bytes_out

    def each(self) -> list[tuple[int, int, int, int, int]]:
        """Slot, requests, errors, bytes of requests and bytes of replies of each slot that has something, in the order
        in which they are told."""
        cdef slot_count_t* count
        cdef uint32_t index, slot
        found = []
        for index in range(self.waiting):
            slot = self.queue[(self.first + index) & (self.number_of_slots - 1)]
            count = &self.counts[slot]
            found.append((slot, count.requests, count.errors, count.bytes_in, count.bytes_out))
        return found

    def add(self, bytes rows not None) -> None:
        """Add what somebody else has counted. A sum of more than 64 bits stays at the largest number.

        Raises:
            ValueError: the length is not that of whole rows, or a slot is none of the product's. Nothing was added.
        """
        cdef Py_ssize_t number = len(rows) // <Py_ssize_t> sizeof(row_t)
        cdef Py_ssize_t index
        cdef const char* data = rows
        cdef row_t row
        cdef slot_count_t* count
        if len(rows) % <Py_ssize_t> sizeof(row_t):
            raise ValueError(f"{len(rows)} bytes of counts by slot are not a whole number of rows of {ROW_BYTES} bytes")
        for index in range(number):
            memcpy(&row, data + index * <Py_ssize_t> sizeof(row_t), sizeof(row_t))
            if row.slot >= self.number_of_slots:
                raise ValueError(f"counts are of slot {row.slot}; there are {self.number_of_slots} slots")
        for index in range(number):
            memcpy(&row, data + index * <Py_ssize_t> sizeof(row_t), sizeof(row_t))
            if not (row.requests or row.errors or row.bytes_in or row.bytes_out):
                continue
            count = &self.counts[row.slot]
            if not has_something(count):
                self.put_in_queue(row.slot)
            count.requests = sum_of(count.requests, row.requests)
            count.errors = sum_of(count.errors, row.errors)
            count.bytes_in = sum_of(count.bytes_in, row.bytes_in)
            count.bytes_out = sum_of(count.bytes_out, row.bytes_out)

    def take(self, most: int) -> bytes:
        """Rows of at most ``most`` slots, taken away from the counts. Those that have waited longest come first; one of
        which something has no room in its row waits again."""
        cdef uint32_t number = min(max(most, 0), self.waiting)
        cdef uint32_t index
        cdef bytes rows = bytes(number * ROW_BYTES)
        cdef char* data = rows
        cdef row_t row
        cdef slot_count_t* count
        for index in range(number):
            row.slot = self.queue[self.first]
            count = &self.counts[row.slot]
            row.requests = told(&count.requests)
            row.errors = told(&count.errors)
            row.bytes_in = count.bytes_in
            row.bytes_out = count.bytes_out
            count.bytes_in = count.bytes_out = 0
            memcpy(data + index * sizeof(row_t), &row, sizeof(row_t))
            self.first = (self.first + 1) & (self.number_of_slots - 1)
            self.waiting -= 1
            if has_something(count):
                self.put_in_queue(row.slot)
        return rows
