"""Decides on one request."""

from libc.stdint cimport int32_t

from proxy.engine.backend cimport Backend
from proxy.engine.session cimport Session
from proxy.engine.verdicts cimport VERDICT_FAILED, verdict
from slots.requests.parsing cimport argument_t


cdef argument_t NO_KEY

cdef verdict dispatch(
    Session session, const argument_t* arguments, int count, const char* data, size_t size
) except VERDICT_FAILED
cdef verdict route(
    Session session, const argument_t* keys, int count, const char* data, size_t size, bint reads, bint apart
) except VERDICT_FAILED
cdef verdict publish(
    Session session, const argument_t* channel, const char* data, size_t size
) except VERDICT_FAILED
cdef verdict forward(
    Session session, Backend backend, const argument_t* key, int32_t slot, const char* data, size_t size
) except VERDICT_FAILED
