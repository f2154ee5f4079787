"""The transactions of simple commands, between MULTI and EXEC.

Most transactions have commands whose keys stand at fixed places, and these keys share a slot at rest. They are queued
here as they came, and EXEC sends them in one piece. What is not as simple as that is handed over to plain Python with
all that is queued (:mod:`proxy.commands.transactions.transactions`), which decides about it and goes on: another
command, a mistake, a slot that is not at rest. So no rule has its place here alone. With a watch, EXEC
goes over the connection that watches (:mod:`proxy.engine.watches`).

**bounded**: a transaction that may be too large is handed over, too; plain Python knows the limit. So is one with many
commands: to hand it over takes a step of the event loop in which nobody else is served.
"""

from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from proxy.engine.backend cimport Backend
from proxy.engine.buffer cimport buffer_append, buffer_free, buffer_length
from proxy.engine.decisions cimport decide
from proxy.engine.prefixing cimport with_prefix
from proxy.engine.records cimport REQUEST_PLAIN, keep_key, multi_t, request_t
from proxy.engine.router cimport ROUTE_OPEN, Router, route_t
from proxy.engine.session cimport Session
from proxy.engine.statistics cimport UNCOUNTED
from proxy.engine.verdicts cimport VERDICT_FAILED, VERDICT_HELD, VERDICT_TAKEN, verdict
from proxy.engine.watches cimport Watch, may_run, run_watched
from slots.requests.commandlookup cimport PATH_EXEC, PATH_SPLIT, command_t
from slots.requests.parsing cimport (
    LONGEST_BULK,
    MAXIMUM_ARGUMENTS,
    PARSE_COMPLETE,
    argument_t,
    free_parse,
    parse_request,
    request_parse_t,
)

from proxy.engine.framing import EXEC, MULTI
from proxy.engine.refusals import OUT_OF_MEMORY

COMMAND_COST = 160
"""Bytes for keeping a command, beyond its own: its replies have to be waited for and counted."""
KEY_COST = 128

cdef enum:
    # CACHED of proxy.engine.outcomes.
    CACHED_BIT = 64
    NO_SLOT = -1
    # COMMAND_COST and KEY_COST.
    OF_COMMAND = 160
    OF_KEY = 128
    # The most commands of a transaction here; to hand over so many takes about a millisecond.
    MOST_QUEUED = 256

cdef const char* BEGIN = MULTI
cdef const char* END = EXEC
cdef size_t BEGIN_SIZE = len(MULTI)
cdef size_t END_SIZE = len(EXEC)


cdef bint begin_multi(Session session) except -1:
    """Answer MULTI; false if plain Python has to."""
    cdef multi_t* multi
    if session.multi != NULL:
        return False
    multi = <multi_t*> calloc(1, sizeof(multi_t))
    if multi == NULL:
        return False
    multi.slot = NO_SLOT
    multi.ruling = session.router.ruling
    if session.watch is not None:
        multi.slot = (<Watch> session.watch).slot
    session.multi = multi
    session.reply(b"+OK\r\n", 5)
    return True


cdef verdict within_multi(
    Session session,
    const command_t* row,
    const argument_t* arguments,
    int count,
    const char* data,
    size_t size,
) except VERDICT_FAILED:
    """Decide on a request between MULTI and EXEC."""
    if session.prefix is not None and not session.has_real:
        return with_prefix(session, row, arguments, count, data, size)
    if (
        row != NULL
        and row.path == PATH_EXEC
        and count == 1
        and (not session.limited or session.rights.passes(row.number, row, arguments, count))
        and is_at_rest(session)
    ):
        if session.watch is None:
            return run(session)
        if may_run(session):
            return run_watched(session)
    if (
        row != NULL
        and row.queueable
        and not session.attention & ~CACHED_BIT
        and (not session.limited or session.rights.passes(row.number, row, arguments, count))
        and keep(session, row, arguments, count, data, size)
    ):
        session.reply(b"+QUEUED\r\n", 9)
        return VERDICT_TAKEN
    hand_over(session)
    return decide(session, arguments, count, data, size)


