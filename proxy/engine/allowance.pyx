"""The time until which a server may be used. It keeps a proxy that hears no topom from using a replaced master.

**one-owner**: topom may make a replica the master although it cannot fence a lost proxy off the former master. It does
so once that proxy has surely stood down (:mod:`proxy.supervisor.standdown.evidence`). So the limit holds even if the process did other work
when it passed: it is checked where requests are written to a server and where replies are read. Its clock also counts
the time for which the machine was suspended. A reply that is read before the limit was given before it. A reply that
comes later goes to no client.
"""


cdef class Allowance:
    """The time until which a server may be used, shared by all connections to the server.

    ``until`` is a time of :func:`clock`; infinity for no limit.
    """

    def __init__(self, double until=INFINITY):
        self.until = until

    @property
    def over(self):
        """Whether the server may not be used now."""
        return is_over(self)


def clock():
    """The clock of the limits, in seconds; the same for all processes of a machine."""
    return slotferry_clock()
