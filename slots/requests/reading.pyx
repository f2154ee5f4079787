"""Reads the requests of a stream, such as a master sends to its replicas, for Python.

Bytes are fed as they come, cut anywhere. Each whole request is given once, with its exact size, so that offsets add up.
Whatever is not a request ends the reading: nothing behind it can be told apart any more.

**bounded**: no request of more than a given size is waited for. Whoever feeds takes all requests that there are before
feeding more. What a long request costs grows with its size, however small the pieces are in which it comes.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

from slots.requests.parsing cimport (
    MAXIMUM_ARGUMENTS,
    NUMBER_BAD,
    NUMBER_INCOMPLETE,
    PARSE_COMPLETE,
    PARSE_INCOMPLETE,
    argument_t,
    free_parse,
    number_status,
    parse_request,
    parse_status,
    read_number,
)

LONGEST_BULK = 536_870_912
"""Bytes of an argument: a server's own limit (``proto-max-bulk-len``), unless it was told otherwise."""
LONGEST_REQUEST = 1_073_741_824
"""Bytes of a request: as much as a server takes from a client."""
MOST_ARGUMENTS = MAXIMUM_ARGUMENTS

cdef enum:
    # LONGEST_BULK.
    BULK_LIMIT = 536870912
    # So much memory is kept.
    KEPT_ROOM = 4194304
    # Bytes of a broken stream that an error shows.
    SHOWN = 40


class NotRequests(ValueError):
    """A stream holds something that is not a request. What comes behind it cannot be read.

    ``offset`` is the place in the stream, in bytes, where the request would begin.
    """

    def __init__(self, offset, what):
        super().__init__(f"byte {offset} of a stream of requests: {what}")
        self.offset = offset


