"""Requests of a user with a prefix: each is written anew, with its real keys, before anything else looks at it.

The request itself stays in the session's input until it is done, as the client sent it. If it has to wait, it is written
anew each time it is looked at. What the user may do is checked behind that, on the real keys: a user with a prefix has no
right to keys without it (:class:`proxy.rights.Rights`). So a key that was missed here leads to an error, and never to
another user's key.
"""

from libc.stdlib cimport free, malloc
from libc.string cimport memset

from proxy.engine.buffer cimport buffer_append, buffer_free, buffer_length, buffer_t
from proxy.engine.dispatch cimport dispatch
from proxy.engine.prefix cimport Prefix
from proxy.engine.router cimport Router
from proxy.engine.session cimport Session
from proxy.engine.verdicts cimport VERDICT_FAILED, VERDICT_NOTHING, verdict
from slots.requests.commandlookup cimport (
    PATH_CHANNEL,
    PATH_CONTAINER,
    PATH_COUNTED,
    PATH_EXEC,
    PATH_KEYED,
    PATH_MULTI,
    PATH_PING,
    PATH_POP,
    PATH_SPLIT,
    PATH_STREAMS,
    CommandLookup,
    command_t,
)
from slots.requests.keyplaces cimport find_keys
from slots.requests.parsing cimport (
    LONGEST_BULK,
    MAXIMUM_ARGUMENTS,
    PARSE_COMPLETE,
    argument_t,
    free_parse,
    parse_request,
    request_parse_t,
)

from proxy.engine.backend import command as make_request
from proxy.engine.refusals import OUT_OF_MEMORY

cdef enum:
    # Plain Python knows where the keys are.
    UNKNOWN = -1
    # An empty buffer larger than this gives its memory back.
    KEPT_BYTES = 4096


cdef verdict with_prefix(
    Session session, const command_t* row, const argument_t* arguments, int count, const char* data, size_t size
) except VERDICT_FAILED:
    """Decide on the request at the front, with the prefix before its keys."""
    cdef Router router = session.router
    cdef buffer_t* real = &session.real
    cdef argument_t* keys = router.key_room(count)
    cdef int found = UNKNOWN
    if keys == NULL:
        return session.refuse_or_reply(OUT_OF_MEMORY)
    if row != NULL:
        found = places(row, arguments, count, keys)
    real.start = real.end = 0
    if not (
        append_changed(session.prefix, arguments, count, real)
        if found == UNKNOWN
        else session.prefix.put(data, size, keys, found, real)
    ):
        return session.refuse_or_reply(OUT_OF_MEMORY)
    size = buffer_length(real)
    if (
        size > session.most_request
        or parse_request(&router.parse, real.data, size, LONGEST_BULK, MAXIMUM_ARGUMENTS) != PARSE_COMPLETE
    ):
        session.protocol_error(b"request is larger than the proxy's limit, with the prefix of its keys")
        return VERDICT_NOTHING
    session.has_real = True
    try:
        return dispatch(session, router.parse.arguments, router.parse.count, real.data, size)
    finally:
        session.has_real = False
        if real.size > KEPT_BYTES:
            buffer_free(real)


cdef bint append_changed(Prefix prefix, const argument_t* arguments, int count, buffer_t* real) except -1:
    """Append a request as plain Python changes it."""
    cdef int index
    cdef bytes request = make_request(
        tuple(prefix.changed([arguments[index].data[: arguments[index].size] for index in range(count)]))
    )
    return buffer_append(real, request, len(request))


cdef int places(const command_t* row, const argument_t* arguments, int count, argument_t* keys) noexcept:
    """Copy the places of a request's keys, or of its channel, to ``keys``; their number, or UNKNOWN."""
    cdef int last
    cdef int index
    cdef int found = 0
    if row.path == PATH_KEYED or row.path == PATH_SPLIT:
        last = row.last if row.last >= 0 else count + row.last
        if last >= count:
            last = count - 1
        index = row.first
        while index <= last:
            keys[found] = arguments[index]
            found += 1
            index += row.step
        return found
    if row.path == PATH_COUNTED or row.path == PATH_STREAMS or row.path == PATH_POP:
        if count >= -row.arity:
            found = find_keys(row, arguments, count, keys)
        return found if found else UNKNOWN
    if row.path == PATH_CHANNEL and count == row.arity:
        keys[0] = arguments[1]
        return 1
    if row.path == PATH_PING or row.path == PATH_MULTI or row.path == PATH_EXEC:
        return 0
    return UNKNOWN


def real_request(CommandLookup lookup, Prefix prefix, bytes data not None):
    """A request, whose bytes are ``data``, with the prefix before its keys, for tests; None where plain Python puts it
    there."""
    cdef request_parse_t parse
    cdef const command_t* row
    cdef const command_t* within
    cdef argument_t* keys = NULL
    cdef buffer_t real
    cdef int found = UNKNOWN
    memset(&parse, 0, sizeof(parse))
    memset(&real, 0, sizeof(real))
    try:
        if parse_request(&parse, data, len(data), LONGEST_BULK, MAXIMUM_ARGUMENTS) != PARSE_COMPLETE:
            raise ValueError("not a request")
        row = lookup.find(parse.arguments[0].data, parse.arguments[0].size)
        if row != NULL and row.path == PATH_CONTAINER and parse.count > 1:
            within = lookup.find_within(row, parse.arguments[1].data, parse.arguments[1].size)
            row = within if within != NULL else row
        keys = <argument_t*> malloc(sizeof(argument_t) * parse.count)
        if keys == NULL:
            raise MemoryError
        if row != NULL:
            found = places(row, parse.arguments, parse.count, keys)
        if found == UNKNOWN:
            return None
        if not prefix.put(data, len(data), keys, found, &real):
            raise MemoryError
        return real.data[: buffer_length(&real)]
    finally:
        free_parse(&parse)
        free(keys)
        buffer_free(&real)
