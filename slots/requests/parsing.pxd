"""Where a request's arguments are, in bytes that a client or a server sent.

Numbers are read inline here, because replies have them, too.
"""

from libc.stdint cimport int64_t

cdef enum:
    MAXIMUM_INLINE = 65536
    LONGEST_BULK = 536870912
    MAXIMUM_ARGUMENTS = 1048576
    # A line that holds a count or a length: sign, 19 digits, CRLF, and some slack.
    LONGEST_NUMBER_LINE = 32

ctypedef enum parse_status:
    PARSE_ERROR = -1
    PARSE_INCOMPLETE = 0
    PARSE_COMPLETE = 1
    PARSE_INLINE = 2

ctypedef enum number_status:
    NUMBER_BAD = -1
    NUMBER_INCOMPLETE = 0
    NUMBER_READ = 1

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


cdef inline number_status read_number(const char** cursor, const char* end, int64_t* value) noexcept nogil:
    """Read ``digits CRLF`` at ``cursor`` and step over it; the cursor stays where it is otherwise.

    It is as strict as a Redis server, for a malformed request may not reach a connection that others share.
    """
    cdef const char* p = cursor[0]
    cdef const char* limit = p + LONGEST_NUMBER_LINE
    cdef bint negative = False
    cdef int64_t number = 0
    cdef const char* first
    cdef int digits = 0
    cdef int digit
    # Most numbers have one digit or two.
    if end - p >= 4:
        if c'0' <= p[0] <= c'9' and p[1] == c'\r' and p[2] == c'\n':
            cursor[0] = p + 3
            value[0] = p[0] - c'0'
            return NUMBER_READ
        if c'1' <= p[0] <= c'9' and c'0' <= p[1] <= c'9' and p[2] == c'\r' and p[3] == c'\n':
            cursor[0] = p + 4
            value[0] = (p[0] - c'0') * 10 + (p[1] - c'0')
            return NUMBER_READ
    if p < end and p[0] == c'-':
        negative = True
        p += 1
    first = p
    while p < end:
        digit = p[0] - c'0'
        if 0 <= digit <= 9:
            digits += 1
            if digits > 18:
                return NUMBER_BAD
            number = number * 10 + digit
            p += 1
            continue
        if p[0] != c'\r' or not digits or (first[0] == c'0' and (digits > 1 or negative)):
            return NUMBER_BAD
        if p + 1 >= end:
            return NUMBER_INCOMPLETE
        if p[1] != c'\n':
            return NUMBER_BAD
        cursor[0] = p + 2
        value[0] = -number if negative else number
        return NUMBER_READ
    return NUMBER_INCOMPLETE if p < limit else NUMBER_BAD


cdef parse_status parse_request(
    request_parse_t* parse, const char* data, size_t size, size_t longest_bulk, int most_arguments
) noexcept nogil
cdef void free_parse(request_parse_t* parse) noexcept nogil
