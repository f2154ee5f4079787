"""The part of RESP that a proxy needs: where a request's arguments are, and where a reply ends.

Requests are found in one pass and never copied. Replies (RESP2 and RESP3) are only measured. Nesting needs no stack: an
aggregate of n only adds n to the count of elements still to come.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr


cdef enum:
    # A line that holds a count or a length: sign, 19 digits, CRLF, and some slack.
    LONGEST_NUMBER_LINE = 32
    # A line, such as a simple string, has no stated length: a script may return one of any length.
    WITHIN_LINE = -1

cdef enum number_status:
    NUMBER_BAD = -1
    NUMBER_INCOMPLETE = 0
    NUMBER_READ = 1


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


cdef parse_status measure_reply(reply_meter_t* meter, const char* data, size_t size, size_t* used) noexcept nogil:
    """Step over as much of one reply as ``data`` holds.

    ``used`` counts the bytes stepped over. They certainly belong to the reply, so a long reply may be passed on before
    its end has come. PARSE_COMPLETE: the reply ends at ``used``. PARSE_INCOMPLETE: call again with what follows.
    PARSE_ERROR: not RESP.
    """
    cdef const char* p = data
    cdef const char* end = data + size
    cdef const char* line
    cdef const char* line_end
    cdef int64_t number
    cdef number_status status
    cdef char kind
    if meter.skip == WITHIN_LINE:
        line_end = <const char*> memchr(p, c'\n', size)
        if line_end == NULL:
            used[0] = size
            return PARSE_INCOMPLETE
        p = line_end + 1
        meter.skip = 0
        meter.elements -= 1
        if meter.elements == 0:
            used[0] = p - data
            return PARSE_COMPLETE
    elif meter.skip:
        if end - p < meter.skip:
            meter.skip -= end - p
            used[0] = size
            return PARSE_INCOMPLETE
        p += meter.skip
        meter.skip = 0
        meter.elements -= 1
        if meter.elements == 0:
            used[0] = p - data
            return PARSE_COMPLETE
    elif meter.elements == 0:
        meter.elements = 1
    while p < end:
        kind = p[0]
        line = p + 1
        if kind == c'+' or kind == c'-' or kind == c':' or kind == c'_' or kind == c',' or kind == c'#' or kind == c'(':
            line_end = <const char*> memchr(line, c'\n', end - line)
            if line_end == NULL:
                meter.skip = WITHIN_LINE
                used[0] = size
                return PARSE_INCOMPLETE
            p = line_end + 1
            meter.elements -= 1
        elif kind == c'$' or kind == c'=' or kind == c'!':
            status = read_number(&line, end, &number)
            if status == NUMBER_INCOMPLETE:
                break
            if status == NUMBER_BAD:
                return PARSE_ERROR
            p = line
            if number >= 0:
                if end - p < number + 2:
                    meter.skip = number + 2 - (end - p)
                    used[0] = size
                    return PARSE_INCOMPLETE
                p += number + 2
            meter.elements -= 1
        elif kind == c'*' or kind == c'~' or kind == c'>' or kind == c'%' or kind == c'|':
            status = read_number(&line, end, &number)
            if status == NUMBER_INCOMPLETE:
                break
            if status == NUMBER_BAD:
                return PARSE_ERROR
            p = line
            if kind == c'%' or kind == c'|':
                number *= 2
            if number > 0:
                meter.elements += number
            if kind != c'|':
                # Attributes come before their value, which is still to come.
                meter.elements -= 1
        else:
            return PARSE_ERROR
        if meter.elements == 0:
            used[0] = p - data
            return PARSE_COMPLETE
    used[0] = p - data
    return PARSE_INCOMPLETE


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


def measure_replies(list pieces):
    """Lengths of the complete replies in the concatenation of ``pieces``, fed one after another, for tests.

    Returns ``(lengths, rest)``: rest is the number of bytes after the last complete reply. Raises ValueError
    where the bytes are not RESP.
    """
    cdef reply_meter_t meter
    cdef size_t used
    cdef size_t scanned
    cdef const char* start
    cdef parse_status status
    meter.elements = meter.skip = 0
    lengths = []
    kept = b""
    scanned = 0
    for piece in pieces:
        kept += piece
        start = kept
        while True:
            status = measure_reply(&meter, start + scanned, len(kept) - scanned, &used)
            if status == PARSE_ERROR:
                raise ValueError(f"not RESP after {sum(lengths) + scanned} bytes")
            scanned += used
            if status == PARSE_INCOMPLETE:
                break
            lengths.append(scanned)
            kept = kept[scanned:]
            start = kept
            scanned = 0
            if not kept:
                break
    return lengths, len(kept)
