"""Which of the connections to a server a session uses: large replies go another way, so that small ones need not wait
behind them.

in-order: it changes only while nothing is owed, so no request is taken until then.
"""

from libc.stdint cimport int64_t

from proxy.engine.connection cimport SWITCHED
from proxy.engine.records cimport client_t
from proxy.engine.session cimport Session

cdef enum:
    # With replies of so many bytes on average, they use a connection of their own; with less than half of it, no more.
    LARGE_REPLY = 4096
    # The number of replies after which older ones count less.
    FORGOTTEN_REPLIES = 1024


cdef inline bint on_wrong_connection(Session session) noexcept:
    """Whether replies have become large, or small again, so that the session should use other connections."""
    cdef int64_t bound = LARGE_REPLY if session.connection_number == session.usual_number else LARGE_REPLY // 2
    cdef bint large = session.client.reply_bytes > bound * (session.client.replies + 1)
    return large != (session.connection_number != session.usual_number)


cdef inline void choose_connection(Session session) noexcept:
    """Use the other connections, or have what is owed come first."""
    if session.client.owed:
        session.before_next |= SWITCHED
    elif session.connection_number == session.usual_number:
        session.connection_number += session.router.connections_each
    else:
        session.connection_number = session.usual_number


cdef inline void forget_older(client_t* client) noexcept:
    """Have older replies count less than those to come."""
    if client.replies > FORGOTTEN_REPLIES:
        client.replies //= 2
        client.reply_bytes //= 2
