"""The array of slots, the backends, and the reasons that keep a request from being sent.

The array has one small C record a slot. The decision on a request is to hash its key, to look at the record, and to
append its bytes to a backend. If the record's state is not "open", plain Python decides: :mod:`proxy.worker.holding` for a
locked slot, :mod:`proxy.moving.migrating` for a moving one.
"""

from libc.stdint cimport int32_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from proxy.engine.absent cimport AbsentKeys
from proxy.engine.backend cimport Backend
from proxy.engine.loaded cimport LoadedCode
from proxy.engine.requests cimport Loop
from proxy.engine.serverconnection cimport BACKEND_READY
from slots.keyslots cimport KeySlots
from slots.requests.commandlookup cimport CommandLookup
from slots.requests.parsing cimport argument_t, free_parse

from slots import sorting
from slots.slot import CHANGING

KNOWN_ABSENT = 524_288
"""Keys that a worker remembers as absent from the source of a migrating slot, at 16 bytes each: 8 MB at most, and none
before a slot moves. Of 300,000 hot keys, it forgets one in fifty."""

cdef enum:
    # Up to slots.slot.CHANGING.
    PLACES = 16386

assert PLACES == CHANGING + 1
OFFLINE = ROUTE_OFFLINE
OPEN = ROUTE_OPEN
LOCKED = ROUTE_LOCKED
MIGRATING = ROUTE_MIGRATING


