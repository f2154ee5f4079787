"""Requests of a user with a prefix."""

from proxy.engine.session cimport Session
from proxy.engine.verdicts cimport VERDICT_FAILED, verdict
from slots.requests.commandlookup cimport command_t
from slots.requests.parsing cimport argument_t

cdef verdict with_prefix(
    Session session, const command_t* row, const argument_t* arguments, int count, const char* data, size_t size
) except VERDICT_FAILED
