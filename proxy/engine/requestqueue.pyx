"""The queue of a connection to a Redis server: requests go to its end, and wait for their replies in order.

States: *down* until a request asks for the connection, *connecting* and *greeting*
(:mod:`proxy.engine.serverconnection`), *ready*. Requests queue up while it connects. None is written before the
greeting is answered, so none can run in the wrong database or behind a fence. If a connection fails, every request in
its queue is answered with an error that names the server. Nothing is sent twice, because it may have run.

Once an attempt to connect has failed, the connection is *broken*: requests get that error at once and wait for no
further attempt (**bounded**). It goes on trying by itself, so no request is needed to find that the server is back.

What a server is sent and answers is counted where a request leaves the queue (:mod:`proxy.engine.traffic`): in
:meth:`RequestQueue.count_reply`, or, with others of its sort, by :mod:`proxy.engine.backend`.

**drained**: a connection that is lost with replies outstanding may have left commands in the server's socket buffer.
``options.on_lost`` is told the connection's name. The worker does not acknowledge a lock at that server until the
server has ended the connection of that name.
"""

import random
from collections import deque

from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memset, strlen

from cpython.ref cimport Py_INCREF

from proxy.engine.allowance cimport is_over
from proxy.engine.buffer cimport buffer_append, buffer_free, buffer_length, buffer_reserve
from proxy.engine.records cimport REQUEST_CALL, REQUEST_PART, REQUEST_PLAIN, keep_size, request_t, split_t
from proxy.engine.requests cimport KEPT_BUFFER, Loop
from proxy.engine.serverconnection cimport (
    BACKEND_CLOSED,
    BACKEND_CONNECTING,
    BACKEND_DOWN,
    BACKEND_GREETING,
    BACKEND_READY,
    ServerConnection,
)
from proxy.engine.statistics cimport UNCOUNTED

from proxy.engine.outcomes import Reply
from proxy.engine.refusals import slow

OVER = "is not used by this proxy for now: it hears no topom, and another server may have become the master"
REPLACED = "has failed, and another server takes its place; nothing was run"
NOT_KNOWN = (
    "was restarted, and may have forgotten that this proxy was fenced off it: it is not used before topom has answered"
    " this proxy; nothing was run"
)

cdef enum:
    # With more requests at a server than this, sessions are no longer read, even if its replies have been small. The
    # size of a reply is only known when it comes.
    MOST_QUEUED = 2048
    # With more expected bytes of replies than this, by the size of the latest ones, sessions are no longer read either.
    # A server writes so much within some milliseconds, and a request for a small value waits no longer behind it.
    WINDOW_BYTES = 1048576

cdef const char* OUT_OF_MEMORY = b"-ERR the proxy is out of memory for this request\r\n"
cdef double TICK_SECONDS = 4096e-9


cdef class Recipient:
    """Gets the reply to a request of the proxy's own. A client may take a long one in parts."""

    cdef bint begin(self, request_t* request, const char* data, size_t size) except -1:
        """Make the request a client's, and give the client what has come of the reply; false if that cannot be."""
        return False


