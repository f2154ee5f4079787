"""Splits a multi-key request into parts for the servers of its keys."""

from proxy.engine.commandlookup cimport command_t
from proxy.engine.resp cimport argument_t
from proxy.engine.session cimport VERDICT_FAILED, Session, verdict


cdef verdict split(
    Session session, const command_t* row, const argument_t* arguments, int count, const char* data, size_t size
) except VERDICT_FAILED
