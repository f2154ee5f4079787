"""Reads a server's list of keys (a reply to KEYS or SCAN), without the keys of slots that the server does not own.

A server may list millions. They are read in slices, so that other clients' requests come in between, and they are
copied in runs, unchanged. No Python object is made of a key, unless the caller has to compare it.
"""

from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from proxy.engine.router cimport Router

HIDDEN = KEYS_HIDDEN
HERE = KEYS_HERE
HERE_OR_THERE = KEYS_HERE_OR_THERE

# The most digits of a length; no array or key is as large as the largest such number.
cdef enum:
    MOST_DIGITS = 12


cdef Py_ssize_t read_header(const char* data, Py_ssize_t size, Py_ssize_t* at, char kind) except -1:
    """The number in the line ``kind`` number CR LF at ``at``; ``at`` moves behind the line."""
    cdef Py_ssize_t place = at[0]
    cdef Py_ssize_t number = 0
    cdef int digits = 0
    if place >= size or data[place] != kind:
        raise ValueError("not a list of keys")
    place += 1
    while place < size and c"0" <= data[place] <= c"9" and digits < MOST_DIGITS:
        number = number * 10 + (data[place] - c"0")
        digits += 1
        place += 1
    if not digits or place + 2 > size or data[place] != c"\r" or data[place + 1] != c"\n":
        raise ValueError("not a list of keys")
    at[0] = place + 2
    return number


cdef class KeyList:
    """One array of keys.

    Args:
        router: knows the slots of keys.
        database: which one the keys are in.
        reply: the whole array, at its end.
        shown: a byte for each slot: whether its keys are shown.
        reserved: the prefix of keys that are never shown.
        at: where in ``reply`` the array begins.
        within: the prefix of the keys that are shown, which is taken off.

    Raises:
        ValueError: it is not an array of strings; :meth:`read` raises that, too.
    """

    def __init__(
        self,
        Router router,
        int database,
        bytes reply not None,
        bytes shown not None,
        bytes reserved not None,
        Py_ssize_t at=0,
        bytes within not None=b"",
    ):
        if len(shown) != router.number_of_slots:
            raise ValueError(f"{len(shown)} slots are shown or not; there are {router.number_of_slots}")
        self.router = router
        self.database = database
        self.reply = reply
        self.shown = shown
        self.reserved = reserved
        self.within = within
        self.at = at
        self.left = read_header(<const char*> reply, len(reply), &self.at, c"*")
        self.kept = 0
        self.parts = []
        self.uncertain = []

    cpdef bint read(self, Py_ssize_t most) except -1:
        """Read up to ``most`` more keys; say whether there are others."""
        cdef const char* data = <const char*> self.reply
        cdef const char* reserved = <const char*> self.reserved
        cdef const uint8_t* shown = <const uint8_t*> <const char*> self.shown
        cdef Py_ssize_t size = len(self.reply)
        cdef const char* within = <const char*> self.within
        cdef Py_ssize_t prefix = len(self.reserved)
        cdef Py_ssize_t left_out = len(self.within)
        cdef Py_ssize_t run = self.at
        cdef Py_ssize_t start, length
        cdef uint8_t mark
        while self.left and most:
            start = self.at
            length = read_header(data, size, &self.at, c"$")
            if self.at + length + 2 > size:
                raise ValueError("not a list of keys")
            mark = KEYS_HIDDEN
            if length < prefix or memcmp(data + self.at, reserved, prefix):
                mark = shown[self.router.key_slots.of(self.database, data + self.at, length)]
            if left_out and (length < left_out or memcmp(data + self.at, within, left_out)):
                mark = KEYS_HIDDEN
            if mark == KEYS_HERE:
                self.kept += 1
            if mark != KEYS_HERE or left_out:
                if run < start:
                    self.parts.append(self.reply[run:start])
                if mark == KEYS_HERE_OR_THERE:
                    self.uncertain.append(data[self.at + left_out : self.at + length])
                elif mark == KEYS_HERE:
                    self.parts.append(
                        b"$%d\r\n%b" % (length - left_out, self.reply[self.at + left_out : self.at + length + 2])
                    )
                run = self.at + length + 2
            self.at += length + 2
            self.left -= 1
            most -= 1
        if run < self.at:
            self.parts.append(self.reply[run : self.at])
        return self.left > 0
