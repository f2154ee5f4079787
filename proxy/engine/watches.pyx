"""WATCH, and the EXEC of a session that watches, over a connection of the session's own.

The usual watch is here: the first one of a session, of keys at rest, on a connection that is idle; and an EXEC of
simple commands (:mod:`proxy.engine.multi`) while that watch holds. For all others plain Python decides
(:mod:`proxy.commands.transactions.watching`), which also says why a watch is safe.

**absent-first**, **drained**: WATCH and EXEC are sent in the step that saw the slot at rest, and count for it until
they are answered. **in-order**: neither is sent before everything owed to the session has been answered, for that
comes over other connections.
"""

from libc.stdint cimport int32_t

from proxy.engine.asking cimport ServerQuestion, ask
from proxy.engine.buffer cimport buffer_append, buffer_length
from proxy.engine.decisions cimport decide
from proxy.engine.front cimport finish_front
from proxy.engine.multi cimport append_transaction, end_multi, has_room_for
from proxy.engine.records cimport multi_t
from proxy.engine.router cimport ROUTE_OPEN, Router, route_t
from proxy.engine.serverconnection cimport BACKEND_READY
from proxy.engine.session cimport Session
from proxy.engine.verdicts cimport VERDICT_FAILED, VERDICT_HELD, VERDICT_WAIT, verdict
from slots.requests.parsing cimport argument_t

from proxy.engine.refusals import OUT_OF_MEMORY

cdef enum:
    # Of a key that an error names, and that suggests a slot rule.
    MOST_BYTES_NAMED = 256

OK = b"+OK\r\n"


cdef class Watch:
    """The watch of one session, which has it from now on. Make it in the step that saw its slot's way free.

    Args:
        session: it watches nothing yet.
        connection: a connection to the slot's server, in the session's database and RESP version.
        slot: the slot of the keys.
        key: the first of them.
    """

    def __cinit__(self, Session session, connection, int slot, bytes key):
        cdef route_t* route = &session.router.routes[slot]
        self.session = session
        self.connection = connection
        self.backend = connection.backend
        self.database = session.database
        self.slot = slot
        self.key = key[:MOST_BYTES_NAMED]
        self.kept = True
        self.since = session.loop.now
        self.changes = route.changes
        self.ruling = session.router.ruling
        # What the session reads from here on comes from the server that watches: a replica may lag behind the watch.
        self.replica_reads = session.replica_reads
        session.replica_reads = False
        session.watch = self

    cpdef bint holds(self) noexcept:
        """Whether the server would know of any change to a watched key."""
        cdef route_t* route = &self.session.router.routes[self.slot]
        return (
            not self.over
            and self.connection is not None
            and not self.backend.was_lost()
            and self.backend.protocol == self.session.protocol
            # one-way: what was absent from the source stays so, also once the migration is over.
            and self.changes == route.changes
            # Under other rules its keys may have other slots.
            and self.ruling == self.session.router.ruling
        )


cdef class Watched(ServerQuestion):
    """WATCH, under way."""

    cdef Watch watch

    cdef object note(self, bytes reply):
        cdef Watch watch = self.watch
        cdef Session session = self.session
        watch.busy = False
        if watch.over:
            session.router.watching.let_go(watch)
        elif reply != OK:
            # As in Redis, a WATCH that fails watches nothing.
            session.router.watching.end(session)

    cdef object go_on(self):
        finish_front(self.session, self.reply)


cdef class Executed(ServerQuestion):
    """EXEC, under way. The session's watch is over already."""

    cdef Watch watch

    cdef object note(self, bytes reply):
        self.session.router.watching.executed(self.watch, reply)

    cdef object go_on(self):
        finish_front(self.session, self.reply)


cdef verdict begin_watch(
    Session session, const argument_t* arguments, int count, const char* data, size_t size
) except VERDICT_FAILED:
    """WATCH key [key ...]."""
    cdef Router router = session.router
    cdef int32_t slot = router.slot_of(session.database, arguments[1].data, arguments[1].size)
    cdef route_t* route = &router.routes[slot]
    cdef Watch watch
    cdef Watched question = Watched(session)
    cdef int index
    for index in range(2, count):
        if router.slot_of(session.database, arguments[index].data, arguments[index].size) != slot:
            return decide(session, arguments, count, data, size)
    if (
        session.watch is not None
        or session.client.owed
        or session.loop.waiting
        or route.state != ROUTE_OPEN
        or route.server < 0
    ):
        return decide(session, arguments, count, data, size)
    watch = router.watching.begin_at_once(
        session, router.addresses[route.server], slot, arguments[1].data[: arguments[1].size]
    )
    if watch is None:
        return decide(session, arguments, count, data, size)
    question.watch = watch
    if watch.backend.state != BACKEND_READY or not session.loop.have_requests(1) or not watch.backend.reserve(size):
        watch.kept = False
        router.watching.end(session)
        return session.refuse_or_reply(OUT_OF_MEMORY)
    buffer_append(&watch.backend.out, data, size)
    watch.busy = True
    ask(question, watch.backend, 0, slot, size)
    return VERDICT_WAIT


cdef bint may_run(Session session) noexcept:
    """Whether the session's transaction, whose slot is at rest, can be sent over the connection that watches.

    Its keys are of the watch's slot, or it would have been handed over.
    """
    cdef Watch watch = <Watch> session.watch
    return (
        watch.database == session.database
        and not watch.busy
        and not session.client.owed
        and watch.holds()
        and watch.backend.state == BACKEND_READY
    )


cdef verdict run_watched(Session session) except VERDICT_FAILED:
    """Send the transaction in one piece, which ends the watch. The reply to EXEC is the session's."""
    cdef Router router = session.router
    cdef multi_t* multi = session.multi
    cdef Watch watch = <Watch> session.watch
    cdef size_t size = buffer_length(&multi.requests)
    cdef int before = multi.count + 1
    cdef Executed question
    if session.loop.waiting and session.has_no_room(size):
        return VERDICT_HELD
    question = Executed(session)
    question.watch = watch
    if not session.loop.have_requests(before + 1) or not has_room_for(watch.backend, size):
        end_multi(session)
        router.watching.end(session)
        return session.refuse_or_reply(OUT_OF_MEMORY)
    # Before anything is in the output: whatever is there has to be a whole request.
    router.watching.forget(session, watch)
    size = append_transaction(watch.backend, multi.requests.data + multi.requests.start, size)
    end_multi(session)
    watch.busy = watch.over = True
    ask(question, watch.backend, before, watch.slot, size)
    return VERDICT_WAIT
