"""Carries out the decisions of plain Python on requests: the outcomes of :mod:`proxy.engine.outcomes`.

A decision that has to wait leaves the request at the front of the session's input (**in-order**). Requests for a slot
go out in the same step that found the way of their keys free (**drained**, **absent-first**).
"""

import asyncio
from types import CoroutineType

from libc.stdint cimport int32_t

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

cdef enum:
    # The slot of requests without keys.
    NO_SLOT = -1
    # No slot: the way of a session's keys is not free.
    NO_WAY = -2

from proxy.engine.carrying import carry
from proxy.engine.outcomes import AFTER_OWED, ANY_SERVER, NO_REPLY, Answered, Last, Later, NothingOwed, Unit, Wish
from proxy.engine.refusals import CROSSSLOT, FAILED, LEFT, NO_SERVER, OUT_OF_MEMORY


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
    return router.backend(router.server_index(address), session.database, session.protocol, session.connection_number)


cdef verdict decide(
    Session session, const argument_t* arguments, int count, const char* data, size_t size
) except VERDICT_FAILED:
    """Let plain Python decide."""
    cdef int index
    cdef int protocol = session.protocol
    cdef verdict found
    if session.loop.waiting and session.has_no_room(size):
        # bounded: a request for every server would wait for all of them.
        session.loop.requests -= 1
        return VERDICT_HELD
    session.loop.decisions += 1
    session.way = NO_WAY
    argv = [arguments[index].data[:arguments[index].size] for index in range(count)]
    outcome = session.router.slow_path.handle(session, argv)
    if type(outcome) is CoroutineType:
        found = drive(session, outcome, data, size)
    else:
        found = carry_out(session, outcome, data, size)
    if session.protocol != protocol:
        session.switched = True
    return found


cdef verdict drive(Session session, object coroutine, const char* data, size_t size) except VERDICT_FAILED:
    """Run a handler as far as it can now. If it has to wait, a task carries it on.

    It may be the task of another request that brought the session here. What belongs to a task, such as a timeout, must
    not become part of that one, so there is none meanwhile.
    """
    turn = given = None
    session.front_size = size
    event_loop = session.loop.event_loop
    task = asyncio.current_task(event_loop)
    if task is not None:
        asyncio.tasks._leave_task(event_loop, task)
    try:
        wish = coroutine.send(None)
        while isinstance(wish, Wish):
            try:
                given = grant(session, wish)
            except Answered as answered:
                wish = coroutine.throw(answered)
                continue
            if given is not None:
                wish = coroutine.send(given)
            elif session.woken:
                session.woken = False
            else:
                turn = session.take_turn()
                break
    except StopIteration as ended:
        return carry_out(session, ended.value, data, size)
    except Answered as answered:
        return carry_out(session, answered.reply, data, size)
    except asyncio.CancelledError:
        coroutine.close()
        session.close()
        return VERDICT_TAKEN
    except Exception as error:
        coroutine.close()
        session.loop.event_loop.call_exception_handler({"message": "a slow command failed", "exception": error})
        return carry_out(session, FAILED, data, size)
    finally:
        if task is not None:
            asyncio.tasks._enter_task(event_loop, task)
    session.woken = False
    session.waiting = session.loop.event_loop.create_task(_carry(session, coroutine, wish, turn))
    session.router.slow_path.keep(session.waiting)
    if turn is None:
        session.watch_for_leaving(True)
    return VERDICT_WAIT


