"""BLPOP and its like: they take what is there by now, and need no connection of their own for that.

In a transaction of its own, such a command does not wait. So it goes to the server over the connection that sessions
share. If there was nothing to take, plain Python has the request wait at the server
(:mod:`proxy.commands.blocking.blocking`).

**absent-first**, **drained**: it waits until its keys are let through, as any other request, and counts for its slot
until the server has answered.
"""

from libc.stdint cimport int32_t

from proxy.engine.asking cimport ServerQuestion, ask, do_what_it_decides, let_python_decide
from proxy.engine.backend cimport Backend
from proxy.engine.clearing cimport clear_keys
from proxy.engine.decisions cimport decide
from proxy.engine.front cimport finish_front, read_front
from proxy.engine.multi cimport append_transaction, has_room_for
from proxy.engine.router cimport ROUTE_OPEN, Router, route_t
from proxy.engine.session cimport Session
from proxy.engine.verdicts cimport VERDICT_FAILED, VERDICT_HELD, VERDICT_WAIT, verdict
from slots.requests.parsing cimport argument_t

from proxy.engine.refusals import OUT_OF_MEMORY

ONE_REPLY = b"*1\r\n"
"""The beginning of the reply to EXEC after one command."""
REFUSED = b"-EXECABORT"
UNBLOCKED = b"-UNBLOCKED "
"""It has run nothing."""
NOTHING = (b"*-1\r\n", b"$-1\r\n", b"_\r\n")


cdef class Pop(ServerQuestion):
    """Whether there is something to take."""

    cdef object go_on(self):
        # Without MULTI, the server says why it refuses.
        reply = self.reply.removeprefix(ONE_REPLY)
        if reply.startswith(REFUSED) or reply in NOTHING:
            have_it_wait(self.session)
        else:
            finish_front(self.session, reply)


cdef object have_it_wait(Session session):
    """There is nothing to take by now."""
    if session.gives_up():
        return
    if session.loop.waiting:
        # bounded: it may have to wait for room before it waits at the server.
        let_python_decide(session)
        return
    arguments, data = read_front(session)
    do_what_it_decides(session, session.router.blocking.begin_wait(session, arguments, Wait(session)), len(data))


cdef class Wait(ServerQuestion):
    """The request at the front waits at its server."""

    cdef object note(self, bytes reply):
        self.session.router.blocking.came_back(self.session, reply)

    cdef object go_on(self):
        cdef Session session = self.session
        if self.reply.startswith(UNBLOCKED):
            arguments, data = read_front(session)
            do_what_it_decides(session, session.router.blocking.unblocked(session, arguments, self.reply), len(data))
        else:
            finish_front(session, self.reply)


cdef verdict pop(
    Session session,
    const argument_t* keys,
    int found,
    const argument_t* arguments,
    int count,
    const char* data,
    size_t size,
) except VERDICT_FAILED:
    """Have a server take what is there for the request at the front, whose keys are ``keys``."""
    cdef Router router = session.router
    cdef int32_t slot = router.slot_of(session.database, keys[0].data, keys[0].size)
    cdef route_t* route = &router.routes[slot]
    cdef Backend backend
    cdef Pop question
    cdef int index
    for index in range(1, found):
        if router.slot_of(session.database, keys[index].data, keys[index].size) != slot:
            return decide(session, arguments, count, data, size)
    if route.state != ROUTE_OPEN and clear_keys(session, keys, found, 1) == VERDICT_WAIT:
        return VERDICT_WAIT
    if route.server < 0:
        return decide(session, arguments, count, data, size)
    backend = router.backend(route.server, session.database, session.protocol, session.connection_number)
    if session.sheddable and session.gives_way_at(backend):
        return session.shed(backend)
    if (session.loop.waiting or backend.is_full()) and session.has_to_wait(backend, size):
        return VERDICT_HELD
    # Keys of the proxy's own have no slot, and do not come so far.
    session.loop.hot_keys.note(session.database, slot, keys[0].data, keys[0].size)
    if not backend.ready_to_take():
        return session.refuse(backend.refusal(slot))
    # Before anything is in the output: whatever is there has to be a whole request.
    question = Pop(session)
    if not session.loop.have_requests(3) or not has_room_for(backend, size):
        return session.refuse_or_reply(OUT_OF_MEMORY)
    ask(question, backend, 2, slot, append_transaction(backend, data, size))
    return VERDICT_WAIT
