"""Where a reply ends. Requests are found by :mod:`slots.requests.parsing`."""

from libc.stdint cimport int64_t

from slots.requests.parsing cimport parse_status

ctypedef struct reply_meter_t:
    # Elements of the reply still to come; 0 between replies.
    int64_t elements
    # Bytes of the current bulk string still to come, its CRLF included; WITHIN_LINE until a line's end has come.
    int64_t skip

cdef parse_status measure_reply(reply_meter_t* meter, const char* data, size_t size, size_t* used) noexcept nogil
