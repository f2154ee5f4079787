"""The part of RESP that a proxy needs: where a request's arguments are, and where a reply ends."""

from libc.stdint cimport int64_t

cdef enum:
    MAXIMUM_INLINE = 65536
    MAXIMUM_ARGUMENTS = 1048576

ctypedef enum parse_status:
    PARSE_ERROR = -1
    PARSE_INCOMPLETE = 0
    PARSE_COMPLETE = 1
    PARSE_INLINE = 2

ctypedef struct argument_t:
    const char* data
    size_t size

ctypedef struct request_parse_t:
    # Arguments of the last complete request; they point into the bytes that were parsed.
    argument_t* arguments
    int capacity
    int count
    # The size of the whole request in bytes, or of the line of an inline request.
    size_t size
    # For an incomplete request: the least number of bytes for a parse to succeed.
    size_t need
    # For a malformed request: Redis's error.
    const char* error

ctypedef struct reply_meter_t:
    # Elements of the reply still to come; 0 between replies.
    int64_t elements
    # Bytes of the current bulk string still to come, its CRLF included; WITHIN_LINE until a line's end has come.
    int64_t skip

cdef parse_status parse_request(
    request_parse_t* parse, const char* data, size_t size, size_t longest_bulk, int most_arguments
) noexcept nogil
cdef void free_parse(request_parse_t* parse) noexcept nogil
cdef parse_status measure_reply(reply_meter_t* meter, const char* data, size_t size, size_t* used) noexcept nogil
