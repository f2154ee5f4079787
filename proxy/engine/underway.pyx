"""Requests under way: their records, and how many of each slot there are.

All of it is C memory: a request needs no Python object. The slots' counters also count requests whose client has gone,
because **drained** concerns the commands that a server may still run, not their clients.
"""

from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free, realloc
from cpython.ref cimport Py_DECREF

from proxy.engine.memory cimport free_memory, kept_t, leave_kept
from proxy.engine.records cimport REQUEST_CALL, client_t, keyed_request_t, prefetch, request_kind, request_t
from proxy.engine.sending cimport Sending
from proxy.engine.statistics cimport UNCOUNTED

cdef extern from "<stdlib.h>" nogil:
    void* aligned_alloc(size_t alignment, size_t size)

cdef enum:
    CACHE_LINE = 64
    BLOCK_REQUESTS = 256


cdef class UnderWay(Sending):
    """The part of :class:`proxy.engine.requests.Loop` for the requests as such."""

    def __cinit__(self, event_loop, int number_of_slots, bint portable=False):
        self.number_of_slots = number_of_slots
        self.in_flight = <int32_t*> calloc(number_of_slots, sizeof(int32_t))
        if self.in_flight == NULL:
            raise MemoryError

    def __init__(self, event_loop, int number_of_slots, bint portable=False):
        super().__init__(event_loop, portable)
        self.command = UNCOUNTED

    def __dealloc__(self):
        cdef int block
        for block in range(self.block_count):
            free(self.blocks[block])
        free(self.blocks)
        free_memory(&self.memory)
        free(self.in_flight)

    cdef bint more_requests(self) noexcept:
        """Cut another memory block into free requests; false when there is no memory for it."""
        cdef void** blocks = <void**> realloc(self.blocks, sizeof(void*) * (self.block_count + 1))
        cdef keyed_request_t* cut
        cdef int index
        if blocks == NULL:
            return False
        self.blocks = blocks
        cut = <keyed_request_t*> aligned_alloc(CACHE_LINE, sizeof(keyed_request_t) * BLOCK_REQUESTS)
        if cut == NULL:
            return False
        blocks[self.block_count] = cut
        self.block_count += 1
        for index in range(BLOCK_REQUESTS):
            cut[index].request.next_at_backend = self.free_requests
            self.free_requests = &cut[index].request
        return True

    cdef bint have_requests(self, int count) noexcept:
        """Make sure that the next ``count`` requests are available; false when there is no memory for them."""
        cdef request_t* request = self.free_requests
        cdef int found = 0
        while found < count and request != NULL:
            found += 1
            request = request.next_at_backend
        while found < count:
            if not self.more_requests():
                return False
            found += BLOCK_REQUESTS
        return True

    cdef request_t* new_request(self, request_kind kind, client_t* client, int32_t slot) noexcept:
        """A request at the end of the client's queue (if there is a client), counted for its slot."""
        cdef request_t* request
        if self.free_requests == NULL and not self.more_requests():
            return NULL
        request = self.free_requests
        self.free_requests = request.next_at_backend
        prefetch(self.free_requests)
        prefetch(&(<keyed_request_t*> self.free_requests).key)
        request.next_at_backend = NULL
        request.next_at_client = NULL
        request.client = client
        request.extra = NULL
        request.reply = NULL
        request.sent = self.since
        request.part = 0
        request.command = self.command
        request.slot = slot
        request.kind = kind
        request.done = 0
        request.muted = 0
        if slot >= 0:
            self.in_flight[slot] += 1
        if client != NULL:
            request.muted = client.muted != 0
            request.user = client.user
            if client.tail != NULL:
                client.tail.next_at_client = request
            else:
                client.head = request
            client.tail = request
            client.owed += 1
        else:
            request.user = self.work_time.for_user()
        return request

    cdef void free_request(self, request_t* request) noexcept:
        if request.reply != NULL:
            leave_kept(&self.memory, <kept_t*> request.extra)
        elif request.kind == REQUEST_CALL and request.extra != NULL:
            Py_DECREF(<object> request.extra)
        request.next_at_backend = self.free_requests
        self.free_requests = request

    # -- slots ---------------------------------------------------------------------------------------------

    def hold_slot(self, int slot):
        """Count an action of the proxy itself, such as a move, as under way for the slot."""
        self.in_flight[slot] += 1

    def release_slot(self, int slot):
        """The reverse of :meth:`hold_slot`."""
        self.leave_slot(slot)
        self.check_drained()

    def slot_in_flight(self, int slot):
        """The number of requests under way for a slot."""
        return self.in_flight[slot]

    def watch_drain(self, callback):
        """Have ``callback()`` called whenever a slot's last request has been answered; None to stop."""
        self.on_drained = callback
        self.drain_watched = callback is not None
        self.drain_changed = False

    cpdef check_drained(self):
        """Tell the watcher if a slot's last request was answered since the last call."""
        if self.drain_changed:
            self.drain_changed = False
            if self.on_drained is not None:
                self.on_drained()

    def tell_drained(self):
        """As :meth:`check_drained`, where an exception cannot be passed on."""
        try:
            self.check_drained()
        except Exception as error:
            self.event_loop.call_exception_handler({"message": "telling of drained slots", "exception": error})
