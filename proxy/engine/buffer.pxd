"""Growing buffers: bytes that were read from a socket, or that wait to be written to one.

``data[start:end]`` are the bytes held. The functions are inline here because every request passes them.
"""

from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

cdef enum:
    BUFFER_FIRST_SIZE = 1024
    BUFFER_DOUBLING = 1048576
    # So many consumed bytes at the front are not worth moving the bytes behind them.
    BUFFER_SLACK = 65536

ctypedef struct buffer_t:
    char* data
    size_t start
    size_t end
    size_t size


cdef inline size_t buffer_length(const buffer_t* buffer) noexcept nogil:
    return buffer.end - buffer.start


cdef inline bint buffer_reserve(buffer_t* buffer, size_t room) noexcept nogil:
    """Make room for ``room`` bytes after ``end``; false when there is no memory for it."""
    cdef size_t length = buffer.end - buffer.start
    cdef size_t size
    cdef char* data
    if buffer.size - buffer.end >= room:
        return True
    if buffer.start and buffer.size - length >= room and buffer.start >= length:
        # At least as many bytes are free as are kept, so each byte is moved at most once for each consumed one.
        memcpy(buffer.data, buffer.data + buffer.start, length)
        buffer.start = 0
        buffer.end = length
        return True
    if buffer.start:
        memmove(buffer.data, buffer.data + buffer.start, length)
        buffer.start = 0
        buffer.end = length
    size = buffer.size * 2 if buffer.size else BUFFER_FIRST_SIZE
    if size > BUFFER_DOUBLING:
        # A large buffer grows by a quarter: the system moves its pages, so no byte is copied.
        size = buffer.size + buffer.size // 4
    if size < length + room:
        size = length + room
    data = <char*> realloc(buffer.data, size)
    if data == NULL:
        return False
    buffer.data = data
    buffer.size = size
    return True


cdef inline void buffer_shrink(buffer_t* buffer) noexcept nogil:
    """Give memory back after many bytes were consumed. Each byte is moved at most once for each consumed one."""
    cdef size_t length = buffer.end - buffer.start
    cdef char* data
    if buffer.start < BUFFER_SLACK or buffer.start < length:
        return
    memcpy(buffer.data, buffer.data + buffer.start, length)
    buffer.start = 0
    buffer.end = length
    if length < BUFFER_FIRST_SIZE:
        length = BUFFER_FIRST_SIZE
    data = <char*> realloc(buffer.data, length)
    if data != NULL:
        buffer.data = data
        buffer.size = length


cdef inline bint buffer_append(buffer_t* buffer, const char* data, size_t length) noexcept nogil:
    """Copy ``length`` bytes to the end; false when there is no memory for them."""
    if buffer.size - buffer.end < length and not buffer_reserve(buffer, length):
        return False
    memcpy(buffer.data + buffer.end, data, length)
    buffer.end += length
    return True


cdef inline void buffer_free(buffer_t* buffer) noexcept nogil:
    free(buffer.data)
    buffer.data = NULL
    buffer.start = buffer.end = buffer.size = 0


cdef inline void buffer_consume(buffer_t* buffer, size_t length, size_t keep) noexcept nogil:
    """Drop ``length`` bytes from the front; an empty buffer larger than ``keep`` bytes gives its memory back."""
    buffer.start += length
    if buffer.start == buffer.end:
        if buffer.size > keep:
            buffer_free(buffer)
        else:
            buffer.start = buffer.end = 0
