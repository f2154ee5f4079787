"""What servers were sent and have answered, by slot and by server.

A request counts when it leaves the queue of its server: with its reply, or with an error if the server never answers
(:mod:`proxy.engine.requestqueue`). A request of which the proxy knows at once that its server cannot be reached has an
error, too. It was not sent, so its bytes do not count.

By server, everything counts that goes through a queue: requests of clients, those that the proxy adds (MULTI and EXEC
around a pop), and its own. By slot, requests count that are sent for the keys of one slot. Of a request that was split
over servers, each key counts as a request of its slot: with the bytes of its arguments, which count when they are sent,
and its even share in the reply of its server. Requests that wait at a server over a connection of their own count by server only, and for
how long they wait says nothing about the server: time is only counted over connections that all sessions share.
"""

from slots.slotload cimport SlotLoad

from proxy.engine.statistics import TICK_MICROSECONDS


cdef class ServerTraffic:
    """What was counted of one server since it was told last."""

    def __cinit__(self):
        self.queues = []


cdef class Traffic:
    """The counts of one worker.

    Args:
        number_of_slots: of the product.
    """

    def __init__(self, number_of_slots):
        self.slots = SlotLoad(number_of_slots)
        self.servers = {}

    cdef ServerTraffic of_server(self, address):
        """Where to count what goes to a server and comes from it."""
        found = self.servers.get(address)
        if found is None:
            found = self.servers[address] = ServerTraffic()
        return <ServerTraffic> found

    def take_servers(self, present):
        """What was counted of each server since the last time, of those that were asked anything: ``{address:
        (requests, errors, bytes in, bytes out, microseconds, requests that these are of)}``.

        **bounded**: servers that are not among the ``present`` ones, and were asked nothing, are forgotten.
        """
        cdef ServerTraffic count
        found = {}
        for address, each in list(self.servers.items()):
            count = <ServerTraffic> each
            if count.requests:
                microseconds = count.ticks * TICK_MICROSECONDS
                timed = count.requests - count.untimed
                found[address] = (count.requests, count.errors, count.bytes_in, count.bytes_out, microseconds, timed)
                count.requests = count.errors = count.bytes_in = count.bytes_out = count.ticks = count.untimed = 0
            elif address not in present:
                del self.servers[address]
        return found
