"""The array of slots, the backends, and the reasons that keep a request from being sent."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from proxy.engine.absent cimport AbsentKeys
from proxy.engine.backend cimport Backend
from proxy.engine.loaded cimport LoadedCode
from proxy.engine.requests cimport Loop
from slots.keyslots cimport KeySlots
from slots.requests.commandlookup cimport CommandLookup
from slots.requests.parsing cimport argument_t, request_parse_t
from slots.reserved cimport slotferry_is_reserved

ctypedef enum route_state:
    # No group, or a group without a server: requests get an error.
    ROUTE_OFFLINE
    ROUTE_OPEN
    # Requests wait.
    ROUTE_LOCKED
    # Requests wait until their keys are known to be absent from the source.
    ROUTE_MIGRATING

ctypedef struct route_t:
    uint8_t state
    # Index of the server at which commands run.
    int32_t server
    # Index of the replica for reads of sessions that want one; -1 for none.
    int32_t replica
    # Counts changes of the server, the state and the migration, but when a migration ends well.
    uint32_t changes
    # Number of the migration (**one-way**: knowledge about one migration does not hold in another).
    uint32_t migration


cdef class Router:
    """Decides where the requests of one worker go."""

    cdef:
        readonly Loop loop
        readonly int number_of_slots
        readonly int databases
        readonly int connections_each
        size_t per_server
        # One for each slot, and others behind, see slot_of.
        route_t* routes
        str slot_function
        KeySlots key_slots
        # The slots by the rules to come, while `changing`.
        KeySlots coming_slots
        bint changing
        # Counts the changes of what slot_of gives.
        readonly int64_t ruling
        readonly AbsentKeys absent
        readonly LoadedCode loaded
        CommandLookup commands
        request_parse_t parse
        argument_t* keys
        int key_capacity
        int32_t* part_of_server
        void** backends
        int servers
        list addresses
        dict server_indices
        list backend_objects
        readonly object options
        readonly object settings
        # proxy.commands.dispatch.SlowPath, proxy.moving.migrating.KeyMover, proxy.worker.holding.Holding
        public object slow_path
        public object mover
        public object holding
        # proxy.commands.transactions.watching.Watching
        public object watching
        # proxy.commands.blocking.blocking.BlockingCommands
        public object blocking
        # proxy.engine.scans.Pages, or None
        public object pages
        # proxy.engine.hotvalues.HotValues
        public object hot_values
        public set sessions
        # Whether clients have to authenticate.
        public bint gated
        # Whether plain Python decides on PUBLISH and SPUBLISH, to answer how many clients get the message.
        bint counts_receivers
        # Whether sessions read from replicas, unless they say otherwise.
        public bint replica_reads
        # Counts the tables applied. A request that was cleared by one table is looked at again under the next.
        readonly int64_t generation

    cdef argument_t* key_room(self, int count) noexcept
    cdef inline int32_t slot_of(self, int database, const char* key, size_t size) noexcept:
        """The slot of a key of a database. Slotferry's own keys have the slot behind all others, which is always offline.
        So is CHANGING, the slot of keys to which the coming rules give another one."""
        if slotferry_is_reserved(key, size):
            return self.number_of_slots
        if self.changing:
            return self.slot_amid_change(database, key, size)
        return <int32_t> self.key_slots.of(database, key, size)
    cdef int32_t slot_amid_change(self, int database, const char* key, size_t size) noexcept
    cdef inline int32_t slot_of_channel(self, const char* name, size_t size) noexcept:
        """The slot of a channel of pub/sub, which is the same in all databases and under all slot rules. Those that
        have the prefix of Slotferry's own keys are its own, too."""
        if slotferry_is_reserved(name, size):
            return self.number_of_slots
        return <int32_t> self.key_slots.of_channel(name, size)
    cdef Backend backend(self, int32_t server, int database, int protocol, int connection_number)