cdef class Stream:
    """Bytes that were fed and not taken.

    Args:
        offset: how many bytes of the stream came before those that are fed.
        longest_request: the most bytes of a request; one with more breaks the stream.
    """

    def __init__(self, int64_t offset=0, size_t longest_request=LONGEST_REQUEST):
        self.offset = offset
        self.longest_request = longest_request

    def __dealloc__(self):
        free(self.data)
        free_parse(&self.parse)

    @property
    def pending(self):
        """The bytes that were fed behind ``offset``."""
        return self.end - self.start

    def feed(self, data):
        """Take the next bytes of the stream, any object with bytes in one piece. They are copied.

        Raises:
            NotRequests: the stream is broken.
            ValueError: as many bytes as the longest request may have were fed, and their requests were not taken.
        """
        cdef Py_buffer view
        if self.broken is not None:
            raise NotRequests(self.offset, self.broken)
        if self.end - self.start >= self.longest_request:
            raise ValueError(f"{self.end - self.start} bytes were fed; their requests have to be taken first")
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            self.reserve(view.len)
            memcpy(self.data + self.end, view.buf, view.len)
            self.end += view.len
        finally:
            PyBuffer_Release(&view)

    def __iter__(self):
        return self

    def __sizeof__(self):
        return object.__sizeof__(self) + self.room + self.parse.capacity * sizeof(argument_t)

    cdef bint reserve(self, size_t size) except -1:
        """Make room for so many bytes behind those that are there; give memory back after a long request."""
        cdef size_t length = self.end - self.start
        cdef size_t room = self.room
        cdef char* data
        cdef bint far_too_large = room > KEPT_ROOM and length + size < room // 4
        if room - self.end >= size and self.data != NULL and not far_too_large:
            return True
        if self.start:
            # What is left is the beginning of one request. It is moved once, and stays at the front until it is whole.
            memmove(self.data, self.data + self.start, length)
            self.start = 0
            self.end = length
        if far_too_large:
            room = KEPT_ROOM
        elif room - length < size:
            room += room // 4
        if room < length + size:
            room = length + size
        if room != self.room or self.data == NULL:
            data = <char*> realloc(self.data, room + 1)
            if data == NULL:
                raise MemoryError
            self.data = data
            self.room = room
        return True

    cdef bint find(self) except -1:
        """Whether a whole request is at the front; ``parse`` has its arguments then.

        Raises:
            NotRequests: something else is there.
        """
        cdef size_t size = self.end - self.start
        cdef const char* front = self.data + self.start
        cdef parse_status status
        cdef int index
        if self.broken is not None:
            raise NotRequests(self.offset, self.broken)
        if size <= self.too_few or (self.walked and not self.walk()):
            return False
        if front[0] != c'*':
            return self.fail("no request begins with", 0)
        status = parse_request(&self.parse, front, size, BULK_LIMIT, MAXIMUM_ARGUMENTS)
        if status == PARSE_INCOMPLETE:
            self.too_few = self.parse.need - 1
            if self.parse.need > self.longest_request:
                return self.fail(f"a request has more than {self.longest_request} bytes", 0)
            if not self.walked:
                self.walked = 1
                self.left = -1
            return False
        self.too_few = self.walked = 0
        if status != PARSE_COMPLETE:
            if self.parse.error[0] == c'o':
                raise MemoryError
            if self.parse.error[0] == c'e':
                return self.fail("an argument begins with", self.parse.size)
            return self.fail((<bytes> self.parse.error).decode(), 0)
        if self.parse.count == 0:
            return self.fail("a request has no arguments", 0)
        if self.parse.size > self.longest_request:
            return self.fail(f"a request has more than {self.longest_request} bytes", 0)
        for index in range(self.parse.count):
            # The parser steps over what stands there, as a server does.
            front = self.parse.arguments[index].data + self.parse.arguments[index].size
            if front[0] != c'\r' or front[1] != c'\n':
                return self.fail("behind an argument stands", front - self.data - self.start)
        return True

    cdef bint walk(self) noexcept:
        """Whether the request at the front is worth another parse: it is whole, or malformed, or too long.

        Its arguments are stepped over from where the last walk ended, so no byte is looked at twice here.
        """
        cdef const char* front = self.data + self.start
        cdef const char* end = self.data + self.end
        cdef const char* p = front + self.walked
        cdef int64_t length
        cdef number_status status
        while self.left:
            if self.left > 0:
                if p == end:
                    return self.needs(p - front, self.left)
                if p[0] != c'$':
                    return True
                p += 1
            status = read_number(&p, end, &length)
            if status == NUMBER_BAD:
                return True
            if status == NUMBER_INCOMPLETE:
                return self.needs(end - front + 1, self.left - 1)
            if self.left < 0:
                if length > MAXIMUM_ARGUMENTS:
                    return True
                self.left = max(length, 0)
            elif length < 0 or length > BULK_LIMIT:
                return True
            elif end - p < length + 2:
                return self.needs(<size_t> (p - front) + <size_t> length + 2, self.left - 1)
            else:
                p += length + 2
                self.left -= 1
            self.walked = p - front
        return True

    cdef bint needs(self, size_t known, int64_t others) noexcept:
        """Wait for these bytes of a request, and for its other arguments; whether it is too long for that."""
        # The shortest argument is an empty one.
        self.too_few = known + (<size_t> others * 6 if others > 0 else 0) - 1
        return self.too_few >= self.longest_request

    cdef bint fail(self, str what, size_t place) except -1:
        """Break the stream for good, and show the bytes ``place`` bytes behind the front."""
        cdef size_t first = self.start + place
        cdef size_t shown = min(self.end - first, <size_t> SHOWN)
        self.broken = f"{what}: {<bytes> self.data[first:first + shown]!r}"
        raise NotRequests(self.offset, self.broken)

    cdef list argv(self):
        """The arguments of the request at the front."""
        cdef int index
        return [
            PyBytes_FromStringAndSize(self.parse.arguments[index].data, self.parse.arguments[index].size)
            for index in range(self.parse.count)
        ]

    cdef void take(self) noexcept:
        """Step over the request at the front."""
        self.start += self.parse.size
        self.offset += self.parse.size
        if self.start == self.end:
            self.start = self.end = 0


cdef class Requests(Stream):
    """The requests of a stream: ``for argv, size in requests`` gives those that have come whole.

    ``argv`` has the arguments, the command's name first; ``size`` is the number of bytes that the request took. The
    loop ends when the next request is not whole; it may be begun again after more was fed. ``offset`` is where the last
    given request ends.

    Raises:
        NotRequests: the stream holds something that is not a request, once all requests before it were given.
    """

    def __next__(self):
        if not self.find():
            raise StopIteration
        argv = self.argv()
        self.take()
        return argv, self.parse.size
