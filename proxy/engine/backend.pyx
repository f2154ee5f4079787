"""One shared connection to a Redis server: it sends requests, measures the replies and hands them to their clients.

States: *down* until a request asks for it, *connecting* and *greeting* (:mod:`proxy.engine.serverconnection`), *ready*.
Requests queue up while it connects. None is written before the greeting is answered, so none can run in the wrong
database or behind a fence. If a connection fails, every request in its queue is answered with an error that names the
server. Nothing is sent twice, because it may have run.

**drained**: a connection that is lost with replies outstanding may have left commands in the server's socket buffer.
``options.on_lost`` is told the connection's name. The worker does not acknowledge a lock at that server until the
server has ended the connection of that name.
"""

import random
from collections import deque

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memset, strlen

from cpython.ref cimport Py_INCREF

from proxy.engine.allowance cimport is_over
from proxy.engine.buffer cimport buffer_append, buffer_consume, buffer_free, buffer_length, buffer_reserve
from proxy.engine.memory cimport LARGE_ROOM, kept_t
from proxy.engine.poller cimport READABLE, WRITABLE
from proxy.engine.records cimport REQUEST_CALL, REQUEST_PART, REQUEST_PLAIN, client_t, prefetch, request_t, split_t
from proxy.engine.requests cimport KEPT_BUFFER, SCRATCH_SIZE, Loop
from proxy.engine.resp cimport PARSE_COMPLETE, PARSE_ERROR, measure_reply, parse_status
from proxy.engine.serverconnection cimport (
    BACKEND_CLOSED,
    BACKEND_CONNECTING,
    BACKEND_DOWN,
    BACKEND_GREETING,
    BACKEND_READY,
    ServerConnection,
)
from proxy.engine.statistics cimport UNCOUNTED, observe
from proxy.engine.stream cimport receive, transmit

from proxy.engine.outcomes import Reply
from proxy.engine.serverconnection import command as command

OVER = "is not used by this proxy for now: it hears no topom, and another server may have become the master"
REPLACED = "has failed, and another server takes its place; nothing was run"
NOT_KNOWN = (
    "was restarted, and may have forgotten that this proxy was fenced off it: it is not used before topom has answered"
    " this proxy; nothing was run"
)

cdef extern from *:
    """
    #include <netinet/in.h>
    #include <netinet/tcp.h>
    #include <sys/socket.h>
    #ifdef TCP_QUICKACK
    #define slotferry_quickack TCP_QUICKACK
    #else
    #define slotferry_quickack -1
    #endif
    """
    int slotferry_quickack
    int IPPROTO_TCP
    int setsockopt(int fd, int level, int name, const void* value, unsigned int size) nogil

cdef enum:
    # With more requests at a server than this, sessions are no longer read, even if its replies have been small. The
    # size of a reply is only known when it comes.
    MOST_QUEUED = 2048
    # With more expected bytes of replies than this, by the size of the latest ones, sessions are no longer read either.
    # A server writes so much within some milliseconds, and a request for a small value waits no longer behind it.
    WINDOW_BYTES = 1048576
    # A reply is passed on in parts once this much of it has come, so that a long one is never held whole.
    STREAM_FROM = 65536
    READ_SIZE = 262144
    # The number of replies after which older ones count less for the expected size of a reply.
    FORGOTTEN_REPLIES = 1024

cdef const char* OUT_OF_MEMORY = b"-ERR the proxy is out of memory for this request\r\n"
cdef double TICK_SECONDS = 4096e-9


cdef void backend_ready(void* owner, uint32_t events) noexcept:
    # A reference is held: it may close itself.
    cdef Backend backend = <Backend> owner
    try:
        backend.ready(events)
    except Exception as error:
        backend.loop.event_loop.call_exception_handler({"message": "serving a backend", "exception": error})
        backend.reset("was left: the proxy failed to understand it; its log says why")


cdef void send_backend(void* owner) noexcept:
    (<Backend> owner).send_out()


