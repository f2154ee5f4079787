"""One shared connection to a Redis server: it sends requests, measures the replies and hands them to their clients.

What it does with the requests as such is in :mod:`proxy.engine.requestqueue`. Replies that come together mostly differ
in nothing but their bytes and their slot: their requests were read at the same time, and have the same command and
user. Those are collected in a tally, and counted at once for their command, user and server.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport UINT64_MAX, int64_t, uint32_t
from libc.string cimport memcpy, memset

from cpython.ref cimport Py_DECREF

from proxy.engine.allowance cimport is_over
from proxy.engine.buffer cimport buffer_append, buffer_consume, buffer_free, buffer_length, buffer_reserve
from proxy.engine.memory cimport LARGE_ROOM, kept_t
from proxy.engine.poller cimport READABLE, WRITABLE
from proxy.engine.records cimport REQUEST_CALL, REQUEST_PART, REQUEST_PLAIN, client_t, request_t, sort_of, split_t
from proxy.engine.requestqueue cimport Recipient, RequestQueue
from proxy.engine.requests cimport KEPT_BUFFER, SCRATCH_SIZE, Loop
from proxy.engine.resp cimport measure_reply
from proxy.engine.serverconnection cimport BACKEND_CONNECTING, BACKEND_GREETING, BACKEND_READY
from proxy.engine.statistics cimport REPLY_HEAD, is_looked_at, tally_t
from proxy.engine.stream cimport receive, transmit
from proxy.engine.worktime cimport NO_USER, WorkTime
from slots.requests.parsing cimport PARSE_COMPLETE, PARSE_ERROR, parse_status

from proxy.engine.refusals import too_large
from proxy.engine.serverconnection import command as command

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
    #define slotferry_seldom(condition) __builtin_expect((condition) != 0, 0)
    """
    int slotferry_quickack
    bint seldom "slotferry_seldom" (bint condition)
    int IPPROTO_TCP
    int setsockopt(int fd, int level, int name, const void* value, unsigned int size) nogil

cdef enum:
    # A reply is passed on in parts once this much of it has come, so that a long one is never held whole.
    STREAM_FROM = 65536
    READ_SIZE = 262144
    # What a request counts for beside its bytes where the time of a send is shared.
    REQUEST_WEIGHT = 1024
    # The number of replies after which older ones count less for the expected size of a reply.
    FORGOTTEN_REPLIES = 1024


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

cdef inline void give_reply(
    Backend backend,
    run_t* run,
    tally_t* tally,
    request_t* request,
    const char* data,
    size_t start,
    size_t end,
    size_t passed,
    bint failed,
) noexcept:
    """Give a client its reply, which is ``data[start:end]``, behind the bytes that were ``passed`` on before. Replies to
    one client are collected in ``run``, and those that count alike in ``tally``."""
    cdef client_t* client = request.client
    cdef bint in_turn
    cdef size_t size = passed + end - start
    cdef size_t received = request.reply_size >> 32
    if sort_of(request) != tally.sort:
        backend.begin_tally(tally, request)
    tally.replies += 1
    tally.bytes_in += received
    tally.bytes_out += size
    tally.server_ticks += <uint32_t> (tally.now - <uint32_t> request.reply_size)
    if request.slot >= 0:
        backend.slots.count(request.slot, received, size)
        backend.loop.leave_slot(request.slot)
    if failed:
        backend.count_error(request)
    if is_looked_at(tally, received, size, data[start]):
        backend.look_at(request, data + start, end - start, passed)
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
    backend.loop.free_request(request)
    if client.head == NULL:
        client.tail = NULL
    elif client.head.done:
        backend.end_run(run, data, end)
        backend.loop.pop_done(client)


cdef bint begins(request_t* request, const char* data, size_t size) except -1:
    """Whether a client takes the reply to a request of the proxy's own in parts; it has these bytes by now."""
    callback = <object> request.extra
    if not isinstance(callback, Recipient) or not (<Recipient> callback).begin(request, data, size):
        return False
    request.extra = NULL
    Py_DECREF(callback)
    return True


