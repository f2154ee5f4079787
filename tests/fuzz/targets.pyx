"""What has to hold for any bytes a client or a server sends, checked against the compiled parser.

:func:`check` takes one input through all of it, in C but for the comparison with :mod:`tests.fuzz.reference`. Every
piece that the parser sees lies in memory of exactly its size, so that AddressSanitizer notices a byte read too far.
An input is a byte of options, a byte that chooses where it is cut, and then the stream.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, strcmp

from proxy.engine.resp cimport measure_reply, reply_meter_t
from slots.requests.commandlookup cimport LONGEST_NAME, CommandLookup, command_t
from slots.requests.parsing cimport (
    LONGEST_BULK,
    MAXIMUM_ARGUMENTS,
    PARSE_COMPLETE,
    PARSE_ERROR,
    PARSE_INCOMPLETE,
    PARSE_INLINE,
    free_parse,
    parse_request,
    parse_status,
    request_parse_t,
)

from proxy.engine.inline import split_inline
from slots import commands
from tests.fuzz import reference

cdef enum:
    OPTIONS = 2
    # Of a stream no longer than this, every prefix is parsed.
    EVERY_PREFIX = 48
    MOST_CUTS = 16
    UNAUTHENTICATED_BULK = 16384
    UNAUTHENTICATED_ARGUMENTS = 10

cdef CommandLookup lookup = CommandLookup(commands.table())
cdef dict table = {name: command for name, command in commands.table().items() if "|" not in name and len(name) <= LONGEST_NAME}


class Broken(AssertionError):
    """Something did not hold."""


cdef class Stream:
    """Bytes in memory of exactly their size."""

    cdef char* data
    cdef size_t size

    def __cinit__(self, const uint8_t[:] given):
        self.size = len(given)
        self.data = <char*> malloc(self.size)
        if self.size and self.data == NULL:
            raise MemoryError
        if self.size:
            memcpy(self.data, &given[0], self.size)

    def __dealloc__(self):
        free(self.data)


cdef class Limits:
    cdef size_t longest_bulk
    cdef int most_arguments

    def __init__(self, options):
        self.longest_bulk = UNAUTHENTICATED_BULK if options & 1 else LONGEST_BULK
        self.most_arguments = UNAUTHENTICATED_ARGUMENTS if options & 1 else MAXIMUM_ARGUMENTS


cdef size_t next_cut(size_t size, size_t position, uint64_t* state) noexcept nogil:
    """Where to cut next, behind ``position``."""
    cdef size_t step
    if size <= EVERY_PREFIX:
        return position + 1
    state[0] ^= state[0] << 13
    state[0] ^= state[0] >> 7
    state[0] ^= state[0] << 17
    step = 1 + state[0] % (2 * size // MOST_CUTS + 1)
    return size if step > size - position else position + step


cdef tuple request_at(Stream stream, size_t position, Limits limits, request_parse_t* parse):
    """``(status, size, request or error)`` of what the whole stream has at ``position``."""
    cdef size_t left = stream.size - position
    cdef const char* start = stream.data + position
    cdef const char* edge = start
    cdef int index
    status = parse_request(parse, start, left, limits.longest_bulk, limits.most_arguments)
    if status == PARSE_INCOMPLETE:
        if parse.need <= left:
            raise Broken(f"needs {parse.need} bytes of {left} at {position}")
        return status, parse.need, None
    if status == PARSE_ERROR:
        return status, 0, (<bytes> parse.error).decode()
    if not 0 < parse.size <= left:
        raise Broken(f"{parse.size} bytes used of {left} at {position}")
    if status == PARSE_INLINE:
        return status, parse.size, start[:parse.size]
    for index in range(parse.count):
        if parse.arguments[index].data < edge or parse.arguments[index].size > parse.size:
            raise Broken(f"argument {index} at {position} is not where it may be")
        edge = parse.arguments[index].data + parse.arguments[index].size + 2
    if parse.count and edge != start + parse.size:
        raise Broken(f"the last argument at {position} is not the end of the request")
    return status, parse.size, [
        parse.arguments[index].data[:parse.arguments[index].size] for index in range(parse.count)
    ]


cdef int check_prefixes(Stream stream, size_t position, Limits limits, tuple whole, uint64_t seed) except -1:
    """The request at ``position`` is the same however much of it, and of what follows, has arrived."""
    cdef request_parse_t parse
    cdef parse_status whole_status = whole[0]
    cdef size_t whole_size = whole[1]
    cdef size_t left = stream.size - position
    cdef size_t size = 0
    cdef size_t need = 1
    cdef parse_status status
    cdef char* piece
    cdef bytes error = whole[2].encode() if whole_status == PARSE_ERROR else b""
    parse.arguments = NULL
    parse.capacity = 0
    try:
        while size < left:
            size = next_cut(left, size, &seed)
            piece = <char*> malloc(size)
            if piece == NULL:
                raise MemoryError
            memcpy(piece, stream.data + position, size)
            status = parse_request(&parse, piece, size, limits.longest_bulk, limits.most_arguments)
            free(piece)
            if status == PARSE_INCOMPLETE:
                if parse.need <= size:
                    raise Broken(f"needs {parse.need} bytes of {size} at {position}")
                if whole_status == PARSE_COMPLETE or whole_status == PARSE_INLINE:
                    if size >= whole_size:
                        raise Broken(f"incomplete with {size} bytes at {position}, complete with {whole_size}")
                    if parse.need > whole_size:
                        raise Broken(f"needs {parse.need} bytes at {position}, complete with {whole_size}")
                need = parse.need
                continue
            if status == PARSE_ERROR:
                if whole_status != PARSE_ERROR or strcmp(parse.error, error):
                    raise Broken(f"{(<bytes> parse.error).decode()} with {size} bytes at {position}, else {whole}")
                # What it will never be does not change.
                continue
            if status != whole_status or parse.size != whole_size:
                raise Broken(f"{status}, {parse.size} with {size} bytes at {position}, with all of them {whole}")
            if size < need:
                raise Broken(f"complete with {size} bytes at {position}, though {need} were needed")
    finally:
        free_parse(&parse)
    return 0


cdef int check_name(bytes name) except -1:
    """The row of a name is the table's."""
    cdef const command_t* row
    cdef char* copy = <char*> malloc(len(name))
    memcpy(copy, <const char*> name, len(name))
    row = lookup.find(copy, len(name))
    free(copy)
    command = table.get(name.decode("latin-1").upper()) if name.isascii() else None
    if (row == NULL) != (command is None):
        raise Broken(f"{name!r} is {'found' if row else 'not found'}")
    if row != NULL and (row.name[:row.length].decode() != command.name or row.arity != command.arity):
        raise Broken(f"{name!r} is taken for {row.name[:row.length]!r}")
    return 0


