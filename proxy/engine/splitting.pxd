"""Splits a multi-key request into parts for the servers of its keys."""

from proxy.engine.backend cimport Backend
from proxy.engine.commandlookup cimport command_t
from proxy.engine.records cimport client_t
from proxy.engine.resp cimport argument_t
from proxy.engine.router cimport Router

# The destination of a session's requests; it is the same for all parts of one request.
ctypedef struct connection_kind_t:
    int database
    int protocol
    int number

cdef Backend send_in_parts(
    Router router,
    client_t* client,
    connection_kind_t kind,
    const command_t* row,
    const argument_t* arguments,
    int count,
    const char* data,
    size_t size,
)
