"""Watches sockets and calls C functions when they are ready, without a Python object in between."""

from libc.stdint cimport uint32_t

cdef enum:
    # epoll's own bits.
    READABLE = 1
    WRITABLE = 4

# The watch of one socket; it is part of the connection that owns the socket.
ctypedef struct watch_t:
    int fd
    # The bits that are waited for; none when the socket is not watched at all.
    uint32_t wanted
    # Called with the bits that are ready; READABLE also for an error or a hang-up.
    void (*ready)(void* owner, uint32_t events) noexcept
    void* owner


cdef class Poller:
    """One worker's sockets."""

    cdef:
        object event_loop
        readonly int fd
        void* batch
        int batch_size
        # Called before and after each batch of ready sockets.
        void (*before)(void* owner) noexcept
        void (*after)(void* owner) noexcept
        void* owner
        # Within ``after``: whether it will be called again soon in any case. The owner sets whether it has to be.
        bint again
        bint wanted_again
        # Ready when ``after`` is due though no socket was ready; -1 where there is none.
        int timer
        bint timed
        # Keeps the owner alive while sockets are watched.
        public object keeps

    cdef bint want(self, watch_t* watch, uint32_t events) noexcept
    cdef void forget(self, watch_t* watch) noexcept
    cdef void rest(self) noexcept
    cdef bint want_of_loop(self, watch_t* watch, uint32_t before) noexcept
