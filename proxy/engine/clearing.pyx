"""Looks for the keys of a request whose slots are not at rest, and asks for those that may be at their source.

A request may name hundreds of thousands of keys, and the worker's other clients have to be served in between. So a
long request is looked at a slice at a time: in one turn of the event loop for :data:`SLICE_SECONDS` at most, and at most
:data:`MOST_ASKED` keys are asked for. The next slice begins once these are absent from their source.

**absent-first**: the session learns that its request is cleared when the last slice is, and all slices have to be
looked at by the same table. A newer table ends the look, and the request starts again. **bounded**: the keys are
copied, so the memory is as large again as the request. All slices together have ``move_seconds``, which start again
after a key that had to go in pieces.
"""

from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from proxy.engine.router cimport ROUTE_LOCKED, ROUTE_MIGRATING, Router, route_t
from proxy.engine.session cimport Session
from proxy.engine.verdicts cimport VERDICT_FAILED, VERDICT_TAKEN, VERDICT_WAIT, verdict
from slots.requests.parsing cimport argument_t

cdef enum:
    # The most keys that one slice asks for; Python makes a small record of each.
    MOST_ASKED = 256
    # The number of keys between two looks at the clock.
    AT_ONCE = 64
    # The most keys of a request that is read at the source: it is sent there in one piece.
    MOST_READ = 4000
    # The most keys of a request that are looked for in one turn; a longer request is looked at in slices.
    MOST_CLEARED_AT_ONCE = 256

cdef double SLICE_SECONDS = 0.001


cdef double now() noexcept:
    cdef timespec time
    clock_gettime(CLOCK_MONOTONIC, &time)
    return time.tv_sec + time.tv_nsec * 1e-9


cdef verdict clear_keys(Session session, const argument_t* keys, int count, int step) except VERDICT_FAILED:
    """Wait while any of the keys' slots is locked, or any key may still be at its slot's source.

    absent-first: for a slot in migration, VERDICT_TAKEN means that every key was seen absent from the source. If
    the request may remove a key, the key was seen absent after the request came. A source may have restarted
    unnoticed and have the key back. Then a key at the target counts for more than the source's, but a missing key
    at the target does not.
    """
    cdef Router router = session.router
    cdef route_t* route
    cdef int32_t slot
    cdef int index
    cdef Clearing clearing
    if count > MOST_CLEARED_AT_ONCE * step and session.cleared != router.generation:
        # Not at once: the session has not stopped yet, and other sessions have their turn.
        clearing = Clearing(session)
        if not clearing.copy(keys, count, step):
            raise MemoryError("the proxy is out of memory for the keys of a request")
        session.loop.event_loop.call_soon(clearing.go_on)
        return VERDICT_WAIT
    missing = None
    index = 0
    while index < count:
        slot = router.slot_of(session.database, keys[index].data, keys[index].size)
        route = &router.routes[slot]
        if route.state == ROUTE_LOCKED:
            router.holding.hold(session, slot)
            return VERDICT_WAIT
        if route.state == ROUTE_MIGRATING and session.cleared != router.generation:
            if session.asks or not router.absent.has(
                route.migration, session.database, keys[index].data, keys[index].size
            ):
                if missing is None:
                    missing = []
                missing.append((slot, keys[index].data[:keys[index].size]))
        index += step
    if missing is not None:
        router.mover.need(session, session.database, missing, None, session.asks)
        return VERDICT_WAIT
    return VERDICT_TAKEN


cdef class Clearing:
    """The keys of the request at the front of one session, with the number of those known to be absent by now.

    It waits for its keys as a session does: see :class:`proxy.moving.move.Sleeper`.
    """

    def __init__(self, Session session):
        self.session = session
        self.stage = session.stage
        self.router = session.router
        self.generation = session.router.generation
        self.database = session.database
        self.asks = session.asks
        self.deadline = now() + session.router.settings.move_seconds

    def __dealloc__(self):
        free(self.data)
        free(self.sizes)

    cdef bint copy(self, const argument_t* keys, int count, int step) noexcept:
        """Take the keys; false without memory."""
        cdef size_t total = 0
        cdef int index
        index = 0
        while index < count:
            total += keys[index].size
            index += step
        self.data = <char*> malloc(total + 1)
        self.sizes = <size_t*> malloc(sizeof(size_t) * ((count + step - 1) // step))
        if self.data == NULL or self.sizes == NULL:
            return False
        total = 0
        index = 0
        while index < count:
            memcpy(self.data + total, keys[index].data, keys[index].size)
            total += keys[index].size
            self.sizes[self.count] = keys[index].size
            self.count += 1
            index += step
        return True

    def go_on(self):
        """Look at the next slice. When there is none left, the session is woken, held or failed."""
        if self.session.closed or self.session.stage != self.stage:
            return
        if self.router.generation != self.generation:
            self.session.wake()
            return
        missing = self.collect()
        if missing is None:
            return
        if missing:
            self.router.mover.need(self, self.database, missing, self.deadline, self.asks)
        elif self.index < self.count:
            self.router.loop.event_loop.call_soon(self.go_on)
        else:
            self.session.wake(self.generation)

    cdef object collect(self):
        """The keys of the next slice that may be at their source, each with its slot; None if the request is held."""
        cdef double end = now() + SLICE_SECONDS
        cdef route_t* route
        cdef int slot
        cdef size_t size
        missing = []
        while self.index < self.count and len(missing) < MOST_ASKED:
            if self.index % AT_ONCE == 0 and now() > end:
                break
            size = self.sizes[self.index]
            slot = self.router.slot_of(self.database, self.data + self.position, size)
            route = &self.router.routes[slot]
            if route.state == ROUTE_LOCKED:
                self.router.holding.hold(self.session, slot)
                return None
            if route.state == ROUTE_MIGRATING and (self.asks or not self.router.absent.has(
                route.migration, self.database, self.data + self.position, size
            )):
                missing.append((slot, self.data[self.position:self.position + size]))
            self.position += size
            self.index += 1
        return missing

    # -- what the mover reports ----------------------------------------------------------------------------

    def wake(self, int64_t cleared):
        """The keys of the last slice are absent, by the table of the generation ``cleared``."""
        if cleared != self.generation:
            self.session.wake()
            return
        if self.met_big:
            self.deadline = now() + self.router.settings.move_seconds
            self.met_big = False
        # Not at once: other sessions get their turn.
        self.router.loop.event_loop.call_soon(self.go_on)

    def fail(self, bytes error):
        """A key could not be moved."""
        self.session.fail(error)

    def big(self, origin, leave):
        """A key has to go in pieces."""
        self.met_big = True
        if self.count <= MOST_READ:
            self.session.big(origin, leave)
