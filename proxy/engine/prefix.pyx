"""The prefix of a user's keys: put before each key of a request, and taken off where a reply names keys.

A request is written anew, with the prefix, into a buffer of its session. Everything behind that knows the real names
only (:mod:`proxy.engine.prefixing`). Replies that name keys are few, and all of them pass plain Python or an error of the
proxy, so they are looked at there.
"""

from libc.stdint cimport int16_t, uint8_t
from libc.string cimport memcmp

from proxy.engine.buffer cimport buffer_append, buffer_reserve, buffer_t
from proxy.engine.resp cimport measure_reply, reply_meter_t
from slots.requests.parsing cimport PARSE_COMPLETE, argument_t

cdef enum:
    NAMES_NONE
    # The first element of an array.
    NAMES_FIRST
    # The streams of XREAD.
    NAMES_STREAMS
    # Only an error.
    NAMES_IN_ERROR
    # The most bytes of the line before a key.
    LENGTH_BYTES = 24

NOTHING = NAMES_NONE
FIRST = NAMES_FIRST
STREAMS = NAMES_STREAMS
IN_ERROR = NAMES_IN_ERROR

CROSSSLOT = b"CROSSSLOT Keys in request"
NO_GROUP = b"-NOGROUP "
FOR_KEY = b"' for key name '"
"""What stands between a group and its key, in those of these errors that name the group first."""
UNKNOWN = b"-ERR unknown command "
ARGUMENTS = b", with args beginning with: "
"""What an older server says of a command that it does not know: the arguments are those with the prefix."""
RULE = b"; slot rule '"
"""In the error for keys of several slots. The rule would need the prefix, and be made by an administrator."""
WAY_OUT = b"; a hash tag in common ({tag} in their names) would give them one slot\r\n"


