"""A connection to a Redis server, up to the end of its greeting."""

from libc.stdint cimport int64_t

from proxy.engine.allowance cimport Allowance
from proxy.engine.poller cimport watch_t
from proxy.engine.requests cimport Loop

ctypedef enum backend_state:
    # No connection; the next request opens one, once the wait after a failure is over.
    BACKEND_DOWN
    # Requests queue up while the connection is made and greeted.
    BACKEND_CONNECTING
    BACKEND_GREETING
    BACKEND_READY
    # Never to be used again.
    BACKEND_CLOSED


cdef class ServerConnection:
    """The connection under a :class:`proxy.engine.backend.Backend`."""

    cdef:
        Loop loop
        readonly object address
        readonly int database
        readonly int protocol
        readonly object name
        object options
        # The time until which the server may be used.
        Allowance allowance
        object host
        object sock
        # The socket, once it is an ssl.SSLSocket.
        object tls
        object resolving
        # The addresses of the server's name that were not yet tried: (family, address) each.
        list candidates
        int fd
        watch_t watch
        backend_state state
        int greetings_left
        # The run id of the process at the other end, once that has given it.
        object process
        list greeting_checks
        double connect_deadline
        # Whether a client's bytes were sent on this connection.
        bint used
        readonly int64_t connects
        # The place of the present connection in the order in which all were opened.
        int64_t opened

    cdef object connect(self)
    cdef object connected(self)
    cdef object shake_hands(self)
    cdef object greet(self)
    cdef object greeting_reply(self, bytes reply)
    cdef object drop_socket(self)
    cdef object introduced(self)
    cdef object became_ready(self)
