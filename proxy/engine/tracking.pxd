"""Which sessions have read which keys, and what they are told when a key changes."""

cimport cython
from libc.stdint cimport int64_t

from proxy.engine.session cimport Session
from slots.requests.commandlookup cimport command_t
from slots.requests.parsing cimport argument_t


@cython.final
cdef class Tracker:
    """One session's tracking."""

    cdef:
        # None once it is over.
        Session session
        TrackedKeys table
        # The prefix of its user, which is taken off what it is told; empty for none.
        readonly bytes hidden
        readonly bint broadcast
        readonly bint opt_in
        readonly bint opt_out
        readonly bint no_loop
        readonly tuple prefixes
        # The number of the session that is told in place of this one (REDIRECT), or None; and whether that one is gone.
        readonly object target
        public bint is_broken
        # Whether CLIENT CACHING was said about the next request, and the number of the request that it was said about;
        # whether that is a transaction that is still open.
        bint is_next
        int64_t chosen
        bint is_open
        # What the open transaction will read.
        list queued
        # What the request at the front reads; None behind it.
        list noted

    cdef void begin_request(self) noexcept
    cdef bint is_chosen(self) noexcept
    cdef bint remembers(self) noexcept
    cdef object note(self, list keys)


@cython.final
cdef class TrackedKeys:
    """The keys that a worker's sessions have read."""

    cdef:
        # By key: a Tracker, or a set of them. The oldest key comes first.
        dict readers
        readonly int64_t size
        public int64_t limit
        # Whether room is about to be made.
        bint is_full
        # All that are not over; those with BCAST also by each of their prefixes.
        set trackers
        dict broadcasts
        # Keys whose changes the worker itself wants to know of, and what it is told by: a key, or None for all.
        public set followed
        public object on_followed
        # Tells the target of a session.
        public object on_redirected
        # How many of these prefixes there are of each length, and the lengths in ascending order.
        dict prefixes_of
        list lengths

    cdef object listen(self, Tracker tracker)
    cdef object unlisten(self, Tracker tracker)
    cdef object remember(self, Tracker tracker, bytes key)
    cdef object leave_out_ended(self, set readers)
    cdef bint is_flush(self, const char* data, const char* end) noexcept
    cdef object changed(self, bytes key)


cdef bint stays_fast(Session session, const command_t* row, const argument_t* arguments, int count) except -1
cdef object has_waited(Session session)
cdef void left_front(Session session) noexcept
