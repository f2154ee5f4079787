"""Counts what each command and each user asked for, and was answered."""

from libc.stdint cimport int16_t, int64_t, uint8_t, uint32_t

from proxy.engine.records cimport request_t

cdef enum:
    # The most notable requests that are reported between two ticks of the worker. Where everything is slow, reporting
    # all of them would make it slower.
    MOST_REPORTED = 128
    # Bytes from which a request or a reply is notable, and elements that a reply shows.
    LARGE_BYTES = 1048576
    MANY_ELEMENTS = 10000
    # A power of two. A reply of so many elements has more bytes than this.
    LOOKED_AT_BYTES = 16384
    # The shortest number in a reply from MANY_ELEMENTS on.
    LEAST_NUMBER_REPLY = 8
    # Bytes at the beginning of a reply that hold the number of its elements.
    REPLY_HEAD = 24
    # Buckets of a histogram: four to a power of two of clock ticks.
    BUCKETS = 124
    # Not a client's request, so it is not counted.
    UNCOUNTED = -1
    # Users that have a number of their own; all others share the last one.
    MOST_USERS = 255

ctypedef struct statistic_t:
    int64_t errors
    # Sum of all latencies.
    int64_t ticks
    int64_t bytes_in
    int64_t bytes_out
    # Calls by their latency.
    int64_t buckets[BUCKETS]

# Of a user.
ctypedef struct user_count_t:
    int64_t requests
    int64_t errors
    int64_t bytes_in
    int64_t bytes_out


cdef extern from *:
    int count_leading_zeros "__builtin_clz" (unsigned int value) noexcept nogil


cdef inline int bucket_of(uint32_t ticks) noexcept nogil:
    cdef int power
    if ticks < 4:
        return ticks
    power = 31 - count_leading_zeros(ticks)
    return (power - 1) * 4 + <int> ((ticks >> (power - 2)) & 3)


cdef class Statistics:
    """The statistics of one worker, by the number of a command, and of a user."""

    cdef:
        user_count_t users[MOST_USERS + 1]
        dict user_numbers
        statistic_t* rows
        # By command: whether its reply, if it is a number, is the length of a collection.
        uint8_t* tells_length
        int capacity
        int known
        dict numbers
        list names
        # By number.
        list user_names
        # The latency in ticks from which a request is slow.
        uint32_t slow
        # Called for each notable request, with a :class:`proxy.engine.statistics.Noted`.
        public object on_notable
        object on_mistake
        # How many more may be reported before the next tick.
        int room
        # All slow requests, reported or not.
        readonly int64_t slow_requests

    cdef void look_at(
        self,
        int16_t command,
        uint8_t user,
        uint32_t ticks,
        const request_t* request,
        size_t received,
        const char* head,
        size_t size,
        int slot,
        void* client,
        object address,
        int database,
    ) noexcept

    cdef inline void count_request(self, int16_t command, uint8_t user, size_t size) noexcept:
        """Count one request of ``size`` bytes."""
        self.rows[command].bytes_in += size
        self.users[user].requests += 1
        self.users[user].bytes_in += size

    cdef inline void observe(self, int16_t command, uint8_t user, uint32_t ticks, size_t size, bint failed) noexcept:
        """Count one reply, of which the client gets ``size`` bytes."""
        cdef statistic_t* row
        if command < 0:
            return
        row = &self.rows[command]
        row.ticks += ticks
        row.bytes_out += size
        row.buckets[bucket_of(ticks)] += 1
        self.users[user].bytes_out += size
        if failed:
            row.errors += 1
            self.users[user].errors += 1

    cdef inline bint may_be_notable(
        self, int16_t command, uint32_t ticks, size_t received, size_t size, char first
    ) noexcept:
        """Whether :meth:`look_at` should look at a request of ``received`` bytes, whose reply has ``size`` bytes and begins
        with ``first``."""
        return (
            ticks >= self.slow
            or (size | received) >= LOOKED_AT_BYTES
            or (first == c':' and size >= LEAST_NUMBER_REPLY and command >= 0 and self.tells_length[command])
        )
