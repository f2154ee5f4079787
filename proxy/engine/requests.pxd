"""Requests under way, the clients they are owed to, and the loop's list of what has bytes to send."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from proxy.engine.buffer cimport buffer_t
from proxy.engine.memory cimport memory_t
from proxy.engine.poller cimport Poller
from proxy.engine.statistics cimport Statistics

ctypedef enum request_kind:
    # One client's request to one server.
    REQUEST_PLAIN
    # A part of a request that was split over servers.
    REQUEST_PART
    # Answered by the proxy, or a split request that waits for its parts.
    REQUEST_PLACE
    # The proxy's own request, answered to a Python callable.
    REQUEST_CALL

# What has bytes to send: a client or a backend, linked into the loop's list while it does.
ctypedef struct sender_t:
    sender_t* next
    void (*send)(void* owner) noexcept
    void* owner
    bint listed

ctypedef struct client_t:
    int fd
    # Replies owed, oldest first (**in-order**).
    request_t* head
    request_t* tail
    int32_t owed
    # Set when the connection has to be closed at the next send: memory or a limit ran out.
    const char* broken
    buffer_t out
    # Replies and their bytes, of late: how large the next ones may be expected to be.
    int32_t replies
    int64_t reply_bytes
    # Bytes of replies that came before their turn; with those in ``out`` they stay within the limit (**bounded**).
    size_t early
    size_t out_limit
    # A part of the reply at the head is out already.
    bint streaming
    sender_t sender

# One cache line: a pipeline's worth of them is walked over for each batch of replies.
ctypedef struct request_t:
    request_t* next_at_backend
    request_t* next_at_client
    client_t* client
    # Of a REQUEST_PART and of a split request's place: its split_t. Of a REQUEST_CALL: its Python callable, owned.
    void* extra
    # A reply that waits for its turn.
    char* reply
    size_t reply_size
    # Ticks of the loop's clock at which the proxy read it.
    uint32_t sent
    int32_t part
    int16_t slot
    # Number of its command, for the statistics.
    int16_t command
    uint8_t kind
    uint8_t done

ctypedef enum split_kind:
    # Each key has one element in the reply (MGET).
    SPLIT_ELEMENTS
    # Parts answer with numbers that add up (DEL, EXISTS, ...).
    SPLIT_SUM
    # Parts answer OK (MSET).
    SPLIT_STATUS

# A request split over servers. Freed when its last part is answered.
ctypedef struct split_t:
    request_t* place
    split_kind kind
    int32_t keys
    int32_t parts
    int32_t parts_left
    int32_t* key_part
    int32_t* key_slot
    char** replies
    size_t* reply_sizes
    # Bytes of all of them.
    size_t held


cdef class Loop:
    """One worker's event loop as the engine sees it: senders, the free list, the clock, the slots' counters."""

    cdef:
        readonly object event_loop
        Poller poller
        # Backends with a socket: nobody else may hold on to one of them.
        set connected
        sender_t* clients
        sender_t* backends
        request_t* free_requests
        # Blocks that the requests are cut from.
        void** blocks
        int block_count
        bint scheduled
        object flush_bound
        # The coarse clock: time.monotonic() as of the last loop iteration.
        readonly double now
        # The same in ticks of 4.096 microseconds, and as of when the request in hand was read.
        uint32_t ticks
        uint32_t since
        # Number of the command in hand.
        int16_t command
        readonly Statistics statistics
        # Requests under way of each slot.
        int32_t* in_flight
        readonly int number_of_slots
        # Set while somebody waits for slots to drain; called when one of them may have.
        public object on_drained
        bint drain_watched
        bint drain_changed
        char* scratch
        memory_t memory
        # Bytes of replies kept for all clients; above the limit, ``on_excess`` is called (**bounded**).
        readonly int64_t unsent
        public int64_t unsent_limit
        public object on_excess
        # Counters for the worker's life.
        readonly int64_t requests
        readonly int64_t errors

    cdef bint more_requests(self) noexcept
    cdef bint have_requests(self, int count) noexcept
    cdef request_t* new_request(self, request_kind kind, client_t* client, int32_t slot) noexcept
    cdef void free_request(self, request_t* request) noexcept
    cdef void list_client(self, sender_t* sender) noexcept
    cdef void list_backend(self, sender_t* sender) noexcept
    cdef void unlist(self, sender_t* sender) noexcept
    cdef void schedule(self) noexcept
    cdef void leave_slot(self, int32_t slot) noexcept
    cdef void deliver(self, request_t* request, const char* data, size_t size) noexcept
    cdef void answer(self, client_t* client, const char* data, size_t size) noexcept
    cdef request_t* place(self, client_t* client) noexcept
    cdef bint too_much(self, client_t* client, size_t size) noexcept
    cdef void put_reply(self, client_t* client, const char* data, size_t size) noexcept
    cdef void pop_done(self, client_t* client) noexcept
    cdef void finish_place(self, request_t* place, const char* data, size_t size) noexcept
    cdef void finish_part(self, request_t* request, const char* data, size_t size) noexcept
    cdef void forget_client(self, client_t* client) noexcept
    cdef split_t* new_split(self, split_kind kind, int32_t keys, int32_t most_parts) noexcept
    cdef void join(self, split_t* split) noexcept
    cdef void free_split(self, split_t* split) noexcept
    cpdef check_drained(self)
    cdef void set_clock(self) noexcept
    cdef void send_all(self) noexcept

cdef extern from *:
    void prefetch "__builtin_prefetch" (const void* address) noexcept nogil

cdef enum:
    SCRATCH_SIZE = 131072
