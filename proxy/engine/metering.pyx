"""What becomes of a session's requests while its user asks for more than its limits.

A request that finds no token waits at the front of its session's input, and nothing more is read from that client
(**bounded**). The meter gives each session of the user its turn. Or the request is refused at once.

What belongs to a transaction, from MULTI to EXEC, is never refused by itself: the rest would run without it. It waits,
and if that takes too long, the connection is closed.

The first login of a connection never waits and is never refused: it is for another user, as a rule, and all connections
begin as ``default``. Later ones are requests as others, also behind one that failed.
"""

from libc.stdint cimport int16_t
from libc.string cimport memcmp

from proxy.engine.connection cimport FOR_TURN
from proxy.engine.meter cimport Meter
from proxy.engine.session cimport Session
from slots.requests.commandlookup cimport PATH_MULTI, command_t
from slots.requests.parsing cimport (
    LONGEST_BULK,
    MAXIMUM_ARGUMENTS,
    PARSE_COMPLETE,
    PARSE_INLINE,
    parse_request,
    parse_status,
    request_parse_t,
)

cdef enum:
    # IN_TRANSACTION of proxy.engine.outcomes.
    IN_TRANSACTION_BIT = 2
    WAITS = -1
    PASSES = 0
    # HELLO 3 AUTH user password.
    LEAST_OF_LOGIN = 5


cdef Py_ssize_t look_at_limits(Session session, const char* data, size_t size) except -2:
    """Take a token for the request at the front of ``data``: PASSES, or WAITS, or the size of a request that was
    refused."""
    cdef Meter meter = session.meter
    cdef request_parse_t* parse = &session.router.parse
    cdef bint has_turn = meter.turn is session
    cdef bint expired = meter.expired is session
    cdef const command_t* row = NULL
    cdef parse_status status
    cdef bint whole
    if session.paid == session.taken:
        # It has had to wait for something else since.
        return PASSES
    if (has_turn or not meter.waiting) and not expired and meter.takes():
        # The next one of this session comes behind those of others.
        meter.turn = None
        session.paid = session.taken
        if has_turn:
            # Its time begins now: what it has waited for says nothing of the proxy or a server.
            session.waits_since = 0
        return PASSES
    status = parse_request(parse, data, size, LONGEST_BULK, MAXIMUM_ARGUMENTS)
    if status == PARSE_COMPLETE and parse.count:
        row = session.router.commands.find(parse.arguments[0].data, parse.arguments[0].size)
    elif status != PARSE_INLINE:
        # It is no whole request.
        return PASSES
    if not session.had_login and (
        is_login(row, parse) if row != NULL else data[:parse.size].lstrip()[:5].upper() == b"AUTH "
    ):
        # Whatever becomes of it.
        session.had_login = True
        session.paid = session.taken
        return PASSES
    session.count_taken()
    session.last_number = row.number if row != NULL else 0
    session.loop.command = session.last_number
    session.front_size = parse.size
    whole = (
        session.multi != NULL
        or session.attention & IN_TRANSACTION_BIT
        or (row.path == PATH_MULTI if row != NULL else data[: parse.size].strip().upper() == b"MULTI")
    )
    if not expired and (whole or not meter.refuses):
        session.loop.since = session.waits_since if session.waits_since else session.loop.ticks
        session.has_to_be_looked_at_again()
        session.reasons |= FOR_TURN
        meter.line.append((session, session.waits_since))
        meter.waiting += 1
        meter.delayed += 1
        return WAITS
    session.loop.since = session.loop.ticks
    meter.refused += 1
    meter.give_back(parse.size + (0 if session.muted else len(meter.refusal)))
    session.refuse(meter.refusal)
    session.leave_front()
    session.uncounted_bytes += parse.size
    if whole:
        session._finish()
    return parse.size


cdef bint is_login(const command_t* row, const request_parse_t* parse) noexcept:
    """Whether a request is AUTH, or HELLO that may have a user and a password."""
    if row.length == 4:
        return memcmp(row.name, b"AUTH", 4) == 0
    return row.length == 5 and memcmp(row.name, b"HELLO", 5) == 0 and parse.count >= LEAST_OF_LOGIN