cdef class Backend(RequestQueue):
    """One connection to one server, database and RESP version, used by every session of the worker.

    Args:
        loop: the worker's loop.
        address: ``host:port`` of the server.
        database: index of the database it works in.
        protocol: 2 or 3.
        options: a :class:`proxy.servers.backends.BackendOptions`.
        reply_seconds: how long the oldest request may wait for its reply before the connection is given up.
    """

    def __cinit__(self, Loop loop, *rest):
        memset(&self.inbox, 0, sizeof(self.inbox))
        memset(&self.meter, 0, sizeof(self.meter))
        self.sender.send = send_backend
        self.sender.owner = <void*> self
        self.watch.ready = backend_ready
        self.watch.owner = <void*> self

    def __init__(self, Loop loop, address, int database, int protocol, options, double reply_seconds):
        super().__init__(loop, address, database, protocol, options, reply_seconds)
        self.most_held = options.own_reply_bytes

    def __dealloc__(self):
        buffer_free(&self.inbox)

    cdef void forget_received(self) noexcept:
        buffer_free(&self.inbox)
        self.scanned = 0
        memset(&self.meter, 0, sizeof(self.meter))

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

    cdef void send_out(self) noexcept:
        cdef int64_t began
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
        if self.loop.work_time.recent:
            began = self.loop.work_time.now()
            sent = transmit(self.fd, self.tls, self.out.data + self.out.start, length)
            self.count_sending(self.loop.work_time.now() - began)
        else:
            sent = transmit(self.fd, self.tls, self.out.data + self.out.start, length)
        self.unsent = NULL
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
        cdef int64_t began = self.loop.work_time.now() if self.loop.work_time.users else 0
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
        if self.is_late() and self.shared:
            self.traffic.slow = True
            self.traffic.slow_at = self.loop.ticks
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
            if began:
                used = self.take_received(self.inbox.data + self.inbox.start, length, began)
            else:
                used = self.take_replies(self.inbox.data + self.inbox.start, length)
            if self.fd >= 0 and self.connects == connection and used:
                buffer_consume(&self.inbox, used, KEPT_BUFFER)
        else:
            if began:
                used = self.take_received(self.loop.scratch, received, began)
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
        cdef size_t most = self.most_held_of(request)
        cdef bytes error = too_large(self.address, most, "session_output_limit_bytes" if most == self.most_held else "")
        self.loop.tell_caller(request, error)

    cdef size_t most_held_of(self, const request_t* request) noexcept:
        """The most bytes of the reply to a request of the proxy's own."""
        return min(self.most_held, <size_t> request.part) if request.part > 0 else self.most_held

    cdef void acknowledge(self) noexcept:
        """Have the system acknowledge the part of a long reply at once.

        Otherwise it waits up to 40 ms if less than two segments came. A sender that paces itself by the round trip
        (BBR) takes that for the connection's speed, and everything behind the long reply waits, too.
        """
        cdef int yes = 1
        if slotferry_quickack >= 0 and self.fd >= 0:
            setsockopt(self.fd, IPPROTO_TCP, slotferry_quickack, &yes, sizeof(yes))

    cdef void look_at(self, const request_t* request, const char* data, size_t size, size_t passed) noexcept:
        """Note a request if it is notable. Of its reply, ``passed`` bytes were passed on before these ones."""
        cdef uint32_t ticks = self.loop.ticks - request.sent
        if self.loop.statistics.room <= 0:
            # Where everything is slow, most requests are only counted.
            self.loop.statistics.slow_requests += ticks >= self.loop.statistics.slow
            return
        self.loop.statistics.look_at(
            request.command,
            request.user,
            ticks,
            request,
            request.reply_size >> 32,
            <const char*> &self.beginning[0] if passed else data,
            passed + size,
            request.slot,
            request.client.sender.owner,
            self.address,
            self.database,
        )

    cdef void end_run(self, run_t* run, const char* data, size_t end) noexcept:
        """Give a client, in one piece, its consecutive replies up to ``end``."""
        if run.client == NULL:
            return
        if run.early == NULL:
            self.loop.put_reply(run.client, data + run.start, end - run.start)
        else:
            self.loop.keep_early(run.client, run.early, data + run.start, end - run.start)
        run.client = NULL

    cdef size_t take_received(self, const char* data, size_t size, int64_t began):
        """As :meth:`take_replies`, and count the time since ``began``, when the end of ``data`` began to be received."""
        self.receiving = self.loop.work_time.now() - began
        self.received_from = self.counted_to = self.scanned
        try:
            return self.take_replies(data, size)
        finally:
            self.turn_to(NO_USER, size, size)

    cdef void turn_to(self, int user, size_t scan, size_t size) noexcept:
        """What comes from ``scan`` on, of ``size`` bytes in all, is for another user than what was before it."""
        cdef WorkTime time = self.loop.work_time
        # All was received in one piece, so that time is shared by bytes.
        time.add(
            time.who, self.receiving * <int64_t> (scan - self.counted_to) // <int64_t> (size - self.received_from)
        )
        self.counted_to = scan
        time.turn_to(user)

    cdef void count_sending(self, int64_t nanoseconds) noexcept:
        """Count the time of one send for the users whose requests have gone with it, by their number and bytes."""
        cdef request_t* request = self.unsent
        cdef int64_t weight = 0
        while request != NULL:
            weight += (request.reply_size >> 32) + REQUEST_WEIGHT
            request = request.next_at_backend
        request = self.unsent
        while request != NULL:
            self.loop.work_time.add(
                request.user, nanoseconds * <int64_t> ((request.reply_size >> 32) + REQUEST_WEIGHT) // weight
            )
            request = request.next_at_backend

    cdef size_t take_replies(self, const char* data, size_t size):
        """Hand out the replies in ``data``; give the number of bytes that were handled."""
        cdef size_t position = 0
        cdef size_t scan = self.scanned
        cdef size_t used
        cdef run_t run
        cdef tally_t tally
        cdef client_t* client
        cdef request_t* request
        cdef parse_status status
        # A callback may close this connection, and cause another one to open.
        cdef int64_t connection = self.connects
        cdef bint failed
        cdef size_t passed
        cdef bint counts = self.loop.work_time.users
        cdef int user = NO_USER
        run.client = NULL
        run.early = NULL
        run.start = 0
        tally.sort = UINT64_MAX
        while scan < size:
            if seldom(counts) and self.head != NULL and self.head.user != user:
                user = self.head.user
                self.turn_to(user, scan, size)
            status = measure_reply(&self.meter, data + scan, size - scan, &used)
            scan += used
            if status == PARSE_ERROR:
                self.end_run(&run, data, position)
                self.count_tally(&tally)
                self._lose("sent something that is not a Redis reply")
                return 0
            if status != PARSE_COMPLETE:
                break
            if self.state == BACKEND_GREETING or (data[position] == c'>' and not self.streaming):
                self.end_run(&run, data, position)
                self.count_tally(&tally)
                self.take_unasked(data[position:scan])
                if self.fd < 0 or self.connects != connection:
                    return 0
                position = scan
                continue
            request = self.take_head()
            if request == NULL:
                self.end_run(&run, data, position)
                self.count_tally(&tally)
                self._lose("sent a reply that nothing asked for")
                return 0
            client = request.client
            failed = data[position] == c'-'
            passed = 0
            if self.streaming:
                # It may begin anywhere. A long reply is no error.
                failed = False
                passed = self.passed
                self.passed = 0
                self.streaming = False
                if client != NULL and not request.muted:
                    client.streaming = False
            if client == NULL or request.kind != REQUEST_PLAIN or request.muted or (failed and client.hides):
                self.end_run(&run, data, position)
                self.count_tally(&tally)
                self.count_reply(request, passed + scan - position, failed)
                # Nobody gets the rest of a reply that was passed on in parts. It may begin anywhere, and is no error.
                self.loop.deliver(
                    request, data + position, 0 if passed else scan - position, self.address, self.database
                )
                if self.fd < 0 or self.connects != connection:
                    return 0
            else:
                give_reply(self, &run, &tally, request, data, position, scan, passed, failed)
            position = scan
        self.end_run(&run, data, position)
        self.count_tally(&tally)
        if (
            scan - position >= STREAM_FROM
            and self.state == BACKEND_READY
            and self.head != NULL
            # A push is not a reply to a request.
            and (self.streaming or data[position] != c'>')
        ):
            if not self.streaming:
                memcpy(self.beginning, data + position, REPLY_HEAD)
            if self.passes_on(data + position, scan - position):
                self.passed += scan - position
                position = scan
            if self.fd < 0 or self.connects != connection:
                return 0
        elif scan - position > self.most_held and data[position] == c'>':
            self._lose(f"sent a message of more than {self.most_held} bytes (session_output_limit_bytes)")
            return 0
        self.scanned = scan - position
        return position

    cdef void begin_tally(self, tally_t* tally, const request_t* request) noexcept:
        """Begin to collect replies to requests of the sort of this one."""
        if tally.sort != UINT64_MAX:
            self.count_tally(tally)
        self.loop.statistics.begin_tally(tally, request, self.loop.ticks)

    cdef void count_tally(self, tally_t* tally) noexcept:
        """Count the replies that were collected, but for their slots and errors. Whatever may look at the counts, or end
        this connection, comes after this."""
        if tally.sort == UINT64_MAX:
            return
        self.loop.statistics.observe_tally(tally)
        self.traffic.count(tally.replies, tally.bytes_in, tally.bytes_out, tally.server_ticks, self.shared)
        tally.sort = UINT64_MAX

    cdef void count_error(self, const request_t* request) noexcept:
        """A reply that was collected, and counted for its slot, is an error."""
        self.loop.errors += 1
        if request.slot >= 0:
            self.slots.count_error(request.slot)
        self.loop.statistics.observe_error(request.command, request.user)
        self.traffic.errors += 1

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
        if request.kind == REQUEST_PART and not (<split_t*> request.extra).place.muted:
            client = (<split_t*> request.extra).place.client
        if client == NULL and (request.kind != REQUEST_CALL or request.extra == NULL):
            # The client has gone, or wants no reply.
            self.streaming = True
            return True
        if request.kind == REQUEST_CALL:
            if begins(request, data, size):
                self.streaming = True
                return True
            if size <= self.most_held_of(request):
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
