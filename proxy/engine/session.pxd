"""A client's session: requests parsed and routed, replies in order."""

from libc.stdint cimport int32_t, int64_t

from proxy.engine.backend cimport Backend
from proxy.engine.commandlookup cimport command_t
from proxy.engine.connection cimport ClientConnection
from proxy.engine.resp cimport argument_t
from proxy.engine.router cimport Router

ctypedef enum verdict:
    # The request is done with, or under way.
    VERDICT_TAKEN
    # It stays at the front of the input until the session is woken.
    VERDICT_WAIT


cdef class Session(ClientConnection):
    """One client's session."""

    cdef:
        Router router
        int64_t cleared
        int lane
        size_t most_request
        # Set until the client has given the password: every command goes to the slow path.
        public bint gated
        public int database
        public int protocol
        readonly object id
        # proxy.slowpath.connection.ClientInfo, made when first asked for.
        public object info
        public object last_command

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
    cdef void protocol_error(self, const char* text) noexcept
