"""A client's session: requests parsed and routed, replies in order."""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from proxy.engine.backend cimport Backend
from proxy.engine.buffer cimport buffer_t
from proxy.engine.connection cimport ClientConnection
from proxy.engine.meter cimport Meter
from proxy.engine.prefix cimport Prefix
from proxy.engine.records cimport client_t, multi_t, sender_t
from proxy.engine.rights cimport CommandRights
from proxy.engine.router cimport Router

ctypedef enum verdict:
    # An exception was raised.
    VERDICT_FAILED = -1
    # The request is finished, or under way.
    VERDICT_TAKEN
    # It is an empty line, or an empty list, and no request.
    VERDICT_NOTHING
    # It stays at the front of the input until the session is woken.
    VERDICT_WAIT
    # It stays there until all owed replies have been given.
    VERDICT_PAUSE
    # It stays there until there is room for it in the memory for requests that wait for servers.
    VERDICT_HELD
    # Its keys are of several slots, and whoever asked decides on that.
    VERDICT_APART


@cython.final
cdef class Session(ClientConnection):
    """One client's session."""

    cdef:
        Router router
        int64_t cleared
        # Its keys are looked for at their sources again, even if they are known to be absent.
        bint asks
        # The number of the shared connection that its requests use, and the number of the one for small replies.
        readonly int connection_number
        int usual_number
        size_t most_request
        # Bits of proxy.engine.outcomes; while one is set, every command goes to the slow path.
        public int attention
        # What its user may do is limited, by ``rights``.
        readonly bint limited
        readonly CommandRights rights
        # What stands before all keys of its user, who is limited then; None for nothing. The request at the front with
        # it, and whether that one is being decided on.
        readonly Prefix prefix
        buffer_t real
        bint has_real
        # Its user may use some databases only.
        public bint in_some_databases
        # Its requests to a server that is slow are refused at once: those whose number has a byte that is not 0. The byte
        # of number 0 is also that of all numbers beyond the end.
        readonly bint sheddable
        bytes way_givers
        # Of its user, if that one may only ask for so much a second; and the count in ``taken`` at which the request at
        # the front has taken its token.
        Meter meter
        int64_t paid
        # It has had the login that passes the limits of its user.
        public bint had_login
        public bint replica_reads
        # Of one whose user has ``cached_reads``: it may have written something since it was looked at, and it sees only
        # values of later questions than this one; see proxy.engine.hotvalues.
        public bint has_written
        int64_t sees_from
        # MUTED or MUTED_ONCE of proxy.engine.outcomes.
        public int muted
        public int database
        public int protocol
        readonly object id
        # proxy.commands.state.SessionState, made when first needed.
        public object state
        # A proxy.engine.watches.Watch, or None.
        public object watch
        # A proxy.engine.tracking.Tracker while TRACKED is set in ``attention``.
        public object tracker
        # A transaction that plain Python knows nothing of; NULL if there is none.
        multi_t* multi
        # Number of the last command in proxy.engine.statistics; the slow path's name for it, and its time.
        int16_t last_number
        object last_name
        int64_t named_at
        # Counts requests that are finished or under way. It tells a request that is looked at again from the next one.
        readonly int64_t taken
        # Those of them that are counted, or were no requests; and the bytes of the others.
        int64_t counted
        size_t uncounted_bytes
        # The handler of the request at the front, what it waits for, and the reply that ends its waiting for a condition.
        # Its way is the slot whose way was found free in the present step. See proxy.engine.handlers.
        object coroutine
        object awaited
        bytes answered
        # The engine's own question about the request at the front, once a server has answered it: a
        # proxy.engine.asking.ServerQuestion.
        object question
        bint cancelled
        int32_t way
        size_t front_size
        # Goes on with the handler once the reply that it awaits has come.
        sender_t resumer
        # Counts requests that are finished or under way, and conditions for keys that held: while it stays the same, the
        # session waits for the same.
        readonly int64_t stage
        # The time when the request at the front was read, and its command, if it had to wait.
        uint32_t waits_since
        int16_t waiting_command

    cdef bint gives_way_at(self, Backend backend) noexcept
    cdef bint on_wrong_connection(self) noexcept
    cdef void choose_connection(self) noexcept
    cdef void has_to_be_looked_at_again(self) noexcept
    cdef bint left_meanwhile(self) noexcept
    cdef void advance(self, size_t size) noexcept
    cdef void count_taken(self) noexcept
    cdef size_t size_of_front(self)
    cdef void leave_front(self) noexcept
    cdef client_t* asker(self) noexcept
    cdef void reply(self, const char* data, size_t size) noexcept
    cdef verdict inline_request(self, const char* line, size_t size) except VERDICT_FAILED
    cdef bint has_no_room(self, size_t size)
    cdef Backend shared(self, address)
    cdef bint has_to_wait(self, Backend backend, size_t size)
    cdef verdict refuse(self, const char* text) noexcept
    cdef verdict shed(self, Backend backend) noexcept
    cdef verdict refuse_or_reply(self, bytes reply) noexcept
    cdef bytes offline_error(self, int slot)
    cdef verdict refuse_offline(self, int slot) except VERDICT_FAILED
    cdef void protocol_error(self, const char* text) noexcept
