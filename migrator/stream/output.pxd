"""Commands as they are sent, written into memory that grows."""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from rdb.numbers cimport decimal

cdef enum:
    # More than the bytes of an argument beside its own.
    AROUND = 32


cdef struct Output:
    uint8_t* data
    size_t size
    size_t room


cdef inline int make_room(Output* out, size_t size, size_t most) except -1:
    """For so many bytes more. The memory doubles, but up to ``most`` if that is enough."""
    cdef size_t need = out.size + size
    cdef size_t room = 2 * out.room
    cdef uint8_t* larger
    if need > out.room:
        if room > most:
            room = most
        if room < need:
            room = need
        larger = <uint8_t*>realloc(out.data, room)
        if larger == NULL:
            raise MemoryError
        out.data = larger
        out.room = room
    return 0


cdef inline void let_go(Output* out) noexcept nogil:
    free(out.data)
    out.data = NULL
    out.size = out.room = 0


# There has to be room.

cdef inline void put_text(Output* out, const char* text, size_t length) noexcept nogil:
    memcpy(out.data + out.size, text, length)
    out.size += length


cdef inline void put(Output* out, const char* kind, int64_t number) noexcept nogil:
    """The head of an array or a string."""
    out.data[out.size] = <uint8_t>kind[0]
    out.size += 1
    out.size += decimal(out.data + out.size, number)
    put_text(out, b"\r\n", 2)


cdef inline void put_string(Output* out, const uint8_t* data, size_t length) noexcept nogil:
    put(out, b"$", length)
    put_text(out, <const char*>data, length)
    put_text(out, b"\r\n", 2)


cdef inline void put_number(Output* out, int64_t number) noexcept nogil:
    """A string that is a number."""
    cdef uint8_t[20] digits
    put_string(out, digits, decimal(digits, number))
