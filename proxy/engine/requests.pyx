"""Requests under way, the clients they are owed to, and the loop's list of what has bytes to send.

A request stands in two queues: its backend's, because a server answers in order, and its client's, because a
client is answered in order (**in-order**). A reply whose turn it is goes straight to the client's output; one
that is early waits in its request. All of it is C memory: no Python object comes into being for a request.

A client may leave while requests of its are under way: they stay in the backends' queues without a client, and
their replies are dropped. The slots' counters go on counting them, because **drained** is about what a server
may still run, not about who asked.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc, strtoll
from libc.string cimport memcpy, strlen
from cpython.ref cimport Py_DECREF

from proxy.engine.buffer cimport buffer_append, buffer_free, buffer_length
from proxy.engine.memory cimport block_t, free_block, new_block, take_spare
from proxy.engine.poller cimport Poller
from proxy.engine.resp cimport PARSE_COMPLETE, measure_reply, reply_meter_t
from proxy.engine.statistics cimport UNCOUNTED, Statistics, observe


cdef extern from "<time.h>" nogil:
    ctypedef long time_t
    cdef struct timespec:
        time_t tv_sec
        long tv_nsec
    int CLOCK_MONOTONIC
    int clock_gettime(int clock, timespec* now)

cdef extern from "<stdlib.h>" nogil:
    void* aligned_alloc(size_t alignment, size_t size)

cdef enum:
    CACHE_LINE = 64
    BLOCK_REQUESTS = 256
    # A sender may list others (a client resumed lists backends); past this, the next iteration goes on.
    MOST_ROUNDS = 4

cdef const char* OUT_OF_MEMORY = b"-ERR the proxy is out of memory for this reply\r\n"
cdef const char* TOO_FEW = b"-ERR a server answered with fewer values than keys\r\n"


cdef void before_batch(void* owner) noexcept:
    cdef Loop loop = <Loop> owner
    loop.set_clock()
    # What is listed now is sent at the end of the batch.
    loop.scheduled = True


cdef void after_batch(void* owner) noexcept:
    (<Loop> owner).send_all()


cdef class Loop:
    """One worker's event loop as the engine sees it: senders, the free list, the clock, the slots' counters."""

    def __cinit__(self, event_loop, int number_of_slots, bint portable=False):
        self.event_loop = event_loop
        self.number_of_slots = number_of_slots
        self.in_flight = <int32_t*> calloc(number_of_slots, sizeof(int32_t))
        self.scratch = <char*> malloc(SCRATCH_SIZE)
        if self.in_flight == NULL or self.scratch == NULL:
            raise MemoryError
        self.set_clock()

    def __init__(self, event_loop, int number_of_slots, bint portable=False):
        self.flush_bound = self.flush
        self.connected = set()
        self.statistics = Statistics()
        self.command = UNCOUNTED
        self.unsent_limit = INT64_MAX
        self.poller = Poller(event_loop, portable)
        self.poller.before = before_batch
        self.poller.after = after_batch
        self.poller.owner = <void*> self
        self.poller.keeps = self

    def __dealloc__(self):
        cdef int block
        cdef block_t* spare
        for block in range(self.block_count):
            free(self.blocks[block])
        free(self.blocks)
        while self.memory.blocks != NULL:
            spare = self.memory.blocks
            self.memory.blocks = spare.next
            free(spare)
        for block in range(self.memory.spare_count):
            buffer_free(&self.memory.spares[block])
        free(self.in_flight)
        free(self.scratch)

    # -- requests ------------------------------------------------------------------------------------------

    cdef bint more_requests(self) noexcept:
        """Cut another block into free requests; false when there is no memory for it."""
        cdef void** blocks = <void**> realloc(self.blocks, sizeof(void*) * (self.block_count + 1))
        cdef request_t* cut
        cdef int index
        if blocks == NULL:
            return False
        self.blocks = blocks
        cut = <request_t*> aligned_alloc(CACHE_LINE, sizeof(request_t) * BLOCK_REQUESTS)
        if cut == NULL:
            return False
        blocks[self.block_count] = cut
        self.block_count += 1
        for index in range(BLOCK_REQUESTS):
            cut[index].next_at_backend = self.free_requests
            self.free_requests = &cut[index]
        return True

    cdef bint have_requests(self, int count) noexcept:
        """Make sure that the next ``count`` requests can be had; false when there is no memory for them."""
        cdef request_t* request = self.free_requests
        cdef int found = 0
        while found < count and request != NULL:
            found += 1
            request = request.next_at_backend
        while found < count:
            if not self.more_requests():
                return False
            found += BLOCK_REQUESTS
        return True

    cdef request_t* new_request(self, request_kind kind, client_t* client, int32_t slot) noexcept:
        """A request at the end of the client's queue (where there is a client), counted for its slot."""
        cdef request_t* request
        if self.free_requests == NULL and not self.more_requests():
            return NULL
        request = self.free_requests
        self.free_requests = request.next_at_backend
        prefetch(self.free_requests)
        request.next_at_backend = NULL
        request.next_at_client = NULL
        request.client = client
        request.extra = NULL
        request.reply = NULL
        request.sent = self.since
        request.command = self.command
        request.slot = slot
        request.kind = kind
        request.done = 0
        if slot >= 0:
            self.in_flight[slot] += 1
        if client != NULL:
            if client.tail != NULL:
                client.tail.next_at_client = request
            else:
                client.head = request
            client.tail = request
            client.owed += 1
        return request

    cdef void free_request(self, request_t* request) noexcept:
        if request.reply != NULL:
            free_block(&self.memory, request.reply, request.reply_size)
        if request.kind == REQUEST_CALL and request.extra != NULL:
            Py_DECREF(<object> request.extra)
        request.next_at_backend = self.free_requests
        self.free_requests = request

    cdef void leave_slot(self, int32_t slot) noexcept:
        """A request of the slot is answered, or will never be."""
        if slot >= 0:
            self.in_flight[slot] -= 1
            if self.drain_watched and self.in_flight[slot] == 0:
                self.drain_changed = True

    def hold_slot(self, int slot):
        """Count something of the proxy's own, such as a move, as under way for the slot."""
        self.in_flight[slot] += 1

    def release_slot(self, int slot):
        """The reverse of :meth:`hold_slot`."""
        self.leave_slot(slot)
        self.check_drained()

    def slot_in_flight(self, int slot):
        """Requests under way of a slot."""
        return self.in_flight[slot]

    def watch_drain(self, callback):
        """Have ``callback()`` called whenever a slot's last request has been answered; None to stop."""
        self.on_drained = callback
        self.drain_watched = callback is not None
        self.drain_changed = False

    cpdef check_drained(self):
        """Tell the watcher if a slot's last request was answered since the last call."""
        if self.drain_changed:
            self.drain_changed = False
            if self.on_drained is not None:
                self.on_drained()

    # -- replies -------------------------------------------------------------------------------------------

    cdef bint too_much(self, client_t* client, size_t size) noexcept:
        """Whether so much more is beyond what is kept for a client (**bounded**), which then loses its connection."""
        if client.broken == NULL and buffer_length(&client.out) + client.early + size > client.out_limit:
            client.broken = b"output limit"
            self.list_client(&client.sender)
        return client.broken != NULL

    cdef void put_reply(self, client_t* client, const char* data, size_t size) noexcept:
        """Append to the client's output, within its limit."""
        if self.too_much(client, size):
            return
        if client.out.data == NULL:
            take_spare(&self.memory, &client.out)
        if buffer_append(&client.out, data, size):
            self.unsent += size
            client.reply_bytes += size
        else:
            client.broken = b"out of memory"
        self.list_client(&client.sender)

    cdef void pop_done(self, client_t* client) noexcept:
        """Send the replies at the head of the queue that were waiting for their turn."""
        cdef request_t* request = client.head
        while request != NULL and request.done:
            client.early -= request.reply_size
            self.unsent -= request.reply_size
            self.put_reply(client, request.reply, request.reply_size)
            client.head = request.next_at_client
            client.owed -= 1
            client.replies += 1
            self.free_request(request)
            request = client.head
        if request == NULL:
            client.tail = NULL

    cdef void finish_place(self, request_t* place, const char* data, size_t size) noexcept:
        """Reply to a request that stands only in its client's queue, now or when its turn comes."""
        cdef client_t* client = place.client
        observe(
            self.statistics,
            place.command,
            self.ticks - place.sent,
            size > 0 and data[0] == c'-',
            place.slot,
            client.sender.owner if client != NULL else NULL,
            None,
        )
        if client == NULL:
            self.free_request(place)
            return
        if client.head == place:
            self.put_reply(client, data, size)
            client.head = place.next_at_client
            client.owed -= 1
            client.replies += 1
            self.free_request(place)
            self.pop_done(client)
            return
        place.done = 1
        place.reply_size = 0
        if self.too_much(client, size):
            return
        place.reply = new_block(&self.memory, size)
        if place.reply == NULL:
            client.broken = b"out of memory"
            self.list_client(&client.sender)
            return
        memcpy(place.reply, data, size)
        place.reply_size = size
        client.early += size
        self.unsent += size

    cdef void deliver(self, request_t* request, const char* data, size_t size) noexcept:
        """The reply to a request that has left its backend's queue, an error made by the proxy included."""
        self.leave_slot(request.slot)
        if size and data[0] == c'-':
            self.errors += 1
        if request.kind == REQUEST_PLAIN:
            self.finish_place(request, data, size)
        elif request.kind == REQUEST_PART:
            self.finish_part(request, data, size)
        else:
            callback = <object> request.extra
            try:
                callback(data[:size])
            except Exception as error:
                self.event_loop.call_exception_handler({"message": "a reply's callback failed", "exception": error})
            self.free_request(request)

    cdef void answer(self, client_t* client, const char* data, size_t size) noexcept:
        """A reply by the proxy itself, in its turn."""
        cdef request_t* place
        if client.head == NULL:
            self.put_reply(client, data, size)
            return
        place = self.place(client)
        if place != NULL:
            place.command = UNCOUNTED
            self.finish_place(place, data, size)

    cdef request_t* place(self, client_t* client) noexcept:
        """Keep a place in the client's queue for a reply that comes later."""
        cdef request_t* place = self.new_request(REQUEST_PLACE, client, -1)
        if place == NULL:
            client.broken = b"out of memory"
            self.list_client(&client.sender)
        return place

    cdef void forget_client(self, client_t* client) noexcept:
        """The client is gone: free what only it waited for, cut the rest loose."""
        cdef request_t* request = client.head
        cdef request_t* following
        while request != NULL:
            following = request.next_at_client
            if request.done:
                self.unsent -= request.reply_size
                self.free_request(request)
            elif request.kind == REQUEST_PLACE:
                if request.extra != NULL:
                    (<split_t*> request.extra).place = NULL
                    self.free_request(request)
                else:
                    # Whoever holds the place finishes it, and finish_place frees it.
                    request.client = NULL
            else:
                request.client = NULL
            request = following
        client.head = client.tail = NULL
        self.unsent -= buffer_length(&client.out)
        client.owed = 0
        client.early = 0
        self.unlist(&client.sender)

    # -- split requests ------------------------------------------------------------------------------------

    cdef split_t* new_split(self, split_kind kind, int32_t keys, int32_t most_parts) noexcept:
        """Room to put a request of ``keys`` keys together again from at most ``most_parts`` parts."""
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
        if split.place != NULL and split.place.client != NULL and not self.too_much(split.place.client, size):
            split.replies[request.part] = <char*> malloc(size if size else 1)
            if split.replies[request.part] != NULL:
                memcpy(split.replies[request.part], data, size)
                split.reply_sizes[request.part] = size
                split.held += size
                split.place.client.early += size
                self.unsent += size
        self.free_request(request)
        split.parts_left -= 1
        if split.parts_left:
            return
        for key in range(split.keys):
            self.leave_slot(split.key_slot[key])
        self.unsent -= split.held
        if split.place != NULL and split.place.client == NULL:
            # Whoever asked wants no reply.
            self.free_request(split.place)
        elif split.place != NULL:
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
                self.finish_place(split.place, OUT_OF_MEMORY, strlen(OUT_OF_MEMORY))
                return
            # The first part that failed speaks for the whole, as a single server's error would.
            if split.reply_sizes[part] and split.replies[part][0] == c'-':
                self.finish_place(split.place, split.replies[part], split.reply_sizes[part])
                return
            size += split.reply_sizes[part]
        if split.kind == SPLIT_STATUS:
            self.finish_place(split.place, split.replies[0], split.reply_sizes[0])
            return
        if split.kind == SPLIT_SUM:
            for part in range(split.parts):
                total += strtoll(split.replies[part] + 1, NULL, 10)
            size = snprintf(header, sizeof(header), b":%lld\r\n", <long long> total)
            self.finish_place(split.place, header, size)
            return
        joined = <char*> malloc(size + sizeof(header))
        offsets = <size_t*> calloc(split.parts, sizeof(size_t))
        if joined == NULL or offsets == NULL:
            free(joined)
            free(offsets)
            self.finish_place(split.place, OUT_OF_MEMORY, strlen(OUT_OF_MEMORY))
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
                self.finish_place(split.place, TOO_FEW, strlen(TOO_FEW))
                free(joined)
                free(offsets)
                return
            memcpy(joined + size, split.replies[part] + offsets[part], used)
            size += used
            offsets[part] += used
        self.finish_place(split.place, joined, size)
        free(joined)
        free(offsets)

    # -- sending -------------------------------------------------------------------------------------------

    cdef void list_client(self, sender_t* sender) noexcept:
        if not sender.listed:
            sender.listed = True
            sender.next = self.clients
            self.clients = sender
            self.schedule()

    cdef void list_backend(self, sender_t* sender) noexcept:
        if not sender.listed:
            sender.listed = True
            sender.next = self.backends
            self.backends = sender
            self.schedule()

    cdef void unlist(self, sender_t* sender) noexcept:
        cdef sender_t** link
        if not sender.listed:
            return
        sender.listed = False
        link = &self.clients
        while link[0] != NULL and link[0] != sender:
            link = &link[0].next
        if link[0] == NULL:
            link = &self.backends
            while link[0] != NULL and link[0] != sender:
                link = &link[0].next
        if link[0] != NULL:
            link[0] = sender.next

    cdef void schedule(self) noexcept:
        if not self.scheduled:
            self.scheduled = True
            try:
                self.event_loop.call_soon(self.flush_bound)
            except RuntimeError:
                # The event loop is closed: the worker is on its way out.
                self.scheduled = False

    def flush(self):
        """Send what was listed outside of a batch."""
        self.set_clock()
        self.send_all()

    cdef void send_all(self) noexcept:
        """Give every backend, then every client, that has bytes to send one ``send``."""
        cdef sender_t* sender
        cdef int rounds = 0
        while (self.backends != NULL or self.clients != NULL) and rounds < MOST_ROUNDS:
            rounds += 1
            while self.backends != NULL:
                sender = self.backends
                self.backends = sender.next
                sender.listed = False
                sender.send(sender.owner)
            while self.clients != NULL:
                sender = self.clients
                self.clients = sender.next
                sender.listed = False
                sender.send(sender.owner)
        self.scheduled = False
        if self.backends != NULL or self.clients != NULL:
            self.schedule()
        if self.drain_changed:
            self.tell_drained()
        if self.unsent > self.unsent_limit and self.on_excess is not None:
            try:
                self.on_excess()
            except Exception as error:
                self.event_loop.call_exception_handler({"message": "limiting what is kept", "exception": error})

    def tell_drained(self):
        """As :meth:`check_drained`, where an exception cannot be passed on."""
        try:
            self.check_drained()
        except Exception as error:
            self.event_loop.call_exception_handler({"message": "telling of drained slots", "exception": error})

    def tick(self):
        """Move the coarse clock on; the worker calls it a few times a second."""
        self.set_clock()
        return self.now

    cdef void set_clock(self) noexcept:
        cdef timespec now
        clock_gettime(CLOCK_MONOTONIC, &now)
        self.now = now.tv_sec + now.tv_nsec * 1e-9
        self.ticks = self.since = <uint32_t> ((<uint64_t> now.tv_sec * 1000000000 + <uint64_t> now.tv_nsec) >> 12)
