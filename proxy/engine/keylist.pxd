"""How the keys of a slot appear in a server's list of keys."""

cdef enum:
    # The server does not have the slot.
    KEYS_HIDDEN
    KEYS_HERE
    # Keys of the slot move to this server or from it, so two servers may list the same key.
    KEYS_HERE_OR_THERE
