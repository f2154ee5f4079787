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
from libc.stdint cimport int64_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport strlen

from proxy.engine.asking cimport answered
from proxy.engine.backend cimport Backend
from proxy.engine.buffer cimport buffer_consume, buffer_free, buffer_length
from proxy.engine.connection cimport (
    FOR_FRONT,
    FOR_GOOD,
    FOR_KEYS,
    FOR_OWED,
    FOR_SERVER,
    FOR_TURN,
    IS_OVER,
    METERED,
    SWITCHED,
    ClientConnection,
)
from proxy.engine.decisions cimport carry_out
from proxy.engine.dispatch cimport dispatch
from proxy.engine.handlers cimport go_on
from proxy.engine.meter cimport Meter
from proxy.engine.metering cimport look_at_limits
from proxy.engine.multi cimport free_multi
from proxy.engine.prefix cimport Prefix
from proxy.engine.records cimport client_t
from proxy.engine.router cimport Router
from proxy.engine.statistics cimport Statistics
from proxy.engine.tracking cimport has_waited, left_front
from slots.requests.parsing cimport (
    MAXIMUM_ARGUMENTS,
    PARSE_COMPLETE,
    PARSE_ERROR,
    PARSE_INCOMPLETE,
    PARSE_INLINE,
    parse_request,
    parse_status,
)

from proxy.engine.backend import command as make_request
from proxy.engine.inline import is_http, split_inline
from proxy.engine.outcomes import NO_REPLY, Clear, Condition, Last, Later, Unit
from proxy.engine.refusals import LEFT, NOT_HTTP, OWN_KEYS, RULES_CHANGE, TOO_LARGE
from slots.slot import CHANGING

cdef enum:
    # Redis's limits for a client that is not authenticated.
    UNAUTHENTICATED_BULK = 16384
    UNAUTHENTICATED_ARGUMENTS = 10
    # GATED of proxy.engine.outcomes.
    GATED_BIT = 1
    # TRACKED of it.
    TRACKED_BIT = 32
    # With replies of so many bytes on average, they use a connection of their own; with less than half of it, no more.
    LARGE_REPLY = 4096
    # The number of replies after which older ones count less.
    FORGOTTEN_REPLIES = 1024
    # MUTED and MUTED_ONCE of proxy.engine.outcomes.
    MUTED_BIT = 1
    MUTED_ONCE_BITS = 3
    # The most requests of one session that plain Python decides on before other sessions have their turn.
    MOST_DECISIONS = 64
    # No slot.
    NO_WAY = -2

cdef size_t LONGEST_BULK = 536870912


cdef void resume_handler(void* owner) noexcept:
    cdef Session session = <Session> owner
    cdef int before = session.loop.work_time.turn_to_if(session.meter is not None, session.client.user)
    Py_DECREF(session)
    if session.question is None:
        go_on(session)
    else:
        answered(session)
    session.loop.work_time.turn_to(before)


