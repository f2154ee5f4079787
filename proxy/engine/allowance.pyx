"""Until when a server may be used: what keeps a proxy that hears no topom from a master that has been replaced.

**one-owner**: topom may make a replica the master although it cannot fence a lost proxy off the former one, once that
proxy has surely stood down (:mod:`proxy.unfenced`). So the limit holds whatever the process was doing when it passed: it
is looked at where requests are written to a server and where replies are read from it, by a clock that also counts the
time for which the machine was suspended. A reply that is read before the limit was given before it, and one that comes
after it is nobody's.
"""


cdef class Allowance:
    """Until when a server may be used, shared by all connections to it.

    ``until`` is a time of :func:`clock`; infinity for no limit.
    """

    def __init__(self, double until=INFINITY):
        self.until = until

    @property
    def over(self):
        """Whether the server may not be used now."""
        return is_over(self)


def clock():
    """The time by which limits are told, in seconds; the same for all processes of a machine."""
    return slotferry_clock()
