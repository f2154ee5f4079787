"""What becomes of a session's requests while its user asks for more than its limits."""

from proxy.engine.session cimport Session


cdef Py_ssize_t look_at_limits(Session session, const char* data, size_t size) except -2
