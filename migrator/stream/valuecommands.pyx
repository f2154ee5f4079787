"""Writes what a snapshot has of a value as commands that make it: RPUSH, SADD, ZADD or HSET of its elements, SET.

The elements go from the snapshot's bytes straight into the command, so none of them is an object of Python
(:mod:`rdb.parts`). A score is a text that reads as the same number bit for bit.

A snapshot has large sorted sets from the highest score down, so each new member goes to the front of the target's skip
list, which takes constant time.

**bounded**: a command has at most a piece's elements and bytes (:mod:`migrator.stream.values.cutting`), unless it has
only one element, which is never cut. One element more is held.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy, memmove

from migrator.stream.output cimport AROUND, Output, let_go, make_room, put, put_string, put_text
from rdb.input cimport COMPRESSED, INTEGER, Input, Stored
from rdb.lzf cimport lzf_decompress
from rdb.numbers cimport decimal
from rdb.parts cimport NEVER, Part, Parts
from rdb.values cimport HASH, LIST, SET, ZSET, type_of

from migrator.pieces.field_deadlines import no_deadlines
from migrator.stream.values.cutting import BESIDE

cdef size_t _BESIDE = BESIDE
# Memory of one command doubles without a bound of its own: what is in it has one.
cdef size_t ANY = <size_t>-1

cdef enum:
    # More than the bytes of a command before its key.
    HEAD = 48


cdef class ValueCommands:
    """Those of one value after another.

    Args:
        source: the snapshot.
        target: how errors name it.
        most_elements, most_bytes: of a command.

    Raises:
        CannotBeCut: a field of a hash has a deadline, which no command here sets.
        RdbError: by all methods.
    """

    def __init__(self, Input source not None, str target not None, size_t most_elements, size_t most_bytes) -> None:
        self._source = source
        self._parts = Parts(source)
        self._target = target
        self._most_elements = most_elements
        self._most_bytes = most_bytes

    def __dealloc__(self) -> None:
        let_go(&self._left)

    cdef int begin(self, int code, bint valkey) except -1:
        """A list, set, sorted set or hash comes next in the snapshot, whose type has the number ``code``."""
        self._type = type_of(code, valkey)
        self._left.size = 0
        self._parts.begin(code, valkey)
        return 0

    cdef bint write(self, Output* out, const uint8_t* key, size_t length) except -1:
        """Write a command with the next elements; false if there are none left.

        Args:
            key: its name in the form in which it is sent, with its head.
        """
        cdef size_t start = out.size
        cdef size_t more, before, begins
        self.elements = self.size = 0
        make_room(out, HEAD + length, ANY)
        # What stands before the elements is known when they are counted.
        out.size += HEAD + length
        begins = out.size
        if self._left.size:
            make_room(out, self._left.size, ANY)
            put_text(out, <const char*>self._left.data, self._left.size)
            self._left.size = 0
            self.elements = 1
            self.size = self._left_size
        while True:
            before = out.size
            more = self._element(out, key, length)
            if not more:
                break
            if self.elements and (self.elements >= self._most_elements or self.size + more > self._most_bytes):
                self._leave(out, before, more)
                break
            self.elements += 1
            self.size += more
        if self.elements:
            self._begin_command(out, start, begins, key, length)
        else:
            out.size = start
        return self.elements > 0

    cdef bint left_over(self) noexcept:
        """Whether the last command has not all of the value."""
        return self._left.size > 0 or self.size > self._most_bytes

    cdef bint write_string(self, Output* out, const uint8_t* key, size_t length) except -1:
        """Write SET with the string that comes next; false if it is longer than a piece. Then it is read in part."""
        cdef Stored stored
        cdef const uint8_t* content
        self._source.string(&stored)
        if stored.length + _BESIDE > self._most_bytes:
            return False
        self.elements = 1
        self.size = stored.length + _BESIDE
        make_room(out, HEAD + length + stored.length + AROUND, ANY)
        put_text(out, b"*3\r\n$3\r\nSET\r\n", 13)
        put_text(out, <const char*>key, length)
        put(out, b"$", stored.length)
        if stored.kind == INTEGER:
            out.size += decimal(out.data + out.size, stored.number)
        else:
            content = self._source.take(stored.stored)
            if stored.kind != COMPRESSED:
                memcpy(out.data + out.size, content, stored.length)
            # A string with one byte too many is none that a server writes; there is room for it.
            elif lzf_decompress(
                content, stored.stored, out.data + out.size, stored.length + 1
            ) != <int64_t>stored.length:
                raise self._source.corrupt("a compressed string cannot be decompressed")
            out.size += stored.length
        put_text(out, b"\r\n", 2)
        return True

    cdef size_t _element(self, Output* out, const uint8_t* key, size_t length) except? 0:
        """Write the next element as arguments; gives its bytes as pieces count them, 0 if there is none."""
        cdef Parts parts = self._parts
        cdef Part part
        cdef size_t before = out.size
        cdef size_t size, behind
        if not parts.next(&part):
            return 0
        size = part.length + _BESIDE
        make_room(out, part.length + AROUND, ANY)
        put_string(out, part.data, part.length)
        if parts.width == 1:
            return size
        behind = out.size
        parts.next(&part)
        size += part.length + _BESIDE
        make_room(out, 2 * (part.length + AROUND), ANY)
        put_string(out, part.data, part.length)
        if self._type == ZSET:
            # Its score stands before the member.
            put_before(out, before, behind)
        elif parts.deadline() != NEVER:
            raise no_deadlines(name_of(key, length), self._target)
        return size

    cdef int _leave(self, Output* out, size_t before, size_t size) except -1:
        """The element that begins at ``before`` goes into the next command."""
        self._left.size = 0
        make_room(&self._left, out.size - before, ANY)
        put_text(&self._left, <const char*>out.data + before, out.size - before)
        self._left_size = size
        out.size = before
        return 0

    cdef int _begin_command(
        self, Output* out, size_t start, size_t begins, const uint8_t* key, size_t length
    ) except -1:
        """Write what stands before the elements, which begin at ``begins``, and close the gap to ``start``."""
        cdef Output head
        cdef uint8_t[HEAD] place
        cdef size_t gap
        head.data = place
        head.size = 0
        put(&head, b"*", 2 + self.elements * self._parts.width)
        if self._type == LIST:
            put_text(&head, b"$5\r\nRPUSH\r\n", 11)
        elif self._type == SET:
            put_text(&head, b"$4\r\nSADD\r\n", 10)
        elif self._type == ZSET:
            put_text(&head, b"$4\r\nZADD\r\n", 10)
        else:
            put_text(&head, b"$4\r\nHSET\r\n", 10)
        memcpy(out.data + start, place, head.size)
        memcpy(out.data + start + head.size, key, length)
        gap = begins - start - head.size - length
        memmove(out.data + begins - gap, out.data + begins, out.size - begins)
        out.size -= gap
        return 0


cdef void put_before(Output* out, size_t before, size_t behind) noexcept nogil:
    """The last argument, which begins at ``behind``, goes before the one that begins at ``before``. There is room for
    one more of it."""
    cdef size_t length = out.size - behind
    memmove(out.data + before + length, out.data + before, out.size - before)
    memcpy(out.data + before, out.data + out.size, length)


cdef bytes name_of(const uint8_t* key, size_t length):
    return key[:length].partition(b"\r\n")[2][:-2]
