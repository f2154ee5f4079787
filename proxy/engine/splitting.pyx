"""Splits a multi-key request into parts for the servers of its keys.

MGET, MSET, DEL and similar commands become one request a server. Each part is counted for the slots of its keys until
the last part is answered (**drained**). A place in the client's queue is kept for the whole reply (**in-order**).
:class:`proxy.engine.requests.Loop` makes one reply of the parts' replies.
"""

from libc.stdint cimport int32_t
from libc.stdio cimport snprintf
from libc.string cimport strlen

from proxy.engine.backend cimport Backend
from proxy.engine.buffer cimport buffer_append, buffer_length
from proxy.engine.clearing cimport clear_keys
from proxy.engine.decisions cimport decide
from proxy.engine.dispatch cimport forward
from proxy.engine.records cimport REQUEST_PART, client_t, keep_key, keep_size, request_t, split_t
from proxy.engine.requests cimport Loop
from proxy.engine.router cimport ROUTE_LOCKED, ROUTE_OFFLINE, ROUTE_OPEN, Router
from proxy.engine.session cimport Session
from proxy.engine.verdicts cimport VERDICT_FAILED, VERDICT_HELD, VERDICT_TAKEN, VERDICT_WAIT, verdict
from slots.requests.commandlookup cimport command_t, split_kind
from slots.requests.parsing cimport argument_t

cdef const char* OUT_OF_MEMORY = b"-ERR the proxy is out of memory for this request\r\n"


cdef int32_t assign_parts(
    Router router, int database, split_t* split, const argument_t* arguments, int step
) noexcept:
    """Give each key the part of its server; return the number of parts."""
    cdef int32_t* part_of_server = router.part_of_server
    cdef int32_t parts = 0
    cdef int32_t slot
    cdef int32_t server
    cdef int key
    for key in range(split.keys):
        slot = router.slot_of(database, arguments[1 + key * step].data, arguments[1 + key * step].size)
        server = router.routes[slot].server
        if part_of_server[server] < 0:
            part_of_server[server] = parts
            parts += 1
        split.key_part[key] = part_of_server[server]
        split.key_slot[key] = slot
    for key in range(split.keys):
        # The array is left as it was found: -1 for every server.
        part_of_server[router.routes[split.key_slot[key]].server] = -1
    return parts


cdef void free_requests(Loop loop, request_t* first) noexcept:
    cdef request_t* following
    while first != NULL:
        following = first.next_at_backend
        loop.free_request(first)
        first = following


cdef request_t* take_requests(Loop loop, int32_t parts) noexcept:
    """So many linked requests, so that no part has to be given up half way; NULL without memory."""
    cdef request_t* first = NULL
    cdef request_t* request
    cdef int32_t part
    for part in range(parts):
        request = loop.new_request(REQUEST_PART, NULL, -1)
        if request == NULL:
            free_requests(loop, first)
            return NULL
        request.next_at_backend = first
        first = request
    return first


cdef size_t write_part(
    Backend backend, const split_t* split, int32_t part, int keys, const command_t* row, const argument_t* arguments
) noexcept:
    """Append one part's request to its backend's output, which has room for it; give its size."""
    cdef char header[64]
    cdef int step = row.step
    cdef int key
    cdef int index
    cdef size_t before = buffer_length(&backend.out)
    cdef int size = snprintf(
        header, sizeof(header), b"*%d\r\n$%d\r\n%.*s\r\n", 1 + keys * step, <int> row.length, <int> row.length, row.name
    )
    buffer_append(&backend.out, header, size)
    for key in range(split.keys):
        if split.key_part[key] != part:
            continue
        for index in range(1 + key * step, 1 + key * step + step):
            size = snprintf(header, sizeof(header), b"$%zu\r\n", arguments[index].size)
            buffer_append(&backend.out, header, size)
            buffer_append(&backend.out, arguments[index].data, arguments[index].size)
            buffer_append(&backend.out, b"\r\n", 2)
    return buffer_length(&backend.out) - before


cdef void count_part(
    Backend backend, const split_t* split, int32_t part, size_t size, int step, const argument_t* arguments
) noexcept:
    """Count the ``size`` bytes of one part for the slots of its keys: the arguments of each key, and what else there is
    for the first one."""
    cdef char header[32]
    cdef int32_t first = -1
    cdef size_t of_key
    cdef int key
    cdef int index
    for key in range(split.keys):
        if split.key_part[key] != part:
            continue
        of_key = 0
        for index in range(1 + key * step, 1 + key * step + step):
            of_key += snprintf(header, sizeof(header), b"$%zu\r\n", arguments[index].size) + arguments[index].size + 2
        if first < 0:
            first = split.key_slot[key]
        backend.slots.count_bytes(split.key_slot[key], of_key)
        size -= of_key
    backend.slots.count_bytes(first, size)


