"""Watches sockets and calls C functions when they are ready, without a Python object in between.

On Linux the engine's sockets are in an epoll set of their own, and the event loop watches only that set's descriptor. A
ready socket costs a C call, and an idle one has no object in the event loop. Sockets that become ready during a batch
are handled at once, a few times in a row, before the event loop has its turn. On other systems the event loop watches
each socket.

Some work is cheaper together with the work that comes next, and may be left for then. If nothing comes, a timer in the
same set has it done after :data:`MOST_NANOSECONDS` (**bounded**).

Interest is level-triggered. A socket without interest is taken out of the set, because a hang-up is reported for every
socket in it.
"""

from libc.stdint cimport intptr_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from functools import partial

cdef extern from *:
    """
    #ifdef __linux__
    #include <sys/epoll.h>
    #include <sys/timerfd.h>
    #include <unistd.h>
    #define slotferry_has_epoll 1
    static int slotferry_timer(void) { return timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC); }
    /* Zero: never. It is not ready any more after this. */
    static void slotferry_time(int timer, long nanoseconds) {
        struct itimerspec when = {{0, 0}, {0, nanoseconds}};
        timerfd_settime(timer, 0, &when, NULL);
    }
    #else
    /* Never called: the poller then works without a set of its own. */
    #include <unistd.h>
    #define slotferry_has_epoll 0
    typedef union { void *ptr; } epoll_data_t;
    struct epoll_event { unsigned int events; epoll_data_t data; };
    enum { EPOLL_CTL_ADD = 1, EPOLL_CTL_DEL = 2, EPOLL_CTL_MOD = 3, EPOLL_CLOEXEC = 0, EPOLLOUT = 4 };
    static int epoll_create1(int flags) { return -1; }
    static int epoll_ctl(int set, int how, int fd, struct epoll_event *event) { return -1; }
    static int epoll_wait(int set, struct epoll_event *events, int most, int milliseconds) { return -1; }
    static int slotferry_timer(void) { return -1; }
    static void slotferry_time(int timer, long nanoseconds) {}
    #endif
    """
    ctypedef union epoll_data_t:
        void* ptr
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    bint slotferry_has_epoll
    int EPOLL_CTL_ADD
    int EPOLL_CTL_DEL
    int EPOLL_CTL_MOD
    int EPOLL_CLOEXEC
    uint32_t EPOLLOUT
    int epoll_create1(int flags) nogil
    int epoll_ctl(int set, int how, int fd, epoll_event* event) nogil
    int epoll_wait(int set, epoll_event* events, int most, int milliseconds) nogil
    int slotferry_timer() nogil
    void slotferry_time(int timer, long nanoseconds) nogil
    int close(int fd) nogil

cdef enum:
    MOST_EVENTS = 256
    # The most batches in a row before the event loop has its turn.
    MOST_BATCHES = 8
    # How long ``after`` may be left waiting. A reply of a server in the same network takes about as long.
    MOST_NANOSECONDS = 300_000


cdef class Poller:
    """One worker's sockets.

    Args:
        event_loop: watches the set, or each socket where there can be no set.
        portable: have no set of its own, as on systems without epoll.
    """

    def __cinit__(self, event_loop, bint portable=False):
        self.fd = self.timer = -1
        self.batch = malloc(sizeof(epoll_event) * MOST_EVENTS)
        if self.batch == NULL:
            raise MemoryError

    def __init__(self, event_loop, bint portable=False):
        cdef epoll_event event
        self.event_loop = event_loop
        if slotferry_has_epoll and not portable:
            self.fd = epoll_create1(EPOLL_CLOEXEC)
            if self.fd < 0:
                raise OSError("epoll_create1 failed")
            self.timer = slotferry_timer()
            event.events = READABLE
            event.data.ptr = NULL
            if self.timer < 0 or epoll_ctl(self.fd, EPOLL_CTL_ADD, self.timer, &event):
                raise OSError("no timer is available")
            event_loop.add_reader(self.fd, self._take)

    def __dealloc__(self):
        free(self.batch)
        if self.timer >= 0:
            close(self.timer)
        if self.fd >= 0:
            close(self.fd)

    cdef bint want(self, watch_t* watch, uint32_t events) noexcept:
        """Set the events to wait for from now on; false when the system refuses."""
        cdef epoll_event event
        cdef uint32_t before = watch.wanted
        if events == before:
            return True
        watch.wanted = events
        if self.fd < 0:
            return self.want_of_loop(watch, before)
        event.events = events
        event.data.ptr = watch
        return 0 == epoll_ctl(
            self.fd,
            EPOLL_CTL_ADD if not before else EPOLL_CTL_MOD if events else EPOLL_CTL_DEL,
            watch.fd,
            &event,
        )

    cdef void forget(self, watch_t* watch) noexcept:
        """Stop watching a socket that is about to be closed, or whose owner is about to go."""
        cdef epoll_event* events = <epoll_event*> self.batch
        cdef int index
        self.want(watch, 0)
        for index in range(self.batch_size):
            if events[index].data.ptr == watch:
                events[index].data.ptr = NULL

    def _take(self):
        """Handle the sockets that are ready."""
        cdef epoll_event* events = <epoll_event*> self.batch
        cdef watch_t* watch
        cdef uint32_t bits
        cdef int turn
        cdef int index
        cdef int count
        for turn in range(MOST_BATCHES):
            count = epoll_wait(self.fd, events, MOST_EVENTS, 0)
            if count <= 0:
                break
            self.batch_size = count
            self.before(self.owner)
            for index in range(count):
                watch = <watch_t*> events[index].data.ptr
                if watch != NULL:
                    bits = events[index].events
                    watch.ready(watch.owner, (bits & EPOLLOUT) | (READABLE if bits & ~EPOLLOUT else 0))
            self.batch_size = 0
            self.again = True
            self.after(self.owner)
            self.again = False
            if count == 1 and not self.wanted_again:
                # There was hardly anything to do: the event loop may wait instead of another look.
                break
        self.rest()

    cdef void rest(self) noexcept:
        """Let the event loop wait, but no longer than the remaining work may take."""
        if self.wanted_again:
            self.timed = True
            slotferry_time(self.timer, MOST_NANOSECONDS)
        elif self.timed:
            self.timed = False
            slotferry_time(self.timer, 0)

    # -- without epoll -------------------------------------------------------------------------------------

    cdef bint want_of_loop(self, watch_t* watch, uint32_t before) noexcept:
        cdef uint32_t changed = before ^ watch.wanted
        address = <intptr_t> watch
        try:
            if changed & READABLE:
                if watch.wanted & READABLE:
                    self.event_loop.add_reader(watch.fd, partial(self._tell, address, READABLE))
                else:
                    self.event_loop.remove_reader(watch.fd)
            if changed & WRITABLE:
                if watch.wanted & WRITABLE:
                    self.event_loop.add_writer(watch.fd, partial(self._tell, address, WRITABLE))
                else:
                    self.event_loop.remove_writer(watch.fd)
        except Exception:
            return False
        return True

    def _tell(self, intptr_t address, uint32_t events):
        cdef watch_t* watch = <watch_t*> address
        self.before(self.owner)
        watch.ready(watch.owner, events)
        self.after(self.owner)
