"""How many requests and bytes a second one user of one worker may ask for: a bucket of tokens for each."""

from libc.stdint cimport int64_t, uint32_t

from proxy.engine.requests cimport Loop


cdef class Meter:
    """One user's buckets at one worker."""

    cdef:
        Loop loop
        readonly str user
        int number
        # The user's limits at all workers of all proxies together; 0 for none.
        int64_t most_requests
        int64_t most_bytes
        # Per cent of the worker's time that are the user's; 0 for any.
        int most_percent
        # Requests above a limit are refused, and not delayed.
        bint refuses
        # Tokens a second: this worker's part of the limits.
        double request_rate
        double byte_rate
        # The tokens that are there. Bytes are known afterwards, so theirs may be less than none.
        double request_tokens
        double byte_tokens
        # In microseconds; their rate is by the limit alone.
        double time_tokens
        uint32_t filled_at
        # The user's bytes that have been taken out.
        int64_t seen
        # Likewise, of its nanoseconds; and of those what was told.
        int64_t seen_time
        int64_t told_time
        # Sessions whose request waits for its turn, with the ticks since when, the longest waiting first.
        object line
        int waiting
        # The place in the line up to which it was seen who has left.
        Py_ssize_t looked_at
        # The session that has its turn now; the one whose request has waited for too long.
        object turn
        object expired
        # Counted since the last time they were told.
        int64_t passed
        int64_t refused
        int64_t delayed
        # The seconds for which sessions have waited, together.
        double waited
        # Of all time: requests that passed, and their bytes.
        int64_t all_requests
        int64_t all_bytes
        int64_t told_bytes
        bytes refusal

    cdef void fill(self) noexcept
    cdef void settle(self) noexcept
    cdef void settle_time(self) noexcept
    cdef inline double time_rate(self) noexcept:
        """Microseconds a second."""
        return self.most_percent * 1e4
    cdef inline bint has_tokens(self) noexcept:
        return (
            (not self.most_requests or self.request_tokens >= 1)
            and (not self.most_bytes or self.byte_tokens > 0)
            and (not self.most_percent or self.time_tokens > 0)
        )
    cdef bint takes(self) noexcept
    cdef void give_back(self, int64_t size) noexcept
