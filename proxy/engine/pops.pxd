"""Pops that may wait, as long as there is something to take."""

from proxy.engine.session cimport Session
from proxy.engine.verdicts cimport VERDICT_FAILED, verdict
from slots.requests.parsing cimport argument_t


cdef verdict pop(
    Session session,
    const argument_t* keys,
    int found,
    const argument_t* arguments,
    int count,
    const char* data,
    size_t size,
) except VERDICT_FAILED
