"""What servers were sent and have answered, by slot and by server."""

from libc.stdint cimport int64_t

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


cdef class Traffic:
    """The counts of one worker."""

    cdef:
        readonly SlotLoad slots
        dict servers

    cdef ServerTraffic of_server(self, address)
