"""Gives one message to many sessions."""

from proxy.engine.session cimport Session


def deliver(sessions, bytes resp2, bytes resp3):
    """Push a message to each of ``sessions``, in the form of its protocol."""
    cdef Session session
    cdef bytes data
    for session in sessions:
        if not session.closed:
            data = resp3 if session.protocol == 3 else resp2
            session.loop.push(&session.client, data, len(data))
