"""A client's connection: bytes in and out, and when reading stops.

Bytes that arrive are given to :meth:`ClientConnection.process` where they are, in the loop's scratch memory. A
connection holds bytes of its own only while a request is incomplete or has to wait. Reading stops while the request at
the front waits, while too much is owed to the client, and while its server's queue is too long (**bounded**).
"""

import ssl

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memset

from proxy.engine.backend cimport Backend
from proxy.engine.buffer cimport (
    buffer_append,
    buffer_consume,
    buffer_free,
    buffer_length,
    buffer_reserve,
    buffer_shrink,
)
from proxy.engine.memory cimport give_spare
from proxy.engine.poller cimport READABLE, WRITABLE
from proxy.engine.requests cimport SCRATCH_SIZE, Loop
from proxy.engine.stream cimport is_left, receive, recv, transmit

cdef extern from "<sys/socket.h>" nogil:
    int MSG_PEEK

cdef enum:
    # With more bytes of unsent replies than this, reading stops if much is kept for all clients together.
    SCARCE_PAUSE = 16384
    # The number of replies that may be owed before any has come; also the least such number.
    FIRST_WINDOW = 32
    LEAST_WINDOW = 16
    # Fewer bytes of replies than this may be sent together with the next ones.
    DEFERRED = 16384
    READ_LEAST = 16384
    READ_MOST = 4194304
    # Bytes of requests that are read behind a waiting one. With more, a client's leaving is not noticed.
    WATCHED_INPUT = 1048576


cdef void client_ready(void* owner, uint32_t events) noexcept:
    # A reference is held: it may close itself.
    cdef ClientConnection connection = <ClientConnection> owner
    try:
        if events & WRITABLE and connection.writing:
            connection.writable()
        if events & READABLE and not connection.closed:
            connection.readable()
    except Exception as error:
        connection.loop.event_loop.call_exception_handler({"message": "serving a client", "exception": error})
        connection.close()


cdef void send_client(void* owner) noexcept:
    (<ClientConnection> owner).send_out()


cdef void client_ready_counted(void* owner, uint32_t events) noexcept:
    """As :func:`client_ready`, for one whose user's time may be limited."""
    cdef Loop loop = (<ClientConnection> owner).loop
    cdef int before = loop.work_time.turn_to((<ClientConnection> owner).client.user)
    client_ready(owner, events)
    loop.work_time.turn_to(before)


cdef void send_client_counted(void* owner) noexcept:
    cdef Loop loop = (<ClientConnection> owner).loop
    cdef int before = loop.work_time.turn_to((<ClientConnection> owner).client.user)
    send_client(owner)
    loop.work_time.turn_to(before)


