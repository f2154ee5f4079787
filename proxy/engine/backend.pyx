"""One shared connection to a Redis server: bytes out, replies measured and handed to whom they are owed.

States: *down* until a request asks for it, *connecting*, *greeting* (HELLO or AUTH, CLIENT SETNAME, SELECT, and
a look for the fence), *ready*. Requests queue up while it connects; none is written before the greeting is
answered, so none can run in the wrong database or behind a fence. A connection that fails answers everything
in its queue with an error that names the server; nothing is sent twice, because it may have run.

**drained**: a connection lost with replies outstanding may have left commands in the server's socket buffer.
``options.on_lost`` is told the connection's name, and the worker does not acknowledge a lock at that server
until the server has ended the connection of that name.
"""

import errno as errors
import ipaddress
import os
import random
import socket

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint32_t
from libc.string cimport memset, strlen

from cpython.ref cimport Py_INCREF

from proxy.engine.buffer cimport buffer_append, buffer_consume, buffer_free, buffer_length, buffer_reserve
from proxy.engine.requests cimport (
    REQUEST_CALL,
    REQUEST_PART,
    REQUEST_PLAIN,
    SCRATCH_SIZE,
    Loop,
    client_t,
    prefetch,
    request_t,
    split_t,
)
from proxy.engine.resp cimport PARSE_COMPLETE, PARSE_ERROR, measure_reply, parse_status

from slots import connections

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void* data, size_t size, int flags)
    ssize_t send(int fd, const void* data, size_t size, int flags)

cdef enum:
    # An empty buffer larger than this gives its memory back.
    KEPT_BUFFER = 262144
    # A reply is passed on in parts once this much of it is there, so that a long one is never held whole.
    STREAM_FROM = 65536
    READ_SIZE = 262144

cdef const char* OUT_OF_MEMORY = b"-ERR the proxy is out of memory for this request\r\n"


cdef void send_backend(void* owner) noexcept:
    (<Backend> owner).send_out()


cpdef bytes command(tuple arguments):
    """A request in RESP: ``arguments`` are bytes, str or int."""
    parts = [b"*%d\r\n" % len(arguments)]
    for argument in arguments:
        if isinstance(argument, int):
            argument = b"%d" % argument
        elif isinstance(argument, str):
            argument = argument.encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(argument), argument))
    return b"".join(parts)


