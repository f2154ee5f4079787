"""Counts what each command and each user asked for, and was answered."""

from libc.stdint cimport int16_t, int64_t, uint8_t, uint32_t, uint64_t

from proxy.engine.records cimport request_t, sort_of

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

# Replies from one server that have come together, to requests of one sort (sort_of of proxy.engine.records), until they
# are counted.
ctypedef struct tally_t:
    # UINT64_MAX if there are none: no kind of request has all bits.
    uint64_t sort
    int16_t command
    uint8_t user
    # Whether a reply that is a number is the length of a collection.
    bint tells_length
    # The latency of each of them, and from how many bytes on one may be notable.
    uint32_t ticks
    size_t looked_at
    int64_t replies
    uint64_t bytes_in
    uint64_t bytes_out
    # When they came, and the sum of how long they were at the server.
    uint32_t now
    uint64_t server_ticks

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


cdef inline bint is_looked_at(const tally_t* tally, size_t received, size_t size, char first) noexcept nogil:
    """As :meth:`Statistics.may_be_notable`, for a request whose reply is collected in ``tally``."""
    return (size | received) >= tally.looked_at or (
        first == c':' and tally.tells_length and size >= LEAST_NUMBER_REPLY
    )


cdef class Statistics:
    """The statistics of one worker, by the number of a command, and of a user."""

    cdef:
        # Of the worker's life, and what of that was told.
        user_count_t users[MOST_USERS + 1]
        user_count_t told[MOST_USERS + 1]
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

    cdef inline int64_t bytes_of(self, int user) noexcept:
        """Bytes of a user's requests and replies since the worker began."""
        return self.users[user].bytes_in + self.users[user].bytes_out

    cdef inline void count_requests(self, int16_t command, uint8_t user, int64_t requests, uint64_t size) noexcept:
        """Count requests of ``size`` bytes together."""
        self.rows[command].bytes_in += size
        self.users[user].requests += requests
        self.users[user].bytes_in += size

    cdef inline void begin_tally(self, tally_t* tally, const request_t* request, uint32_t now) noexcept:
        """Begin with the replies to requests of the sort of this one, which come ``now``."""
        tally.sort = sort_of(request)
        tally.command = request.command
        tally.user = request.user
        tally.tells_length = request.command >= 0 and self.tells_length[request.command]
        tally.now = now
        tally.ticks = now - request.sent
        tally.looked_at = 0 if tally.ticks >= self.slow else LOOKED_AT_BYTES
        tally.replies = tally.bytes_in = tally.bytes_out = tally.server_ticks = 0

    cdef inline void observe_tally(self, const tally_t* tally) noexcept:
        """Count replies, but for their errors."""
        cdef statistic_t* row
        if tally.command < 0:
            return
        row = &self.rows[tally.command]
        row.ticks += <int64_t> tally.ticks * tally.replies
        row.bytes_out += tally.bytes_out
        row.buckets[bucket_of(tally.ticks)] += tally.replies
        self.users[tally.user].bytes_out += tally.bytes_out

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
            self.observe_error(command, user)

    cdef inline void observe_error(self, int16_t command, uint8_t user) noexcept:
        if command >= 0:
            self.rows[command].errors += 1
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
