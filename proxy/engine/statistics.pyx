"""Counts calls, errors, bytes and latencies of each command, with a histogram of the latencies; and what each user asks
for.

Time is counted in ticks of 4.096 microseconds (nanoseconds shifted by 12 bits), so that 32 bits last for almost five
hours. A request's time begins when the proxy reads it, even if it has to wait for a slot or a key on its way. It ends
when the proxy reads its reply. The histogram has four buckets to a power of two: an error of at most an eighth.

A request and its bytes are counted once, when it leaves the front of its session's input. Its reply is counted when it
is there, with the bytes that the client gets. Messages of pub/sub, and whatever else is no reply, are not counted.

A request is *notable* if it took long, if it or its reply has 1 MiB or more, or if its reply shows 10,000 elements or
more. Most requests are not: a few comparisons at their replies tell that. As in Redis, the time for which a command
waits does not make it slow. How long such a command was at work besides is not known.
"""

from typing import NamedTuple

from libc.stdint cimport UINT32_MAX, int16_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from proxy.engine.records cimport KEPT_OF_KEY, keyed_request_t, request_t

from slots import commands

cdef enum:
    MOST_DIGITS = 18

TICK_MICROSECONDS = 4.096
OTHER = "other"
"""The name for all commands that the table does not have. Its number is 0. Also for users that have no number."""
NOBODY = "not logged in"
"""Stands for a user before a client has logged in; no user has a name with blanks. Its number is 0."""
LARGE = LARGE_BYTES
"""Bytes from which a request or a reply is notable."""
MANY = MANY_ELEMENTS
"""Elements from which a reply is notable."""
TELL_LENGTHS = frozenset(
    ("hlen", "linsert", "llen", "lpush", "lpushx", "rpush", "rpushx", "scard", "xlen", "zcard")
)
"""Commands whose reply, if it is a number, is how many elements their key has."""
WAIT = frozenset(
    name.lower() for name, row in commands.table().items() if "blocking" in row.flags or row.timeout is not None
)
"""Commands that may wait on a connection of their own, so that the engine does not know which server answered them."""


class Noted(NamedTuple):
    """A notable request. What is not said here, :class:`slots.messages.load.Notable` says."""

    why: str
    command: str
    database: int
    slot: int
    key: bytes
    """Its first 128 bytes; of several keys, the first. Empty if it is not known."""
    length: int
    user: str
    client: str
    """Its address; empty if it has left."""
    client_name: bytes
    server: object
    """Its address, or None."""
    microseconds: float
    slow: bool
    """Whether it took long, whatever else it is."""
    bytes_in: int
    bytes_out: int
    """That the client got."""
    elements: int


