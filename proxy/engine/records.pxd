"""The C records of requests, clients, and senders of bytes."""

from libc.stdint cimport UINT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from proxy.engine.buffer cimport buffer_t
from slots.requests.commandlookup cimport split_kind

cdef enum:
    # KEY_BYTES of slots.messages.load.
    KEPT_OF_KEY = 128

ctypedef enum request_kind:
    # One client's request to one server.
    REQUEST_PLAIN
    # A part of a request that was split over servers.
    REQUEST_PART
    # Answered by the proxy, or a split request that waits for its parts.
    REQUEST_PLACE
    # The proxy's own request, answered to a Python callable.
    REQUEST_CALL
    # Not a reply: something that goes to the client between two replies.
    REQUEST_PUSH

# A client or a backend with bytes to send; it is in the loop's list while it has some.
ctypedef struct sender_t:
    sender_t* next
    void (*send)(void* owner) noexcept
    void* owner
    bint listed

# A list of them, first in, first out.
ctypedef struct senders_t:
    sender_t* first
    sender_t* last

ctypedef struct client_t:
    int fd
    # Replies owed, oldest first (**in-order**).
    request_t* head
    request_t* tail
    int32_t owed
    # Set when the connection has to be closed at the next send: memory ran out, or a limit was reached.
    const char* broken
    buffer_t out
    # Recent replies and their bytes, by which the size of the next ones is estimated.
    int64_t replies
    int64_t reply_bytes
    # Bytes of replies that came before their turn. Together with those in ``out`` they stay within the limit
    # (**bounded**).
    size_t early
    size_t out_limit
    # A part of the reply at the head has already been sent.
    bint streaming
    # Whether the next request's reply is dropped. The reply has a place all the same (**in-order**, **bounded**).
    bint muted
    # Whether its user does not see the whole names of its keys: they have a prefix.
    bint hides
    # Number of its user, for the statistics.
    uint8_t user
    sender_t sender

# One cache line, for each batch of replies passes over a pipeline's worth of requests.
ctypedef struct request_t:
    request_t* next_at_backend
    request_t* next_at_client
    client_t* client
    # For a REQUEST_PART and for the place of a split request: its split_t. For a REQUEST_CALL: its Python callable,
    # owned. If a reply waits for its turn: the kept_t that has it.
    void* extra
    char* reply
    # While the reply is not there, the ticks of the loop's clock when the request was queued for its server, and in the
    # upper 32 bits the request's bytes.
    uint64_t reply_size
    # From here to the kind, eight bytes are also read as one number (sort_of). The ticks when the proxy read it.
    uint32_t sent
    # Number of its command, for the statistics.
    int16_t command
    # Number of its user, for the statistics: a client may log in as another one meanwhile.
    uint8_t user
    uint8_t kind
    # Of a REQUEST_PART: its number. Of a REQUEST_CALL: the most bytes of its reply, if it has a limit of its own. Of
    # others: the length of the key that is kept behind the record; 0 if none is.
    int32_t part
    int16_t slot
    uint8_t done
    # Its reply is dropped.
    uint8_t muted

# How each request is kept: behind its record the first bytes of its key, for requests that turn out to be notable. Its
# bytes have gone to the server by then. Key and record come and go together, so the key is never another request's.
ctypedef struct keyed_request_t:
    request_t request
    char key[KEPT_OF_KEY]


cdef inline uint64_t sort_of(const request_t* request) noexcept nogil:
    """When it was read, its command, its user and its kind. Replies to requests of one sort that come together count
    alike but for their bytes."""
    cdef uint64_t sort
    memcpy(&sort, &request.sent, sizeof(sort))
    return sort


cdef inline void keep_key(request_t* request, const char* key, size_t length) noexcept nogil:
    """Keep the first bytes of a request's key. Not for a REQUEST_PART."""
    cdef char* kept = (<keyed_request_t*> request).key
    request.part = <int32_t> length
    # Most keys are short: two copies that overlap cost less than a call.
    if 8 <= length <= 16:
        memcpy(kept, key, 8)
        memcpy(kept + length - 8, key + length - 8, 8)
    elif 16 < length <= 32:
        memcpy(kept, key, 16)
        memcpy(kept + length - 16, key + length - 16, 16)
    else:
        memcpy(kept, key, length if length < KEPT_OF_KEY else KEPT_OF_KEY)


cdef inline void keep_size(request_t* request, size_t size) noexcept nogil:
    """Keep the bytes of a request whose reply is not there; of a transaction of more than 4 GiB, that many."""
    request.reply_size = <uint32_t> request.reply_size | <uint64_t> min(size, <size_t> UINT32_MAX) << 32


# A request split over servers. Freed when its last part is answered.
ctypedef struct split_t:
    request_t* place
    split_kind kind
    int32_t keys
    int32_t parts
    int32_t parts_left
    int32_t* key_part
    int32_t* key_slot
    char** replies
    size_t* reply_sizes
    # Bytes of all of them.
    size_t held
    # Whether a part was answered with an error.
    bint failed
    int database

cdef extern from *:
    void prefetch "__builtin_prefetch" (const void* address) noexcept nogil

# A session's transaction, between MULTI and EXEC.
ctypedef struct multi_t:
    # The queued requests as they came, and their number.
    buffer_t requests
    int count
    # The slot of all their keys, or -1, and the router's count of rules by which it is.
    int32_t slot
    int64_t ruling
    # Where in them the first key begins, and its length.
    size_t key
    size_t key_size
    # The most bytes that plain Python may count for it.
    size_t size