cdef Backend send_in_parts(
    Session session, const command_t* row, const argument_t* arguments, int count, const char* data, size_t size
):
    """Send the keys of one request to their servers. Return a backend whose queue has become too long, or None.

    All slots of the keys have a server and let the request through.
    """
    cdef Router router = session.router
    cdef Loop loop = router.loop
    cdef client_t* client = session.asker()
    cdef int step = row.step
    cdef int keys = (count - 1) // step
    cdef split_t* split = loop.new_split(<split_kind> row.split, keys, router.servers)
    cdef request_t* request = NULL
    cdef request_t* following
    cdef Backend backend
    cdef Backend congested = None
    cdef size_t needed
    cdef int32_t part
    cdef int part_keys
    cdef int key
    cdef int index
    if split != NULL:
        split.parts = split.parts_left = assign_parts(router, session.database, split, arguments, step)
        following = take_requests(loop, split.parts)
        if following != NULL:
            split.place = loop.place(client)
        if split.place == NULL:
            free_requests(loop, following)
            loop.free_split(split)
            split = NULL
    if split == NULL:
        loop.errors += 1
        if client != NULL and not client.muted:
            loop.answer(client, OUT_OF_MEMORY, strlen(OUT_OF_MEMORY))
        return None
    split.place.extra = split
    keep_size(split.place, size)
    keep_key(split.place, arguments[1].data, arguments[1].size)
    split.database = session.database
    for key in range(keys):
        loop.in_flight[split.key_slot[key]] += 1
        loop.hot_keys.note(
            session.database, split.key_slot[key], arguments[1 + key * step].data, arguments[1 + key * step].size
        )
    # The last part's answer frees the split, and an error made here is an answer. So the split is not used after this.
    for part in range(split.parts):
        part_keys = 0
        needed = 64
        backend = None
        for key in range(keys):
            if split.key_part[key] != part:
                continue
            part_keys += 1
            if backend is None:
                backend = router.backend(
                    router.routes[split.key_slot[key]].server,
                    session.database,
                    session.protocol,
                    session.connection_number,
                )
            for index in range(1 + key * step, 1 + key * step + step):
                needed += arguments[index].size + 32
        request = following
        following = request.next_at_backend
        request.next_at_backend = NULL
        request.extra = split
        request.part = part
        if part_keys == keys:
            needed = size
        if not backend.ready_to_take():
            backend.refuse(request)
        elif not backend.reserve(needed):
            loop.deliver(request, OUT_OF_MEMORY, strlen(OUT_OF_MEMORY), None, session.database)
        else:
            if part_keys == keys:
                buffer_append(&backend.out, data, size)
            else:
                needed = write_part(backend, split, part, part_keys, row, arguments)
            count_part(backend, split, part, needed, step, arguments)
            backend.queue(request, needed)
        if backend.congested(client != NULL and client.owed == 1):
            congested = backend
        if following == NULL:
            break
    return congested


cdef verdict split(
    Session session, const command_t* row, const argument_t* arguments, int count, const char* data, size_t size
) except VERDICT_FAILED:
    """Send the keys of a multi-key request to their servers, one request each, and keep a place for the whole
    reply."""
    cdef Router router = session.router
    cdef Loop loop = session.loop
    cdef int step = row.step
    cdef int keys = (count - 1) // step
    cdef int32_t slot
    cdef int32_t first_slot
    cdef bint same_slot = True
    cdef bint all_open = True
    cdef int index
    cdef int32_t looked_at = -1
    cdef Backend congested
    cdef Backend backend
    cdef verdict outcome
    if keys * step != count - 1:
        return decide(session, arguments, count, data, size)
    first_slot = router.slot_of(session.database, arguments[1].data, arguments[1].size)
    index = 1
    while index < count:
        slot = router.slot_of(session.database, arguments[index].data, arguments[index].size)
        same_slot = same_slot and slot == first_slot
        if router.routes[slot].state == ROUTE_OFFLINE or router.routes[slot].server < 0:
            if router.routes[slot].state != ROUTE_LOCKED:
                return session.refuse_offline(slot)
        if router.routes[slot].state != ROUTE_OPEN:
            all_open = False
        index += step
    if not all_open and clear_keys(session, arguments + 1, count - 1, step) == VERDICT_WAIT:
        return VERDICT_WAIT
    if same_slot:
        backend = router.backend(
            router.routes[first_slot].server, session.database, session.protocol, session.connection_number
        )
        outcome = forward(session, backend, arguments + 1, first_slot, data, size)
        # The first key is noted there.
        index = 1 + step
        while outcome == VERDICT_TAKEN and index < count:
            loop.hot_keys.note(session.database, first_slot, arguments[index].data, arguments[index].size)
            index += step
        return outcome
    index = 1
    while index < count:
        slot = router.slot_of(session.database, arguments[index].data, arguments[index].size)
        index += step
        if router.routes[slot].server == looked_at:
            continue
        looked_at = router.routes[slot].server
        backend = router.backend(looked_at, session.database, session.protocol, session.connection_number)
        if session.sheddable and session.gives_way_at(backend):
            return session.shed(backend)
        if (loop.waiting or backend.is_full()) and session.has_to_wait(backend, size):
            return VERDICT_HELD
    congested = send_in_parts(session, row, arguments, count, data, size)
    if congested is not None:
        session.hold_back(congested)
    return VERDICT_TAKEN
