"""Requests that are a line: each is written anew as one in RESP, before anything else looks at it.

So all that holds for a request holds for one that is typed by hand. If it has to wait, it stays in the session's input
as the line that came.
"""

from proxy.engine.dispatch cimport dispatch
from proxy.engine.router cimport Router
from proxy.engine.session cimport Session
from proxy.engine.verdicts cimport VERDICT_FAILED, VERDICT_NOTHING, verdict
from slots.requests.parsing cimport LONGEST_BULK, MAXIMUM_ARGUMENTS, PARSE_COMPLETE, parse_request

from proxy.engine.backend import command as make_request
from proxy.engine.inline import is_http, split_inline
from proxy.engine.refusals import NOT_HTTP


cdef verdict inline_request(Session session, const char* line, size_t size) except VERDICT_FAILED:
    """Handle an inline request: split it as Redis does, then dispatch it as if it had come in RESP."""
    cdef bytes request
    cdef Router router = session.router
    session.loop.decisions += 1
    try:
        argv = split_inline(line[:size])
    except ValueError:
        session.protocol_error(b"unbalanced quotes in request")
        return VERDICT_NOTHING
    if not argv:
        return VERDICT_NOTHING
    if is_http(argv):
        request = NOT_HTTP
        session.loop.answer(&session.client, request, len(request))
        session._finish()
        return VERDICT_NOTHING
    request = make_request(tuple(argv))
    if parse_request(&router.parse, request, len(request), LONGEST_BULK, MAXIMUM_ARGUMENTS) != PARSE_COMPLETE:
        session.protocol_error(b"unbalanced quotes in request")
        return VERDICT_NOTHING
    return dispatch(session, router.parse.arguments, router.parse.count, request, len(request))
