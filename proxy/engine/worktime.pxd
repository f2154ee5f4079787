"""How long the worker works for each user whose share of it is limited."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from proxy.engine.statistics cimport MOST_USERS

cdef enum:
    # In place of a user's number: nobody whose time counts.
    NO_USER = -1

cdef extern from *:
    """
    #include <time.h>
    static inline long long slotferry_nanoseconds(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * 1000000000LL + now.tv_nsec;
    }
    """
    int64_t slotferry_nanoseconds() noexcept nogil


cdef class WorkTime:
    """The time of one worker, by the number of a user."""

    cdef:
        # By number: how many meters have a limit of its time, and the nanoseconds of work for it.
        int32_t counted[MOST_USERS + 1]
        int64_t nanoseconds[MOST_USERS + 1]
        # How many have such a limit.
        int32_t users
        # For whom the worker works now, and since when.
        int who
        int64_t since
        # The worker has worked for one of them since requests were last sent to servers.
        bint recent
        # In tests: called for the nanoseconds.
        public object clock

    cdef inline int64_t now(self) noexcept:
        return slotferry_nanoseconds() if self.clock is None else self.given()

    cdef int64_t given(self) noexcept

    cdef inline int turn_to(self, int user) noexcept:
        """From now on the worker works for this user, or NO_USER; give the one before."""
        cdef int before = self.who
        cdef int64_t now
        if user != NO_USER and not self.counted[user]:
            user = NO_USER
        if user != before:
            now = self.now()
            if before != NO_USER:
                self.nanoseconds[before] += now - self.since
            self.who = user
            self.since = now
            self.recent = True
        return before

    cdef inline int turn_to_if(self, bint metered, int user) noexcept:
        """As :meth:`turn_to`, for a user that may have a limit of its time if it is ``metered``. Others may go on while the
        worker works for somebody else, whose time that is not."""
        return self.turn_to(user) if metered or self.who != NO_USER else NO_USER

    cdef inline uint8_t for_user(self) noexcept:
        """For whom a request of the proxy's own is: the number of a user, or 0, which is nobody's."""
        return self.who if self.who != NO_USER else 0

    cdef inline void add(self, int user, int64_t nanoseconds) noexcept:
        """So much of the work was for a user, while the worker worked for nobody."""
        if user != NO_USER and self.counted[user]:
            self.nanoseconds[user] += nanoseconds

    cdef int64_t of(self, int user) noexcept
    cdef void count(self, int user, int32_t difference) noexcept
