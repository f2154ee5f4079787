"""Carries out the decisions of plain Python on requests."""

from proxy.engine.session cimport Session
from proxy.engine.verdicts cimport VERDICT_FAILED, verdict
from slots.requests.parsing cimport argument_t

cdef verdict decide(
    Session session, const argument_t* arguments, int count, const char* data, size_t size
) except VERDICT_FAILED
cdef verdict begin_with(
    Session session, object handler, tuple arguments, const char* data, size_t size
) except VERDICT_FAILED
cdef verdict carry_out(Session session, object outcome, const char* data, size_t size) except VERDICT_FAILED
