"""Decides on one request: finds its row and its keys, and sends it to their server, or finds who decides.

A request with keys at rest goes from here to its server's output, without a Python object.
"""

from libc.stdint cimport int16_t, int32_t

from proxy.engine.backend cimport Backend
from proxy.engine.clearing cimport clear_keys
from proxy.engine.decisions cimport decide
from proxy.engine.hotvalues cimport answers
from proxy.engine.multi cimport begin_multi, within_multi
from proxy.engine.pops cimport pop
from proxy.engine.prefixing cimport with_prefix
from proxy.engine.records cimport REQUEST_PLAIN, keep_key, request_t
from proxy.engine.router cimport ROUTE_LOCKED, ROUTE_OPEN, Router, route_t
from proxy.engine.scans cimport scan
from proxy.engine.serverconnection cimport BACKEND_READY
from proxy.engine.session cimport Session
from proxy.engine.splitting cimport split
from proxy.engine.tracking cimport stays_fast
from proxy.engine.verdicts cimport VERDICT_APART, VERDICT_FAILED, VERDICT_HELD, VERDICT_TAKEN, VERDICT_WAIT, verdict
from proxy.engine.watches cimport begin_watch
from slots.requests.commandlookup cimport (
    CODE_DIGEST,
    CODE_NONE,
    CODE_TEXT,
    PATH_CHANNEL,
    PATH_CONTAINER,
    PATH_COUNTED,
    PATH_KEYED,
    PATH_MULTI,
    PATH_PING,
    PATH_POP,
    PATH_SCAN,
    PATH_SPLIT,
    PATH_STREAMS,
    PATH_WATCH,
    command_t,
)
from slots.requests.keyplaces cimport find_keys
from slots.requests.parsing cimport argument_t

from proxy.engine.refusals import OUT_OF_MEMORY, crossslot


cdef enum:
    # TRACKED of proxy.engine.outcomes.
    TRACKED_BIT = 32
    # CACHED of it.
    CACHED_BIT = 64

NO_KEY.data = b""
NO_KEY.size = 0


cdef verdict dispatch(
    Session session, const argument_t* arguments, int count, const char* data, size_t size
) except VERDICT_FAILED:
    """Decide on one request, whose bytes are ``data`` and whose arguments point into them."""
    cdef const command_t* row = session.router.commands.find(arguments[0].data, arguments[0].size)
    cdef const command_t* within
    cdef argument_t* keys
    cdef int last
    cdef int index
    cdef int found = 0
    cdef int16_t number
    cdef verdict outcome
    if row != NULL and row.path == PATH_CONTAINER and count > 1:
        within = session.router.commands.find_within(row, arguments[1].data, arguments[1].size)
        row = within if within != NULL else row
    number = row.number if row != NULL else 0
    if number != session.last_number:
        session.count_taken()
        session.last_number = number
    session.loop.command = number
    session.asks = row == NULL or row.takes_away
    if session.multi != NULL:
        return within_multi(session, row, arguments, count, data, size)
    if row == NULL or session.attention or session.limited:
        if session.prefix is not None and not session.has_real:
            return with_prefix(session, row, arguments, count, data, size)
        if row == NULL or not may_go_on(session, row, arguments, count):
            session.has_written = True
            return decide(session, arguments, count, data, size)
        if session.attention & CACHED_BIT and answers(session, row, arguments, count):
            return VERDICT_TAKEN
    if row.path == PATH_KEYED:
        if count != row.arity if row.arity >= 0 else count < -row.arity:
            return decide(session, arguments, count, data, size)
        last = row.last if row.last >= 0 else count + row.last
        if last <= row.first:
            if row.first >= count:
                return decide(session, arguments, count, data, size)
            return route(session, arguments + row.first, 1, data, size, row.reads, False)
        if last >= count:
            last = count - 1
        keys = session.router.key_room(count)
        if keys == NULL:
            return session.refuse_or_reply(OUT_OF_MEMORY)
        index = row.first
        while index < last + 1:
            keys[found] = arguments[index]
            found += 1
            index += row.step
        outcome = route(session, keys, found, data, size, row.reads, row.apart)
        return outcome if outcome != VERDICT_APART else decide(session, arguments, count, data, size)
    if row.path == PATH_SPLIT:
        if count < -row.arity:
            return decide(session, arguments, count, data, size)
        if count == 1 + row.step:
            return route(session, arguments + 1, 1, data, size, row.reads, False)
        return split(session, row, arguments, count, data, size)
    if row.path == PATH_COUNTED or row.path == PATH_STREAMS or row.path == PATH_POP:
        keys = session.router.key_room(count)
        if keys == NULL:
            return session.refuse_or_reply(OUT_OF_MEMORY)
        if count >= -row.arity:
            found = find_keys(row, arguments, count, keys)
        if found and row.path == PATH_POP:
            return pop(session, keys, found, arguments, count, data, size)
        if found and (row.code == CODE_NONE or finds_code(session, row, arguments, keys)):
            outcome = route(session, keys, found, data, size, False, row.apart)
            return outcome if outcome != VERDICT_APART else decide(session, arguments, count, data, size)
    if row.path == PATH_SCAN and count > 1:
        return scan(session, arguments, count, data, size)
    if row.path == PATH_CHANNEL and count == row.arity and not session.router.counts_receivers:
        return publish(session, arguments + 1, data, size)
    if row.path == PATH_PING and count == 1:
        session.reply(b"+PONG\r\n", 7)
        return VERDICT_TAKEN
    if row.path == PATH_MULTI and count == 1 and begin_multi(session):
        return VERDICT_TAKEN
    if row.path == PATH_WATCH and count > 1:
        return begin_watch(session, arguments, count, data, size)
    return decide(session, arguments, count, data, size)


