"""Carries out the decisions of plain Python on requests: the outcomes of :mod:`proxy.engine.outcomes`.

A decision that has to wait leaves the request at the front of the session's input (**in-order**). Requests for a slot
go out in the same step that found the way of their keys free (**drained**, **absent-first**).
"""

import asyncio

from libc.stdint cimport int32_t
from libc.string cimport strlen

from proxy.engine.backend cimport Backend
from proxy.engine.buffer cimport buffer_append
from proxy.engine.records cimport REQUEST_PLACE, REQUEST_PLAIN, request_t
from proxy.engine.requests cimport Loop
from proxy.engine.resp cimport argument_t
from proxy.engine.router cimport ROUTE_OPEN, Router
from proxy.engine.session cimport (
    VERDICT_FAILED,
    VERDICT_HELD,
    VERDICT_PAUSE,
    VERDICT_TAKEN,
    VERDICT_WAIT,
    Session,
    verdict,
)
from proxy.engine.statistics cimport UNCOUNTED

from proxy.engine.outcomes import AFTER_OWED, AGAIN, ANY_SERVER, NO_REPLY, QUIT, Cleared, Unit, Waiting

FAILED = b"-ERR the proxy failed to run this command; its log says why\r\n"

cdef const char* NO_SERVER = b"-ERR no group has a server yet; add one with 'slotferry group add'\r\n"
cdef const char* CROSSSLOT = b"-CROSSSLOT Keys in request don't hash to the same slot\r\n"
cdef const char* OUT_OF_MEMORY = b"-ERR the proxy is out of memory for this request\r\n"


cdef class Place:
    """A place in a session's replies, which is filled once."""

    cdef request_t* place
    cdef Loop loop

    def fill(self, bytes reply):
        """Give the reply; a client that has gone gets none."""
        if self.place != NULL:
            self.loop.finish_place(self.place, reply, len(reply))
            self.place = NULL


cdef Backend shared(Session session, address):
    """The session's shared connection to a server."""
    cdef Router router = session.router
    return router.backend(router.server_index(address), session.database, session.protocol, session.lane)


cdef verdict decide(
    Session session, const argument_t* arguments, int count, const char* data, size_t size
) except VERDICT_FAILED:
    """Let plain Python decide."""
    cdef int index
    cdef int protocol = session.protocol
    if session.loop.waiting and session.has_no_room(size):
        # bounded: a request for every server would wait for all of them.
        session.loop.requests -= 1
        return VERDICT_HELD
    session.loop.decisions += 1
    argv = [arguments[index].data[:arguments[index].size] for index in range(count)]
    outcome = session.router.slow_path.handle(session, argv)
    if session.protocol != protocol:
        session.switched = True
    return settle(session, outcome, -1, None, data, size)


cdef verdict settle(Session session, object outcome, int32_t slot, object address, const char* data, size_t size):
    """Do what plain Python has decided. ``slot`` and ``address`` are the arguments of a Cleared's ``then``."""
    cdef argument_t* keys
    cdef Place place
    cdef bytes key
    cdef int index
    if isinstance(outcome, bytes):
        if outcome[:1] == b"-":
            session.loop.errors += 1
        session.reply(<bytes> outcome, len(<bytes> outcome))
        return VERDICT_TAKEN
    if isinstance(outcome, list):
        keys = session.router.key_room(len(outcome))
        if keys == NULL:
            return session.refuse(OUT_OF_MEMORY)
        for index in range(len(outcome)):
            key = outcome[index]
            keys[index].data = key
            keys[index].size = len(key)
        session.loop.requests -= 1
        return session.route(keys, len(outcome), data, size, False)
    if isinstance(outcome, Cleared):
        return clear(session, outcome, data, size)
    if isinstance(outcome, Unit):
        return send_unit(session, outcome, slot, shared(session, address))
    if outcome is ANY_SERVER:
        address = session.router.any_address()
        if address is None:
            return session.refuse(NO_SERVER)
        session.loop.requests -= 1
        return session.forward(shared(session, address), -1, data, size)
    if outcome is NO_REPLY:
        return VERDICT_TAKEN
    if outcome is AFTER_OWED:
        session.loop.requests -= 1
        return VERDICT_PAUSE
    if outcome is QUIT:
        session.reply(b"+OK\r\n", 5)
        session._finish()
        return VERDICT_TAKEN
    if isinstance(outcome, Waiting):
        session.waiting = session.loop.event_loop.create_task(_wait(session, outcome.coroutine))
        session.router.slow_path.keep(session.waiting)
        session.watch_leaving()
        return VERDICT_WAIT
    if asyncio.iscoroutine(outcome):
        place = Place()
        place.loop = session.loop
        place.place = session.loop.new_request(REQUEST_PLACE, session.asker(), -1)
        if place.place == NULL:
            session.client.broken = b"out of memory"
            session.loop.list_client(&session.client.sender)
        session.stopped = True
        task = session.loop.event_loop.create_task(_later(session, outcome, place))
        session.router.slow_path.keep(task)
        return VERDICT_TAKEN
    raise TypeError(f"the slow path answered {outcome!r}")