cdef class Router:
    """Decides where the requests of one worker go.

    Args:
        loop: the worker's loop.
        slot_function: name of the product's slot function.
        databases: number of databases that clients may select.
        options: :class:`proxy.servers.backends.BackendOptions` for shared backends.
        settings: :class:`proxy.settings.ProxySettings`.
        commands: :func:`slots.commands.table`.
    """

    def __cinit__(self, Loop loop, str slot_function, int databases, options, settings, commands):
        self.loop = loop
        self.number_of_slots = loop.number_of_slots
        self.routes = <route_t*> calloc(PLACES, sizeof(route_t))
        if self.routes == NULL:
            raise MemoryError
        memset(&self.parse, 0, sizeof(self.parse))
        self.slot_function = slot_function
        self.key_slots = KeySlots(slot_function, loop.number_of_slots)
        for slot in [*range(loop.number_of_slots + 1), CHANGING]:
            self.routes[slot].server = self.routes[slot].replica = -1

    def __init__(self, Loop loop, str slot_function, int databases, options, settings, commands):
        self.databases = databases
        self.connections_each = settings.backend_connections
        # As many again for large replies.
        self.per_server = databases * 2 * 2 * self.connections_each
        self.options = options
        self.settings = settings
        self.counts_receivers = settings.publish_counts_clients
        self.commands = CommandLookup(commands, self.loop.statistics.number)
        self.absent = AbsentKeys(KNOWN_ABSENT)
        self.loaded = LoadedCode()
        self.addresses = []
        self.server_indices = {}
        self.backend_objects = []
        self.sessions = set()

    def __dealloc__(self):
        free(self.routes)
        free(self.keys)
        free(self.part_of_server)
        free(self.backends)
        free_parse(&self.parse)

    def learn(self, commands):
        """Replace the table of commands."""
        self.commands = CommandLookup(commands, self.loop.statistics.number)

    cdef argument_t* key_room(self, int count) noexcept:
        """The worker's scratch room for ``count`` keys; NULL when there is no memory."""
        cdef argument_t* keys
        if count > self.key_capacity:
            keys = <argument_t*> realloc(self.keys, sizeof(argument_t) * count)
            if keys == NULL:
                return NULL
            self.keys = keys
            self.key_capacity = count
        return self.keys

    def rule_by(self, tuple rules, tuple coming=None):
        """Go by these slot rules (:class:`slots.rules.SlotRule`) from now on, and keep clients off each key that the
        ``coming`` rules give another slot."""
        self.key_slots = KeySlots(self.slot_function, self.number_of_slots, rules)
        self.changing = coming is not None
        self.coming_slots = KeySlots(self.slot_function, self.number_of_slots, coming) if coming is not None else None
        self.ruling += 1

    cdef int32_t slot_amid_change(self, int database, const char* key, size_t size) noexcept:
        cdef int32_t slot = <int32_t> self.key_slots.of(database, key, size)
        return slot if slot == <int32_t> self.coming_slots.of(database, key, size) else PLACES - 1

    def slot_of_key(self, int database, bytes key):
        """Slot of a key that a client names. Slotferry's own keys, which clients may not use, have ``number_of_slots``;
        those that clients may not use for now have CHANGING."""
        return self.slot_of(database, key, len(key))

    def home_of_key(self, int database, bytes key):
        """Slot of a key that a server has, whether clients may use it now or not."""
        return self.key_slots.of(database, key, len(key))

    def channel_slot(self, bytes name):
        """Slot of a channel of pub/sub; ``number_of_slots`` for Slotferry's own."""
        return self.slot_of_channel(name, len(name))

    def slot_of_pattern(self, int database, bytes pattern):
        """The slot of all keys of a pattern of SORT; -1 if they may have several."""
        if sorting.may_have_several_slots(pattern, database, self.key_slots.rules):
            return -1
        return self.slot_of_key(database, pattern)

    # -- servers -------------------------------------------------------------------------------------------

    def server_index(self, str address):
        """Index of a server, the same while the worker lives."""
        cdef void** backends
        cdef int32_t* parts
        cdef size_t per_server = self.per_server
        index = self.server_indices.get(address)
        if index is not None:
            return index
        backends = <void**> realloc(self.backends, sizeof(void*) * per_server * (self.servers + 1))
        if backends == NULL:
            raise MemoryError
        self.backends = backends
        memset(backends + per_server * self.servers, 0, sizeof(void*) * per_server)
        parts = <int32_t*> realloc(self.part_of_server, sizeof(int32_t) * (self.servers + 1))
        if parts == NULL:
            raise MemoryError
        self.part_of_server = parts
        parts[self.servers] = -1
        index = self.servers
        self.servers += 1
        self.addresses.append(address)
        self.server_indices[address] = index
        return index

    cdef Backend backend(self, int32_t server, int database, int protocol, int connection_number):
        """The shared backend of a server, database, RESP version and number."""
        cdef size_t kind = (database * 2 + protocol - 2) * 2 * self.connections_each + connection_number
        cdef size_t place = self.per_server * server + kind
        cdef Backend backend
        if self.backends[place] != NULL:
            return <Backend> self.backends[place]
        backend = Backend(
            self.loop,
            self.addresses[server],
            database,
            protocol,
            self.options,
            self.settings.backend_reply_seconds,
        )
        backend.share()
        self.backend_objects.append(backend)
        self.backends[place] = <void*> backend
        return backend

    def shared(self, session, str address):
        """The backend of a server that a session shares, for requests that have to run in the session's order."""
        return self.backend(self.server_index(address), session.database, session.protocol, session.connection_number)

    def shared_backend(self, str address, int database=0, int protocol=2):
        """The shared backend of a server, for requests of the proxy's own."""
        return self.backend(self.server_index(address), database, protocol, 0)

    @property
    def shared_backends(self):
        """All shared backends."""
        return list(self.backend_objects)

    def keep_servers(self, addresses):
        """Close the backends of every server that is not in ``addresses``."""
        cdef Backend backend
        cdef size_t place
        cdef size_t per_server = self.per_server
        for address, index in self.server_indices.items():
            if address in addresses:
                continue
            for place in range(per_server * <size_t> index, per_server * (<size_t> index + 1)):
                if self.backends[place] != NULL:
                    backend = <Backend> self.backends[place]
                    self.backends[place] = NULL
                    backend.close()
                    self.backend_objects.remove(backend)

    # -- routes --------------------------------------------------------------------------------------------

    def set_route(self, int slot, int state, str address, uint32_t migration):
        """Set where a slot's requests go. ``address`` may be None where ``state`` is OFFLINE or LOCKED."""
        cdef int32_t server = self.server_index(address) if address is not None else -1
        cdef route_t* route = &self.routes[slot]
        # A migration that is over leaves the slot where it is.
        cdef bint arrives = route.state == ROUTE_MIGRATING and state == ROUTE_OPEN
        if route.server != server or ((route.state != state or route.migration != migration) and not arrives):
            route.changes += 1
        route.state = state
        route.server = server
        route.migration = migration

    def set_replica(self, int slot, address):
        """Set where reads of sessions with ``replica_reads`` go while the slot is at rest; None for the master."""
        self.routes[slot].replica = self.server_index(address) if address is not None else -1

    def changes(self, int slot):
        """A number that grows whenever the slot's server, state or migration changes, but when a migration ends well."""
        return self.routes[slot].changes

    def open_route(self, int slot):
        """Send a locked slot's requests where they went before."""
        if self.routes[slot].state == ROUTE_LOCKED:
            self.routes[slot].changes += 1
            self.routes[slot].state = ROUTE_OPEN if self.routes[slot].server >= 0 else ROUTE_OFFLINE

    def route(self, int slot):
        """``(state, address, migration)`` of a slot."""
        server = self.routes[slot].server
        return self.routes[slot].state, self.addresses[server] if server >= 0 else None, self.routes[slot].migration

    def next_generation(self):
        """Note that a new table is in force."""
        self.generation += 1

    def any_address(self):
        """The address of a server that owns slots, a connected one if possible; None where there is no server."""
        cdef size_t place
        cdef int32_t server
        cdef int32_t last = -1
        cdef int32_t first = -1
        cdef int slot
        for slot in range(self.number_of_slots):
            server = self.routes[slot].server
            if server < 0 or server == last:
                continue
            last = server
            if first < 0:
                first = server
            for place in range(self.per_server * <size_t> server, self.per_server * (<size_t> server + 1)):
                if self.backends[place] != NULL and (<Backend> self.backends[place]).state == BACKEND_READY:
                    return self.addresses[server]
        return self.addresses[first] if first >= 0 else None
