"""A client's session: requests parsed and routed, replies in order.

A request may not be able to run yet: its slot is locked, or its key has not moved. It stays at the front of the input,
and the session parses nothing behind it. When the session is woken, the request is looked at again. So the order holds
even if the slot's state changes meanwhile (**in-order**).

A request that had to wait is not run if its client has left meanwhile: the client may have written the same key over
another connection, and have had the reply. Later requests of that connection are not run either. A client that closes
only its own side, and still reads, looks the same as one that has left, so it gets an error. Requests that did not have
to wait are run and answered.
"""

from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t
from libc.stdio cimport snprintf

from proxy.engine.asking cimport answered
from proxy.engine.backend cimport Backend
from proxy.engine.buffer cimport buffer_free
from proxy.engine.connection cimport (
    FOR_FRONT,
    FOR_GOOD,
    FOR_KEYS,
    FOR_OWED,
    FOR_SERVER,
    FOR_TURN,
    IS_OVER,
    SWITCHED,
    ClientConnection,
)
from proxy.engine.dispatch cimport dispatch
from proxy.engine.front cimport finish_front, read_front, size_of_front
from proxy.engine.handlers cimport go_on
from proxy.engine.inlining cimport inline_request
from proxy.engine.largereplies cimport choose_connection, forget_older, on_wrong_connection
from proxy.engine.metering cimport look_at_limits
from proxy.engine.multi cimport free_multi
from proxy.engine.router cimport Router
from proxy.engine.tracking cimport left_front
from proxy.engine.userclient cimport UserClient
from proxy.engine.verdicts cimport (
    VERDICT_FAILED,
    VERDICT_HELD,
    VERDICT_NOTHING,
    VERDICT_PAUSE,
    VERDICT_WAIT,
    verdict,
)
from slots.requests.parsing cimport (
    LONGEST_BULK,
    MAXIMUM_ARGUMENTS,
    PARSE_ERROR,
    PARSE_INCOMPLETE,
    PARSE_INLINE,
    parse_request,
    parse_status,
)

from proxy.engine.outcomes import Condition
from proxy.engine.refusals import LEFT, OWN_KEYS, RULES_CHANGE
from slots.slot import CHANGING

cdef enum:
    # Redis's limits for a client that is not authenticated.
    UNAUTHENTICATED_BULK = 16384
    UNAUTHENTICATED_ARGUMENTS = 10
    # GATED of proxy.engine.outcomes.
    GATED_BIT = 1
    # TRACKED of it.
    TRACKED_BIT = 32
    # MUTED and MUTED_ONCE of proxy.engine.outcomes.
    MUTED_BIT = 1
    MUTED_ONCE_BITS = 3
    # The most requests of one session that plain Python decides on before other sessions have their turn.
    MOST_DECISIONS = 64
    # No slot.
    NO_WAY = -2


cdef void resume_handler(void* owner) noexcept:
    cdef Session session = <Session> owner
    cdef int before = session.loop.work_time.turn_to_if(session.meter is not None, session.client.user)
    Py_DECREF(session)
    if session.question is None:
        go_on(session)
    else:
        answered(session)
    session.loop.work_time.turn_to(before)


