"""What other compiled modules may use of :mod:`rdb.values`."""

from libc.stdint cimport int64_t, uint64_t

from rdb.input cimport Input
from rdb.layout cimport Layout

# Their order is that of TYPES.
cdef enum:
    UNKNOWN = -1
    STRING = 0
    LIST = 1
    SET = 2
    ZSET = 3
    HASH = 4
    STREAM = 5
    MODULE = 6

# Their order is that of ENCODINGS.
cdef enum:
    RAW = 0
    INT = 1
    EMBSTR = 2
    QUICKLIST = 3
    LISTPACK = 4
    ZIPLIST = 5
    INTSET = 6
    HASHTABLE = 7
    SKIPLIST = 8
    STREAM_ENCODING = 9
    LISTPACKEX = 10

cdef struct Measured:
    int type
    int encoding
    # -1 for not known.
    int64_t elements
    uint64_t memory
    # For a module's value: the number of the module's type.
    uint64_t module

# The type of a value, by its number in the file.
cdef int type_of(int code, bint valkey) noexcept
# Reads a value to its end. `code` is its type in the file, `key` the length of its key in bytes.
cdef int measure(
    Input source, const Layout* layout, int code, bint valkey, uint64_t key, bint expires, Measured* found
) except -1
# What a server has to do for a value at once when it reads it, in about the time that one element takes (0.2
# microseconds).
cdef uint64_t work_of(const Measured* found) noexcept
cdef int skip_module_value(Input source) except -1
# The name of the module's type that has this number.
cdef str module_name(uint64_t number)