cdef inline request_t* take_head(Backend backend) noexcept:
    """Take the oldest request off the queue; NULL if there is none."""
    cdef request_t* request = backend.head
    if request == NULL:
        return NULL
    backend.head = request.next_at_backend
    if backend.head == NULL:
        backend.tail = NULL
    else:
        # The next request is here by now. Its effects are handled when its turn comes.
        prefetch(backend.head.next_at_backend)
        prefetch(backend.head.next_at_client)
    backend.queued -= 1
    backend.replies += 1
    return request


cdef inline void give_reply(
    Backend backend,
    run_t* run,
    request_t* request,
    const char* data,
    size_t start,
    size_t end,
    bint streamed,
) noexcept:
    """Give a client its reply, which is ``data[start:end]``. Replies to one client are collected in ``run``."""
    cdef Loop loop = backend.loop
    cdef client_t* client = request.client
    cdef bint failed = data[start] == c'-' and not streamed
    cdef bint in_turn
    loop.errors += failed
    observe(
        loop.statistics,
        request.command,
        loop.ticks - request.sent,
        failed,
        request.slot,
        client.sender.owner,
        backend.address,
    )
    loop.leave_slot(request.slot)
    in_turn = client.head == request
    if client != run.client or in_turn != (run.early == NULL) or (
        # Replies that are kept together are also freed together, so they must not be too many.
        not in_turn and end - run.start > LARGE_ROOM - sizeof(kept_t)
    ):
        backend.end_run(run, data, start)
        run.client = client
        run.early = NULL if in_turn else request
        run.start = start
    if not in_turn:
        request.reply_size = end - start
        return
    client.head = request.next_at_client
    client.owed -= 1
    client.replies += 1
    loop.free_request(request)
    if client.head == NULL:
        client.tail = NULL
    elif client.head.done:
        backend.end_run(run, data, end)
        loop.pop_done(client)


