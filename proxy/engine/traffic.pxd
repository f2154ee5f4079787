"""What servers were sent and have answered, by slot and by server."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from slots.slotload cimport SlotLoad


cdef class ServerTraffic:
    """What was counted of one server since it was told last. All connections to the server count here."""

    cdef:
        int64_t requests
        int64_t errors
        int64_t bytes_in
        int64_t bytes_out
        # Sum over requests of shared connections, from when they were queued to their replies; and all other requests.
        int64_t ticks
        int64_t untimed
        # Whether a reply was late, and the ticks of the loop's clock when that was last seen.
        bint slow
        uint32_t slow_at
        # The connections to the server that all sessions share, each a RequestQueue.
        list queues

    cdef inline void count(
        self, int64_t requests, uint64_t bytes_in, uint64_t bytes_out, uint64_t ticks, bint timed
    ) noexcept:
        """Requests that have left a queue. ``ticks``: how long all of them were in it, if the connection is ``timed``."""
        self.requests += requests
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out
        if timed:
            self.ticks += ticks
        else:
            # A command that waits at its server has a connection of its own, and its time is not the server's.
            self.untimed += requests


cdef class Traffic:
    """The counts of one worker."""

    cdef:
        readonly SlotLoad slots
        dict servers

    cdef ServerTraffic of_server(self, address)