cdef object grant(Session session, object wish):
    """What a wish gives, or None if the session has to wait for it; then it will be woken.

    Raises:
        Answered: it can never be granted.
    """
    cdef Router router = session.router
    cdef argument_t* keys
    cdef bytes key
    cdef int32_t slot
    cdef int index
    cdef int count
    session.way = NO_WAY
    if session.waits_since and session.has_left():
        raise Answered(LEFT)
    if isinstance(wish, NothingOwed):
        if session.client.owed:
            # The send that leaves nothing owed resumes the session.
            session.switched = session.paused = True
            session.loop.list_client(&session.client.sender)
            return None
        session.turn = None
        session.stage += 1
        return True
    count = len(wish.keys)
    if count == 0:
        slot = NO_SLOT
        address = router.any_address()
        if address is None:
            raise Answered(NO_SERVER)
    else:
        keys = router.key_room(count)
        if keys == NULL:
            raise Answered(OUT_OF_MEMORY)
        for index in range(count):
            key = wish.keys[index]
            keys[index].data = key
            keys[index].size = len(key)
        slot = router.slot_of(keys[0].data, keys[0].size)
        for index in range(1, count):
            if router.slot_of(keys[index].data, keys[index].size) != slot:
                raise Answered(CROSSSLOT)
        if router.routes[slot].state != ROUTE_OPEN and session.clear_keys(keys, count, 1) == VERDICT_WAIT:
            return None
        if router.routes[slot].server < 0:
            raise Answered(session.offline_error(slot))
        address = router.addresses[router.routes[slot].server]
    if session.has_to_wait(shared(session, address), max(session.front_size, <size_t> wish.size)):
        return None
    session.turn = None
    session.admitted = False
    session.stage += 1
    # The next wish of this request may be for other keys, or come after another change.
    session.cleared = -1
    session.way = slot
    return slot, address


cdef verdict carry_out(Session session, object outcome, const char* data, size_t size) except VERDICT_FAILED:
    """Do what plain Python has decided."""
    cdef argument_t* keys
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
        session.loop.requests -= 1
        return session.route(keys, len(outcome), data, size, False)
    if isinstance(outcome, Unit):
        return send_unit(session, outcome)
    if outcome is ANY_SERVER:
        address = session.router.any_address()
        if address is None:
            return session.refuse_or_reply(NO_SERVER)
        session.loop.requests -= 1
        return session.forward(shared(session, address), NO_SLOT, data, size)
    if outcome is NO_REPLY:
        return VERDICT_TAKEN
    if outcome is AFTER_OWED:
        session.loop.requests -= 1
        return VERDICT_PAUSE
    if isinstance(outcome, Last):
        session.refuse_or_reply(outcome.reply)
        session._finish()
        return VERDICT_TAKEN
    if isinstance(outcome, Later):
        place = Place()
        place.loop = session.loop
        place.place = session.loop.new_request(REQUEST_PLACE, session.asker(), NO_SLOT)
        if place.place == NULL:
            session.client.broken = b"out of memory"
            session.loop.list_client(&session.client.sender)
        session.stopped = True
        task = session.loop.event_loop.create_task(_later(session, outcome.coroutine, place))
        session.router.slow_path.keep(task)
        return VERDICT_TAKEN
    raise TypeError(f"the slow path answered {outcome!r}")


cdef verdict send_unit(Session session, object unit) except VERDICT_FAILED:
    """Queue several requests in one piece; the last reply is the session's."""
    cdef bytes payload = unit.payload
    cdef int before = unit.before
    cdef int32_t slot = unit.slot
    cdef Backend backend = shared(session, unit.address)
    cdef request_t* request
    cdef int index
    if slot != session.way:
        # absent-first, drained
        raise RuntimeError(f"a request for slot {slot} whose way was not cleared in this step")
    if not backend.ready_to_take():
        return session.refuse(backend.failure_reply)
    if not session.loop.have_requests(before + 1) or not backend.reserve(len(payload)):
        return session.refuse_or_reply(OUT_OF_MEMORY)
    buffer_append(&backend.out, payload, len(payload))
    for index in range(before + 1):
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


async def _carry(Session session, coroutine, awaited, turn):
    """Go on with the handler of the request at the front, and do what it decides."""
    protocol = session.protocol
    try:
        outcome = await carry(session, coroutine, awaited, turn)
    except Answered as answered:
        outcome = answered.reply
    except asyncio.CancelledError:
        # The client has left, or the worker ends. Nobody knows what was run.
        session.waiting = None
        session.close()
        raise
    except Exception as error:
        session.loop.event_loop.call_exception_handler({"message": "a slow command failed", "exception": error})
        outcome = FAILED
    session.waiting = None
    if session.protocol != protocol:
        session.switched = True
    try:
        session.finish_front(outcome)
    except Exception as error:
        session.loop.event_loop.call_exception_handler({"message": "serving a client", "exception": error})
        session.close()
