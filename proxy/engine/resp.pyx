"""Where a reply ends.

Replies (RESP2 and RESP3) are only measured. Nesting needs no stack: an aggregate of n only adds n to the count of
elements still to come.
"""

from libc.stdint cimport int64_t
from libc.string cimport memchr

from slots.requests.parsing cimport (
    NUMBER_BAD,
    NUMBER_INCOMPLETE,
    PARSE_COMPLETE,
    PARSE_ERROR,
    PARSE_INCOMPLETE,
    number_status,
    parse_status,
    read_number,
)

cdef enum:
    # A line, such as a simple string, has no stated length: a script may return one of any length.
    WITHIN_LINE = -1


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
