"""The request at the front of a session's input, once it has had to wait: what it is, and its end.

Nothing of it is kept beside the input: whoever needs it reads it there again. Its end takes its bytes off the input in
the step that gives its outcome, and only then does the session take the next one (**in-order**).
"""

from proxy.engine.buffer cimport buffer_consume, buffer_length
from proxy.engine.connection cimport FOR_FRONT
from proxy.engine.decisions cimport carry_out
from proxy.engine.router cimport Router
from proxy.engine.session cimport Session
from proxy.engine.tracking cimport has_waited
from slots.requests.parsing cimport (
    LONGEST_BULK,
    MAXIMUM_ARGUMENTS,
    PARSE_COMPLETE,
    PARSE_INLINE,
    parse_request,
    parse_status,
)

from proxy.engine.backend import command as make_request
from proxy.engine.inline import split_inline
from proxy.engine.outcomes import NO_REPLY, Clear, Last, Later, Unit

cdef enum:
    # TRACKED of proxy.engine.outcomes.
    TRACKED_BIT = 32


cdef object read_front(Session session):
    """The arguments and the bytes of the request at the front, with its real keys; None if there is none. If its
    handler waits for the way of another request, those of that one."""
    cdef int index
    cdef parse_status status
    cdef Router router = session.router
    if session.closed or not session.reasons & FOR_FRONT:
        return None
    if isinstance(session.awaited, Clear) and session.awaited.reads is not None:
        return list(session.awaited.reads), make_request(tuple(session.awaited.reads))
    status = parse_front(session)
    if status == PARSE_INLINE:
        argv = split_inline(session.inbox.data[session.inbox.start:session.inbox.start + router.parse.size])
        if session.prefix is not None:
            argv = session.prefix.changed(argv)
        return argv, make_request(tuple(argv))
    if status != PARSE_COMPLETE:
        return None
    arguments = [
        router.parse.arguments[index].data[:router.parse.arguments[index].size]
        for index in range(router.parse.count)
    ]
    if session.prefix is not None:
        arguments = session.prefix.changed(arguments)
        return arguments, make_request(tuple(arguments))
    return arguments, session.inbox.data[session.inbox.start:session.inbox.start + router.parse.size]


cdef object finish_front(Session session, outcome):
    """Give the outcome of the request at the front, which has waited: a reply, the last one, a later one, a unit, or
    NO_REPLY. Then go on with the next one."""
    cdef bint left
    cdef size_t size
    if session.closed or not session.reasons & FOR_FRONT:
        return
    if not (isinstance(outcome, (bytes, Unit, Last, Later)) or outcome is NO_REPLY):
        raise TypeError(f"a handler that has waited decided {outcome!r}")
    session.loop.set_clock()
    session.loop.command = session.waiting_command
    session.loop.since = session.waits_since if session.waits_since else session.loop.ticks
    carry_out(session, outcome, NULL, 0)
    if session.attention & TRACKED_BIT:
        has_waited(session)
    size = size_of_front(session)
    if size:
        buffer_consume(&session.inbox, size, 0)
        session.count_inbox()
    left = session.left_meanwhile()
    session.advance(size)
    session.reasons &= ~FOR_FRONT
    if left:
        # The requests behind it have waited as long.
        session._finish()
    else:
        session._resume()


cdef size_t size_of_front(Session session) noexcept:
    """The bytes of the request at the front, which has waited; 0 if there is none."""
    cdef parse_status status = parse_front(session)
    return session.router.parse.size if status == PARSE_COMPLETE or status == PARSE_INLINE else 0


cdef parse_status parse_front(Session session) noexcept:
    """Parse the request at the front: its arguments are in the router's parse, until another is parsed."""
    return parse_request(
        &session.router.parse,
        session.inbox.data + session.inbox.start,
        buffer_length(&session.inbox),
        LONGEST_BULK,
        MAXIMUM_ARGUMENTS,
    )
