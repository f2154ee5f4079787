"""The loop's list of senders, and its clock.

Each backend and each client with bytes to send is listed. It makes one ``send`` call after the present batch of ready
sockets has been handled: a hundred requests of fifty clients are one system call.
"""

from libc.stdint cimport uint32_t, uint64_t

from proxy.engine.allowance cimport INFINITY
from proxy.engine.poller cimport Poller
from proxy.engine.records cimport sender_t, senders_t


cdef extern from "<time.h>" nogil:
    ctypedef long time_t
    cdef struct timespec:
        time_t tv_sec
        long tv_nsec
    int CLOCK_MONOTONIC
    int clock_gettime(int clock, timespec* now)

cdef enum:
    # A sender may list others (a client that goes on lists backends). After so many, the next iteration continues.
    MOST_ROUNDS = 4


cdef void before_batch(void* owner) noexcept:
    cdef Sending loop = <Sending> owner
    loop.set_clock()
    if loop.now >= loop.alarm:
        loop.alarm = INFINITY
        try:
            loop.on_alarm()
        except Exception as error:
            loop.event_loop.call_exception_handler({"message": "acting on an alarm", "exception": error})
    # Senders that are listed now send at the end of the batch.
    loop.scheduled = True


cdef void after_batch(void* owner) noexcept:
    (<Sending> owner).send_all()


cdef inline void put_in(senders_t* senders, sender_t* sender) noexcept:
    """Put a sender at the end of a list."""
    sender.next = NULL
    if senders.last == NULL:
        senders.first = sender
    else:
        senders.last.next = sender
    senders.last = sender


cdef inline sender_t* take_first(senders_t* senders) noexcept:
    """Take the first sender out of a list; NULL when the list is empty."""
    cdef sender_t* sender = senders.first
    if sender != NULL:
        senders.first = sender.next
        if senders.first == NULL:
            senders.last = NULL
    return sender


cdef bint take_out(senders_t* senders, sender_t* sender) noexcept:
    """Take a sender out of a list; false when it is not in it."""
    cdef sender_t* before = NULL
    cdef sender_t* found = senders.first
    while found != NULL and found != sender:
        before = found
        found = found.next
    if found == NULL:
        return False
    if before == NULL:
        senders.first = sender.next
    else:
        before.next = sender.next
    if senders.last == sender:
        senders.last = before
    return True


cdef class Sending:
    """The part of :class:`proxy.engine.requests.Loop` for sending and time."""

    def __cinit__(self, event_loop, *arguments, **options):
        self.event_loop = event_loop
        self.alarm = INFINITY
        self.set_clock()

    def __init__(self, event_loop, bint portable=False):
        self.flush_bound = self.flush
        self.poller = Poller(event_loop, portable)
        self.poller.before = before_batch
        self.poller.after = after_batch
        self.poller.owner = <void*> self
        self.poller.keeps = self

    cdef void list_client(self, sender_t* sender) noexcept:
        if not sender.listed:
            sender.listed = True
            put_in(&self.clients, sender)
            self.schedule()

    cdef void list_backend(self, sender_t* sender) noexcept:
        if not sender.listed:
            sender.listed = True
            put_in(&self.backends, sender)
            self.schedule()

    cdef void list_backend_first(self, sender_t* sender) noexcept:
        """List a backend before all others."""
        if sender.listed:
            take_out(&self.backends, sender)
        sender.listed = True
        sender.next = self.backends.first
        self.backends.first = sender
        if self.backends.last == NULL:
            self.backends.last = sender
        self.schedule()

    cdef bint defer(self, sender_t* sender) noexcept:
        """Ask a client, whose turn to send it is, again after the next ready sockets, or soon; false if neither will
        happen.

        Replies that are ready by then go in the same ``send``.
        """
        if not self.poller.again:
            return False
        sender.listed = True
        put_in(&self.deferred, sender)
        self.poller.wanted_again = True
        return True

    cdef void unlist(self, sender_t* sender) noexcept:
        if not sender.listed:
            return
        sender.listed = False
        if not take_out(&self.clients, sender) and not take_out(&self.backends, sender):
            take_out(&self.deferred, sender)

    cdef void schedule(self) noexcept:
        if not self.scheduled:
            self.scheduled = True
            try:
                self.event_loop.call_soon(self.flush_bound)
            except RuntimeError:
                # The event loop is closed: the worker is on its way out.
                self.scheduled = False

    def flush(self):
        """Send for the senders that were listed outside of a batch."""
        self.set_clock()
        self.send_all()

    cdef void send_all(self) noexcept:
        """Have every listed backend, then every listed client, make one ``send``, in the order of the list."""
        cdef sender_t* sender
        cdef int rounds = 0
        self.poller.wanted_again = False
        while self.deferred.first != NULL:
            put_in(&self.clients, take_first(&self.deferred))
        while (self.backends.first != NULL or self.clients.first != NULL) and rounds < MOST_ROUNDS:
            rounds += 1
            while self.backends.first != NULL:
                sender = take_first(&self.backends)
                sender.listed = False
                sender.send(sender.owner)
            while self.clients.first != NULL:
                sender = take_first(&self.clients)
                sender.listed = False
                sender.send(sender.owner)
        self.scheduled = False
        if self.backends.first != NULL or self.clients.first != NULL:
            self.schedule()
        self.sent()

    cdef void sent(self) noexcept:
        """Called after every listed sender has made its ``send``."""

    cdef void set_clock(self) noexcept:
        cdef timespec now
        clock_gettime(CLOCK_MONOTONIC, &now)
        self.now = now.tv_sec + now.tv_nsec * 1e-9
        self.ticks = self.since = <uint32_t> ((<uint64_t> now.tv_sec * 1000000000 + <uint64_t> now.tv_nsec) >> 12)