cdef class Session(UserClient):
    """One client's session.

    Args:
        router: the worker's router.
        sock: the accepted, non-blocking socket; the session owns it.
        peer: the client's address as text.
        id: number of the session, the same in no two workers.
    """

    def __init__(self, Router router, sock, peer, id):
        super().__init__(router.loop, router.settings, router.sessions, sock, peer)
        self.router = router
        self.most_request = router.settings.session_max_request_bytes
        self.id = id
        # Numbers of one worker's sessions are as far apart as there are workers.
        self.connection_number = self.usual_number = id // router.settings.worker_count % router.connections_each
        self.protocol = 2
        self.attention = GATED_BIT if router.gated else 0
        self.replica_reads = router.replica_reads
        self.cleared = -1
        self.named_at = -2
        self.paid = -1
        self.way = NO_WAY
        self.resumer.send = resume_handler
        self.resumer.owner = <void*> self

    def __dealloc__(self):
        free_multi(self.multi)
        buffer_free(&self.real)

    # -- requests ------------------------------------------------------------------------------------------

    cdef size_t process(self, const char* data, size_t size):
        """Take requests off the front of ``data``; give the number of bytes that were handled."""
        cdef Router router = self.router
        cdef size_t position = 0
        cdef size_t request_size
        cdef int ahead
        cdef Py_ssize_t refused
        cdef parse_status status
        cdef verdict outcome
        cdef bint gated
        cdef int64_t decisions = self.loop.decisions
        self.processing = True
        self.need = 0
        while position < size and not self.reasons & FOR_GOOD and self.client.broken == NULL:
            if on_wrong_connection(self):
                choose_connection(self)
            ahead = self.over_limits()
            if ahead:
                if ahead & IS_OVER:
                    self.reasons |= FOR_OWED
                    # The send that brings the session below its limits resumes it.
                    self.loop.list_client(&self.client.sender)
                    break
                refused = look_at_limits(self, data + position, size - position)
                if refused < 0:
                    break
                if refused:
                    position += refused
                    continue
            gated = self.attention & GATED_BIT
            status = parse_request(
                &router.parse,
                data + position,
                size - position,
                UNAUTHENTICATED_BULK if gated else LONGEST_BULK,
                UNAUTHENTICATED_ARGUMENTS if gated else MAXIMUM_ARGUMENTS,
            )
            if status == PARSE_INCOMPLETE:
                self.need = router.parse.need
                if self.need > self.most_request:
                    self.protocol_error(b"request is larger than the proxy's limit")
                break
            if status == PARSE_ERROR:
                if router.parse.error[0] == c'e':
                    # expected '$', got something else
                    self._expected_bulk(data[position + router.parse.size])
                else:
                    self.protocol_error(router.parse.error)
                break
            request_size = router.parse.size
            if request_size > self.most_request:
                self.protocol_error(b"request is larger than the proxy's limit")
                break
            self.woken = False
            self.loop.since = self.waits_since if self.waits_since else self.loop.ticks
            self.front_size = request_size
            if status == PARSE_INLINE:
                outcome = inline_request(self, data + position, request_size)
            elif router.parse.count == 0:
                outcome = VERDICT_NOTHING
            else:
                outcome = dispatch(self, router.parse.arguments, router.parse.count, data + position, request_size)
            if self.closed:
                break
            if outcome == VERDICT_WAIT:
                self.has_to_be_looked_at_again()
                if self.woken:
                    continue
                self.reasons |= FOR_FRONT
                break
            if outcome == VERDICT_HELD:
                self.has_to_be_looked_at_again()
                break
            if outcome == VERDICT_PAUSE:
                self.before_next |= SWITCHED
                self.reasons |= FOR_OWED
                # The send that leaves nothing owed resumes the session.
                self.loop.list_client(&self.client.sender)
                break
            self.leave_front()
            if outcome == VERDICT_NOTHING:
                self.counted += 1
            else:
                self.uncounted_bytes += request_size
            position += request_size
            if self.reasons & ~FOR_GOOD:
                break
            if self.loop.decisions - decisions >= MOST_DECISIONS and position < size:
                # Other sessions have their turn.
                self.reasons |= FOR_TURN
                self.loop.event_loop.call_soon(self.resume_reading)
                break
        self.count_taken()
        self.processing = False
        return position

    cdef void has_to_be_looked_at_again(self) noexcept:
        """The request at the front waits."""
        if not self.waits_since:
            # 0 stands for none. A tick too early does not matter; one that is still to come would be hours ago.
            self.waits_since = (self.loop.since - 1) | 1
        self.waiting_command = self.loop.command

    cdef bint left_meanwhile(self) noexcept:
        """Whether the client has left while the request at the front waited, however short that was: the requests
        behind it wait, too, and many short waits make a long one."""
        return self.waits_since and self.has_left()

    cdef void advance(self, size_t size) noexcept:
        """The request at the front, of ``size`` bytes, which has waited, is finished, or under way. It counts once,
        whatever became of it."""
        self.leave_front()
        self.uncounted_bytes += size
        self.count_taken()

    cdef void count_taken(self) noexcept:
        """Count the requests that were taken since the last call. They have the same command and user: another command,
        and plain Python, which may change the user and look at the counts, come after this."""
        cdef int64_t requests = self.taken - self.counted
        if requests:
            self.loop.requests += requests
            self.loop.statistics.count_requests(self.last_number, self.client.user, requests, self.uncounted_bytes)
            self.counted = self.taken
            self.uncounted_bytes = 0

    cdef void leave_front(self) noexcept:
        """What comes next is at the front now."""
        if self.attention & TRACKED_BIT:
            left_front(self)
        self.cleared = -1
        self.waits_since = 0
        self.taken += 1
        self.stage += 1
        forget_older(&self.client)
        if self.muted > MUTED_BIT:
            # CLIENT REPLY SKIP itself has no reply. It then applies to the next request, and ends.
            self.muted = self.muted - 1 if self.muted == MUTED_ONCE_BITS else 0

    cdef void protocol_error(self, const char* text) noexcept:
        cdef char line[256]
        cdef int size = snprintf(line, sizeof(line), b"-ERR Protocol error: %s\r\n", text)
        self.loop.answer(&self.client, line, size)
        self._finish()

    def _expected_bulk(self, char found):
        self.protocol_error(b"expected '$', got '" + bytes([<unsigned char> found]) + b"'")

    # -- waking --------------------------------------------------------------------------------------------

    def wake(self, int64_t cleared=-1):
        """Look at the request at the front again, or go on with its handler.

        absent-first: ``cleared`` is the generation of a table. All keys of the request are absent from their sources by
        that table. This says nothing about the sources of another table.
        """
        if self.closed or self.reasons & FOR_SERVER:
            return
        self.loop.set_clock()
        self.cleared = cleared
        self.reasons &= ~FOR_KEYS
        if self.coroutine is None:
            self.reasons &= ~FOR_FRONT
        self._resume()

    def _resume(self):
        if self.coroutine is None:
            ClientConnection._resume(self)
        elif self.reasons & FOR_KEYS:
            return
        elif isinstance(self.awaited, Condition):
            go_on(self)
        else:
            self.woken = True

    cdef bint gives_up(self):
        """Whether its client has left while the request at the front waited. Then that request and later ones are not
        run."""
        if not self.left_meanwhile():
            return False
        self.loop.command = self.waiting_command
        self.loop.since = self.waits_since
        self.refuse_or_reply(LEFT)
        self.advance(size_of_front(self))
        self._finish()
        return True

    cdef bint comes_back(self):
        # Its reply may have come in this very turn, and goes on with it at the turn's end.
        return self.resumer.listed or (
            self.state is not None and self.state.blocking is not None and self.router.blocking.says_no_more(self)
        )

    def fail(self, bytes error):
        """Answer the request at the front with an error and go on with the next one."""
        self.complete(error)

    def complete(self, bytes reply):
        """Answer the request at the front and go on with the next one."""
        if self.closed or self.reasons & FOR_SERVER:
            return
        if self.coroutine is not None:
            self.answered = reply
            if isinstance(self.awaited, Condition):
                go_on(self)
        elif self.reasons & FOR_FRONT:
            finish_front(self, reply)

    # -- the handler of the request at the front: see proxy.engine.handlers ------------------------------------

    def _go_on(self, future=None):
        """What the handler waits for is done."""
        go_on(self)

    def reply_came(self):
        """What the handler waits for is done. It goes on once all replies of this batch are given out."""
        if not self.resumer.listed:
            Py_INCREF(self)
            self.loop.list_client(&self.resumer)

    def _cancel(self):
        """The client has left: end the handler where it waits."""
        awaited = self.awaited
        if not self.cancelled or awaited is None:
            # It has ended, or goes on by itself.
            return
        if isinstance(awaited, Condition):
            go_on(self)
        elif awaited.cancel():
            # It goes on with that.
            self.cancelled = False

    def big(self, origin, leave):
        """A key of the request at the front goes in pieces from ``origin``; ``leave()`` ends the wait for it."""
        if not self.closed and self.reasons & FOR_FRONT:
            self.router.mover.reads.begin(self, origin, leave)

    @property
    def session(self):
        """See :class:`proxy.moving.move.Sleeper`."""
        return self

    def front(self):
        """The request at the front, for plain Python; see :mod:`proxy.engine.front`."""
        return read_front(self)

    @property
    def multi_count(self):
        """How many requests are queued in a transaction that plain Python knows nothing of; -1 if there is none."""
        return self.multi.count if self.multi != NULL else -1

    @property
    def last_command(self):
        """The present or last command, by its name in the statistics or in the slow path; or None."""
        if self.named_at == self.taken or self.named_at == self.taken - 1:
            return self.last_name
        return self.loop.statistics.names[self.last_number] if self.taken or self.waits_since else None

    @last_command.setter
    def last_command(self, name):
        self.last_name = name
        self.named_at = self.taken

    # -- routing -------------------------------------------------------------------------------------------

    def gives_way(self, str address):
        """The error for the request at the front if it gives way to others at a server, which is slow; None if not."""
        cdef Backend backend = self.shared(address)
        if not self.sheddable or not self.gives_way_at(backend):
            return None
        self.loop.shed += 1
        return backend.slow_reply

    cdef Backend shared(self, address):
        """The session's shared connection to a server."""
        return self.router.backend(
            self.router.server_index(address), self.database, self.protocol, self.connection_number
        )

    cdef bint has_to_wait(self, Backend backend, size_t size):
        """Whether a request has to wait, because too much waits for its server, or for all servers (**bounded**)."""
        if backend.is_full():
            self.hold_back(backend)
            return True
        return self.loop.waiting and self.has_no_room(size)

    cdef bint has_no_room(self, size_t size):
        """Whether a request has to wait until others have gone to their servers."""
        if not self.loop.is_full(self, size):
            return False
        self.reasons |= FOR_TURN
        self.loop.hold(self, size)
        return True

    cdef bytes offline_error(self, int slot):
        if slot == self.router.number_of_slots:
            return OWN_KEYS
        if slot == CHANGING:
            return RULES_CHANGE
        return f"-ERR slot {slot} is offline: no group with a server owns it\r\n".encode()

    cdef verdict refuse_offline(self, int slot) except VERDICT_FAILED:
        return self.refuse_or_reply(self.offline_error(slot))

    # -- the end ------------------------------------------------------------------------------------------

    cdef bint amid(self):
        """Whether a transaction is open, a key is watched, or CLIENT REPLY SKIP applies to the next request."""
        return (
            self.muted > MUTED_BIT
            or self.multi != NULL
            or self.watch is not None
            or (self.state is not None and self.state.transaction is not None)
        )

    def close(self):
        """Close the connection now. Its requests that are under way at the servers run to their end there."""
        self.count_taken()
        if self.closed:
            return
        ClientConnection.close(self)
        free_multi(self.multi)
        self.multi = NULL
        if self.coroutine is not None:
            # It gets no further, whatever it waits for. Not now: it may be running.
            self.cancelled = True
            try:
                self.loop.event_loop.call_soon(self._cancel)
            except RuntimeError:
                # The event loop is closed: the worker is on its way out.
                pass
        if self.state is not None or self.watch is not None:
            self.router.slow_path.session_closed(self)