cdef verdict clear(Session session, object cleared, const char* data, size_t size) except VERDICT_FAILED:
    """Call ``then`` once the way of the keys is free, or wait until it is."""
    cdef Router router = session.router
    cdef argument_t* keys
    cdef bytes key
    cdef int32_t slot
    cdef int index
    cdef int count = len(cleared.keys)
    if count == 0:
        address = router.any_address()
        if address is None:
            return session.refuse(NO_SERVER)
        return settle(session, cleared.then(session, -1, address), -1, address, data, size)
    keys = router.key_room(count)
    if keys == NULL:
        return session.refuse(OUT_OF_MEMORY)
    for index in range(count):
        key = cleared.keys[index]
        keys[index].data = key
        keys[index].size = len(key)
    slot = router.slot_of(keys[0].data, keys[0].size)
    for index in range(1, count):
        if router.slot_of(keys[index].data, keys[index].size) != slot:
            return session.refuse(CROSSSLOT)
    if router.routes[slot].state != ROUTE_OPEN and session.clear_keys(keys, count, 1) == VERDICT_WAIT:
        session.loop.requests -= 1
        return VERDICT_WAIT
    if router.routes[slot].server < 0:
        session.loop.requests -= 1
        return session._refuse_offline(slot)
    address = router.addresses[router.routes[slot].server]
    if session.has_to_wait(shared(session, address), size):
        session.loop.requests -= 1
        return VERDICT_HELD
    return settle(session, cleared.then(session, slot, address), slot, address, data, size)


cdef verdict send_unit(Session session, object unit, int32_t slot, Backend backend) except VERDICT_FAILED:
    """Queue several requests in one piece; the reply to one of them is the session's."""
    cdef bytes payload = unit.payload
    cdef int before = unit.before
    cdef int total = before + 1 + <int> unit.after
    cdef request_t* request
    cdef int index
    if not backend.ready_to_take():
        return session.refuse(backend.failure_reply)
    if not session.loop.have_requests(total) or not backend.reserve(len(payload)):
        return session.refuse(OUT_OF_MEMORY)
    buffer_append(&backend.out, payload, len(payload))
    for index in range(total):
        request = session.loop.new_request(REQUEST_PLAIN, session.asker() if index == before else NULL, slot)
        if index != before:
            request.command = UNCOUNTED
        backend.queue(request)
    if backend.congested(False):
        session.hold_back(backend)
    return VERDICT_TAKEN


async def _later(Session session, coroutine, Place place):
    """Fill a place with the result of ``coroutine``, then go on with the session."""
    try:
        reply = await coroutine
    except Exception as error:
        session.loop.event_loop.call_exception_handler({"message": "a slow command failed", "exception": error})
        reply = FAILED
    if reply.startswith(b"-"):
        session.loop.errors += 1
    place.fill(reply)
    session.wake()


async def _wait(Session session, coroutine):
    """Answer the request at the front with the result of ``coroutine``, or have the request looked at again."""
    try:
        reply = await coroutine
    except Exception as error:
        session.loop.event_loop.call_exception_handler({"message": "a slow command failed", "exception": error})
        reply = FAILED
    session.waiting = None
    session.leaving_watched = False
    if reply is AGAIN:
        # It counts when it is looked at again.
        session.loop.requests -= 1
        session.wake()
    else:
        session.complete(reply)
