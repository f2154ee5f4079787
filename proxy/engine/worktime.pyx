"""How long the worker works for each user whose share of it is limited.

A worker does one thing after another. :meth:`WorkTime.turn_to` says for whom it works from now on, and the time until
then counts for whom it said before. So no moment counts twice, and none of the work in between is left out. The clock
is read only where a user whose time counts begins or ends. Nothing is done for others.

Counted are, for its sessions: what they read, decide, send to their clients, and the steps of their handlers
(:mod:`proxy.engine.connection`, :mod:`proxy.engine.handlers`); the tasks that these start (:func:`WorkTime.task`); and
its part of what is received from servers and sent to them, where many users share one call of the system
(:mod:`proxy.engine.backend`).

It is the time that passes, not that of the processor. Asking for that one takes 375 ns, and this one 20. And while the
worker has to wait for a processor in the middle of a user's request, all others wait for that user, too. So a share of
a worker that gets half of a processor is a share of that half.
"""

from collections.abc import Coroutine

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset


cdef class WorkTime:
    """The time of one worker, by the number of a user."""

    def __cinit__(self):
        memset(self.counted, 0, sizeof(self.counted))
        memset(self.nanoseconds, 0, sizeof(self.nanoseconds))
        self.who = NO_USER

    cdef int64_t given(self) noexcept:
        return self.clock()

    cdef int64_t of(self, int user) noexcept:
        """The nanoseconds for a user until now."""
        return self.nanoseconds[user] + (self.now() - self.since if user == self.who else 0)

    cdef void count(self, int user, int32_t difference) noexcept:
        """One more limit of a user's time, or one fewer."""
        self.counted[user] += difference
        self.users += difference

    def task(self, steps):
        """The same coroutine: its steps count for whom the worker works now."""
        return Counted(self, steps) if self.who != NO_USER else steps

    def turn(self, int user):
        """As :meth:`turn_to`, for tests."""
        return self.turn_to(user)


cdef class Counted:
    """A coroutine whose steps count for a user."""

    cdef WorkTime time
    cdef object steps
    cdef int user

    def __init__(self, WorkTime time, steps):
        self.time = time
        self.steps = steps
        self.user = time.who

    def send(self, value):
        """One step."""
        cdef int before = self.time.turn_to(self.user)
        try:
            return self.steps.send(value)
        finally:
            self.time.turn_to(before)

    def throw(self, *error):
        """One step, from an error."""
        cdef int before = self.time.turn_to(self.user)
        try:
            return self.steps.throw(*error)
        finally:
            self.time.turn_to(before)

    def close(self):
        """End it."""
        self.steps.close()

    def __await__(self):
        return self.steps.__await__()


Coroutine.register(Counted)
