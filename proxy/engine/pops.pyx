"""BLPOP and its like: they take what is there by now, and need no connection of their own for that.

In a transaction of its own, such a command does not wait. So it goes to the server over the connection that sessions
share, and the session waits for the reply. If there was nothing to take, plain Python has the request wait at the
server (:mod:`proxy.commands.blocking.blocking`). So it does if the keys' slot is not at rest.

**in-order**: requests behind it are not looked at before it has its reply. **drained**: it counts for its slot until the
server has answered.
"""

from libc.stdint cimport int32_t, uint32_t

from cpython.ref cimport Py_INCREF

from proxy.engine.backend cimport Backend
from proxy.engine.buffer cimport buffer_append
from proxy.engine.decisions cimport decide
from proxy.engine.handlers cimport WAITS, begin
from proxy.engine.records cimport REQUEST_CALL, REQUEST_PLAIN, request_t
from proxy.engine.resp cimport argument_t
from proxy.engine.router cimport ROUTE_OPEN, Router, route_t
from proxy.engine.session cimport VERDICT_FAILED, VERDICT_HELD, VERDICT_WAIT, Session, verdict
from proxy.engine.statistics cimport UNCOUNTED

from types import CoroutineType

from proxy.engine.multi import EXEC, MULTI
from proxy.engine.refusals import OUT_OF_MEMORY

ONE_REPLY = b"*1\r\n"
"""The beginning of the reply to EXEC after one command."""
REFUSED = b"-EXECABORT"
NOTHING = (b"*-1\r\n", b"$-1\r\n", b"_\r\n")

cdef const char* BEGIN = MULTI
cdef const char* END = EXEC
cdef size_t BEGIN_SIZE = len(MULTI)
cdef size_t END_SIZE = len(EXEC)


cdef verdict pop(
    Session session, const argument_t* keys, int found, const argument_t* arguments, int count, const char* data, size_t size
) except VERDICT_FAILED:
    """Have a server take what is there for the request at the front, whose keys are ``keys``."""
    cdef Router router = session.router
    cdef int32_t slot = router.slot_of(session.database, keys[0].data, keys[0].size)
    cdef route_t* route = &router.routes[slot]
    cdef Backend backend
    cdef request_t* request
    cdef int index
    session.loop.requests += 1
    for index in range(1, found):
        if router.slot_of(session.database, keys[index].data, keys[index].size) != slot:
            return decide(session, arguments, count, data, size)
    if route.state != ROUTE_OPEN or route.server < 0:
        return decide(session, arguments, count, data, size)
    backend = router.backend(route.server, session.database, session.protocol, session.connection_number)
    if (session.loop.waiting or backend.is_full()) and session.has_to_wait(backend, size):
        session.loop.requests -= 1
        return VERDICT_HELD
    if not backend.ready_to_take():
        return session.refuse(backend.failure_reply)
    if not session.loop.have_requests(3) or not backend.reserve(BEGIN_SIZE + size + END_SIZE):
        return session.refuse_or_reply(OUT_OF_MEMORY)
    buffer_append(&backend.out, BEGIN, BEGIN_SIZE)
    buffer_append(&backend.out, data, size)
    buffer_append(&backend.out, END, END_SIZE)
    for index in range(2):
        request = session.loop.new_request(REQUEST_PLAIN, NULL, slot)
        request.command = UNCOUNTED
        backend.queue(request)
    request = session.loop.new_request(REQUEST_CALL, NULL, slot)
    taker = session.take_popped
    Py_INCREF(taker)
    request.extra = <void*> taker
    backend.queue(request)
    session.watch_leaving()
    return VERDICT_WAIT


cdef void popped(Session session) noexcept:
    """The server has answered: give the client what it took, or have the request wait there."""
    session.loop.set_clock()
    try:
        go_on(session)
    except Exception as error:
        session.loop.event_loop.call_exception_handler({"message": "serving a client", "exception": error})
        session.close()


cdef object go_on(Session session):
    cdef uint32_t since
    cdef bytes reply = session.popped
    session.popped = None
    session.leaving_watched = False
    if session.closed:
        return
    if not reply.startswith(REFUSED):
        # Without MULTI, the server says why.
        reply = reply.removeprefix(ONE_REPLY)
        if reply not in NOTHING:
            session.finish_front(reply)
            return
    front = session.front()
    session.loop.decisions += 1
    # To look for something at once is no wait. If the client has left meanwhile, the request is ended at the server.
    since, session.waits_since = session.waits_since, 0
    outcome = session.router.slow_path.handle(session, front[0])
    if type(outcome) is CoroutineType:
        outcome = begin(session, outcome, len(front[1]))
    session.waits_since = since
    if outcome is not WAITS:
        session.finish_front(outcome)
