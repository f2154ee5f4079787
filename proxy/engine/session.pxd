"""A client's session: requests parsed and routed, replies in order."""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from proxy.engine.backend cimport Backend
from proxy.engine.buffer cimport buffer_t
from proxy.engine.records cimport multi_t, sender_t
from proxy.engine.router cimport Router
from proxy.engine.userclient cimport UserClient
from proxy.engine.verdicts cimport VERDICT_FAILED, verdict

@cython.final
cdef class Session(UserClient):
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
        # The request at the front with the prefix of its user's keys, and whether that one is being decided on.
        buffer_t real
        bint has_real
        # The count in ``taken`` at which the request at the front has taken a token of its user's meter.
        int64_t paid
        public bint replica_reads
        # Of one whose user has ``cached_reads``: it may have written something since it was looked at, and it sees only
        # values of later questions than this one; see proxy.engine.hotvalues.
        public bint has_written
        int64_t sees_from
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
        # The slow path's name for the last command, and its time.
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
        # Goes on with the handler once the reply that it awaits has come.
        sender_t resumer
        # Counts requests that are finished or under way, and conditions for keys that held: while it stays the same, the
        # session waits for the same.
        readonly int64_t stage
        # The time when the request at the front was read, and its command, if it had to wait.
        uint32_t waits_since
        int16_t waiting_command

    cdef void has_to_be_looked_at_again(self) noexcept
    cdef bint left_meanwhile(self) noexcept
    cdef void advance(self, size_t size) noexcept
    cdef void count_taken(self) noexcept
    cdef void leave_front(self) noexcept
    cdef bint has_no_room(self, size_t size)
    cdef Backend shared(self, address)
    cdef bint has_to_wait(self, Backend backend, size_t size)
    cdef bytes offline_error(self, int slot)
    cdef verdict refuse_offline(self, int slot) except VERDICT_FAILED
    cdef void protocol_error(self, const char* text) noexcept
