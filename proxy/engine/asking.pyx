"""What the engine itself asks a server about the request at the front, whose session waits for the answer.

The session goes on once all replies of the turn are given out, as a handler does. **in-order**: nothing behind the
request is looked at before it has its reply.
"""

from types import CoroutineType

from cpython.ref cimport Py_INCREF

from proxy.engine.backend cimport Backend
from proxy.engine.connection cimport FOR_ELEMENT, FOR_SERVER
from proxy.engine.front cimport finish_front, read_front
from proxy.engine.handlers cimport WAITS, begin
from proxy.engine.records cimport REQUEST_CALL, REQUEST_PLAIN, request_t
from proxy.engine.session cimport Session
from proxy.engine.statistics cimport UNCOUNTED

from proxy.engine.outcomes import ASKED


cdef class ServerQuestion:
    """A question to a server, and its reply once that has come.

    Args:
        session: it waits, and has not been told to go on before the reply comes.
    """

    def __cinit__(self, Session session):
        self.session = session

    def __call__(self, bytes reply):
        """The reply has come; the client may have left."""
        try:
            self.note(reply)
        finally:
            self.reply = reply
            self.session.question = self
            self.session.reply_came()

    cdef object note(self, bytes reply):
        """Keep account of the reply, also for a client that has left."""

    cdef object go_on(self):
        """Decide about the request at the front, whose session is open."""
        raise TypeError("a question that nobody asks")


cdef void ask(ServerQuestion question, Backend backend, int before, int slot, size_t size) noexcept:
    """Queue a question whose ``size`` bytes are in the backend's output; ``before`` replies are dropped.

    The backend takes requests, and there are records for all of them. drained: they count for ``slot``, unless it is
    -1.
    """
    cdef Session session = question.session
    cdef request_t* request
    cdef int index
    for index in range(before):
        request = session.loop.new_request(REQUEST_PLAIN, NULL, slot)
        request.command = UNCOUNTED
        backend.queue(request, 0)
    request = session.loop.new_request(REQUEST_CALL, NULL, slot)
    Py_INCREF(question)
    request.extra = <void*> question
    backend.queue(request, size)
    # While it stays the same, the session waits for the same.
    session.stage += 1
    session.reasons |= FOR_SERVER
    session.watch_leaving()


cdef void answered(Session session) noexcept:
    """The reply has come: go on."""
    cdef ServerQuestion question = <ServerQuestion> session.question
    session.question = None
    session.reasons &= ~(FOR_SERVER | FOR_ELEMENT)
    session.leaving_watched = False
    if session.closed:
        return
    session.loop.set_clock()
    try:
        question.go_on()
    except Exception as error:
        session.loop.event_loop.call_exception_handler({"message": "serving a client", "exception": error})
        session.close()


cdef object let_python_decide(Session session):
    """Have plain Python decide about the request at the front after all, unless its client has left."""
    if session.gives_up():
        return
    arguments, data = read_front(session)
    do_what_it_decides(session, session.router.slow_path.handle(session, arguments), len(data))


cdef object do_what_it_decides(Session session, outcome, size_t size):
    """Do what plain Python has decided about the request at the front, of ``size`` bytes."""
    session.loop.decisions += 1
    if type(outcome) is CoroutineType:
        outcome = begin(session, outcome, size)
    if outcome is ASKED:
        session.stage += 1
        session.reasons |= FOR_SERVER | FOR_ELEMENT
        session.watch_leaving()
    elif outcome is not WAITS:
        finish_front(session, outcome)