cdef int check_line(bytes line) except -1:
    """An inline request's words."""
    try:
        words = split_inline(line)
    except ValueError:
        words = None
    try:
        expected = reference.words(line)
    except reference.Unbalanced:
        expected = None
    if words != expected:
        raise Broken(f"{line!r} is {words} instead of {expected}")
    return 0


cdef int check_requests(Stream stream, Limits limits, uint64_t seed) except -1:
    """The stream as a client's."""
    cdef request_parse_t parse
    cdef size_t position = 0
    cdef tuple whole
    cdef list found = []
    error = None
    parse.arguments = NULL
    parse.capacity = 0
    try:
        while position < stream.size:
            whole = request_at(stream, position, limits, &parse)
            check_prefixes(stream, position, limits, whole, seed)
            if whole[0] == PARSE_INCOMPLETE:
                break
            if whole[0] == PARSE_ERROR:
                error = whole[2]
                break
            found.append((whole[1], whole[2]))
            if whole[0] == PARSE_INLINE:
                check_line(whole[2])
            elif whole[2]:
                check_name(whole[2][0])
            position += whole[1]
    finally:
        free_parse(&parse)
    expected = reference.requests(stream.data[:stream.size], limits.longest_bulk, limits.most_arguments)
    if expected != (found, error):
        raise Broken(f"requests are {(found, error)} instead of {tuple(expected)}")
    return 0


cdef tuple measured(Stream stream, bint whole, uint64_t seed):
    """``(lengths, malformed)`` of the replies in the stream, which arrives whole or in pieces."""
    cdef reply_meter_t meter
    cdef size_t arrived = 0
    cdef size_t start = 0
    cdef size_t scanned = 0
    cdef size_t used
    cdef parse_status status
    cdef char* piece
    cdef list lengths = []
    meter.elements = 0
    meter.skip = 0
    while arrived < stream.size:
        arrived = stream.size if whole else next_cut(stream.size, arrived, &seed)
        while scanned < arrived:
            # As a backend does it: what was not stepped over comes again, with what follows.
            piece = <char*> malloc(arrived - scanned)
            if piece == NULL:
                raise MemoryError
            memcpy(piece, stream.data + scanned, arrived - scanned)
            used = 0
            status = measure_reply(&meter, piece, arrived - scanned, &used)
            free(piece)
            if status == PARSE_ERROR:
                return lengths, True
            if used > arrived - scanned:
                raise Broken(f"{used} bytes used of {arrived - scanned} at {scanned}")
            scanned += used
            if status == PARSE_INCOMPLETE:
                break
            if status != PARSE_COMPLETE or not used:
                raise Broken(f"{status} with {used} bytes used at {scanned}")
            lengths.append(scanned - start)
            start = scanned
    return lengths, False


cdef int check_replies(Stream stream, uint64_t seed) except -1:
    """The stream as a server's."""
    whole = measured(stream, True, seed)
    pieces = measured(stream, False, seed)
    if whole != pieces:
        raise Broken(f"replies are {pieces} in pieces, {whole} in one")
    expected = reference.replies(stream.data[:stream.size])
    if expected != whole:
        raise Broken(f"replies are {whole} instead of {expected}")
    return 0


def check(const uint8_t[:] given):
    """Check everything for one input.

    Raises:
        Broken: with what does not hold.
    """
    if len(given) < OPTIONS:
        return
    cdef Stream stream = Stream(given[OPTIONS:])
    cdef uint64_t seed = 88172645463325252 + given[1]
    check_requests(stream, Limits(given[0]), seed)
    check_replies(stream, seed)


def read_too_far():
    """Reads one byte behind the end of its memory: AddressSanitizer has to end the process here."""
    cdef Stream stream = Stream(b"*1")
    cdef request_parse_t parse
    return parse_request(&parse, stream.data, stream.size + 1, LONGEST_BULK, MAXIMUM_ARGUMENTS)
