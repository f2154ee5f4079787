"""The names of Slotferry's own keys, and of what is in them. This module imports nothing: any other can use it."""

RESERVED = b"__slotferry:"
"""The prefix of Slotferry's own keys: they belong to no slot, are not moved and not shown to clients."""

REFUSAL = "ERR keys whose names begin with __slotferry: are Slotferry's own"
"""The error for a client that names such a key."""

STATE = RESERVED + b"moving"
"""Hash in database 0 of a server. ``permit``: the permit by which keys leave it. ``accepts``: the permit by which keys
come. ``claim:database:key``: a claim on a key that is on its way from here; the value names the mover. It also has the
fields of flushes (:mod:`slots.flushes`)."""
WANTED = RESERVED + b"wanted"
"""List in database 0 of a source: ``database:key`` of keys that go in pieces and that clients wait for."""
FENCED = RESERVED + b"fenced"
"""Hash in database 0 of a server: a fenced proxy's instance is the field. The value is the time of the fence, in
seconds since 1970, and after a blank the table by which topom fenced it (:mod:`topom.cluster.lineage`)."""
LEADER = RESERVED + b"leader"
"""Hash in database 0 of a server. ``term``: the newest term of a topom whose migrator has used the server. ``ended``:
the term in which the connections of all other topoms' migrators were ended. ``format``: of all of these keys
(:mod:`migrator.terms`); the first one is not written. ``by``: the state by which a topom changed the owner of slots
there last (:mod:`topom.proxies.strangers`)."""
SWEPT = RESERVED + b"swept"
"""Hash in database 0 of a server. ``swept``: the life in which the server was swept. ``data``: the id of its data.
``token``: random, of a sweep under way (:mod:`migrator.sweep`). ``left``: keys of its own slots may count as hidden,
until it is swept."""

POSITION = RESERVED + b"position"
"""String in each database of a target: which batch of which copy was the last to be written there
(:mod:`migrator.stream.applying`)."""
MARKER = RESERVED + b"marker"
"""String in database 0 of a source. It is written while slots are locked, and read back in the replication stream: all
that was written before it has been read by then (**level**). A target gets one before its replicas are waited for."""
HIDDEN = RESERVED + b"hidden"
"""Hash in database 0 of a server: for each database, by its number, how many keys there are of copies that the server
does not own. While a copy is made its keys are counted at the target, and from its end within the lock on at the
source, which has as many (:mod:`migrator.stream.applying`). A sweep counts them down, and removes the hash in its last
step."""

RESERVED_KEYS = (STATE, WANTED, FENCED, LEADER, SWEPT, POSITION, MARKER, HIDDEN)
KINDS = {WANTED: "list", POSITION: "string", MARKER: "string"}
"""The types of those :data:`RESERVED_KEYS` that are not hashes."""
OUTLAST_FLUSH = (STATE, FENCED, LEADER, SWEPT, HIDDEN)
"""Keys that survive a client's flush: a process that comes late has to find them."""

FOLLOWER = "slotferry"
"""The host by which a link that follows a server's replication stream shows itself there, as if it were a replica."""

CLAIM_FIELD = "claim:"
"""The prefix of the fields of :data:`STATE` that are claims."""
FLUSH_FIELD = "flush:"
"""The prefix of the fields of :data:`STATE` that are of flushes."""
IN_PIECES = "pieces "
"""The prefix of claims by which the migrator moves a key in pieces."""

ASIDE = RESERVED + b"aside:"
"""The prefix of names for keys of others that stood in the place of ours: they are kept under these names."""
PIECE = RESERVED + b"piece:"
"""The prefix of the names of unfinished copies at a target."""
TRIAL = RESERVED + b"trial:"
"""The prefix of the names of trial keys (:mod:`migrator.trial`)."""