cdef bint keep(
    Session session, const command_t* row, const argument_t* arguments, int count, const char* data, size_t size
) noexcept:
    """Queue a request; false if plain Python has to look at it."""
    cdef Router router = session.router
    cdef multi_t* multi = session.multi
    cdef int last = row.last if row.last >= 0 else count + row.last
    cdef int index
    cdef int32_t slot = multi.slot
    cdef int32_t of_key
    cdef size_t total = multi.size + size + OF_COMMAND
    if multi.count >= MOST_QUEUED or multi.ruling != router.ruling:
        return False
    if (count != row.arity if row.arity >= 0 else count < -row.arity) or row.first >= count:
        return False
    if row.path == PATH_SPLIT and (count - 1) % row.step:
        return False
    if last >= count:
        last = count - 1
    index = row.first
    while index < last + 1:
        of_key = router.slot_of(session.database, arguments[index].data, arguments[index].size)
        if slot == NO_SLOT:
            slot = of_key
        elif of_key != slot:
            return False
        total += arguments[index].size + OF_KEY
        index += row.step
    # Keys of the proxy's own have no slot.
    if slot >= router.number_of_slots or total > session.most_request:
        return False
    if not multi.count:
        multi.key = arguments[row.first].data - data
        multi.key_size = arguments[row.first].size
    if not buffer_append(&multi.requests, data, size):
        return False
    session.loop.hot_keys.note(session.database, slot, arguments[row.first].data, arguments[row.first].size)
    multi.slot = slot
    multi.size = total
    multi.count += 1
    session.count_elsewhere(total)
    return True


cdef bint is_at_rest(Session session) noexcept:
    """Whether the transaction can be sent as it is."""
    cdef multi_t* multi = session.multi
    cdef route_t* route
    # Under other rules its keys may have other slots.
    if not multi.count or session.attention & ~CACHED_BIT or multi.ruling != session.router.ruling:
        return False
    route = &session.router.routes[multi.slot]
    return route.state == ROUTE_OPEN and route.server >= 0


cdef verdict run(Session session) except VERDICT_FAILED:
    """Send the transaction in one piece. The reply to EXEC is the session's.

    drained, absent-first: its slot is at rest in this step.
    """
    cdef Router router = session.router
    cdef multi_t* multi = session.multi
    cdef size_t size = buffer_length(&multi.requests)
    cdef int32_t slot = multi.slot
    cdef int before = multi.count + 1
    cdef int index
    cdef request_t* request
    cdef Backend backend = router.backend(
        router.routes[slot].server, session.database, session.protocol, session.connection_number
    )
    if session.sheddable and session.gives_way_at(backend):
        end_multi(session)
        return session.shed(backend)
    if session.has_to_wait(backend, size):
        return VERDICT_HELD
    if not backend.ready_to_take():
        end_multi(session)
        return session.refuse(backend.refusal(slot))
    if not session.loop.have_requests(before + 1) or not has_room_for(backend, size):
        end_multi(session)
        return session.refuse_or_reply(OUT_OF_MEMORY)
    size = append_transaction(backend, multi.requests.data + multi.requests.start, size)
    for index in range(before + 1):
        request = session.loop.new_request(REQUEST_PLAIN, session.asker() if index == before else NULL, slot)
        if index != before:
            request.command = UNCOUNTED
        backend.queue(request, size if index == before else 0)
        if index == before:
            keep_key(request, multi.requests.data + multi.requests.start + multi.key, multi.key_size)
    end_multi(session)
    if backend.congested(False):
        session.hold_back(backend)
    return VERDICT_TAKEN


cdef bint has_room_for(Backend backend, size_t size) noexcept:
    """Whether a transaction of ``size`` bytes can be appended to a backend's output; the room is kept for it."""
    return backend.reserve(BEGIN_SIZE + size + END_SIZE)


cdef size_t append_transaction(Backend backend, const char* requests, size_t size) noexcept:
    """MULTI, the requests and EXEC, where there is room for them; the bytes of all."""
    buffer_append(&backend.out, BEGIN, BEGIN_SIZE)
    buffer_append(&backend.out, requests, size)
    buffer_append(&backend.out, END, END_SIZE)
    return BEGIN_SIZE + size + END_SIZE


cdef void end_multi(Session session) noexcept:
    """Keep nothing of the transaction any more."""
    free_multi(session.multi)
    session.multi = NULL
    session.count_elsewhere(0)


cdef object hand_over(Session session):
    """Have plain Python go on with the transaction."""
    cdef multi_t* multi = session.multi
    cdef request_parse_t parse
    cdef size_t position = multi.requests.start
    cdef int index
    requests = []
    memset(&parse, 0, sizeof(parse))
    try:
        while position < multi.requests.end and parse_request(
            &parse,
            multi.requests.data + position,
            multi.requests.end - position,
            LONGEST_BULK,
            MAXIMUM_ARGUMENTS,
        ) == PARSE_COMPLETE:
            requests.append([parse.arguments[index].data[:parse.arguments[index].size] for index in range(parse.count)])
            position += parse.size
    finally:
        free_parse(&parse)
    end_multi(session)
    session.router.slow_path.take_transaction(session, requests)


cdef void free_multi(multi_t* multi) noexcept:
    if multi != NULL:
        buffer_free(&multi.requests)
        free(multi)