cdef int64_t elements_of(const char* head, size_t size, bint tells_length) noexcept nogil:
    """How many elements a reply of ``size`` bytes shows that begins with ``head``."""
    cdef int64_t number = 0
    cdef size_t place = 1
    if size == 0 or not (
        head[0] == c'*' or head[0] == c'%' or head[0] == c'~' or (head[0] == c':' and tells_length)
    ):
        return 0
    while place < size and place <= MOST_DIGITS and c'0' <= head[place] <= c'9':
        number = number * 10 + (head[place] - c'0')
        place += 1
    return number


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
        self.tells_length = <uint8_t*> calloc(self.capacity, 1)
        if self.rows == NULL or self.tells_length == NULL:
            raise MemoryError
        self.slow = UINT32_MAX

    def __init__(self, on_mistake=None):
        self.on_mistake = on_mistake
        self.numbers = {}
        self.user_numbers = {NOBODY: 0}
        self.user_names = [NOBODY]
        self.names = []
        self.room = MOST_REPORTED
        self.number(OTHER)

    def __dealloc__(self):
        free(self.rows)
        free(self.tells_length)

    def number(self, str name):
        """Number of a command, the same while the worker lives."""
        cdef statistic_t* rows
        cdef uint8_t* tell
        found = self.numbers.get(name)
        if found is not None:
            return found
        if self.known == self.capacity:
            rows = <statistic_t*> realloc(self.rows, sizeof(statistic_t) * self.capacity * 2)
            if rows == NULL:
                raise MemoryError
            memset(rows + self.capacity, 0, sizeof(statistic_t) * self.capacity)
            self.rows = rows
            tell = <uint8_t*> realloc(self.tells_length, self.capacity * 2)
            if tell == NULL:
                raise MemoryError
            self.tells_length = tell
            self.capacity *= 2
        self.numbers[name] = self.known
        self.names.append(name)
        self.tells_length[self.known] = name in TELL_LENGTHS
        self.known += 1
        return self.known - 1

    def user_number(self, str name):
        """Number of a user, the same while the worker lives. **bounded**: at :data:`MOST_USERS` of them, all others
        share one."""
        cdef int number = len(self.user_numbers)
        if name not in self.user_numbers and number >= MOST_USERS:
            name, number = OTHER, MOST_USERS
        if name not in self.user_numbers:
            self.user_numbers[name] = number
            self.user_names.append(name)
        return self.user_numbers[name]

    def take_users(self):
        """What was counted of each user since the last time: ``{name: (requests, errors, bytes in, bytes out)}``."""
        cdef user_count_t* count
        cdef user_count_t* told
        found = {}
        for name, number in self.user_numbers.items():
            count, told = &self.users[<int> number], &self.told[<int> number]
            requests, errors = count.requests - told.requests, count.errors - told.errors
            bytes_in, bytes_out = count.bytes_in - told.bytes_in, count.bytes_out - told.bytes_out
            if requests or errors or bytes_out:
                found[name] = (requests, errors, bytes_in, bytes_out)
        memcpy(self.told, self.users, sizeof(self.users))
        return found

    def watch(self, double microseconds, on_notable):
        """Call ``on_notable`` with a :class:`Noted` for each notable request. Those are slow that take at least so
        long; with 0, none is.

        **bounded**: of many at once, only the first ones are reported; :meth:`tick` makes room for more.
        """
        self.slow = UINT32_MAX
        if microseconds > 0:
            self.slow = <uint32_t> max(1, min(microseconds / TICK_MICROSECONDS, UINT32_MAX))
        self.on_notable = on_notable

    def tick(self):
        """Allow the next notable requests to be reported."""
        self.room = MOST_REPORTED

    def read(self):
        """The figures of all commands that were called: ``{name: (calls, errors, microseconds, buckets, bytes in,
        bytes out)}``."""
        cdef statistic_t* row
        cdef int index
        found = {}
        for name, number in self.numbers.items():
            row = &self.rows[<int> number]
            buckets = [row.buckets[index] for index in range(BUCKETS)]
            calls = sum(buckets)
            if calls:
                found[name] = (
                    calls,
                    row.errors,
                    row.ticks * TICK_MICROSECONDS,
                    buckets,
                    row.bytes_in,
                    row.bytes_out,
                )
        return found

    def reset(self):
        """Start counting again from zero."""
        memset(self.rows, 0, sizeof(statistic_t) * self.capacity)

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
    ) noexcept:
        """Report a request if it is notable.

        Args:
            request: its record, or NULL if it has none.
            received: its bytes.
            head: the beginning of its reply.
            size: bytes of the reply that its client gets.
            client: the session, or NULL if the client has left.
            address: of the server that answered, or None.
        """
        cdef int64_t elements
        cdef bint slow = ticks >= self.slow
        cdef size_t length = 0
        cdef bytes key = b""
        if command < 0:
            return
        elements = elements_of(head, size, self.tells_length[command])
        if address is None and self.names[command] in WAIT:
            ticks, slow = 0, False
        self.slow_requests += slow
        if received >= LARGE_BYTES:
            why = "big_request"
        elif size >= LARGE_BYTES:
            why = "big_reply"
        elif elements >= MANY_ELEMENTS:
            why = "big_collection"
        elif slow:
            why = "slow"
        else:
            return
        if self.on_notable is None or self.room <= 0:
            return
        self.room -= 1
        try:
            if request != NULL:
                length = request.part
                key = (<const keyed_request_t*> request).key[:min(length, <size_t> KEPT_OF_KEY)]
            peer, state = "", None
            if client != NULL:
                peer, state = (<object> client).peer, (<object> client).state
            self.on_notable(
                Noted(
                    why,
                    self.names[command],
                    database,
                    slot,
                    key,
                    length,
                    self.user_names[user],
                    peer,
                    state.name if state is not None else b"",
                    address,
                    ticks * TICK_MICROSECONDS,
                    slow,
                    received,
                    size,
                    elements,
                )
            )
        except Exception as error:
            # A failure of this log is no reason to fail a request.
            self.on_notable = None
            if self.on_mistake is not None:
                self.on_mistake({"message": "noting a notable request, which ends here", "exception": error})
