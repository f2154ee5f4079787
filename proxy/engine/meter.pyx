"""How many requests and bytes a second one user of one worker may ask for, and how much of the worker's time: a bucket
of tokens for each.

A request takes one token, and passes if it is there. Bytes are those of requests and of replies, so they are known only
afterwards: a request passes while the bucket of bytes is not empty, and may leave a debt. They are read off what is
counted of each user anyway (:mod:`proxy.engine.statistics`), so nothing is counted twice. Microseconds of work are
treated likewise (:mod:`proxy.engine.worktime`). **bounded**: their debt is paid in :data:`LONGEST_SECONDS` at most.

Buckets are filled by the clock, whenever a token lacks and at each tick of the worker. They hold what comes in
:data:`BURST_SECONDS`, and one request at least. While requests wait, what a late tick brings is theirs, so up to
:data:`LATE_SECONDS` of it count.

Requests that wait have their turn one session after another (:mod:`proxy.engine.metering`). **bounded**: each session has
one place in the line, and none waits for more than :data:`LONGEST_SECONDS`. Who has left has no place there: clients
that come and go would fill the worker.
"""

from collections import deque
from itertools import islice

from libc.stdint cimport int64_t, uint32_t

from proxy.engine.requests cimport Loop
from proxy.engine.statistics cimport MOST_USERS

from proxy.engine.refusals import over_limit
from proxy.engine.statistics import TICK_MICROSECONDS

BURST_SECONDS = 0.25
"""A user that asked for less may ask for what comes in so long at once."""
LATE_SECONDS = 1.0
LOOKS = 10
"""It takes so many ticks to see of all who wait whether they have left."""
LONGEST_SECONDS = 10.0
"""How long a request waits at most, before it is refused."""
WAITING_PART = 20
"""A session that waits is taken to want one part of so many of the limits: how much it would ask for cannot be seen. So
where many wait, shares go by how many wait at each worker."""
WHOLE = 1_000_000
"""The share of a worker that has the whole limit."""

cdef double SECONDS_A_TICK = TICK_MICROSECONDS * 1e-6
cdef double BURST = BURST_SECONDS
cdef double LATE = LATE_SECONDS
cdef double LONGEST = LONGEST_SECONDS
cdef int64_t PARTS = WAITING_PART


cdef double most_kept(double rate, double seconds) noexcept:
    return max(rate * seconds, 1.0)


