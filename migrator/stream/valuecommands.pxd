"""What other compiled modules may use of :mod:`migrator.stream.valuecommands`."""

from libc.stdint cimport uint8_t

from migrator.stream.output cimport Output
from rdb.input cimport Input
from rdb.parts cimport Parts


cdef class ValueCommands:
    cdef Input _source
    cdef Parts _parts
    cdef str _target
    cdef size_t _most_elements
    cdef size_t _most_bytes
    cdef int _type
    # How many elements the last command has, and their bytes as pieces count them.
    cdef size_t elements
    cdef size_t size
    # An element that had no place in the last command; its bytes as pieces count them.
    cdef Output _left
    cdef size_t _left_size

    cdef int begin(self, int code, bint valkey) except -1
    cdef bint write(self, Output* out, const uint8_t* key, size_t length) except -1
    cdef bint write_string(self, Output* out, const uint8_t* key, size_t length) except -1
    cdef bint left_over(self) noexcept
    cdef size_t _element(self, Output* out, const uint8_t* key, size_t length) except? 0
    cdef int _leave(self, Output* out, size_t before, size_t size) except -1
    cdef int _begin_command(self, Output* out, size_t start, size_t begins, const uint8_t* key, size_t length) except -1


# The name of a key that stands in the form in which it is sent.
cdef bytes name_of(const uint8_t* key, size_t length)
