"""Passes a long reply on to a client, though plain Python has asked for it.

Replies to plain Python are kept as a whole, up to a limit (**bounded**). But what a request has taken at a server has to
reach the client. So a long reply goes there in parts as it comes, as if the engine had sent the request.
"""

from proxy.engine.records cimport REQUEST_PLAIN, client_t, request_t
from proxy.engine.requestqueue cimport Recipient
from proxy.engine.session cimport Session

from proxy.engine.outcomes import NO_REPLY


cdef class Passing(Recipient):
    """The callback of a request about the one at the front of a session, which is owed nothing.

    Args:
        session: its client is to have the reply.
        number: of the command.
        heard: called once: with the reply, or with NO_REPLY if the client gets it in parts.
    """

    cdef Session session
    cdef int number
    cdef object heard

    def __init__(self, Session session, int number, heard):
        self.session = session
        self.number = number
        self.heard = heard

    def __call__(self, bytes reply):
        """The reply has come."""
        self.heard(reply)

    cdef bint begin(self, request_t* request, const char* data, size_t size) except -1:
        cdef bytes beginning
        cdef Session session = self.session
        cdef client_t* client = &session.client
        if session.closed or session.muted or client.head != NULL:
            return False
        beginning = data[:size]
        if session.prefix is not None:
            beginning = session.prefix.hide(self.number, beginning)
        request.kind = REQUEST_PLAIN
        request.part = 0
        request.command = self.number
        request.user = client.user
        request.client = client
        client.head = client.tail = request
        client.owed += 1
        session.loop.put_reply(client, beginning, len(beginning))
        client.streaming = True
        self.heard(NO_REPLY)
        return True
