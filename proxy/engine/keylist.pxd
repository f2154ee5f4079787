"""What the keys of a slot at a server are to who lists them."""

cdef enum:
    # The slot is not there.
    KEYS_HIDDEN
    KEYS_HERE
    # On their way to another server, or from it: a key may be listed by both.
    KEYS_HERE_OR_THERE