cdef class RequestQueue(ServerConnection):
    """The part of :class:`proxy.engine.backend.Backend` for the requests as such.

    Args:
        reply_seconds: how long the oldest request may wait for its reply before the connection is given up.
        loop, address, database, protocol, options: as :class:`proxy.engine.serverconnection.ServerConnection` has them.
    """

    def __cinit__(self, Loop loop, *rest):
        memset(&self.out, 0, sizeof(self.out))

    def __init__(self, Loop loop, address, int database, int protocol, options, double reply_seconds):
        super().__init__(loop, address, database, protocol, options)
        self.reply_seconds = reply_seconds
        self.pause_bytes = options.queue_pause_bytes
        self.paused_sessions = deque()
        self.failure_reply = b""
        self.slow_reply = slow(address)
        self.traffic = loop.traffic.of_server(address)
        self.slots = loop.traffic.slots

    def __dealloc__(self):
        buffer_free(&self.out)

    cdef void forget_received(self) noexcept:
        """Forget what was received and is not handled yet: the connection is lost."""

    # -- taking requests -----------------------------------------------------------------------------------

    cdef bint ready_to_take(self) noexcept:
        """Whether requests can be queued now. Opens the connection if it is time to."""
        if self.state == BACKEND_READY:
            return True
        if self.state == BACKEND_GREETING or self.state == BACKEND_CONNECTING:
            return not self.broken
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
            return self.state != BACKEND_DOWN and not self.broken
        return False

    cdef object share(self):
        """From now on, all sessions share it."""
        self.shared = True
        self.traffic.queues.append(self)

    cdef bint is_slow(self) noexcept:
        """Whether a reply takes longer than :data:`SLOW_TICKS` on any shared connection to this server, or just did."""
        cdef ServerTraffic traffic = self.traffic
        if traffic.slow and <uint32_t> (self.loop.ticks - traffic.slow_at) <= SLOW_TICKS:
            return True
        traffic.slow = False
        for queue in traffic.queues:
            if (<RequestQueue> queue).is_late():
                traffic.slow = True
                traffic.slow_at = self.loop.ticks
                break
        return traffic.slow

    cdef bytes refusal(self, int32_t slot):
        """The error for a request of a slot (-1: none, or several) that cannot be queued now. It counts as one that the
        server has not answered."""
        self.traffic.requests += 1
        self.traffic.errors += 1
        self.traffic.untimed += 1
        if slot >= 0:
            self.slots.count(slot, 0, 0)
            self.slots.count_error(slot)
        return self.failure_reply

    cdef void queue(self, request_t* request, size_t size) noexcept:
        """Put a request whose bytes are in ``out`` at the end of the queue. ``size``: so many of them count for this
        one, of several in one piece."""
        request.reply_size = self.loop.ticks
        keep_size(request, size)
        if self.tail != NULL:
            self.tail.next_at_backend = request
        else:
            self.head = request
            self.progress = self.loop.ticks
        self.tail = request
        self.queued += 1
        if not self.sender.listed:
            self.unsent = request
            self.loop.list_backend(&self.sender)
        if self.out.size > KEPT_BUFFER:
            self.count()

    cdef void count_parts(self, request_t* request, size_t size, bint failed) noexcept:
        """Count the part of a split request for the slots of its keys. Each key has the same share in the reply."""
        cdef split_t* split = <split_t*> request.extra
        cdef int32_t key
        cdef int32_t keys = 0
        cdef size_t share
        for key in range(split.keys):
            keys += split.key_part[key] == request.part
        share = size // keys
        # What is left over counts for the first key.
        size -= share * (keys - 1)
        for key in range(split.keys):
            if split.key_part[key] == request.part:
                self.slots.count(split.key_slot[key], 0, size)
                if failed:
                    self.slots.count_error(split.key_slot[key])
                size = share

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
            keep_size(request, size)
            self.refuse(request)
        elif not buffer_append(&self.out, data, size):
            keep_size(request, size)
            self.loop.deliver(request, OUT_OF_MEMORY, strlen(OUT_OF_MEMORY), None, self.database)
        else:
            self.queue(request, size)

    cdef void refuse(self, request_t* request) noexcept:
        """Answer a request that cannot be queued now."""
        cdef bytes reply = self.refusal(request.slot)
        if request.kind == REQUEST_PART:
            self.count_parts(request, 0, True)
        self.loop.deliver(request, reply, len(reply), None, self.database)

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

    def call(self, bytes payload, callback, int before=0, int most=0):
        """Send requests of the proxy's own. ``callback(reply: bytes)`` gets the last reply, or an error made here;
        ``before`` replies are dropped.

        **bounded**: a reply larger than ``most`` bytes, or than ``options.own_reply_bytes``, is not kept; an error
        takes its place (:func:`proxy.engine.refusals.too_large`). If ``callback`` is a Recipient, a long reply may be
        passed on in parts.
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
        request.part = most
        if not ready:
            self.refuse(request)
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
        self.broken = False
        self.failure = None
        self.loop.list_backend(&self.sender)
        if self.on_ready is not None:
            self.on_ready()

    # -- losing --------------------------------------------------------------------------------------------

    def _lose(self, reason, closing=False, own=None):
        """End the connection and answer everything in the queue with ``reason``, or with the server's ``own`` error."""
        cdef request_t* request
        cdef bytes reply
        event_loop = self.loop.event_loop
        outstanding = self.used and self.head != NULL
        was_ready = self.state == BACKEND_READY
        self.broken = not was_ready
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
        self.unsent = NULL
        buffer_free(&self.out)
        self.count()
        self.loop.unlist(&self.sender)
        self.forget_received()
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
            self.count_reply(request, self.passed, True)
            self.passed = 0
            self.loop.deliver(request, reply, len(reply), None, self.database)
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
            self.broken = False

    def close(self, reason="is no longer in the slot table"):
        """Give the connection up for good."""
        if self.state != BACKEND_CLOSED:
            self._lose(reason, closing=True)
            if self.shared:
                self.traffic.queues.remove(self)

    def end_if_over(self):
        if self.state != BACKEND_CLOSED and is_over(self.allowance):
            # The limit keeps it from connecting again. That is no failure of the server.
            self.reset(f"{OVER}; the command may or may not have run")

    def end_if_not(self, process):
        if self.state == BACKEND_READY and self.process != process:
            self.reset("is another process by now; the command may have run at the one before")

    def check_time(self):
        """Give up a connection that does not come up, or whose oldest request has waited too long (**bounded**). Try a
        broken one again when it is time to."""
        if self.broken and self.state == BACKEND_DOWN:
            self.ready_to_take()
        elif self.state == BACKEND_CONNECTING or self.state == BACKEND_GREETING:
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
