"""Requests that are a line."""

from proxy.engine.session cimport Session
from proxy.engine.verdicts cimport VERDICT_FAILED, verdict


cdef verdict inline_request(Session session, const char* line, size_t size) except VERDICT_FAILED