cdef class Backend:
    """One connection to one server, database and RESP version, used by every session of the worker.

    Args:
        loop: the worker's loop.
        address: ``host:port`` of the server.
        database: index of the database it works in.
        protocol: 2 or 3.
        options: a :class:`proxy.engine.options.BackendOptions`.
        reply_seconds: how long the oldest request may wait for its reply before the connection is given up.
    """

    def __cinit__(self, Loop loop, address, int database, int protocol, options, double reply_seconds):
        memset(&self.out, 0, sizeof(self.out))
        memset(&self.inbox, 0, sizeof(self.inbox))
        memset(&self.meter, 0, sizeof(self.meter))
        self.loop = loop
        self.sender.send = send_backend
        self.sender.owner = <void*> self
        self.fd = -1

    def __init__(self, Loop loop, address, int database, int protocol, options, double reply_seconds):
        host, _, port = address.rpartition(":")
        self.address = address
        self.host = (host.strip("[]"), int(port))
        self.database = database
        self.protocol = protocol
        self.options = options
        self.reply_seconds = reply_seconds
        self.pause_bytes = options.queue_pause_bytes
        self.paused_sessions = []
        self.failure_reply = b""

    def __dealloc__(self):
        buffer_free(&self.out)
        buffer_free(&self.inbox)

    # -- taking requests -----------------------------------------------------------------------------------

    cdef bint ready_to_take(self) noexcept:
        """Whether requests can be queued now; opens the connection if it is time to."""
        if self.state == BACKEND_READY or self.state == BACKEND_GREETING or self.state == BACKEND_CONNECTING:
            return True
        if self.state == BACKEND_DOWN and self.loop.now >= self.next_try:
            try:
                self._connect()
            except Exception as error:
                self._lose(f"cannot be connected to: {error}")
            return self.state != BACKEND_DOWN
        return False

    cdef void queue(self, request_t* request) noexcept:
        """Put a request whose bytes are in ``out`` at the end of the queue."""
        if self.tail != NULL:
            self.tail.next_at_backend = request
        else:
            self.head = request
        self.tail = request
        self.queued += 1
        if not self.sender.listed:
            self.loop.list_backend(&self.sender)

    cdef bint reserve(self, size_t size) noexcept:
        return buffer_reserve(&self.out, size)

    cdef void push(self, request_t* request, const char* data, size_t size) noexcept:
        """Queue a request and its bytes; where that cannot be, it is answered with an error at once."""
        if self.state != BACKEND_READY and not self.ready_to_take():
            self.loop.deliver(request, self.failure_reply, len(self.failure_reply))
        elif not buffer_append(&self.out, data, size):
            self.loop.deliver(request, OUT_OF_MEMORY, strlen(OUT_OF_MEMORY))
        else:
            self.queue(request)

    cdef bint congested(self) noexcept:
        """Whether sessions that send to this server should stop being read (**bounded**)."""
        return buffer_length(&self.out) > self.pause_bytes

    def pause_session(self, session):
        """Have ``session.resume_reading()`` called once the queue is shorter again."""
        self.paused_sessions.append(session)

    def call(self, bytes payload, callback):
        """Send a request of the proxy's own; ``callback(reply: bytes)`` gets the reply, or an error made here."""
        cdef request_t* request = self.loop.new_request(REQUEST_CALL, NULL, -1)
        if request == NULL:
            raise MemoryError
        Py_INCREF(callback)
        request.extra = <void*> callback
        self.push(request, payload, len(payload))

    @property
    def is_ready(self):
        """Whether the connection is up and introduced."""
        return self.state == BACKEND_READY

    # -- connecting ----------------------------------------------------------------------------------------

    def _connect(self):
        self.connects += 1
        self.name = self.options.new_name()
        self.used = False
        self.connect_deadline = self.loop.now + self.options.connect_seconds
        self.state = BACKEND_CONNECTING
        host, port = self.host
        try:
            family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        except ValueError:
            # A host name: looking it up may take long, and the event loop must not wait for it.
            self.resolving = self.loop.event_loop.create_task(self._resolve(host, port))
            return
        self.candidates = [(family, (host, port))]
        self._open()

    async def _resolve(self, host, port):
        task = self.resolving
        try:
            found = await self.loop.event_loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            if self.state == BACKEND_CONNECTING and self.resolving is task:
                self.candidates = [(family, address) for family, _, _, _, address in found]
                self._open()
        except OSError as error:
            if self.state == BACKEND_CONNECTING and self.resolving is task:
                self._lose(f"cannot be connected to: {error}")

    def _open(self):
        """Connect to the next address. A name may stand for several at which nobody listens: localhost is ::1 too."""
        family, address = self.candidates.pop(0)
        try:
            self._open_one(family, address)
        except OSError:
            if not self.candidates:
                raise
            self._drop_socket()
            self._open()

    def _open_one(self, family, address):
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.fd = self.sock.fileno()
        code = self.sock.connect_ex(address)
        if code not in (0, errors.EINPROGRESS):
            raise OSError(code, os.strerror(code))
        self.loop.event_loop.add_writer(self.fd, self._connected)

    def _connected(self):
        self.loop.event_loop.remove_writer(self.fd)
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code and self.candidates:
            self._drop_socket()
            try:
                self._open()
            except OSError as error:
                self._lose(f"cannot be connected to: {error}")
            return
        if code:
            self._lose(f"cannot be connected to: {os.strerror(code)}")
            return
        self._greet()
        if self.fd >= 0:
            self.loop.event_loop.add_reader(self.fd, self._readable)

    def _greet(self):
        """Introduce the connection. The name goes first and the look for the fence after it (see slots.connections)."""
        cdef bytes payload
        password = self.options.password
        commands = []
        self.greeting_checks = []
        if self.protocol == 3:
            commands.append(("HELLO", "3", "AUTH", "default", password) if password else ("HELLO", "3"))
            self.greeting_checks.append("HELLO 3")
        elif password:
            commands.append(("AUTH", password))
            self.greeting_checks.append("AUTH")
        commands.append(("CLIENT", "SETNAME", self.name))
        self.greeting_checks.append("CLIENT SETNAME")
        if self.database:
            commands.append(("SELECT", self.database))
            self.greeting_checks.append(f"SELECT {self.database}")
        commands.append(("ACL", "GETUSER", connections.fence_user(self.options.instance)))
        self.greeting_checks.append("fence")
        self.greetings_left = len(commands)
        payload = b"".join([command(arguments) for arguments in commands])
        self.state = BACKEND_GREETING
        if send(self.fd, <const char*> payload, len(payload), 0) != len(payload):
            # A new connection's socket buffer takes these few bytes, unless it is already broken.
            self._lose("closed the connection while it was introduced")

    def _greeting_reply(self, bytes reply):
        """Check one reply of the greeting; None, or why the connection cannot be used."""
        asked = self.greeting_checks[len(self.greeting_checks) - self.greetings_left]
        self.greetings_left -= 1
        if asked == "fence":
            # A server without ACL, or a user without the right to look, cannot hold a fence.
            if not reply.startswith((b"$-1", b"*-1", b"_", b"-")):
                self.options.on_fenced(self.address)
                return "has fenced this proxy off; it needs a new identity from topom"
        elif reply.startswith(b"-"):
            return f"refuses {asked}: {reply[1:].decode(errors='replace').strip()}"
        if not self.greetings_left:
            self.state = BACKEND_READY
            self.wait = 0
            self.failure = None
            self.loop.list_backend(&self.sender)
        return None

    # -- losing --------------------------------------------------------------------------------------------

    def _drop_socket(self):
        event_loop = self.loop.event_loop
        if self.fd >= 0:
            event_loop.remove_reader(self.fd)
            event_loop.remove_writer(self.fd)
            self.fd = -1
        if self.sock is not None:
            self.sock.close()
            self.sock = None

    def _lose(self, reason, closing=False):
        """End the connection and answer everything in the queue with ``reason``."""
        cdef request_t* request
        cdef bytes reply
        event_loop = self.loop.event_loop
        outstanding = self.used and self.head != NULL
        self._drop_socket()
        self.writing = False
        self.failure = reason
        self.failure_reply = f"-ERR server {self.address} {reason}\r\n".encode()
        reply = self.failure_reply
        options = self.options
        if closing:
            self.state = BACKEND_CLOSED
        else:
            self.state = BACKEND_DOWN
            self.wait = min(max(self.wait * 2, options.retry_seconds_min), options.retry_seconds_max)
            self.next_try = self.loop.now + self.wait * random.uniform(0.5, 1.0)
        buffer_free(&self.out)
        buffer_free(&self.inbox)
        self.loop.unlist(&self.sender)
        self.scanned = 0
        memset(&self.meter, 0, sizeof(self.meter))
        if outstanding:
            # drained: before the replies are given up, so that no lock is acknowledged in between.
            options.on_lost(self.address, self.name)
        request = self.head
        if request != NULL and self.streaming and request.client != NULL:
            # Half of the reply is with the client already; only closing its connection tells it so.
            request.client.broken = b"the server closed the connection within a reply"
            self.loop.list_client(&request.client.sender)
        self.streaming = False
        while self.head != NULL:
            request = self.head
            self.head = request.next_at_backend
            self.queued -= 1
            self.loop.deliver(request, reply, len(reply))
        self.tail = NULL
        try:
            # Not now: whoever asked for this connection may be in the middle of a request, and sessions that
            # go on share its scratch memory.
            event_loop.call_soon(self._after_loss)
        except RuntimeError:
            # The event loop is closed: the worker is on its way out.
            return

    def _after_loss(self):
        self._resume_sessions()
        self.loop.check_drained()

    def _resume_sessions(self):
        if self.paused_sessions:
            sessions, self.paused_sessions = self.paused_sessions, []
            for session in sessions:
                session.resume_reading()

    def reset(self, reason):
        """End the connection; the next request opens another, at once."""
        if self.state != BACKEND_CLOSED:
            self._lose(reason)
            self.next_try = self.loop.now

    def close(self, reason="is no longer in the slot table"):
        """Give the connection up for good."""
        if self.state != BACKEND_CLOSED:
            self._lose(reason, closing=True)

    def check_time(self):
        """Give up a connection that does not come up, or whose oldest request has waited too long (**bounded**)."""
        if self.state == BACKEND_CONNECTING or self.state == BACKEND_GREETING:
            if self.loop.now > self.connect_deadline:
                self._lose(f"did not accept a connection within {self.options.connect_seconds:g} s")
        elif self.state == BACKEND_READY and self.head != NULL:
            # Unsigned, so that the clock may wrap. What stands behind a long reply was not the server's to answer yet.
            waited = min(
                <uint32_t> (self.loop.now_milliseconds - self.head.sent),
                <uint32_t> (self.loop.now_milliseconds - self.progress),
            )
            if waited > self.reply_seconds * 1000:
                self._lose(
                    f"did not reply within {self.reply_seconds:g} s; the command may still run there"
                )

    # -- sending and receiving -----------------------------------------------------------------------------

    cdef void send_out(self) noexcept:
        cdef size_t length
        cdef ssize_t sent
        if self.state != BACKEND_READY or self.writing:
            return
        length = buffer_length(&self.out)
        if length == 0:
            return
        self.used = True
        sent = send(self.fd, self.out.data + self.out.start, length, 0)
        if sent < 0:
            if errno == EAGAIN or errno == EINTR:
                sent = 0
            else:
                try:
                    self._lose("closed the connection; the command may or may not have run")
                except Exception as error:
                    self.loop.event_loop.call_exception_handler({"message": "closing a backend", "exception": error})
                return
        buffer_consume(&self.out, sent, KEPT_BUFFER)
        if <size_t> sent < length:
            self.writing = True
            self.loop.event_loop.add_writer(self.fd, self._writable)

    def _writable(self):
        self.loop.event_loop.remove_writer(self.fd)
        self.writing = False
        self.progress = self.loop.now_milliseconds
        self.send_out()
        if self.paused_sessions and buffer_length(&self.out) <= self.pause_bytes // 2:
            self._resume_sessions()

    def _readable(self):
        cdef ssize_t received
        cdef size_t used
        cdef size_t length
        cdef bint own = buffer_length(&self.inbox) > 0
        if own:
            if not buffer_reserve(&self.inbox, READ_SIZE):
                self._lose("sent a reply that the proxy has no memory for")
                return
            received = recv(self.fd, self.inbox.data + self.inbox.end, self.inbox.size - self.inbox.end, 0)
        else:
            received = recv(self.fd, self.loop.scratch, SCRATCH_SIZE, 0)
        if received <= 0:
            if received < 0 and (errno == EAGAIN or errno == EINTR):
                return
            self._lose("closed the connection; the command may or may not have run")
            return
        if own:
            self.inbox.end += received
            length = buffer_length(&self.inbox)
            used = self.take_replies(self.inbox.data + self.inbox.start, length)
            if self.fd >= 0 and used:
                buffer_consume(&self.inbox, used, KEPT_BUFFER)
        else:
            used = self.take_replies(self.loop.scratch, received)
            if self.fd >= 0 and used < <size_t> received:
                if not buffer_append(&self.inbox, self.loop.scratch + used, received - used):
                    self._lose("sent a reply that the proxy has no memory for")
                    return
        if self.paused_sessions and buffer_length(&self.out) <= self.pause_bytes // 2:
            self._resume_sessions()
        self.loop.check_drained()

    cdef size_t take_replies(self, const char* data, size_t size):
        """Hand out the replies in ``data``; the number of bytes done with.

        Replies in a row to one client, each in its turn, are copied to it in one piece.
        """
        cdef Loop loop = self.loop
        cdef size_t position = 0
        cdef size_t scan = self.scanned
        cdef size_t used
        cdef size_t run = 0
        cdef client_t* run_client = NULL
        cdef client_t* client
        cdef request_t* request
        cdef parse_status status
        while scan < size:
            status = measure_reply(&self.meter, data + scan, size - scan, &used)
            scan += used
            if status == PARSE_ERROR:
                if run_client != NULL:
                    loop.put_reply(run_client, data + run, position - run)
                self._lose("sent something that is not a Redis reply")
                return 0
            if status != PARSE_COMPLETE:
                break
            if data[position] == c'>' and not self.streaming:
                # A push that nobody asked for on a shared connection.
                if run_client != NULL:
                    loop.put_reply(run_client, data + run, position - run)
                    run_client = NULL
                position = scan
                continue
            if self.state == BACKEND_GREETING:
                problem = self._greeting_reply(data[position:scan])
                if problem is not None:
                    self._lose(problem)
                    return 0
                position = scan
                continue
            request = self.head
            if request == NULL:
                if run_client != NULL:
                    loop.put_reply(run_client, data + run, position - run)
                self._lose("sent a reply that nothing asked for")
                return 0
            self.head = request.next_at_backend
            if self.head == NULL:
                self.tail = NULL
            else:
                prefetch(self.head)
            self.queued -= 1
            self.streaming = False
            client = request.client
            if client != NULL and request.kind == REQUEST_PLAIN and client.head == request:
                if client != run_client:
                    if run_client != NULL:
                        loop.put_reply(run_client, data + run, position - run)
                    run_client = client
                    run = position
                if data[position] == c'-':
                    loop.errors += 1
                loop.leave_slot(request.slot)
                client.head = request.next_at_client
                client.owed -= 1
                loop.free_request(request)
                if client.head == NULL:
                    client.tail = NULL
                elif client.head.done:
                    loop.put_reply(client, data + run, scan - run)
                    run_client = NULL
                    loop.pop_done(client)
            else:
                if run_client != NULL:
                    loop.put_reply(run_client, data + run, position - run)
                    run_client = NULL
                loop.deliver(request, data + position, scan - position)
                if self.fd < 0:
                    # A callback closed this backend.
                    return 0
            position = scan
        if run_client != NULL:
            loop.put_reply(run_client, data + run, position - run)
        if scan - position >= STREAM_FROM and self.state == BACKEND_READY and self.head != NULL:
            self.progress = loop.now_milliseconds
            request = self.head
            client = request.client
            if request.kind == REQUEST_PART and (<split_t*> request.extra).place != NULL:
                client = (<split_t*> request.extra).place.client
            if request.kind != REQUEST_CALL and client == NULL:
                # Whoever asked has gone.
                self.streaming = True
                position = scan
            elif request.kind == REQUEST_PLAIN and client.head == request:
                loop.put_reply(client, data + position, scan - position)
                self.streaming = True
                position = scan
            elif client != NULL:
                # It has to be kept until its turn, or its end, comes.
                loop.too_much(client, scan - position)
        self.scanned = scan - position
        return position
