"""Questions of the engine itself to a server, about the request at the front."""

from proxy.engine.backend cimport Backend
from proxy.engine.session cimport Session


cdef class ServerQuestion:
    """A question to a server, and its reply once that has come."""

    cdef:
        Session session
        bytes reply

    cdef object note(self, bytes reply)
    cdef object go_on(self)


cdef void ask(ServerQuestion question, Backend backend, int before, int slot, size_t size) noexcept
cdef void answered(Session session) noexcept
cdef object let_python_decide(Session session)
cdef object do_what_it_decides(Session session, outcome, size_t size)