cdef class Meter:
    """One user's buckets at one worker.

    Args:
        loop: of the worker; it has the clock, and counts bytes.
        user: its name.
    """

    def __init__(self, Loop loop, str user):
        self.loop = loop
        self.user = user
        self.number = loop.statistics.user_number(user)
        self.filled_at = loop.ticks
        self.seen = loop.statistics.bytes_of(self.number)
        self.seen_time = self.told_time = loop.work_time.of(self.number)
        self.line = deque()
        self.request_tokens = self.byte_tokens = self.time_tokens = 1

    @property
    def told_apart(self):
        """Whether the user's bytes and time are counted apart from those of others."""
        return self.number < MOST_USERS

    @property
    def time_left(self):
        """The microseconds of the worker that it may take now; less than none for a debt."""
        self.settle()
        return self.time_tokens

    def limit(self, int64_t requests, int64_t bytes, bint refuses, int percent=0):
        """From now on, the user may ask for so many requests and bytes a second, at all workers together, and for so
        many per cent of this worker's time; 0 for any number. ``refuses``: what is above is refused, and not delayed."""
        self.settle()
        if not self.most_requests:
            self.request_tokens = 1
        if not self.most_bytes:
            self.byte_tokens = 1
        self.most_requests = requests
        self.most_bytes = bytes
        self.refuses = refuses
        self.refusal = over_limit(self.user, requests, bytes, percent)
        self.loop.work_time.count(self.number, (percent > 0) - (self.most_percent > 0))
        if not self.most_percent:
            self.time_tokens = 1
        self.most_percent = percent

    def share(self, int64_t requests, int64_t bytes):
        """From now on, so much of the limits is this worker's, of :data:`WHOLE`."""
        self.fill()
        self.request_rate = <double> self.most_requests * requests / WHOLE
        self.byte_rate = <double> self.most_bytes * bytes / WHOLE
        # What is there above the new rates goes.
        self.fill()

    cdef void settle(self) noexcept:
        """Take out the bytes that were counted since the last time."""
        cdef int64_t counted = self.loop.statistics.bytes_of(self.number)
        self.byte_tokens -= counted - self.seen
        self.all_bytes += counted - self.seen
        self.seen = counted
        if self.most_percent:
            self.settle_time()

    cdef void settle_time(self) noexcept:
        """Likewise, the microseconds that were worked for the user."""
        cdef int64_t worked = self.loop.work_time.of(self.number)
        self.time_tokens = max(self.time_tokens - (worked - self.seen_time) * 1e-3, -LONGEST * self.time_rate())
        self.seen_time = worked

    cdef void fill(self) noexcept:
        """Put in what has come since the last time, and count for how long sessions have waited."""
        cdef double seconds = <uint32_t> (self.loop.ticks - self.filled_at) * SECONDS_A_TICK
        cdef double kept = LATE if self.waiting else BURST
        self.filled_at = self.loop.ticks
        self.waited += self.waiting * seconds
        self.settle()
        self.request_tokens = min(self.request_tokens + self.request_rate * seconds, most_kept(self.request_rate, kept))
        self.byte_tokens = min(self.byte_tokens + self.byte_rate * seconds, most_kept(self.byte_rate, kept))
        self.time_tokens = min(self.time_tokens + self.time_rate() * seconds, most_kept(self.time_rate(), kept))

    cdef bint takes(self) noexcept:
        """Take the token of one request, if there is one."""
        self.settle()
        if not self.has_tokens():
            self.fill()
            if not self.has_tokens():
                return False
        self.request_tokens -= 1
        self.passed += 1
        self.all_requests += 1
        return True

    cdef void give_back(self, int64_t size) noexcept:
        """So many bytes that will be counted are of a request that was refused: they take no tokens."""
        self.seen += size

    def tick(self):
        """Let the requests that wait have their turn, as far as there are tokens."""
        self.fill()
        while self.waiting:
            session, since = self.line[0]
            if session.closed:
                self._leave()
            elif self.has_tokens():
                self._leave()
                self.turn = session
                session.resume_reading()
                self.turn = None
                self.settle()
            elif <uint32_t> (self.loop.ticks - <uint32_t> since) * SECONDS_A_TICK > LONGEST:
                self._leave()
                self.expired = session
                session.resume_reading()
                self.expired = None
            else:
                break
        self._let_go()

    def _let_go(self):
        """End the wait of some who have left by now; nothing is run for them."""
        some = list(islice(self.line, self.looked_at, self.looked_at + self.waiting // LOOKS + 1))
        self.looked_at = self.looked_at + len(some) if some else 0
        for place in some:
            session = place[0]
            if session.has_left():
                self.line.remove(place)
                self.waiting -= 1
                session.resume_reading()

    def _leave(self):
        self.line.popleft()
        self.waiting -= 1

    def take(self):
        """What was wanted since the last time: ``(requests, bytes, delayed, refused, microseconds)``, requests and bytes
        also as far as they were refused or still wait. The last is the worker's time, if it has a limit."""
        cdef int64_t size
        self.fill()
        # What was refused is taken for as large as the others were.
        size = max(self.all_bytes // max(self.all_requests, 1), 1)
        found = (
            self.passed + self.refused + <int64_t> (self.waited * max(self.most_requests // PARTS, 1)),
            max(self.all_bytes - self.told_bytes, 0) + self.refused * size
            + <int64_t> (self.waited * max(self.most_bytes // PARTS, 1)),
            self.delayed,
            self.refused,
            (self.seen_time - self.told_time) // 1000,
        )
        self.told_time += found[4] * 1000
        self.told_bytes = self.all_bytes
        self.passed = self.delayed = self.refused = 0
        self.waited = 0
        return found