cdef class Session(ClientConnection):
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
            if self.on_wrong_connection():
                self.choose_connection()
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
                outcome = self.inline_request(data + position, request_size)
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
        if self.client.replies > FORGOTTEN_REPLIES:
            self.client.replies //= 2
            self.client.reply_bytes //= 2
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
        self.advance(self.size_of_front())
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
            self.finish_front(reply)

    def finish_front(self, outcome):
        """Give the outcome of the request at the front, which has waited: a reply, the last one, a later one, a unit, or
        NO_REPLY. Then go on with the next one."""
        cdef bint left
        cdef size_t size
        if self.closed or not self.reasons & FOR_FRONT:
            return
        if not (isinstance(outcome, (bytes, Unit, Last, Later)) or outcome is NO_REPLY):
            raise TypeError(f"a handler that has waited decided {outcome!r}")
        self.loop.set_clock()
        self.loop.command = self.waiting_command
        self.loop.since = self.waits_since if self.waits_since else self.loop.ticks
        carry_out(self, outcome, NULL, 0)
        if self.attention & TRACKED_BIT:
            has_waited(self)
        size = self.size_of_front()
        if size:
            buffer_consume(&self.inbox, size, 0)
            self.count_inbox()
        left = self.left_meanwhile()
        self.advance(size)
        self.reasons &= ~FOR_FRONT
        if left:
            # The requests behind it have waited as long.
            self._finish()
        else:
            self._resume()

    cdef size_t size_of_front(self):
        """The bytes of the request at the front, which has waited; 0 if there is none."""
        cdef Router router = self.router
        cdef parse_status status = parse_request(
            &router.parse,
            self.inbox.data + self.inbox.start,
            buffer_length(&self.inbox),
            LONGEST_BULK,
            MAXIMUM_ARGUMENTS,
        )
        return router.parse.size if status == PARSE_COMPLETE or status == PARSE_INLINE else 0

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
        """The arguments and the bytes of the request at the front, with its real keys; None if there is none. If its
        handler waits for the way of another request, those of that one."""
        cdef int index
        cdef parse_status status
        cdef Router router = self.router
        if self.closed or not self.reasons & FOR_FRONT:
            return None
        if isinstance(self.awaited, Clear) and self.awaited.reads is not None:
            return list(self.awaited.reads), make_request(tuple(self.awaited.reads))
        status = parse_request(
            &router.parse,
            self.inbox.data + self.inbox.start,
            buffer_length(&self.inbox),
            LONGEST_BULK,
            MAXIMUM_ARGUMENTS,
        )
        if status == PARSE_INLINE:
            argv = split_inline(self.inbox.data[self.inbox.start:self.inbox.start + router.parse.size])
            if self.prefix is not None:
                argv = self.prefix.changed(argv)
            return argv, make_request(tuple(argv))
        if status != PARSE_COMPLETE:
            return None
        arguments = [
            router.parse.arguments[index].data[:router.parse.arguments[index].size]
            for index in range(router.parse.count)
        ]
        if self.prefix is not None:
            arguments = self.prefix.changed(arguments)
            return arguments, make_request(tuple(arguments))
        return arguments, self.inbox.data[self.inbox.start:self.inbox.start + router.parse.size]

    def belongs_to(self, str user):
        """From now on, its requests count for this user."""
        self.client.user = self.loop.statistics.user_number(user)

    def measure(self, Meter meter):
        """From now on, its requests take tokens of this meter; None for none."""
        if self.processing and meter is not self.meter and not self.reasons & FOR_TURN:
            # The time for what it has sent behind its login is that of the user who it is now.
            self.reasons |= FOR_TURN
            self.loop.event_loop.call_soon(self.resume_reading)
        self.meter = meter
        self.count_time(meter is not None)
        if meter is not None:
            self.before_next |= METERED
        else:
            self.before_next &= ~METERED

    def shed_these(self, bytes way_givers):
        """From now on, these requests give way: a byte for each number of a command (:mod:`proxy.engine.statistics`), the
        first one also for those beyond the end; none if it is empty."""
        self.way_givers = way_givers
        self.sheddable = len(way_givers) > 0

    def limit(self, CommandRights rights, Prefix prefix=None):
        """From now on, it may do only this, None for everything, and its keys have this prefix."""
        if prefix is not None and rights is None:
            raise ValueError("a user with a prefix may not do everything")
        self.rights = rights
        self.limited = rights is not None
        self.prefix = prefix
        self.client.hides = prefix is not None

    @property
    def hides(self):
        """What is taken off the names that its client sees; empty for nothing."""
        return self.prefix.text if self.prefix is not None else b""

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

    # -- replies -------------------------------------------------------------------------------------------

    cdef client_t* asker(self) noexcept:
        """The client that gets the reply to a request. While replies are muted, the reply has a place and is dropped
        there."""
        self.client.muted = self.muted != 0
        return &self.client

    cdef void reply(self, const char* data, size_t size) noexcept:
        """A reply by the proxy itself, in its turn."""
        cdef Statistics statistics = self.loop.statistics
        cdef uint32_t ticks = self.loop.ticks - self.loop.since
        cdef size_t gets = 0 if self.muted else size
        statistics.observe(self.loop.command, self.client.user, ticks, gets, size > 0 and data[0] == c'-')
        if statistics.may_be_notable(self.loop.command, ticks, self.front_size, gets, data[0]):
            statistics.look_at(
                self.loop.command,
                self.client.user,
                ticks,
                NULL,
                self.front_size,
                data,
                gets,
                -1,
                self.client.sender.owner,
                None,
                self.database,
            )
        if not self.muted:
            self.loop.answer(&self.client, data, size)

    def answer(self, bytes data):
        """Give a reply, or another one to the same request, in its turn."""
        if not self.closed and not self.muted:
            self.loop.answer(&self.client, data, len(data))

    def push(self, bytes data):
        """Send something between two replies, as soon as possible."""
        if not self.closed:
            self.loop.push(&self.client, data, len(data))

    # -- routing -------------------------------------------------------------------------------------------

    cdef verdict refuse(self, const char* text) noexcept:
        self.loop.errors += 1
        self.reply(text, strlen(text))
        return VERDICT_TAKEN

    cdef bint gives_way_at(self, Backend backend) noexcept:
        """Whether the request at the front is refused because its server is slow. Asked of sheddable sessions only."""
        cdef const char* bytes_of_numbers = self.way_givers
        cdef bint listed = self.last_number < len(self.way_givers)
        return bytes_of_numbers[self.last_number if listed else 0] != 0 and backend.is_slow()

    cdef verdict shed(self, Backend backend) noexcept:
        """Refuse a request, because its server is slow."""
        self.loop.shed += 1
        return self.refuse_or_reply(backend.slow_reply)

    cdef verdict refuse_or_reply(self, bytes reply) noexcept:
        if self.prefix is not None:
            reply = self.prefix.hide(self.loop.command, reply)
        if reply[:1] == b"-":
            if reply.startswith(TOO_LARGE) and not self.muted:
                # bounded: the request has run, perhaps, so it gets no error. The client is one that is owed too much.
                self.client.broken = b"output limit"
                self.loop.list_client(&self.client.sender)
                return VERDICT_TAKEN
            self.loop.errors += 1
        self.reply(reply, len(reply))
        return VERDICT_TAKEN

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

    cdef bint on_wrong_connection(self) noexcept:
        """Whether replies have become large, or small again, so that the session should use other connections."""
        cdef int64_t bound = LARGE_REPLY if self.connection_number == self.usual_number else LARGE_REPLY // 2
        cdef bint large = self.client.reply_bytes > bound * (self.client.replies + 1)
        return large != (self.connection_number != self.usual_number)

    cdef void choose_connection(self) noexcept:
        """Move large replies to other connections than small ones, so that small ones need not wait behind them.

        in-order: this is done only while nothing is owed, so no request is taken until then.
        """
        if self.client.owed:
            self.before_next |= SWITCHED
        elif self.connection_number == self.usual_number:
            self.connection_number += self.router.connections_each
        else:
            self.connection_number = self.usual_number

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

    cdef verdict inline_request(self, const char* line, size_t size) except VERDICT_FAILED:
        """Handle an inline request: split it as Redis does, then dispatch it as if it had come in RESP."""
        cdef bytes request
        cdef Router router = self.router
        self.loop.decisions += 1
        try:
            argv = split_inline(line[:size])
        except ValueError:
            self.protocol_error(b"unbalanced quotes in request")
            return VERDICT_NOTHING
        if not argv:
            return VERDICT_NOTHING
        if is_http(argv):
            request = NOT_HTTP
            self.loop.answer(&self.client, request, len(request))
            self._finish()
            return VERDICT_NOTHING
        request = make_request(tuple(argv))
        if parse_request(&router.parse, request, len(request), LONGEST_BULK, MAXIMUM_ARGUMENTS) != PARSE_COMPLETE:
            self.protocol_error(b"unbalanced quotes in request")
            return VERDICT_NOTHING
        return dispatch(self, router.parse.arguments, router.parse.count, request, len(request))
