"""Takes replies from the servers to their clients.

A request is in two queues: its backend's, because a server answers in order, and its client's, because a client is
answered in order (**in-order**). A reply whose turn it is goes straight to the client's output. A reply that is early
waits in its request.

A client may leave while its requests are under way. They stay in the backends' queues without a client, and their
replies are dropped.
"""

import random
from collections import deque

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, strtoll
from libc.string cimport memcpy, strlen
from cpython.ref cimport Py_DECREF

from proxy.engine.buffer cimport buffer_append, buffer_length
from proxy.engine.hotkeys cimport HotKeys
from proxy.engine.memory cimport kept_t, new_kept, take_spare
from proxy.engine.prefix cimport without_arguments
from proxy.engine.records cimport REQUEST_CALL, REQUEST_PLACE, REQUEST_PLAIN, REQUEST_PUSH, client_t, request_t, split_t
from proxy.engine.resp cimport measure_reply, reply_meter_t
from proxy.engine.statistics cimport UNCOUNTED, Statistics
from proxy.engine.traffic cimport Traffic
from proxy.engine.underway cimport UnderWay
from proxy.engine.worktime cimport WorkTime
from slots.requests.commandlookup cimport SPLIT_STATUS, SPLIT_SUM, split_kind
from slots.requests.parsing cimport PARSE_COMPLETE

cdef const char* OUT_OF_MEMORY = b"-ERR the proxy is out of memory for this reply\r\n"
cdef const char* TOO_FEW = b"-ERR a server answered with fewer values than keys\r\n"