cdef class ClientConnection:
    """The connection under a :class:`proxy.engine.session.Session`.

    Args:
        loop: the worker's loop.
        settings: :class:`proxy.settings.ProxySettings`.
        open_connections: the set that has it while it is open.
        sock: the accepted, non-blocking socket, or ssl.SSLSocket after its handshake; the connection owns it.
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
        self.tls = sock if isinstance(sock, ssl.SSLSocket) else None
        self.client.fd = self.fd
        self.client.out_limit = settings.session_output_limit_bytes
        self.pause_bytes = settings.session_output_pause_bytes
        self.most_owed = settings.session_max_pipeline
        self.window = min(FIRST_WINDOW, self.most_owed)
        self.peer = peer
        self.created = self.last_active = self.last_progress = loop.now
        self.watch.fd = self.fd
        self.watch.ready = client_ready
        self.watch.owner = <void*> self
        self.reading = True
        open_connections.add(self)
        self.watch_again()

    def __dealloc__(self):
        buffer_free(&self.client.out)
        buffer_free(&self.inbox)

    # -- reading -------------------------------------------------------------------------------------------

    cdef size_t process(self, const char* data, size_t size):
        """Take requests off the front of ``data``; give the number of bytes that were handled."""
        raise TypeError("a connection that nobody reads from")

    cdef size_t take(self, const char* data, size_t size) noexcept:
        """As :meth:`process`. An exception ends this connection, and does not reach the caller."""
        try:
            return self.process(data, size)
        except Exception as error:
            self.loop.event_loop.call_exception_handler({"message": "serving a client", "exception": error})
        self.processing = False
        try:
            self.close()
        except Exception as error:
            self.loop.event_loop.call_exception_handler({"message": "closing a client", "exception": error})
        return 0

    cdef int over_limits(self) noexcept:
        """IS_OVER if no request may be taken now; else METERED if the user's limits have to be looked at, or 0."""
        if self.before_next:
            if self.before_next & SWITCHED and self.client.owed:
                return IS_OVER
            self.before_next &= ~SWITCHED
        if self.client.owed >= self.window:
            self.set_window()
            if self.client.owed >= self.window:
                return IS_OVER
        if buffer_length(&self.client.out) + self.client.early <= (
            self.pause_bytes if self.loop.kept <= self.loop.kept_limit // 2 else SCARCE_PAUSE
        ):
            return self.before_next
        self.set_window()
        return IS_OVER

    cdef void set_window(self) noexcept:
        """Allow so many owed replies that their expected bytes stay below the point where reading stops.

        A client that reads nothing has sent that much before it is found out, and all of it stands at the servers
        before other clients' requests. So the number grows with the replies that have come, as TCP's window does.
        """
        cdef int64_t expected
        cdef int64_t grown = FIRST_WINDOW + 2 * self.client.replies
        if self.client.replies == 0:
            return
        expected = self.pause_bytes * self.client.replies // (self.client.reply_bytes + 1)
        self.window = <int> min(<int64_t> self.most_owed, grown, max(<int64_t> LEAST_WINDOW, expected))

    cdef void watch_again(self) noexcept:
        """Have the poller report the events that matter now."""
        self.loop.poller.want(&self.watch, (READABLE if self.reading else 0) | (WRITABLE if self.writing else 0))

    cdef void count_time(self, bint counted) noexcept:
        """From now on the worker's time for it may count (:mod:`proxy.engine.worktime`). Others have nothing to do with
        that."""
        self.watch.ready = client_ready_counted if counted else client_ready
        self.client.sender.send = send_client_counted if counted else send_client

    def _readable(self):
        """Read once more, from the event loop."""
        self.watch.ready(<void*> self, READABLE)

    cdef object readable(self):
        cdef ssize_t received
        cdef size_t used
        cdef size_t length
        cdef size_t room
        cdef bint own
        if self.closed:
            return
        if self.leaving_watched and self.reasons & FOR_FRONT and buffer_length(&self.inbox) < WATCHED_INPUT:
            self._read_ahead()
            return
        if self.reasons:
            # Level-triggered: without this the loop would spin on bytes that are not read.
            self.reading = False
            self.watch_again()
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
            received = receive(self.fd, self.tls, self.inbox.data + self.inbox.end, self.inbox.size - self.inbox.end)
        else:
            received = receive(self.fd, self.tls, self.loop.scratch, SCRATCH_SIZE)
        if received <= 0:
            if received < 0 and (errno == EAGAIN or errno == EINTR):
                return
            if received == 0 and (self.client.head != NULL or buffer_length(&self.client.out)):
                # The client has no more to say and may still listen, as in `printf ... | nc -N`.
                self._finish()
                return
            self.close()
            return
        self.last_active = self.loop.now
        if self.tls is not None:
            # The TLS layer may hold more than the buffer could take.
            self.loop.event_loop.call_soon(self._readable)
        if own:
            self.inbox.end += received
            self._process_inbox()
        else:
            used = self.take(self.loop.scratch, received)
            if not self.closed and used < <size_t> received:
                if not buffer_append(&self.inbox, self.loop.scratch + used, received - used):
                    self.close()
                self.count_inbox()

    cdef void watch_leaving(self) noexcept:
        """Notice it if the client hangs up while the request at the front waits."""
        self.leaving_watched = True
        if not self.reading and not self.reasons & FOR_GOOD:
            self.reading = True
            self.watch_again()

    def _read_ahead(self):
        """Take the bytes behind a waiting request, up to a limit, to notice the end of the connection."""
        cdef int came = self.take_in()
        if came < 0 and (self.reasons & (FOR_SERVER | FOR_ELEMENT) == FOR_SERVER or self.comes_back()):
            # What was done for the client by now is its own, for it may still listen. has_left() tells of its end then.
            self.reading = False
            self.watch_again()
        elif came < 0:
            self.close()
        elif came > 0 and self.tls is not None:
            # The TLS layer may hold more than the buffer could take.
            self.loop.event_loop.call_soon(self._readable)

    def _process_inbox(self):
        cdef size_t length = buffer_length(&self.inbox)
        cdef size_t used
        if length >= self.need or self.reasons & FOR_FRONT:
            used = self.take(self.inbox.data + self.inbox.start, length)
            if not self.closed and used:
                buffer_consume(&self.inbox, used, 0)
                buffer_shrink(&self.inbox)
        self.count_inbox()

    cdef void count_inbox(self) noexcept:
        """Count the memory of the input as memory kept for all clients."""
        if not self.closed:
            self.loop.kept += <int64_t> self.inbox.size - <int64_t> self.counted
            self.counted = self.inbox.size

    def count_queued(self, int64_t size):
        """Note that so many bytes of requests are kept for this client elsewhere, until it has sent the last of
        them."""
        self.count_elsewhere(size)

    cdef void count_elsewhere(self, int64_t size) noexcept:
        if not self.closed:
            self.loop.kept += size - self.queued
            self.queued = size

    def _finish(self):
        """Take no more requests; close once all owed replies are sent."""
        self.reasons |= FOR_GOOD
        self.loop.list_client(&self.client.sender)

    # -- waiting -------------------------------------------------------------------------------------------

    cdef void hold_back(self, Backend backend):
        """Read nothing more until the backend's queue is shorter."""
        if not self.reasons & FOR_TURN:
            self.reasons |= FOR_TURN
            backend.pause_session(self)

    def resume_reading(self):
        """Go on reading: a congested backend has room again, or other sessions have had their turn."""
        if self.closed:
            return
        self.loop.set_clock()
        self.reasons &= ~FOR_TURN
        self._resume()

    def _resume(self):
        cdef int before
        if self.processing:
            self.woken = True
            return
        if self.reasons or self.gives_up():
            return
        self.need = 0
        if buffer_length(&self.inbox):
            before = self.loop.work_time.turn_to_if(self.before_next & METERED, self.client.user)
            self._process_inbox()
            self.loop.work_time.turn_to(before)
        if not self.closed and not self.reading and not self.reasons & ~FOR_GOOD:
            self.reading = True
            self.watch_again()
            if self.tls is not None:
                self.loop.event_loop.call_soon(self._readable)

    @property
    def waits(self):
        """Whether the request at the front waits."""
        return (self.reasons & FOR_FRONT) != 0

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
            if length and self.client.head != NULL and length < DEFERRED and not self.deferred:
                # More replies are owed and may be ready, for instance from another server.
                self.deferred = self.loop.defer(&self.client.sender)
                if self.deferred:
                    return
            self.deferred = False
            if length:
                sent = transmit(self.fd, self.tls, self.client.out.data + self.client.out.start, length)
                if sent < 0:
                    if errno == EAGAIN or errno == EINTR:
                        sent = 0
                    else:
                        self.close()
                        return
                if sent:
                    self.last_progress = self.loop.now
                self.loop.kept -= self.client.out.size
                self.client.out.start += sent
                if self.client.out.start == self.client.out.end:
                    give_spare(&self.loop.memory, &self.client.out)
                else:
                    buffer_shrink(&self.client.out)
                self.loop.kept += self.client.out.size
                if <size_t> sent < length:
                    self.writing = True
                    if sent == 0:
                        self.last_progress = self.loop.now
                    self.watch_again()
                    return
            if self.reasons & FOR_GOOD and self.client.head == NULL:
                if self.parting is None:
                    self.close()
                else:
                    self._part()
            elif self.reasons & FOR_OWED and not self.over_limits() & IS_OVER:
                self.reasons &= ~FOR_OWED
                self._resume()
            elif self.parting is not None:
                self._part_between_requests()
        except Exception as error:
            self.loop.event_loop.call_exception_handler({"message": "sending to a client", "exception": error})

    cdef object writable(self):
        self.writing = False
        self.send_out()
        if not self.writing and not self.closed:
            self.watch_again()

    def check_time(self, double stall_seconds, double idle_seconds):
        """Close a client that takes no replies, or sends no request, for too long (**bounded**)."""
        if self.writing and self.loop.now - self.last_progress > stall_seconds:
            self.close()
        elif (
            idle_seconds
            and self.client.head == NULL
            and not self.reasons & FOR_FRONT
            # A long reply may take its time.
            and self.loop.now - max(self.last_active, self.last_progress) > idle_seconds
        ):
            self.close()

    def drain(self):
        """Run the received requests that can run now, and take no others; close when all replies are sent.

        A session that waits, or is held back, goes on later: call again until it is closed.
        """
        if not self.reasons & ~FOR_GOOD:
            self._finish()

    # -- parting -------------------------------------------------------------------------------------------

    def retire(self, parting):
        """Close as soon as the client is between two requests: nothing is owed to it, and nothing of a request has come.

        Then ``parting(sock)`` gets the socket: it is open, and the kernel has all replies. Call this again from time to
        time, for a client may reach that point without anything being sent.
        """
        if not self.closed:
            self.parting = parting
            self.loop.list_client(&self.client.sender)

    def cut(self, parting):
        """As :meth:`retire`, and take no more requests. Requests that were taken are answered.

        The request at the front may wait; then this waits for it, too. Call again until the connection is closed.
        """
        if not self.closed:
            self.parting = parting
            if self.reasons & FOR_FRONT:
                self.loop.list_client(&self.client.sender)
            else:
                self._finish()

    cdef bint amid(self):
        """Whether the client is in the middle of something longer, such as a transaction."""
        return False

    cdef object _part_between_requests(self):
        cdef char byte
        if (
            self.client.head != NULL
            or self.client.owed
            or self.client.early
            or buffer_length(&self.client.out)
            or buffer_length(&self.inbox)
            or self.reasons & ~FOR_GOOD
            or self.processing
            or self.amid()
            or (self.tls is not None and self.tls.pending())
        ):
            return
        # Bytes that have come by now are handled first. When they are read, a client that has left is noticed.
        if recv(self.fd, &byte, 1, MSG_PEEK) < 0 and errno == EAGAIN:
            self._part()

    cdef object _part(self):
        cdef object parting = self.parting
        self.released = True
        self.close()
        parting(self.sock)

    @property
    def owed(self):
        """Replies owed."""
        return self.client.owed

    @property
    def unsent(self):
        """Bytes of replies that the client has not taken."""
        return buffer_length(&self.client.out) + self.client.early

    @property
    def kept(self):
        """Bytes of memory for unsent replies and unparsed requests."""
        return self.client.out.size + self.client.early + self.inbox.size + self.queued

    @property
    def unparsed(self):
        """Bytes of requests that are incomplete or wait."""
        return buffer_length(&self.inbox)

    cpdef bint has_left(self) noexcept:
        """Whether its client has closed the connection, or at least its own side of it.

        A client that has closed both sides looks the same until something is sent to it. The end is not seen if more
        bytes come before it than the sockets can hold.
        """
        cdef int came = 1
        if self.closed or is_left(self.fd):
            return True
        # TLS has an end of its own, behind the bytes sent before. The socket may stay open until that is answered.
        while came > 0 and self.tls is not None and not self.processing and buffer_length(&self.inbox) < WATCHED_INPUT:
            came = self.take_in()
        return came < 0

    cdef int take_in(self) noexcept:
        """Take the bytes behind a waiting request: 1 if there were some, 0 if nothing came yet, -1 at the end."""
        cdef ssize_t received
        if not buffer_reserve(&self.inbox, READ_LEAST):
            return -1
        received = receive(self.fd, self.tls, self.inbox.data + self.inbox.end, READ_LEAST)
        self.count_inbox()
        if received > 0:
            self.inbox.end += received
            return 1
        return 0 if received < 0 and (errno == EAGAIN or errno == EINTR) else -1

    cdef bint comes_back(self):
        """Have the request at the front come back from where it waits; false if it waits nowhere else than here."""
        return False

    cdef bint gives_up(self):
        """Whether the client is given up, because it left while the request at the front waited."""
        return False

    def local_address(self):
        """The address the client connected to, as text."""
        try:
            return format_address(self.sock.getsockname())
        except OSError:
            # macOS reports this for a connection that the client has reset.
            return "?:0"

    def close(self):
        """Close the connection now. Its requests that are under way at the servers run to their end there."""
        if self.closed:
            return
        self.closed = True
        self.loop.kept -= <int64_t> self.counted + self.queued
        self.loop.poller.forget(&self.watch)
        if not self.released:
            self.sock.close()
        self.loop.forget_client(&self.client)
        buffer_free(&self.client.out)
        if not self.processing:
            # The object that it waits for may keep it alive for long.
            buffer_free(&self.inbox)
        self.open_connections.discard(self)


def format_address(address):
    """``host:port`` of a socket address; a Unix socket's path and ``:0``, as Redis shows it."""
    if isinstance(address, tuple):
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return f"{address or '/'}:0"
