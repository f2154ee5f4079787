"""Where a request's arguments are. Requests are found in one pass and never copied."""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr


cdef parse_status parse_request(
    request_parse_t* parse, const char* data, size_t size, size_t longest_bulk, int most_arguments
) noexcept nogil:
    """Find the request at the front of ``data``.

    PARSE_COMPLETE sets ``arguments``, ``count`` and ``size`` (an empty request has ``count`` 0 and is
    skipped, as Redis does); PARSE_INLINE sets ``size`` to the line with its end; PARSE_INCOMPLETE sets
    ``need``; PARSE_ERROR sets ``error`` to Redis's own words.
    """
    cdef const char* p = data
    cdef const char* end = data + size
    cdef const char* line_end
    cdef argument_t* arguments
    cdef int64_t count
    cdef int64_t length
    cdef int64_t index
    cdef number_status status
    if size == 0:
        parse.need = 1
        return PARSE_INCOMPLETE
    if p[0] != c'*':
        line_end = <const char*> memchr(p, c'\n', size if size < MAXIMUM_INLINE else MAXIMUM_INLINE)
        if line_end == NULL:
            if size >= MAXIMUM_INLINE:
                parse.error = b"too big inline request"
                return PARSE_ERROR
            parse.need = size + 1
            return PARSE_INCOMPLETE
        parse.size = line_end - data + 1
        return PARSE_INLINE
    p += 1
    status = read_number(&p, end, &count)
    if status == NUMBER_INCOMPLETE:
        parse.need = size + 1
        return PARSE_INCOMPLETE
    if status == NUMBER_BAD or count > MAXIMUM_ARGUMENTS:
        parse.error = b"invalid multibulk length"
        return PARSE_ERROR
    if count > most_arguments:
        parse.error = b"unauthenticated multibulk length"
        return PARSE_ERROR
    if count <= 0:
        parse.count = 0
        parse.size = p - data
        return PARSE_COMPLETE
    for index in range(count):
        if p >= end:
            # What is left is at least "$0\r\n\r\n" for each argument.
            parse.need = <size_t> (p - data) + <size_t> (count - index) * 6
            return PARSE_INCOMPLETE
        if p[0] != c'$':
            parse.error = b"expected '$', got '%c'"
            parse.size = p - data
            return PARSE_ERROR
        p += 1
        status = read_number(&p, end, &length)
        if status == NUMBER_INCOMPLETE:
            parse.need = size + 1 + <size_t> (count - index - 1) * 6
            return PARSE_INCOMPLETE
        if status == NUMBER_BAD or length < 0:
            parse.error = b"invalid bulk length"
            return PARSE_ERROR
        if <size_t> length > longest_bulk:
            parse.error = b"invalid bulk length" if most_arguments == MAXIMUM_ARGUMENTS else b"unauthenticated bulk length"
            return PARSE_ERROR
        if end - p < length + 2:
            parse.need = <size_t> (p - data) + <size_t> length + 2 + <size_t> (count - index - 1) * 6
            return PARSE_INCOMPLETE
        if index >= parse.capacity:
            arguments = <argument_t*> realloc(
                parse.arguments, sizeof(argument_t) * (parse.capacity * 2 if parse.capacity else 64)
            )
            if arguments == NULL:
                parse.error = b"out of memory"
                return PARSE_ERROR
            parse.arguments = arguments
            parse.capacity = parse.capacity * 2 if parse.capacity else 64
        parse.arguments[index].data = p
        parse.arguments[index].size = <size_t> length
        p += length + 2
    parse.count = <int> count
    parse.size = p - data
    return PARSE_COMPLETE


cdef void free_parse(request_parse_t* parse) noexcept nogil:
    free(parse.arguments)
    parse.arguments = NULL
    parse.capacity = 0


def find_requests(bytes data, size_t longest_bulk=536870912, int most_arguments=MAXIMUM_ARGUMENTS):
    """All that :c:func:`parse_request` finds in ``data``, for tests and tools.

    Returns ``(requests, rest, error)``: a list of argument lists (an inline request as its line, in bytes), the
    number of bytes not used, and Redis's words for what is wrong with them, or None.
    """
    cdef request_parse_t parse
    cdef const char* start = data
    cdef size_t position = 0
    cdef parse_status status
    cdef int index
    parse.arguments = NULL
    parse.capacity = 0
    requests = []
    error = None
    try:
        while position < <size_t> len(data):
            status = parse_request(&parse, start + position, len(data) - position, longest_bulk, most_arguments)
            if status == PARSE_INCOMPLETE:
                if parse.need <= len(data) - position:
                    raise AssertionError(f"need {parse.need} of {len(data) - position} bytes")
                break
            if status == PARSE_ERROR:
                error = (<bytes> parse.error).decode()
                break
            if status == PARSE_INLINE:
                requests.append(data[position:position + parse.size])
            else:
                requests.append([
                    parse.arguments[index].data[:parse.arguments[index].size] for index in range(parse.count)
                ])
            position += parse.size
        return requests, len(data) - position, error
    finally:
        free_parse(&parse)
