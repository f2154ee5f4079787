"""Counts calls, errors and latencies of each command."""

from libc.stdint cimport int16_t, int64_t, uint32_t

cdef enum:
    # The most slow requests that are reported between two ticks of the worker. Where everything is slow, reporting all
    # of them would make it slower.
    SLOW_TOLD = 128
    # Buckets of a histogram: four to a power of two of clock ticks.
    BUCKETS = 124
    # Not a client's request, so it is not counted.
    UNCOUNTED = -1

ctypedef struct statistic_t:
    int64_t calls
    int64_t errors
    # Sum of all latencies.
    int64_t ticks
    int64_t buckets[BUCKETS]


cdef class Statistics:
    """The statistics of one worker, by the number of a command."""

    cdef:
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


cdef inline void observe(
    Statistics statistics, int16_t command, uint32_t ticks, bint failed, int slot, void* client, object address
) noexcept:
    """Count one reply."""
    cdef statistic_t* row
    if command < 0:
        return
    row = &statistics.rows[command]
    row.calls += 1
    row.errors += failed
    row.ticks += ticks
    row.buckets[bucket_of(ticks)] += 1
    if ticks >= statistics.slow:
        statistics.tell_slow(command, ticks, slot, client, address)


cdef extern from *:
    int count_leading_zeros "__builtin_clz" (unsigned int value) noexcept nogil
