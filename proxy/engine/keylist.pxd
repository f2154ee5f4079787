"""Reads a server's list of keys."""

from proxy.engine.router cimport Router

# How the keys of a slot appear in a server's list of keys.
cdef enum:
    # The server does not have the slot.
    KEYS_HIDDEN
    KEYS_HERE
    # Keys of the slot move to this server or from it, so two servers may list the same key.
    KEYS_HERE_OR_THERE


cdef class KeyList:
    """One array of keys."""

    cdef:
        Router router
        int database
        bytes reply
        bytes shown
        bytes reserved
        bytes within
        Py_ssize_t at
        Py_ssize_t left
        readonly Py_ssize_t kept
        readonly list parts
        readonly list uncertain

    cpdef bint read(self, Py_ssize_t most) except -1
