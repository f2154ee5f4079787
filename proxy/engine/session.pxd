"""A client connection: requests parsed and routed, replies in order."""

from libc.stdint cimport int32_t, int64_t

from proxy.engine.backend cimport Backend
from proxy.engine.buffer cimport buffer_t
from proxy.engine.commandlookup cimport command_t
from proxy.engine.requests cimport Loop, client_t, request_t
from proxy.engine.resp cimport argument_t
from proxy.engine.router cimport Router

ctypedef enum verdict:
    # The request is done with, or under way.
    VERDICT_TAKEN
    # It stays at the front of the input until the session is woken.
    VERDICT_WAIT


cdef class Session:
    """One client connection."""

    cdef:
        Router router
        Loop loop
        client_t client
        buffer_t inbox
        size_t need
        object sock
        int fd
        # Reading stops (**bounded**): the request at the front waits; too much is
        # owed to the client; or its server's queue is too long.
        bint stopped
        bint paused
        bint held_back
        bint reading
        bint writing
        # Another connection to the servers is in use from here on: what is owed comes first (**in-order**).
        bint switched
        bint processing
        bint woken
        bint closing
        readonly bint closed
        int64_t cleared
        int lane
        size_t pause_bytes
        int most_owed
        size_t most_request
        double last_progress
        # Set until the client has given the password: every command goes to the slow path.
        public bint gated
        public int database
        public int protocol
        readonly object id
        readonly double created
        readonly double last_active
        readonly object peer
        # proxy.slowpath.connection.ClientInfo, made when first asked for.
        public object info
        public object last_command

    cdef size_t process(self, const char* data, size_t size)
    cdef verdict dispatch(self, const argument_t* arguments, int count, const char* data, size_t size)
    cdef verdict slow(self, const argument_t* arguments, int count, const char* data, size_t size)
    cdef verdict route(self, const argument_t* keys, int count, const char* data, size_t size)
    cdef verdict split(
        self, const command_t* row, const argument_t* arguments, int count, const char* data, size_t size
    )
    cdef verdict inline_request(self, const char* line, size_t size)
    cdef verdict clear_keys(self, const argument_t* keys, int count, int step)
    cdef verdict forward(self, Backend backend, int32_t slot, const char* data, size_t size)
    cdef verdict refuse(self, const char* text) noexcept
    cdef void send_out(self) noexcept
    cdef void protocol_error(self, const char* text) noexcept
    cdef void hold_back(self, Backend backend)
    cdef bint over_limits(self) noexcept
