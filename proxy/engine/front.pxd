"""The request at the front of a session's input, once it has had to wait."""

from proxy.engine.session cimport Session


cdef object read_front(Session session)
cdef size_t size_of_front(Session session) noexcept
cdef object finish_front(Session session, object outcome)
