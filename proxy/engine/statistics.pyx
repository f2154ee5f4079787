"""Counts calls, errors, bytes and latencies of each command, with a histogram of the latencies; and what each user asks
for.

Time is counted in ticks of 4.096 microseconds (nanoseconds shifted by 12 bits), so that 32 bits last for almost five
hours. A request's time begins when the proxy reads it, even if it has to wait for a slot or a key on its way. It ends
when the proxy reads its reply. The histogram has four buckets to a power of two: an error of at most an eighth.

A request and its bytes are counted once, when it leaves the front of its session's input. Its reply is counted when it
is there, with the bytes that the client gets. Messages of pub/sub, and whatever else is no reply, are not counted.
"""

from libc.stdint cimport UINT32_MAX, int16_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

TICK_MICROSECONDS = 4.096
OTHER = "other"
"""The name for all commands that the table does not have. Its number is 0. Also for users that have no number."""
NOBODY = "not logged in"
"""Stands for a user before a client has logged in; no user has a name with blanks. Its number is 0."""


def bucket_limits():
    """The upper limit of each bucket, in ticks; the limit itself is not in the bucket."""
    limits = []
    for index in range(BUCKETS):
        if index < 4:
            limits.append(index + 1)
        else:
            power, part = index // 4 + 1, index % 4
            limits.append((4 + part + 1) << (power - 2))
    return limits


cdef class Statistics:
    """The statistics of one worker, by the number of a command, and of a user."""

    def __cinit__(self):
        self.capacity = 512
        self.rows = <statistic_t*> calloc(self.capacity, sizeof(statistic_t))
        if self.rows == NULL:
            raise MemoryError
        self.slow = UINT32_MAX

    def __init__(self, on_mistake=None):
        self.on_mistake = on_mistake
        self.numbers = {}
        self.user_numbers = {NOBODY: 0}
        self.names = []
        self.slow_room = SLOW_TOLD
        self.number(OTHER)

    def __dealloc__(self):
        free(self.rows)

    def number(self, str name):
        """Number of a command, the same while the worker lives."""
        cdef statistic_t* rows
        found = self.numbers.get(name)
        if found is not None:
            return found
        if self.known == self.capacity:
            rows = <statistic_t*> realloc(self.rows, sizeof(statistic_t) * self.capacity * 2)
            if rows == NULL:
                raise MemoryError
            memset(rows + self.capacity, 0, sizeof(statistic_t) * self.capacity)
            self.rows = rows
            self.capacity *= 2
        self.numbers[name] = self.known
        self.names.append(name)
        self.known += 1
        return self.known - 1

    def user_number(self, str name):
        """Number of a user, the same while the worker lives. **bounded**: at :data:`MOST_USERS` of them, all others
        share one."""
        cdef int number = len(self.user_numbers)
        if name not in self.user_numbers and number >= MOST_USERS:
            return self.user_numbers.setdefault(OTHER, MOST_USERS)
        return self.user_numbers.setdefault(name, number)

    def take_users(self):
        """What was counted of each user since the last time: ``{name: (requests, errors, bytes in, bytes out)}``."""
        cdef user_count_t* count
        found = {}
        for name, number in self.user_numbers.items():
            count = &self.users[<int> number]
            if count.requests or count.errors or count.bytes_out:
                found[name] = (count.requests, count.errors, count.bytes_in, count.bytes_out)
        memset(self.users, 0, sizeof(self.users))
        return found

    def watch_slow(self, double microseconds, on_slow):
        """Call ``on_slow(name, microseconds, slot, session, address)`` for requests that take at least so long.

        **bounded**: of many at once, only the first ones are reported; :meth:`tick` makes room for more.
        """
        self.slow = <uint32_t> max(1, min(microseconds / TICK_MICROSECONDS, UINT32_MAX))
        self.on_slow = on_slow

    def tick(self):
        """Allow the next slow requests to be reported."""
        self.slow_room = SLOW_TOLD

    def read(self):
        """The figures of all commands that were called: ``{name: (calls, errors, microseconds, buckets, bytes in,
        bytes out)}``."""
        cdef statistic_t* row
        cdef int index
        found = {}
        for name, number in self.numbers.items():
            row = &self.rows[<int> number]
            if row.calls:
                found[name] = (
                    row.calls,
                    row.errors,
                    row.ticks * TICK_MICROSECONDS,
                    [row.buckets[index] for index in range(BUCKETS)],
                    row.bytes_in,
                    row.bytes_out,
                )
        return found

    def reset(self):
        """Start counting again from zero."""
        memset(self.rows, 0, sizeof(statistic_t) * self.capacity)

    cdef void tell_slow(self, int16_t command, uint32_t ticks, int slot, void* client, object address) noexcept:
        self.slow_requests += 1
        if self.on_slow is None or self.slow_room <= 0:
            return
        self.slow_room -= 1
        session = <object> client if client != NULL else None
        try:
            self.on_slow(self.names[command], ticks * TICK_MICROSECONDS, slot, session, address)
        except Exception as error:
            # A failure of the slow log is no reason to fail a request.
            self.on_slow = None
            if self.on_mistake is not None:
                self.on_mistake({"message": "noting a slow request, which ends here", "exception": error})
