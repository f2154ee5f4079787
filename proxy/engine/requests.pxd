"""Takes replies from the servers to their clients."""

cimport cython
from libc.stdint cimport int32_t, int64_t

from proxy.engine.hotkeys cimport HotKeys
from proxy.engine.records cimport client_t, request_t, split_t
from proxy.engine.statistics cimport Statistics
from proxy.engine.traffic cimport Traffic
from proxy.engine.underway cimport UnderWay
from slots.requests.commandlookup cimport split_kind


@cython.final
cdef class Loop(UnderWay):
    """One worker's event loop as the engine sees it: senders, the free list, the clock, the slots' counters."""

    cdef:
        # Backends with a socket: there may be no other reference to one.
        set connected
        # By address: the newest connection that was introduced, by its place in the order in which connections were
        # opened, and the run id of the process that it leads to.
        dict processes
        int64_t opened
        readonly Statistics statistics
        readonly Traffic traffic
        readonly HotKeys hot_keys
        # The number of requests that plain Python decided on.
        int64_t decisions
        char* scratch
        # Bytes of memory kept for all clients, unsent or not yet taken. Above the limit, ``on_excess`` is called
        # (**bounded**).
        readonly int64_t kept
        public int64_t kept_limit
        public object on_excess
        # Bytes of memory for requests that wait for servers, where these are many. At the limit, sessions with more
        # wait in ``held``, in their order, until other requests have gone (**bounded**).
        readonly int64_t waiting
        public int64_t waiting_limit
        object held
        object admitted
        bint resuming
        # Counters for the worker's life.
        readonly int64_t requests
        readonly int64_t errors
        # Requests of sheddable users that were refused.
        readonly int64_t shed

    cdef bint is_process(self, address, process, int64_t opened) except -1
    cdef bint is_full(self, object session, size_t size)
    cdef void hold(self, object session, size_t size)
    cdef void count_waiting(self, int64_t difference) noexcept
    cdef void keep_early(self, client_t* client, request_t* first, const char* data, size_t size) noexcept
    cdef void deliver(
        self, request_t* request, const char* data, size_t size, object address, int database
    ) noexcept
    cdef void answer(self, client_t* client, const char* data, size_t size) noexcept
    cdef void push(self, client_t* client, const char* data, size_t size) noexcept
    cdef request_t* place(self, client_t* client) noexcept
    cdef bint too_much(self, client_t* client, size_t size) noexcept
    cdef void put_reply(self, client_t* client, const char* data, size_t size) noexcept
    cdef void pop_done(self, client_t* client) noexcept
    cdef void finish_place(
        self, request_t* place, const char* data, size_t size, object address, int database
    ) noexcept
    cdef void tell_caller(self, request_t* request, bytes reply) noexcept
    cdef void finish_part(self, request_t* request, const char* data, size_t size) noexcept
    cdef void forget_client(self, client_t* client) noexcept
    cdef split_t* new_split(self, split_kind kind, int32_t keys, int32_t most_parts) noexcept
    cdef void join(self, split_t* split) noexcept
    cdef void drop_parts(self, split_t* split) noexcept
    cdef void free_split(self, split_t* split) noexcept

cdef enum:
    SCRATCH_SIZE = 131072
    # An empty buffer larger than this gives its memory back; smaller ones are not counted.
    KEPT_BUFFER = 262144
