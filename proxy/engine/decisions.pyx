"""Carries out the decisions of plain Python on requests: the outcomes of :mod:`proxy.engine.outcomes`.

A decision that has to wait leaves the request at the front of the session's input (**in-order**). Requests for a slot
go out in the same step that found the way of their keys free (**drained**, **absent-first**).
"""

from types import CoroutineType

from libc.stdint cimport int32_t

from proxy.engine.backend cimport Backend
from proxy.engine.buffer cimport buffer_append
from proxy.engine.connection cimport SWITCHED
from proxy.engine.dispatch cimport NO_KEY, forward, publish, route
from proxy.engine.handlers cimport WAITS, begin
from proxy.engine.records cimport REQUEST_PLACE, REQUEST_PLAIN, keep_size, request_t
from proxy.engine.requests cimport Loop
from proxy.engine.session cimport Session
from proxy.engine.statistics cimport UNCOUNTED
from proxy.engine.verdicts cimport VERDICT_FAILED, VERDICT_HELD, VERDICT_PAUSE, VERDICT_TAKEN, VERDICT_WAIT, verdict
from slots.requests.parsing cimport argument_t

cdef enum:
    # The slot of requests without keys.
    NO_SLOT = -1
    # No slot: the way of a session's keys is not free.
    NO_WAY = -2

from proxy.engine.outcomes import AFTER_OWED, ANY_SERVER, NO_REPLY, Channel, Last, Later, Unit
from proxy.engine.refusals import FAILED, NO_SERVER, OUT_OF_MEMORY


cdef class Place:
    """A place in a session's replies, which is filled once."""

    cdef request_t* place
    cdef Loop loop
    cdef int database

    def fill(self, bytes reply):
        """Give the reply; a client that has gone gets none."""
        if self.place != NULL:
            self.loop.finish_place(self.place, reply, len(reply), None, self.database)
            self.place = NULL


cdef verdict decide(
    Session session, const argument_t* arguments, int count, const char* data, size_t size
) except VERDICT_FAILED:
    """Let plain Python decide."""
    cdef int index
    if session.loop.waiting and session.has_no_room(size):
        # bounded: a request for every server would wait for all of them.
        return VERDICT_HELD
    argv = [arguments[index].data[:arguments[index].size] for index in range(count)]
    return begin_with(session, session.router.slow_path.handle, (session, argv), data, size)


cdef verdict begin_with(
    Session session, object handler, tuple arguments, const char* data, size_t size
) except VERDICT_FAILED:
    """Call the handler of the request at the front, and do what it decides."""
    cdef int protocol = session.protocol
    cdef verdict found
    session.loop.decisions += 1
    session.count_taken()
    session.way = NO_WAY
    outcome = handler(*arguments)
    if type(outcome) is CoroutineType:
        outcome = begin(session, outcome, size)
        if outcome is WAITS:
            return VERDICT_WAIT
    if session.closed:
        return VERDICT_TAKEN
    found = carry_out(session, outcome, data, size)
    if session.protocol != protocol:
        session.before_next |= SWITCHED
    return found


cdef verdict carry_out(Session session, object outcome, const char* data, size_t size) except VERDICT_FAILED:
    """Do what plain Python has decided."""
    cdef argument_t* keys
    cdef argument_t channel
    cdef Place place
    cdef bytes key
    cdef int index
    if isinstance(outcome, bytes):
        return session.refuse_or_reply(outcome)
    if isinstance(outcome, list):
        keys = session.router.key_room(len(outcome))
        if keys == NULL:
            return session.refuse_or_reply(OUT_OF_MEMORY)
        for index in range(len(outcome)):
            key = outcome[index]
            keys[index].data = key
            keys[index].size = len(key)
        return route(session, keys, len(outcome), data, size, False, False)
    if isinstance(outcome, Channel):
        key = outcome.name
        channel.data = key
        channel.size = len(key)
        return publish(session, &channel, data, size)
    if isinstance(outcome, Unit):
        return send_unit(session, outcome)
    if outcome is ANY_SERVER:
        address = session.router.any_address()
        if address is None:
            return session.refuse_or_reply(NO_SERVER)
        return forward(session, session.shared(address), &NO_KEY, NO_SLOT, data, size)
    if outcome is NO_REPLY:
        return VERDICT_TAKEN
    if outcome is AFTER_OWED:
        return VERDICT_PAUSE
    if isinstance(outcome, Last):
        session.refuse_or_reply(outcome.reply)
        session._finish()
        return VERDICT_TAKEN
    if isinstance(outcome, Later):
        place = Place()
        place.loop = session.loop
        place.database = session.database
        session.client.muted = False
        place.place = session.loop.new_request(REQUEST_PLACE, &session.client, NO_SLOT)
        if place.place == NULL:
            session.client.broken = b"out of memory"
            session.loop.list_client(&session.client.sender)
        else:
            keep_size(place.place, session.front_size)
        task = session.loop.event_loop.create_task(
            session.loop.work_time.task(_later(session, outcome.coroutine, place))
        )
        session.router.slow_path.keep(task)
        return VERDICT_TAKEN
    raise TypeError(f"the slow path answered {outcome!r}")


cdef verdict send_unit(Session session, object unit) except VERDICT_FAILED:
    """Queue several requests in one piece; the last reply is the session's."""
    cdef bytes payload = unit.payload
    cdef int before = unit.before
    cdef int32_t slot = unit.slot
    cdef Backend backend = session.shared(unit.address)
    cdef request_t* request
    cdef int index
    if slot != session.way:
        # absent-first, drained
        raise RuntimeError(f"a request for slot {slot} whose way was not cleared in this step")
    if session.sheddable and session.gives_way_at(backend):
        return session.shed(backend)
    if not backend.ready_to_take():
        return session.refuse(backend.refusal(slot))
    if not session.loop.have_requests(before + 1) or not backend.reserve(len(payload)):
        return session.refuse_or_reply(OUT_OF_MEMORY)
    buffer_append(&backend.out, payload, len(payload))
    for index in range(before + 1):
        request = session.loop.new_request(REQUEST_PLAIN, session.asker() if index == before else NULL, slot)
        if index != before:
            request.command = UNCOUNTED
        backend.queue(request, len(payload) if index == before else 0)
    if backend.congested(False):
        session.hold_back(backend)
    return VERDICT_TAKEN


async def _later(Session session, coroutine, Place place):
    """Fill a place with the result of ``coroutine``."""
    try:
        reply = await coroutine
    except Exception as error:
        session.loop.event_loop.call_exception_handler({"message": "a slow command failed", "exception": error})
        reply = FAILED
    place.fill(reply)