cdef bint may_go_on(
    Session session, const command_t* row, const argument_t* arguments, int count
) except -1:
    """Whether the engine may decide by itself on a request of a session with attention or with a limited user."""
    cdef int attention = session.attention & ~CACHED_BIT
    if session.limited and not session.rights.passes(row.number, row, arguments, count):
        return False
    return not attention or (attention == TRACKED_BIT and stays_fast(session, row, arguments, count))


cdef bint finds_code(
    Session session, const command_t* row, const argument_t* arguments, const argument_t* key
) noexcept:
    """Whether a script or a function surely finds at its server what it needs.

    absent-first: it may touch keys that it does not name. So plain Python looks at it unless its slot is at rest.
    run-id: what is known of a server holds for a connection that is up; the next one may lead to another process.
    """
    cdef Router router = session.router
    cdef const route_t* there = &router.routes[router.slot_of(session.database, key.data, key.size)]
    cdef Backend backend
    if there.state != ROUTE_OPEN or there.server < 0:
        return False
    if row.code == CODE_TEXT:
        return router.loaded.has_text(&arguments[1])
    backend = router.backend(there.server, session.database, session.protocol, session.connection_number)
    if backend.state != BACKEND_READY:
        return False
    if row.code == CODE_DIGEST:
        return router.loaded.has_script(there.server, &arguments[1])
    return router.loaded.has_libraries(there.server)


cdef verdict route(
    Session session, const argument_t* keys, int count, const char* data, size_t size, bint reads, bint apart
) except VERDICT_FAILED:
    """Send a request unchanged to the server of its keys' slot, or find the reason why it cannot be sent.

    If its keys are of several slots, it is refused, or, with ``apart``, left to the caller.
    """
    cdef Router router = session.router
    cdef int32_t slot = router.slot_of(session.database, keys[0].data, keys[0].size)
    cdef int32_t other
    cdef route_t* there = &router.routes[slot]
    cdef Backend replica
    cdef Backend backend
    cdef int index
    for index in range(1, count):
        other = router.slot_of(session.database, keys[index].data, keys[index].size)
        if other != slot:
            if apart:
                return VERDICT_APART
            return session.refuse_or_reply(
                crossslot(keys[0].data[: keys[0].size], slot, keys[index].data[: keys[index].size], other)
            )
    # A replica may not have a change yet of which a session that tracks was told.
    if (
        reads
        and session.replica_reads
        and there.replica >= 0
        and there.state == ROUTE_OPEN
        and not session.attention & ~CACHED_BIT
    ):
        replica = router.backend(there.replica, session.database, session.protocol, session.connection_number)
        # This makes a replica that is down connect; the master serves the request meanwhile.
        if replica.ready_to_take() and replica.state == BACKEND_READY:
            return forward(session, replica, keys, slot, data, size)
    if there.state != ROUTE_OPEN and clear_keys(session, keys, count, 1) == VERDICT_WAIT:
        return VERDICT_WAIT
    if there.server < 0:
        return session.refuse_offline(slot)
    backend = router.backend(there.server, session.database, session.protocol, session.connection_number)
    return forward(session, backend, keys, slot, data, size)


cdef verdict publish(
    Session session, const argument_t* channel, const char* data, size_t size
) except VERDICT_FAILED:
    """Send a request unchanged to the server of its channel's slot.

    A channel has nothing that could be left at the source of a slot in migration: it only waits while the slot is
    locked (**drained**).
    """
    cdef Router router = session.router
    cdef int32_t slot = router.slot_of_channel(channel.data, channel.size)
    cdef route_t* there = &router.routes[slot]
    cdef Backend backend
    if there.state == ROUTE_LOCKED:
        router.holding.hold(session, slot)
        return VERDICT_WAIT
    if there.server < 0:
        return session.refuse_offline(slot)
    backend = router.backend(there.server, session.database, session.protocol, session.connection_number)
    return forward(session, backend, channel, slot, data, size)


cdef verdict forward(
    Session session, Backend backend, const argument_t* key, int32_t slot, const char* data, size_t size
) except VERDICT_FAILED:
    """Send a request unchanged to a server. ``key``: its first one, or :data:`NO_KEY`."""
    cdef request_t* request
    if session.sheddable and session.gives_way_at(backend):
        return session.shed(backend)
    if (session.loop.waiting or backend.is_full()) and session.has_to_wait(backend, size):
        return VERDICT_HELD
    if slot >= 0:
        # Keys of the proxy's own have no slot, and do not come so far. Nor does a request that waits, which comes again.
        session.loop.hot_keys.note(session.database, slot, key.data, key.size)
    request = session.loop.new_request(REQUEST_PLAIN, session.asker(), slot)
    if request == NULL:
        session.client.broken = b"out of memory"
        session.loop.list_client(&session.client.sender)
        return VERDICT_TAKEN
    keep_key(request, key.data, key.size)
    backend.push(request, data, size)
    if backend.congested(session.client.owed == 1):
        session.hold_back(backend)
    return VERDICT_TAKEN