cdef class Loop(UnderWay):
    """One worker's event loop as the engine sees it: senders, the free list, the clock, the slots' counters."""

    def __cinit__(self, event_loop, int number_of_slots, bint portable=False):
        self.scratch = <char*> malloc(SCRATCH_SIZE)
        if self.scratch == NULL:
            raise MemoryError

    def __init__(self, event_loop, int number_of_slots, bint portable=False):
        super().__init__(event_loop, number_of_slots, portable)
        self.connected = set()
        self.processes = {}
        self.statistics = Statistics(event_loop.call_exception_handler)
        self.traffic = Traffic(number_of_slots)
        self.work_time = WorkTime()
        self.hot_keys = HotKeys(random.getrandbits(64))
        self.kept_limit = self.waiting_limit = INT64_MAX
        self.held = deque()

    def __dealloc__(self):
        free(self.scratch)

    # -- requests that wait for servers -------------------------------------------------------------------

    cdef bint is_full(self, object session, size_t size):
        """Whether a request of this size has to wait until others have gone to their servers. One request always
        goes."""
        return (
            self.waiting > 0
            and size > KEPT_BUFFER
            and session is not self.admitted
            and (len(self.held) > 0 or self.waiting + <int64_t> size > self.waiting_limit)
        )

    cdef void hold(self, object session, size_t size):
        """Have ``session.resume_reading()`` called once there is room for a request of this size."""
        self.held.append((session, size))

    cdef void count_waiting(self, int64_t difference) noexcept:
        self.waiting += difference
        if difference < 0 and not self.resuming and self.held:
            try:
                # Not now: a session may be in the middle of a request.
                self.event_loop.call_soon(self.resume_held)
                self.resuming = True
            except RuntimeError:
                # The event loop is closed: the worker is on its way out.
                self.resuming = False

    def resume_held(self):
        """Let sessions go on, in the order in which they came, while there is room."""
        self.resuming = False
        while self.held:
            session, size = self.held[0]
            if not session.closed and self.waiting > 0 and self.waiting + size > self.waiting_limit:
                break
            self.held.popleft()
            self.admitted = session
            session.resume_reading()
            self.admitted = None

    # -- replies -------------------------------------------------------------------------------------------

    cdef bint too_much(self, client_t* client, size_t size) noexcept:
        """Whether so much more is above the limit of what is kept for a client (**bounded**). Then the client loses its
        connection."""
        if client.broken == NULL and buffer_length(&client.out) + client.early + size > client.out_limit:
            client.broken = b"output limit"
            self.list_client(&client.sender)
        return client.broken != NULL

    cdef void put_reply(self, client_t* client, const char* data, size_t size) noexcept:
        """Append to the client's output, within its limit."""
        if size == 0:
            # The client gets nothing, but may be able to go on all the same.
            self.list_client(&client.sender)
            return
        if self.too_much(client, size):
            return
        self.kept -= client.out.size
        if client.out.data == NULL:
            take_spare(&self.memory, &client.out)
        if buffer_append(&client.out, data, size):
            client.reply_bytes += size
        else:
            client.broken = b"out of memory"
        self.kept += client.out.size
        self.list_client(&client.sender)

    cdef void pop_done(self, client_t* client) noexcept:
        """Send the replies at the head of the queue that were waiting for their turn."""
        cdef request_t* request = client.head
        cdef request_t* following
        cdef size_t size
        while request != NULL and request.done:
            size = request.reply_size
            following = request.next_at_client
            while (
                following != NULL
                and following.done
                and following.extra == request.extra
                and following.reply == request.reply + size
            ):
                size += following.reply_size
                following = following.next_at_client
            client.early -= size
            self.kept -= size
            self.put_reply(client, request.reply, size)
            while request != following:
                client.head = request.next_at_client
                client.owed -= 1
                client.replies += 1
                self.free_request(request)
                request = client.head
        if request == NULL:
            client.tail = NULL

    cdef void finish_place(
        self, request_t* place, const char* data, size_t size, object address, int database
    ) noexcept:
        """Give the reply to a request that is only in its client's queue, now or when its turn comes. ``address``: of
        the server that answered, or None."""
        cdef client_t* client = place.client
        cdef size_t gets = 0 if client == NULL or place.muted else size
        cdef uint32_t ticks = self.ticks - place.sent
        cdef bint failed = size > 0 and data[0] == c'-'
        if place.command != UNCOUNTED:
            self.errors += failed
        self.statistics.observe(place.command, place.user, ticks, gets, failed)
        if self.statistics.may_be_notable(place.command, ticks, place.reply_size >> 32, gets, data[0]):
            self.statistics.look_at(
                place.command,
                place.user,
                ticks,
                place,
                place.reply_size >> 32,
                data,
                gets,
                place.slot,
                client.sender.owner if client != NULL else NULL,
                address,
                database,
            )
        if client == NULL:
            self.free_request(place)
            return
        if place.muted:
            size = 0
        if client.head == place:
            self.put_reply(client, data, size)
            client.head = place.next_at_client
            client.owed -= 1
            client.replies += 1
            self.free_request(place)
            self.pop_done(client)
            return
        place.next_at_backend = NULL
        if size == 0:
            place.done = 1
            place.reply_size = 0
            return
        place.reply_size = size
        self.keep_early(client, place, data, size)

    cdef void keep_early(self, client_t* client, request_t* first, const char* data, size_t size) noexcept:
        """Keep replies that came before their turn, within the client's limit.

        They are the replies to ``first`` and to the requests behind it at its backend, up to the end of ``data``. Each
        of these requests knows the size of its reply.
        """
        cdef request_t* request = first
        cdef size_t left = size
        cdef kept_t* kept = NULL
        cdef char* reply = NULL
        if not self.too_much(client, size):
            kept = new_kept(&self.memory, size)
            if kept == NULL:
                client.broken = b"out of memory"
                self.list_client(&client.sender)
            else:
                reply = kept.data
                memcpy(reply, data, size)
                client.early += size
                self.kept += size
        while True:
            left -= request.reply_size
            request.done = 1
            if kept == NULL:
                request.reply_size = 0
            else:
                kept.users += 1
                request.extra = kept
                request.reply = reply
                reply += request.reply_size
            if left == 0:
                return
            request = request.next_at_backend

    cdef void deliver(
        self, request_t* request, const char* data, size_t size, object address, int database
    ) noexcept:
        """Give the reply to a request that has left its backend's queue; it may be an error made by the proxy.
        ``address``: of the server that answered, or None."""
        cdef bytes shown
        self.leave_slot(request.slot)
        if request.kind == REQUEST_CALL:
            if request.extra != NULL:
                self.tell_caller(request, data[:size])
            self.free_request(request)
            return
        if request.kind != REQUEST_PLAIN:
            self.finish_part(request, data, size)
        elif request.client != NULL and request.client.hides and size and data[0] == c'-':
            shown = without_arguments(data[:size])
            self.finish_place(request, shown, len(shown), address, database)
        else:
            self.finish_place(request, data, size, address, database)

    cdef void tell_caller(self, request_t* request, bytes reply) noexcept:
        """Give the reply to a request of the proxy's own. Nothing that comes later is passed on."""
        callback = <object> request.extra
        request.extra = NULL
        Py_DECREF(callback)
        try:
            callback(reply)
        except Exception as error:
            self.event_loop.call_exception_handler({"message": "a reply's callback failed", "exception": error})

    cdef void answer(self, client_t* client, const char* data, size_t size) noexcept:
        """A reply by the proxy itself, in its turn."""
        cdef request_t* place
        cdef int64_t expected = client.reply_bytes
        if client.head == NULL:
            self.put_reply(client, data, size)
            # It says nothing about the size of servers' replies.
            client.reply_bytes = expected
            return
        place = self.place(client)
        if place != NULL:
            place.command = UNCOUNTED
            # The caller has made sure of that.
            place.muted = 0
            self.finish_place(place, data, size, None, 0)

    cdef void push(self, client_t* client, const char* data, size_t size) noexcept:
        """Send something between two replies: now, or right behind the reply of which a part has been sent
        (**in-order**)."""
        cdef request_t* before = client.head
        cdef request_t* request
        cdef int64_t expected = client.reply_bytes
        if not client.streaming:
            self.put_reply(client, data, size)
            # It says nothing about the size of replies.
            client.reply_bytes = expected
            return
        request = self.new_request(REQUEST_PUSH, NULL, -1)
        if request == NULL:
            client.broken = b"out of memory"
            self.list_client(&client.sender)
            return
        while before.next_at_client != NULL and before.next_at_client.kind == REQUEST_PUSH:
            before = before.next_at_client
        request.client = client
        request.next_at_client = before.next_at_client
        before.next_at_client = request
        if client.tail == before:
            client.tail = request
        client.owed += 1
        request.reply_size = size
        self.keep_early(client, request, data, size)

    cdef request_t* place(self, client_t* client) noexcept:
        """Keep a place in the client's queue for a reply that comes later."""
        cdef request_t* place = self.new_request(REQUEST_PLACE, client, -1)
        if place != NULL:
            place.reply_size = 0
        elif client != NULL:
            client.broken = b"out of memory"
            self.list_client(&client.sender)
        return place

    cdef void forget_client(self, client_t* client) noexcept:
        """The client is gone: free the memory that only it needed, and detach the rest."""
        cdef request_t* request = client.head
        cdef request_t* following
        while request != NULL:
            following = request.next_at_client
            if request.done:
                self.kept -= request.reply_size
                self.free_request(request)
            else:
                if request.kind == REQUEST_PLACE and request.extra != NULL:
                    self.drop_parts(<split_t*> request.extra)
                # Whoever finishes it frees it.
                request.client = NULL
            request = following
        client.head = client.tail = NULL
        self.kept -= client.out.size
        client.owed = 0
        client.early = 0
        self.unlist(&client.sender)

    # -- split requests ------------------------------------------------------------------------------------

    cdef split_t* new_split(self, split_kind kind, int32_t keys, int32_t most_parts) noexcept:
        """Room to reassemble a request of ``keys`` keys from at most ``most_parts`` parts."""
        cdef split_t* split = <split_t*> calloc(1, sizeof(split_t))
        if split == NULL:
            return NULL
        split.kind = kind
        split.keys = keys
        split.key_part = <int32_t*> malloc(sizeof(int32_t) * keys)
        split.key_slot = <int32_t*> malloc(sizeof(int32_t) * keys)
        split.replies = <char**> calloc(most_parts, sizeof(char*))
        split.reply_sizes = <size_t*> calloc(most_parts, sizeof(size_t))
        if split.key_part == NULL or split.key_slot == NULL or split.replies == NULL or split.reply_sizes == NULL:
            self.free_split(split)
            return NULL
        return split

    cdef void drop_parts(self, split_t* split) noexcept:
        """The parts' replies are no longer needed: keep none of them."""
        cdef int32_t part
        for part in range(split.parts):
            free(split.replies[part])
            split.replies[part] = NULL
        self.kept -= split.held
        split.held = 0

    cdef void free_split(self, split_t* split) noexcept:
        cdef int32_t part
        if split.replies != NULL:
            for part in range(split.parts):
                free(split.replies[part])
        free(split.replies)
        free(split.reply_sizes)
        free(split.key_part)
        free(split.key_slot)
        free(split)

    cdef void finish_part(self, request_t* request, const char* data, size_t size) noexcept:
        cdef split_t* split = <split_t*> request.extra
        cdef int32_t key
        split.failed |= size > 0 and data[0] == c'-'
        if (
            split.place.client != NULL
            and not split.place.muted
            and not self.too_much(split.place.client, size)
        ):
            split.replies[request.part] = <char*> malloc(size if size else 1)
            if split.replies[request.part] != NULL:
                memcpy(split.replies[request.part], data, size)
                split.reply_sizes[request.part] = size
                split.held += size
                split.place.client.early += size
                self.kept += size
        self.free_request(request)
        split.parts_left -= 1
        if split.parts_left:
            return
        for key in range(split.keys):
            self.leave_slot(split.key_slot[key])
        self.kept -= split.held
        if split.place.client == NULL or split.place.muted:
            # Nobody gets the reply. Whether it was an error counts all the same.
            self.finish_place(split.place, b"-", split.failed, None, split.database)
        else:
            split.place.client.early -= split.held
            self.join(split)
        self.free_split(split)

    cdef void join(self, split_t* split) noexcept:
        """Make one reply of the parts' replies and give it to the client."""
        cdef int32_t part
        cdef int32_t key
        cdef int64_t total = 0
        cdef size_t size = 0
        cdef size_t used
        cdef size_t* offsets
        cdef char header[32]
        cdef char* joined
        cdef reply_meter_t meter
        for part in range(split.parts):
            if split.replies[part] == NULL:
                self.finish_place(split.place, OUT_OF_MEMORY, strlen(OUT_OF_MEMORY), None, split.database)
                return
            # The first part that failed speaks for the whole, as a single server's error would.
            if split.reply_sizes[part] and split.replies[part][0] == c'-':
                self.finish_place(split.place, split.replies[part], split.reply_sizes[part], None, split.database)
                return
            size += split.reply_sizes[part]
        if split.kind == SPLIT_STATUS:
            self.finish_place(split.place, split.replies[0], split.reply_sizes[0], None, split.database)
            return
        if split.kind == SPLIT_SUM:
            for part in range(split.parts):
                total += strtoll(split.replies[part] + 1, NULL, 10)
            size = snprintf(header, sizeof(header), b":%lld\r\n", <long long> total)
            self.finish_place(split.place, header, size, None, split.database)
            return
        joined = <char*> malloc(size + sizeof(header))
        offsets = <size_t*> calloc(split.parts, sizeof(size_t))
        if joined == NULL or offsets == NULL:
            free(joined)
            free(offsets)
            self.finish_place(split.place, OUT_OF_MEMORY, strlen(OUT_OF_MEMORY), None, split.database)
            return
        for part in range(split.parts):
            # Skip "*n\r\n".
            while offsets[part] < split.reply_sizes[part] and split.replies[part][offsets[part]] != c'\n':
                offsets[part] += 1
            offsets[part] += 1
        size = snprintf(joined, sizeof(header), b"*%d\r\n", <int> split.keys)
        for key in range(split.keys):
            part = split.key_part[key]
            meter.elements = meter.skip = 0
            if offsets[part] >= split.reply_sizes[part] or measure_reply(
                &meter, split.replies[part] + offsets[part], split.reply_sizes[part] - offsets[part], &used
            ) != PARSE_COMPLETE:
                self.finish_place(split.place, TOO_FEW, strlen(TOO_FEW), None, split.database)
                free(joined)
                free(offsets)
                return
            memcpy(joined + size, split.replies[part] + offsets[part], used)
            size += used
            offsets[part] += used
        self.finish_place(split.place, joined, size, None, split.database)
        free(joined)
        free(offsets)

    # -- time ----------------------------------------------------------------------------------------------

    cdef void sent(self) noexcept:
        self.work_time.recent = False
        if self.drain_changed:
            self.tell_drained()
        if self.kept + self.waiting > self.kept_limit and self.on_excess is not None:
            try:
                self.on_excess()
            except Exception as error:
                self.event_loop.call_exception_handler({"message": "limiting what is kept", "exception": error})

    def processes_known(self):
        """Let connections go on that waited until their server's process was known."""
        for connection in list(self.connected):
            connection.processes_known()

    cdef bint is_process(self, address, process, int64_t opened) except -1:
        """Whether the present process at an address is the one to which a connection leads that was opened then.

        run-id: what was learned over connections to another process does not hold for this one. That one is not at the
        address any more, though its connections may be silent and not closed. So they end here.
        """
        newest, present = self.processes.get(address, (0, process))
        if opened < newest:
            return not present or not process or process == present
        self.processes[address] = opened, process
        if process and present and process != present:
            for connection in list(self.connected):
                if connection.address == address:
                    connection.end_if_not(process)
        return True

    def end_over(self):
        """End the connections to servers that may not be used any more; requests that they owe get an error."""
        for connection in list(self.connected):
            connection.end_if_over()

    def tick(self):
        """Move the coarse clock on; the worker calls it a few times a second."""
        self.set_clock()
        self.statistics.tick()
        return self.now