cdef class Prefix:
    """What stands before every key that a user names.

    Args:
        text: the prefix.
        naming: by the number of a command, where its reply names keys: NOTHING, FIRST, STREAMS or IN_ERROR.
        changed: gives a request with the prefix where it belongs.
    """

    def __init__(self, bytes text not None, bytes naming not None, changed):
        self.text = text
        self.naming = naming
        self.names = <const uint8_t*> <const char*> naming
        self.count = len(naming)
        self.changed = changed

    cdef bint put(
        self, const char* data, size_t size, const argument_t* keys, int found, buffer_t* real
    ) noexcept:
        """Append a request, whose bytes are ``data``, with the prefix before each of its ``keys``; they come in their
        order. False if there is no memory for it."""
        cdef const char* text = <const char*> self.text
        cdef size_t length = len(self.text)
        cdef size_t copied = 0
        cdef size_t place
        cdef char line[LENGTH_BYTES]
        cdef int digits
        cdef int index
        cdef size_t number
        if not buffer_reserve(real, size + found * (length + LENGTH_BYTES)):
            return False
        for index in range(found):
            # Up to the line with the key's length, which begins with a dollar.
            place = keys[index].data - data - 3
            while data[place] != c"$":
                place -= 1
            buffer_append(real, data + copied, place - copied)
            digits = LENGTH_BYTES - 2
            line[LENGTH_BYTES - 2] = c"\r"
            line[LENGTH_BYTES - 1] = c"\n"
            number = keys[index].size + length
            while True:
                digits -= 1
                line[digits] = c"0" + number % 10
                number //= 10
                if not number:
                    break
            digits -= 1
            line[digits] = c"$"
            buffer_append(real, &line[digits], LENGTH_BYTES - digits)
            buffer_append(real, text, length)
            copied = keys[index].data - data
        buffer_append(real, data + copied, size - copied)
        return True

    cdef bytes hide(self, int16_t number, bytes reply):
        """A reply to a command, without the prefix of the keys that it names; or the beginning of one that does not
        name streams."""
        cdef int kind = self.names[number] if 0 <= number < self.count else <int> NAMES_NONE
        if reply.startswith(b"-"):
            if CROSSSLOT in reply:
                head, rule, _ = reply.partition(RULE)
                return (head + WAY_OUT if rule else reply).replace(b"'" + self.text, b"'")
            if kind != NAMES_NONE and reply.startswith(NO_GROUP):
                head, middle, tail = reply.rpartition(FOR_KEY + self.text)
                return head + FOR_KEY + tail if middle else reply.replace(b"'" + self.text, b"'", 1)
            # The proxy's own error for a command without a number has the arguments as they came.
            return without_arguments(reply) if number else reply
        if kind == NAMES_FIRST:
            return self.hide_first(reply)
        if kind == NAMES_STREAMS:
            return self.hide_streams(reply)
        return reply

    def hide_each(self, bytes reply not None, dict numbers not None):
        """A reply to EXEC, without the prefix of the keys that it names. ``numbers``: those of the commands that name
        keys, by their places in the transaction."""
        cdef Py_ssize_t size = len(reply)
        cdef Py_ssize_t at = reply.find(b"\r\n") + 2
        cdef Py_ssize_t end
        cdef int index = 0
        if reply[:1] != b"*":
            return reply
        parts = [reply[:at]]
        while at < size:
            end = end_of(reply, at, size)
            if end < 0:
                return reply
            number = numbers.get(index)
            parts.append(reply[at:end] if number is None else self.hide(number, reply[at:end]))
            at = end
            index += 1
        return b"".join(parts)

    def hide_first(self, bytes reply):
        """Without the prefix of the first element of an array."""
        parts = []
        at = reply.find(b"\r\n") + 2
        if reply[:1] != b"*" or self.name_at(reply, at, parts) < 0:
            return reply
        return b"".join((reply[:at], *parts))

    def hide_streams(self, bytes reply):
        """Without the prefix of the streams that XREAD names: an array of pairs, or a map."""
        cdef const char* data = reply
        cdef Py_ssize_t size = len(reply)
        cdef Py_ssize_t at = reply.find(b"\r\n") + 2
        cdef Py_ssize_t end
        cdef bint pairs = reply[:1] == b"*"
        if reply[:1] not in (b"*", b"%") or at == size:
            return reply
        parts = [reply[:at]]
        while at < size:
            if pairs:
                if size - at < 4 or memcmp(data + at, b"*2\r\n", 4):
                    return reply
                parts.append(b"*2\r\n")
                at += 4
            at = self.name_at(reply, at, parts, rest=False)
            if at < 0:
                return reply
            end = end_of(data, at, size)
            if end < 0:
                return reply
            parts.append(reply[at:end])
            at = end
        return b"".join(parts)

    def name_at(self, bytes reply, Py_ssize_t at, list parts, bint rest=True):
        """Append the name at a place to ``parts``, without the prefix, and with ``rest`` all that follows; where it ends,
        or -1 if no such name is there."""
        cdef Py_ssize_t begin = reply.find(b"\r\n", at) + 2
        if reply[at : at + 1] != b"$" or not reply[at + 1 : begin - 2].isdigit():
            return -1
        cdef Py_ssize_t end = begin + int(reply[at + 1 : begin - 2])
        if not reply.startswith(self.text, begin) or begin + len(self.text) > end:
            return -1
        parts.append(b"$%d\r\n" % (end - begin - len(self.text)))
        parts.append(reply[begin + len(self.text) : len(reply) if rest else end + 2])
        return end + 2


cdef bytes without_arguments(bytes error):
    """A server's error, without the arguments of a command that the server does not know."""
    if not error.startswith(UNKNOWN):
        return error
    head, found, _ = error.partition(ARGUMENTS)
    return head + b"\r\n" if found else error


cdef Py_ssize_t end_of(const char* data, Py_ssize_t at, Py_ssize_t size) noexcept:
    """Where the value at a place ends; -1 if it does not."""
    cdef reply_meter_t meter
    cdef size_t used
    meter.elements = meter.skip = 0
    if measure_reply(&meter, data + at, size - at, &used) != PARSE_COMPLETE:
        return -1
    return at + <Py_ssize_t> used
