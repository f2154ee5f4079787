"""A flush while slots move: scripts that stop all movers until the flush is over at every server.

A flush has to take each key away at one moment, even while keys move. A key at its source goes with the source's flush,
any other key with the target's. That holds as long as no process learns during the flush that a key has left its
source. Such a process would write the key at the target, and the target's flush would delete that write. So:

1. The flush *withholds* the permit (:mod:`slots.permits`) at every server. One step removes the permit by which keys
   leave it, the permit by which keys come, and the claims. The same step sets a field ``flush:token`` in
   :data:`slots.reserved.STATE`. Its value is the server's run id. From then on, steps that are on their way do nothing.
2. Every server is flushed, in any order. Each checks in the same step that the field is there, set for this very
   process (**run-id**).
3. The fields are removed. If one is no longer there, the client gets an error: do it again.

A permit is set at a server only if no flush field is there. That is checked in the same step, at the target first. All
fields are set before the first server is flushed. So a permit that holds was set at both ends either before the flush
reached them, and goes with the first field, or after the flush was over at both. A slot's move is complete only once
neither end has a flush field. That is checked after the scan of the source.

A process that dies during its flush leaves its fields. A process that waits for such a field removes it at both ends
after :data:`TAKEN_OVER_SECONDS` by its own clock. If the flush still arrives after that, it is refused.

Several flushes may run at once: each takes away the keys that it finds at its own moments.
"""

from slots.scripts import load

TAKEN_OVER_SECONDS = 10.0
"""After this time a process that waits for a flush takes the flusher for dead."""

WITHHOLD = load("flush_withhold")
"""Withholds the permits of a server."""
FLUSH = load("flush")
"""Runs a FLUSHDB or FLUSHALL, if the permit is withheld for it."""
RELEASE = load("flush_release")
"""Removes the field of a flush; says whether it was there, set for this very process."""
UNDER_WAY = load("flush_under_way")
"""Removes the fields of dead flushes, then gives the fields of the flushes that are still there."""
