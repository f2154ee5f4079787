"""A batch of the snapshot while keys come into it, of one copy.

**bounded**: see :mod:`migrator.stream.snapshotfilter`, which says what comes in and when it is closed.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memmove

from migrator.stream.output cimport Output, let_go, make_room, put, put_text

from migrator.stream.batches import Batch

cdef enum:
    # More than the bytes of a command before its first key.
    HEAD = 48


cdef class OpenBatch:
    """Commands for one database.

    Args:
        copy: the number of the copy.
        looks: whether they begin with one that deletes the keys, and tells how many were there.
        most_bytes: of the commands.
        most_room: bytes of memory that are kept for the next batch, and to which it doubles.
    """

    def __init__(self, int copy, bint looks, size_t most_bytes, size_t most_room) -> None:
        self._copy = copy
        self._looks = looks
        self._most_bytes = most_bytes
        self._most_room = most_room
        self._deadlines = []
        self._withheld = []

    def __dealloc__(self) -> None:
        let_go(&self.out)
        let_go(&self.names)

    cdef int room(self, size_t size) except -1:
        """Make room for so many bytes of commands."""
        return make_room(&self.out, size, self._most_room)

    cdef int room_for_name(self, size_t size) except -1:
        """Make room for so many bytes of a name."""
        return make_room(&self.names, size, self._most_room)

    cdef bint has_room(self, uint64_t work, uint64_t most_work) noexcept:
        """Whether the commands at its end may count, which are so much work; if not, it has to be closed before
        them."""
        return not self._keys or (self.out.size <= self._most_bytes and self._work + work <= most_work)

    cdef int add(self, size_t commands, uint64_t work) noexcept:
        """The commands at its end count: they make one key."""
        self._keys += 1
        self._count += commands
        self._work += work
        return 0

    cdef bint is_full(self, size_t most_keys) noexcept:
        return self.out.size >= self._most_bytes or self._keys >= most_keys

    cdef int note(self, int64_t deadline, bytes name) except -1:
        """The commands set this deadline, which whoever sends them sees to."""
        self._deadlines.append((deadline, name))
        return 0

    cdef int withhold(self, bytes name) except -1:
        """The key has the placeholder in the commands."""
        self._withheld.append(name)
        return 0

    cdef object close(self, int32_t database, size_t size, size_t names):
        """Give a batch of the first ``size`` bytes of commands, which are those that count, and so many bytes of names;
        None if it has no keys. What is behind them is the beginning of the next batch."""
        if not self._keys:
            return None
        batch = Batch(
            self._copy,
            database,
            self._commands(size, names),
            self._count + self._looks,
            self._keys,
            self._deadlines,
            self._withheld,
            bool(self._looks),
        )
        self._deadlines = []
        self._withheld = []
        self._keys = self._count = 0
        self._work = 0
        cut_off(&self.out, size, self._most_room)
        cut_off(&self.names, names, self._most_room)
        return batch

    cdef bytes _commands(self, size_t size, size_t names):
        cdef uint8_t[HEAD] place
        cdef Output head
        cdef bytes whole
        cdef uint8_t* p
        head.data = place
        head.size = 0
        if self._looks:
            put(&head, b"*", 1 + self._keys)
            put_text(&head, b"$6\r\nUNLINK\r\n", 12)
        whole = PyBytes_FromStringAndSize(NULL, head.size + names + size)
        p = <uint8_t*><char*>whole
        memcpy(p, place, head.size)
        if names:
            memcpy(p + head.size, self.names.data, names)
        memcpy(p + head.size + names, self.out.data, size)
        return whole


cdef void cut_off(Output* out, size_t size, size_t most) noexcept nogil:
    """Take the first ``size`` bytes away. Memory of more than ``most`` is given back."""
    out.size -= size
    if out.size:
        memmove(out.data, out.data + size, out.size)
    elif out.room > most:
        # A very long name needed it.
        let_go(out)
