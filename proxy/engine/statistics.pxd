"""Counts what each command and each user asked for, and was answered."""

from libc.stdint cimport int16_t, int64_t, uint8_t, uint32_t

cdef enum:
    # The most slow requests that are reported between two ticks of the worker. Where everything is slow, reporting all
    # of them would make it slower.
    SLOW_TOLD = 128
    # Buckets of a histogram: four to a power of two of clock ticks.
    BUCKETS = 124
    # Not a client's request, so it is not counted.
    UNCOUNTED = -1
    # Users that have a number of their own; all others share the last one.
    MOST_USERS = 255

ctypedef struct statistic_t:
    int64_t calls
    int64_t errors
    # Sum of all latencies.
    int64_t ticks
    int64_t bytes_in
    int64_t bytes_out
    int64_t buckets[BUCKETS]

# Of a user.
ctypedef struct user_count_t:
    int64_t requests
    int64_t errors
    int64_t bytes_in
    int64_t bytes_out


cdef class Statistics:
    """The statistics of one worker, by the number of a command, and of a user."""

    cdef:
        user_count_t users[MOST_USERS + 1]
        dict user_numbers
        statistic_t* rows
        int capacity
        int known
        dict numbers
        list names
        # The latency in ticks from which a request is reported to ``on_slow``.
        uint32_t slow
        public object on_slow
        object on_mistake
        # How many more may be reported before the next tick.
        int slow_room
        # All slow requests, reported or not.
        readonly int64_t slow_requests

    cdef void tell_slow(self, int16_t command, uint32_t ticks, int slot, void* client, object address) noexcept


cdef inline int bucket_of(uint32_t ticks) noexcept nogil:
    cdef int power
    if ticks < 4:
        return ticks
    power = 31 - count_leading_zeros(ticks)
    return (power - 1) * 4 + <int> ((ticks >> (power - 2)) & 3)


cdef inline void count_request(Statistics statistics, int16_t command, uint8_t user, size_t size) noexcept:
    """Count one request of ``size`` bytes."""
    statistics.rows[command].bytes_in += size
    statistics.users[user].requests += 1
    statistics.users[user].bytes_in += size


cdef inline void observe(
    Statistics statistics,
    int16_t command,
    uint8_t user,
    uint32_t ticks,
    size_t size,
    bint failed,
    int slot,
    void* client,
    object address,
) noexcept:
    """Count one reply, of which the client gets ``size`` bytes."""
    cdef statistic_t* row
    if command < 0:
        return
    row = &statistics.rows[command]
    row.calls += 1
    row.errors += failed
    row.ticks += ticks
    row.bytes_out += size
    row.buckets[bucket_of(ticks)] += 1
    statistics.users[user].errors += failed
    statistics.users[user].bytes_out += size
    if ticks >= statistics.slow:
        statistics.tell_slow(command, ticks, slot, client, address)


cdef extern from *:
    int count_leading_zeros "__builtin_clz" (unsigned int value) noexcept nogil
