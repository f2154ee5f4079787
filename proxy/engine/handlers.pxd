"""Runs the handlers that are coroutines."""

from proxy.engine.session cimport Session

cdef object WAITS

cdef object begin(Session session, object coroutine, size_t size)
cdef void go_on(Session session) noexcept