cdef class Backend(ServerConnection):
    """One connection to one server, database and RESP version, used by every session of the worker.

    Args:
        loop: the worker's loop.
        address: ``host:port`` of the server.
        database: index of the database it works in.
        protocol: 2 or 3.
        options: a :class:`proxy.servers.backends.BackendOptions`.
        reply_seconds: how long the oldest request may wait for its reply before the connection is given up.
    """

    def __cinit__(self, Loop loop, address, int database, int protocol, options, double reply_seconds):
        memset(&self.out, 0, sizeof(self.out))
        memset(&self.inbox, 0, sizeof(self.inbox))
        memset(&self.meter, 0, sizeof(self.meter))
        self.sender.send = send_backend
        self.sender.owner = <void*> self
        self.watch.ready = backend_ready
        self.watch.owner = <void*> self

    def __init__(self, Loop loop, address, int database, int protocol, options, double reply_seconds):
        super().__init__(loop, address, database, protocol, options)
        self.reply_seconds = reply_seconds
        self.pause_bytes = options.queue_pause_bytes
        self.most_held = options.own_reply_bytes
        self.paused_sessions = deque()
        self.failure_reply = b""

    def __dealloc__(self):
        buffer_free(&self.out)
        buffer_free(&self.inbox)

    # -- taking requests -----------------------------------------------------------------------------------

    cdef bint ready_to_take(self) noexcept:
        """Whether requests can be queued now. Opens the connection if it is time to."""
        if self.state == BACKEND_READY or self.state == BACKEND_GREETING or self.state == BACKEND_CONNECTING:
            return True
        if self.state == BACKEND_DOWN and self.loop.now >= self.next_try:
            if is_over(self.allowance):
                self.reset(f"{OVER}; nothing was run")
                return False
            if self.address in self.options.lost_masters:
                # one-owner: by the time the server accepts, it may have been replaced.
                self.reset(REPLACED)
                return False
            try:
                self.connect()
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
            self.progress = self.loop.ticks
        self.tail = request
        self.queued += 1
        if self.out.size > KEPT_BUFFER:
            self.count()
        if not self.sender.listed:
            self.loop.list_backend(&self.sender)

    cdef void count(self) noexcept:
        """Count the memory of the output, if it is large, as memory for requests that wait for servers."""
        cdef int64_t counted = self.out.size if self.out.size > KEPT_BUFFER else 0
        if counted != self.counted:
            self.loop.count_waiting(counted - self.counted)
            self.counted = counted

    cpdef bint was_lost(self) noexcept:
        """Whether its first connection has ended, or was never there. It may have another one by now."""
        return self.failure is not None or self.connects > 1

    cdef bint reserve(self, size_t size) noexcept:
        return buffer_reserve(&self.out, size)

    cdef void push(self, request_t* request, const char* data, size_t size) noexcept:
        """Queue a request and its bytes. If that is not possible, the request is answered with an error at once."""
        if self.state != BACKEND_READY and not self.ready_to_take():
            self.loop.deliver(request, self.failure_reply, len(self.failure_reply))
        elif not buffer_append(&self.out, data, size):
            self.loop.deliver(request, OUT_OF_MEMORY, strlen(OUT_OF_MEMORY))
        else:
            self.queue(request)

    cdef bint congested(self, bint sparse) noexcept:
        """Whether a session that sends to this server should stop being read (**bounded**).

        That is so when many bytes are unsent, or when the expected replies are large together. A server with many
        requests for large values writes slowly, and all later requests wait behind them. A ``sparse`` session, which
        has nothing else under way, need not stop for that: it did not cause it.
        """
        return self.is_full() or (
            not sparse
            and (self.queued > MOST_QUEUED or self.queued * self.reply_bytes > WINDOW_BYTES * (self.replies + 1))
        )

    cdef bint relieved(self) noexcept:
        """Whether stopped sessions may go on."""
        return (
            buffer_length(&self.out) <= self.pause_bytes // 2
            and self.queued <= MOST_QUEUED // 2
            and self.queued * self.reply_bytes <= WINDOW_BYTES // 2 * (self.replies + 1)
        )

    def pause_session(self, session):
        """Have ``session.resume_reading()`` called once the queue has become shorter."""
        self.paused_sessions.append(session)

    def call(self, bytes payload, callback, int before=0):
        """Send requests of the proxy's own. ``callback(reply: bytes)`` gets the last reply, or an error made here;
        ``before`` replies are dropped.

        **bounded**: a reply larger than ``options.own_reply_bytes`` is not kept; an error takes its place.
        """
        cdef request_t* request
        cdef int index
        cdef bint ready = self.ready_to_take()
        if not self.loop.have_requests(before + 1) or (ready and not self.reserve(len(payload))):
            raise MemoryError
        if not ready:
            before = 0
        for index in range(before):
            request = self.loop.new_request(REQUEST_PLAIN, NULL, -1)
            request.command = UNCOUNTED
            self.push(request, payload, len(payload) if index == 0 else 0)
        request = self.loop.new_request(REQUEST_CALL, NULL, -1)
        Py_INCREF(callback)
        request.extra = <void*> callback
        if not ready:
            self.loop.deliver(request, self.failure_reply, len(self.failure_reply))
        else:
            self.push(request, payload, 0 if before else len(payload))

    def ask(self, bytes payload, int before=0):
        """Send requests of the proxy's own; gives a future of the last reply, as :meth:`call`."""
        reply = Reply(loop=self.loop.event_loop)
        self.call(payload, reply.give, before)
        return reply

    def write(self, bytes payload):
        """Send requests whose replies come as pushes. Only when the connection is ready; false without memory.

        They are sent before the bytes of all other connections in this turn of the loop.
        """
        if self.state != BACKEND_READY or not buffer_append(&self.out, payload, len(payload)):
            return False
        self.loop.list_backend_first(&self.sender)
        return True

    def open(self):
        """Connect without a request, unless it is too soon after a failure."""
        return self.ready_to_take()

    @property
    def is_ready(self):
        """Whether the connection is up and introduced."""
        return self.state == BACKEND_READY

    cdef object became_ready(self):
        self.wait = 0
        self.failure = None
        self.loop.list_backend(&self.sender)
        if self.on_ready is not None:
            self.on_ready()

    # -- the socket ---------------------------------------------------------------------------------------

    cdef object ready(self, uint32_t events):
        """The socket can be read from or written to."""
        if self.state == BACKEND_CONNECTING:
            if self.tls is None:
                self.connected()
            else:
                self.shake_hands()
            return
        if events & WRITABLE and self.writing:
            self.writable()
        if events & READABLE and self.fd >= 0:
            self.readable()

    # -- losing --------------------------------------------------------------------------------------------

    def _lose(self, reason, closing=False, own=None):
        """End the connection and answer everything in the queue with ``reason``, or with the server's ``own`` error."""
        cdef request_t* request
        cdef bytes reply
        event_loop = self.loop.event_loop
        outstanding = self.used and self.head != NULL
        was_ready = self.state == BACKEND_READY
        self.drop_socket()
        self.writing = False
        self.failure = reason
        self.failure_reply = own if own is not None else f"-ERR server {self.address} {reason}\r\n".encode()
        reply = self.failure_reply
        options = self.options
        if closing:
            self.state = BACKEND_CLOSED
        else:
            self.state = BACKEND_DOWN
            self.wait = min(max(self.wait * 2, options.retry_seconds_min), options.retry_seconds_max)
            self.next_try = self.loop.now + self.wait * random.uniform(0.0, 1.0)
        buffer_free(&self.out)
        self.count()
        buffer_free(&self.inbox)
        self.loop.unlist(&self.sender)
        self.scanned = 0
        memset(&self.meter, 0, sizeof(self.meter))
        try:
            if outstanding:
                # drained: this comes before the replies are given up, so that no lock is acknowledged in between.
                options.on_lost(self.address, self.name)
            if was_ready:
                options.on_disconnected(self.address, self.shared)
        except Exception as error:
            # The queue has to be given up in any case: what comes over the next connection is not its reply.
            event_loop.call_exception_handler({"message": "telling of a lost connection", "exception": error})
        request = self.head
        if request != NULL and self.streaming and request.client != NULL and not request.muted:
            # The client already has half of the reply. Only closing its connection tells the client so.
            request.client.broken = b"the server closed the connection within a reply"
            self.loop.list_client(&request.client.sender)
            request.client.streaming = False
        self.streaming = False
        while self.head != NULL:
            request = self.head
            self.head = request.next_at_backend
            self.queued -= 1
            self.loop.deliver(request, reply, len(reply))
        self.tail = NULL
        if self.on_down is not None:
            event_loop.call_soon(self.on_down, reason)
        try:
            # Not now: the caller that asked for this connection may be in the middle of a request, and sessions that go
            # on share its scratch memory.
            event_loop.call_soon(self._after_loss)
        except RuntimeError:
            # The event loop is closed: the worker is on its way out.
            return

    def _after_loss(self):
        self._resume_sessions()
        self.loop.check_drained()

    def _resume_sessions(self):
        # Bytes beyond the limit stay in the order in which they came.
        for _ in range(len(self.paused_sessions)):
            if self.congested(False):
                break
            self.paused_sessions.popleft().resume_reading()

    def reset(self, reason):
        """End the connection; the next request opens another, at once."""
        if self.state != BACKEND_CLOSED:
            self._lose(reason)
            self.next_try = self.loop.now

    def close(self, reason="is no longer in the slot table"):
        """Give the connection up for good."""
        if self.state != BACKEND_CLOSED:
            self._lose(reason, closing=True)

    def end_if_over(self):
        if self.state != BACKEND_CLOSED and is_over(self.allowance):
            # The limit keeps it from connecting again. That is no failure of the server.
            self.reset(f"{OVER}; the command may or may not have run")

    def end_if_not(self, process):
        if self.state == BACKEND_READY and self.process != process:
            self.reset("is another process by now; the command may have run at the one before")

    def check_time(self):
        """Give up a connection that does not come up, or whose oldest request has waited too long (**bounded**)."""
        if self.state == BACKEND_CONNECTING or self.state == BACKEND_GREETING:
            if self.loop.now > self.connect_deadline:
                if self.state == BACKEND_GREETING and not self.greetings_left:
                    self._lose(NOT_KNOWN)
                else:
                    self._lose(f"did not accept a connection within {self.options.connect_seconds:g} s")
        elif self.state == BACKEND_READY and self.head != NULL:
            # Unsigned, so that the clock may wrap. The server could not yet answer what comes behind a long reply, and
            # requests that wait for their slot were not yet sent.
            waited = min(
                <uint32_t> (self.loop.ticks - self.head.sent), <uint32_t> (self.loop.ticks - self.progress)
            )
            if waited > self.reply_seconds / TICK_SECONDS:
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
        if is_over(self.allowance):
            # one-owner: the limit may have passed since the requests were read, even if that seems a moment ago.
            self._end_over()
            return
        self.used = True
        sent = transmit(self.fd, self.tls, self.out.data + self.out.start, length)
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
        if self.counted:
            self.count()
        if <size_t> sent < length:
            self.writing = True
            self.loop.poller.want(&self.watch, READABLE | WRITABLE)

    cdef void _end_over(self) noexcept:
        try:
            self.end_if_over()
        except Exception as error:
            self.loop.event_loop.call_exception_handler({"message": "closing a backend", "exception": error})

    cdef object writable(self):
        self.writing = False
        self.progress = self.loop.ticks
        self.send_out()
        if self.fd >= 0 and not self.writing:
            self.loop.poller.want(&self.watch, READABLE)
        if self.paused_sessions and self.relieved():
            self._resume_sessions()

    def _readable(self):
        """Read once more, from the event loop."""
        self.readable()

    cdef object readable(self):
        cdef ssize_t received
        cdef size_t used
        cdef size_t length
        cdef bint own = buffer_length(&self.inbox) > 0
        cdef int64_t connection = self.connects
        if self.fd < 0:
            return
        if own:
            if not buffer_reserve(&self.inbox, READ_SIZE):
                self._lose("sent a reply that the proxy has no memory for")
                return
            received = receive(self.fd, self.tls, self.inbox.data + self.inbox.end, self.inbox.size - self.inbox.end)
        else:
            received = receive(self.fd, self.tls, self.loop.scratch, SCRATCH_SIZE)
        if received <= 0:
            if received < 0 and (errno == EAGAIN or errno == EINTR):
                return
            self._lose("closed the connection; the command may or may not have run")
            return
        if is_over(self.allowance):
            # one-owner: if the limit is over, a later reply may be unknown to the server that is the master by now.
            self._end_over()
            return
        self.progress = self.loop.ticks
        self.reply_bytes += received
        if self.replies > FORGOTTEN_REPLIES:
            self.replies //= 2
            self.reply_bytes //= 2
        if self.tls is not None:
            # The TLS layer may hold more than the buffer could take.
            self.loop.event_loop.call_soon(self._readable)
        if own:
            self.inbox.end += received
            length = buffer_length(&self.inbox)
            used = self.take_replies(self.inbox.data + self.inbox.start, length)
            if self.fd >= 0 and self.connects == connection and used:
                buffer_consume(&self.inbox, used, KEPT_BUFFER)
        else:
            used = self.take_replies(self.loop.scratch, received)
            if self.fd >= 0 and self.connects == connection and used < <size_t> received:
                if not buffer_append(&self.inbox, self.loop.scratch + used, received - used):
                    self._lose("sent a reply that the proxy has no memory for")
                    return
        if self.streaming or buffer_length(&self.inbox):
            self.acknowledge()
        if self.paused_sessions and self.relieved():
            self._resume_sessions()
        self.loop.check_drained()

    cdef object _refuse_reply(self, request_t* request):
        """Give the caller an error, and drop the rest of the reply."""
        self.loop.tell_caller(
            request,
            f"-ERR the reply of server {self.address} is larger than the {self.most_held} bytes that the proxy keeps of"
            " one (session_output_limit_bytes)\r\n".encode(),
        )

    cdef void acknowledge(self) noexcept:
        """Have the system acknowledge the part of a long reply at once.

        Otherwise it waits up to 40 ms if less than two segments came. A sender that paces itself by the round trip
        (BBR) takes that for the connection's speed, and everything behind the long reply waits, too.
        """
        cdef int yes = 1
        if slotferry_quickack >= 0 and self.fd >= 0:
            setsockopt(self.fd, IPPROTO_TCP, slotferry_quickack, &yes, sizeof(yes))

    cdef void end_run(self, run_t* run, const char* data, size_t end) noexcept:
        """Give a client, in one piece, its consecutive replies up to ``end``."""
        if run.client == NULL:
            return
        if run.early == NULL:
            self.loop.put_reply(run.client, data + run.start, end - run.start)
        else:
            self.loop.keep_early(run.client, run.early, data + run.start, end - run.start)
        run.client = NULL

    cdef size_t take_replies(self, const char* data, size_t size):
        """Hand out the replies in ``data``; give the number of bytes that were handled."""
        cdef size_t position = 0
        cdef size_t scan = self.scanned
        cdef size_t used
        cdef run_t run
        cdef client_t* client
        cdef request_t* request
        cdef parse_status status
        # A callback may close this connection, and cause another one to open.
        cdef int64_t connection = self.connects
        cdef bint streamed
        run.client = NULL
        run.early = NULL
        run.start = 0
        while scan < size:
            status = measure_reply(&self.meter, data + scan, size - scan, &used)
            scan += used
            if status == PARSE_ERROR:
                self.end_run(&run, data, position)
                self._lose("sent something that is not a Redis reply")
                return 0
            if status != PARSE_COMPLETE:
                break
            if self.state == BACKEND_GREETING or (data[position] == c'>' and not self.streaming):
                self.end_run(&run, data, position)
                self.take_unasked(data[position:scan])
                if self.fd < 0 or self.connects != connection:
                    return 0
                position = scan
                continue
            request = take_head(self)
            if request == NULL:
                self.end_run(&run, data, position)
                self._lose("sent a reply that nothing asked for")
                return 0
            client = request.client
            streamed = self.streaming
            if streamed:
                self.streaming = False
                if client != NULL and not request.muted:
                    client.streaming = False
            if client == NULL or request.kind != REQUEST_PLAIN or request.muted:
                self.end_run(&run, data, position)
                self.loop.deliver(request, data + position, scan - position)
                if self.fd < 0 or self.connects != connection:
                    return 0
            else:
                give_reply(self, &run, request, data, position, scan, streamed)
            position = scan
        self.end_run(&run, data, position)
        if (
            scan - position >= STREAM_FROM
            and self.state == BACKEND_READY
            and self.head != NULL
            # A push is not a reply to a request.
            and (self.streaming or data[position] != c'>')
        ):
            if self.passes_on(data + position, scan - position):
                position = scan
            if self.fd < 0 or self.connects != connection:
                return 0
        elif scan - position > self.most_held and data[position] == c'>':
            self._lose(f"sent a message of more than {self.most_held} bytes (session_output_limit_bytes)")
            return 0
        self.scanned = scan - position
        return position

    cdef object take_unasked(self, bytes reply):
        """A push, or a reply to the greeting."""
        if reply.startswith(b">"):
            if self.on_push is not None:
                self.on_push(reply)
            return
        problem = self.greeting_reply(reply)
        if problem is not None:
            # The server is busy with a script, loading, or cut off: clients get the server's own words.
            own = reply if reply.startswith((b"-BUSY ", b"-LOADING ", b"-MASTERDOWN ")) else None
            self._lose(problem, own=own)

    cdef bint passes_on(self, const char* data, size_t size):
        """Pass on what has come of a long reply, if nothing has to be kept of it (**bounded**)."""
        cdef request_t* request = self.head
        cdef client_t* client = NULL if request.muted else request.client
        if request.kind == REQUEST_PART and (<split_t*> request.extra).place != NULL:
            if not (<split_t*> request.extra).place.muted:
                client = (<split_t*> request.extra).place.client
        if client == NULL and (request.kind != REQUEST_CALL or request.extra == NULL):
            # The client has gone, or wants no reply.
            self.streaming = True
            return True
        if request.kind == REQUEST_CALL:
            if size <= self.most_held:
                return False
            self.streaming = True
            self._refuse_reply(request)
            return True
        if request.kind == REQUEST_PLAIN and client.head == request:
            self.loop.put_reply(client, data, size)
            self.streaming = client.streaming = True
            return True
        if client != NULL:
            # The reply has to be kept until its turn comes, or until its end.
            self.loop.too_much(client, size)
        return False
