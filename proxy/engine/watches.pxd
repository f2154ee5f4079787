"""WATCH, and the EXEC of a session that watches, over a connection of the session's own."""

from libc.stdint cimport int64_t, uint32_t

from proxy.engine.backend cimport Backend
from proxy.engine.session cimport Session
from proxy.engine.verdicts cimport VERDICT_FAILED, verdict
from slots.requests.parsing cimport argument_t


cdef class Watch:
    """The watch of one session."""

    cdef:
        readonly Session session
        # A proxy.servers.ownconnections.OwnConnection; None once it was given back. Its backend stays.
        public object connection
        Backend backend
        # The database that the connection is in, and whether that is another one than expected.
        public int database
        public bint moved
        readonly int slot
        # The first key that it watches, or as much of it as an error needs.
        readonly bytes key
        # Whether the server still watches.
        public bint kept
        # Whether a reply is awaited.
        public bint busy
        # Whether it is no longer valid. Its connection is given back once it is not busy.
        public bint over
        # The value of the session's ``replica_reads`` after the watch.
        public bint replica_reads
        # When the latest WATCH was sent, by the sessions' clock.
        public double since
        uint32_t changes
        int64_t ruling

    cpdef bint holds(self) noexcept


cdef verdict begin_watch(
    Session session, const argument_t* arguments, int count, const char* data, size_t size
) except VERDICT_FAILED
cdef bint may_run(Session session) noexcept
cdef verdict run_watched(Session session) except VERDICT_FAILED
