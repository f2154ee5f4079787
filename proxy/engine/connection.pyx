"""A client's connection: bytes in and out, and when to read no more.

What arrives is handed to :meth:`ClientConnection.process` where it lies, in the loop's scratch memory; a connection
holds bytes of its own only while a request is incomplete or has to wait. Reading stops while the request at the
front waits, while too much is owed to the client, and while its server's queue is too long (**bounded**).
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.string cimport memset

from proxy.engine.backend cimport Backend
from proxy.engine.buffer cimport (
    buffer_append,
    buffer_consume,
    buffer_free,
    buffer_length,
    buffer_reserve,
)
from proxy.engine.requests cimport SCRATCH_SIZE, Loop

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void* data, size_t size, int flags)
    ssize_t send(int fd, const void* data, size_t size, int flags)

cdef enum:
    KEPT_OUTPUT = 2048
    READ_LEAST = 16384
    READ_MOST = 4194304


cdef void send_client(void* owner) noexcept:
    (<ClientConnection> owner).send_out()


cdef class ClientConnection:
    """The connection under a :class:`proxy.engine.session.Session`.

    Args:
        loop: the worker's loop.
        settings: :class:`proxy.settings.ProxySettings`.
        open_connections: the set it is in as long as it is open.
        sock: the accepted, non-blocking socket; the connection owns it.
        peer: the client's address as text.
    """

    def __cinit__(self, *arguments):
        memset(&self.client, 0, sizeof(self.client))
        memset(&self.inbox, 0, sizeof(self.inbox))
        self.client.sender.send = send_client
        self.client.sender.owner = <void*> self

    def __init__(self, Loop loop, settings, set open_connections, sock, peer):
        self.loop = loop
        self.open_connections = open_connections
        self.sock = sock
        self.fd = sock.fileno()
        self.client.fd = self.fd
        self.client.out_limit = settings.session_output_limit_bytes
        self.pause_bytes = settings.session_output_pause_bytes
        self.most_owed = settings.session_max_pipeline
        self.peer = peer
        self.created = self.last_active = self.last_progress = loop.now
        self.reading = True
        open_connections.add(self)
        loop.event_loop.add_reader(self.fd, self._readable)

    def __dealloc__(self):
        buffer_free(&self.client.out)
        buffer_free(&self.inbox)

    # -- reading -------------------------------------------------------------------------------------------

    cdef size_t process(self, const char* data, size_t size):
        """Take requests off the front of ``data``; the number of bytes done with."""
        raise TypeError("a connection that nobody reads from")

    cdef bint over_limits(self) noexcept:
        if self.switched:
            if self.client.owed:
                return True
            self.switched = False
        return (
            self.client.owed >= self.most_owed
            or buffer_length(&self.client.out) + self.client.early > self.pause_bytes
        )

    def _readable(self):
        cdef ssize_t received
        cdef size_t used
        cdef size_t length
        cdef size_t room
        cdef bint own
        if self.stopped or self.paused or self.held_back or self.closing:
            # Level-triggered: without this the loop would spin on what is not read.
            self.loop.event_loop.remove_reader(self.fd)
            self.reading = False
            return
        length = buffer_length(&self.inbox)
        own = length > 0
        if own:
            room = self.need - length if self.need > length else READ_LEAST
            if room > READ_MOST:
                room = READ_MOST
            if room < READ_LEAST:
                room = READ_LEAST
            if not buffer_reserve(&self.inbox, room):
                self.close()
                return
            received = recv(self.fd, self.inbox.data + self.inbox.end, self.inbox.size - self.inbox.end, 0)
        else:
            received = recv(self.fd, self.loop.scratch, SCRATCH_SIZE, 0)
        if received <= 0:
            if received < 0 and (errno == EAGAIN or errno == EINTR):
                return
            if received == 0 and (self.client.head != NULL or buffer_length(&self.client.out)):
                # It has no more to say and may still listen, as in `printf ... | nc -N`.
                self._finish()
                return
            self.close()
            return
        self.last_active = self.loop.now
        if own:
            self.inbox.end += received
            self._process_inbox()
        else:
            used = self.process(self.loop.scratch, received)
            if not self.closed and used < <size_t> received:
                if not buffer_append(&self.inbox, self.loop.scratch + used, received - used):
                    self.close()

    def _process_inbox(self):
        cdef size_t length = buffer_length(&self.inbox)
        cdef size_t used
        if length < self.need and not self.stopped:
            return
        used = self.process(self.inbox.data + self.inbox.start, length)
        if not self.closed and used:
            buffer_consume(&self.inbox, used, 0)

    def _finish(self):
        """Take no more requests; close once everything owed is sent."""
        self.closing = True
        self.loop.list_client(&self.client.sender)

    # -- waiting -------------------------------------------------------------------------------------------

    cdef void hold_back(self, Backend backend):
        """Read nothing more until the backend's queue is shorter."""
        if not self.held_back:
            self.held_back = True
            backend.pause_session(self)

    def resume_reading(self):
        """A backend that was congested has room again."""
        if self.closed:
            return
        self.held_back = False
        self._resume()

    def _resume(self):
        if self.processing:
            self.woken = True
            return
        if self.stopped or self.paused or self.held_back or self.closing:
            return
        self.need = 0
        if buffer_length(&self.inbox):
            self._process_inbox()
        if not self.closed and not self.reading and not (self.stopped or self.paused or self.held_back):
            self.reading = True
            self.loop.event_loop.add_reader(self.fd, self._readable)

    @property
    def waits(self):
        """Whether the request at the front waits."""
        return self.stopped

    # -- sending and closing -------------------------------------------------------------------------------

    cdef void send_out(self) noexcept:
        cdef size_t length = buffer_length(&self.client.out)
        cdef ssize_t sent
        try:
            if self.closed:
                return
            if self.client.broken != NULL:
                self.close()
                return
            if self.writing:
                return
            if length:
                sent = send(self.fd, self.client.out.data + self.client.out.start, length, 0)
                if sent < 0:
                    if errno == EAGAIN or errno == EINTR:
                        sent = 0
                    else:
                        self.close()
                        return
                if sent:
                    self.last_progress = self.loop.now
                buffer_consume(&self.client.out, sent, KEPT_OUTPUT)
                if <size_t> sent < length:
                    self.writing = True
                    if sent == 0:
                        self.last_progress = self.loop.now
                    self.loop.event_loop.add_writer(self.fd, self._writable)
                    return
            if self.closing and self.client.head == NULL:
                self.close()
            elif self.paused and not self.over_limits():
                self.paused = False
                self._resume()
        except Exception as error:
            self.loop.event_loop.call_exception_handler({"message": "sending to a client", "exception": error})

    def _writable(self):
        self.loop.event_loop.remove_writer(self.fd)
        self.writing = False
        self.send_out()

    def check_time(self, double stall_seconds, double idle_seconds):
        """Close a client that takes none of its replies, or asks for nothing, for too long (**bounded**)."""
        if self.writing and self.loop.now - self.last_progress > stall_seconds:
            self.close()
        elif (
            idle_seconds
            and self.client.head == NULL
            and not self.stopped
            # A long reply may take its time.
            and self.loop.now - max(self.last_active, self.last_progress) > idle_seconds
        ):
            self.close()

    def drain(self):
        """Take no more requests than those received, as far as they can run now; close when all replies are sent.

        A session that waits, or is held back, goes on later: call again until it is closed.
        """
        if not (self.stopped or self.paused or self.held_back):
            self._finish()

    @property
    def owed(self):
        """Replies owed."""
        return self.client.owed

    @property
    def unsent(self):
        """Bytes of replies that the client has not taken."""
        return buffer_length(&self.client.out)

    @property
    def unparsed(self):
        """Bytes of requests that are incomplete or wait."""
        return buffer_length(&self.inbox)

    def local_address(self):
        """The address the client connected to, as text."""
        try:
            return format_address(self.sock.getsockname())
        except OSError:
            # macOS says so of a connection that the client has reset.
            return "?:0"

    def close(self):
        """Close the connection now; what is under way for it at the servers runs to its end there."""
        if self.closed:
            return
        self.closed = True
        event_loop = self.loop.event_loop
        event_loop.remove_reader(self.fd)
        event_loop.remove_writer(self.fd)
        self.sock.close()
        self.loop.forget_client(&self.client)
        buffer_free(&self.client.out)
        self.open_connections.discard(self)


def format_address(address):
    """``host:port`` of a socket address; a Unix socket's path and ``:0``, as Redis shows it."""
    if isinstance(address, tuple):
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return f"{address or '/'}:0"
