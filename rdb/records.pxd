"""What other compiled modules may use of :mod:`rdb.records`."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from rdb.input cimport Input
from rdb.layout cimport Layout
from rdb.values cimport Measured

cdef enum:
    # Bytes behind a value that RESTORE takes: the version of the format in two, and the checksum in eight.
    FOOT = 10


cdef class Records:
    cdef Input input
    cdef Layout layout
    cdef bint _checked
    cdef bint _begun
    cdef bint _ended
    cdef bint valkey
    # The version of the format; Valkey's numbers begin at 80.
    cdef int version
    # When the file was written, in milliseconds; NONE if it does not tell.
    cdef int64_t created_ms
    # The database in which the stream of changes goes on behind a snapshot for a replica; -1 if the file does not tell.
    cdef int32_t stream_database
    # Of the key that was found: the offset at which its record begins, the type code of its value, and its deadline in
    # milliseconds, or NONE.
    cdef int32_t database
    cdef uint64_t start
    cdef int code
    cdef int64_t deadline
    # For how many seconds it was not used, and how often it was, as OBJECT FREQ tells it; -1 if the file does not tell.
    cdef int64_t idle
    cdef int frequency
    # How many modules have something of their own beside the value, which no payload has.
    cdef uint64_t metadata
    # Its name. It is valid until more of the input is read.
    cdef const uint8_t* key
    cdef size_t key_length
    # Keeps the name of a key that is not stored as it is.
    cdef uint8_t* _name
    cdef size_t _name_room

    cdef bint next(self) except -1
    cdef int measure(self, Measured* found) except -1
    cdef int skip(self) except -1
    cdef const uint8_t* value(self, size_t most, uint64_t most_work, size_t* size, uint64_t* work) except? NULL
    cdef bint fits(self, size_t most, uint64_t most_work, size_t* size) except -1
    cdef void seal(self, uint8_t* p, size_t size) noexcept
    cdef bytes payload(self, size_t most)
    cdef uint64_t module(self) except? 0
    cdef int begin(self) except -1
    cdef bint before_key(self, int code) except -1
    cdef int other(self, int code) except -1
    cdef int note(self) except -1
    cdef int end(self) except -1
    cdef int nothing_follows(self) except -1
    cdef int take_key(self) except -1
    cdef int make_room(self, size_t size) except -1
