"""newest-store: what a topom itself remembers of the store (:mod:`topom.cluster.lineage`).

A store may be put back to an older state under topoms that run: etcd or ZooKeeper from a backup, or their addresses
lead to a copy. Each topom remembers the newest state that it has stored or read. So whenever it reads the store for
itself, to lead or to follow, it looks whether that state was made before what the store holds.

A server of the store that has fallen behind may give an older state, too. So the proof is stored first, from the state
that was read, and counts only then: a store that has gone on refuses that write.
"""

from dataclasses import replace

import structlog

from topom.cluster import changed_records, lineage
from topom.cluster.lineage import StoreIsOlder
from topom.cluster.state import ClusterState
from topom.store import Book, StoreError

log = structlog.get_logger(__name__)


async def require_newest(book: Book, stored: ClusterState | None, seen: ClusterState | None, writer: str) -> None:
    """Make sure that what the store holds was not made before a state that this topom had seen.

    Args:
        stored: what was read; None for a store that is empty.
        seen: the newest state that this topom knew before it began to read; None for none.
        writer: its id, for the proof.

    Raises:
        StoreIsOlder: it was made before; the store has the proof.
        StoreError: the store is another cluster's, or empty, or could not take the proof.
    """
    if seen is None:
        return
    if stored is None or stored.cluster_id != seen.cluster_id:
        holds = "is empty" if stored is None else "holds another cluster"
        raise StoreError(
            f"the store {holds}, and this topom has seen it at version {seen.version}; put the newest store back, or, "
            "if that is meant, start this topom anew"
        )
    # Whoever writes next begins with the next version.
    starts = lineage.started(stored.starts, writer, stored.version + 1)
    if not lineage.made_after(starts, seen.starts[-1].writer, seen.version):
        return
    if stored.older:
        raise StoreIsOlder(stored.older)
    what = (
        f"the store holds an older state (version {stored.version}) than this topom has seen (version {seen.version}): "
        "slots may be where it does not say"
    )
    log.error("store_is_older", reason=what)
    proven = replace(stored, version=stored.version + 1, writer=writer, older=what)
    await book.write(stored.version, proven.version, changed_records.differences(stored, proven))
    raise StoreIsOlder(what)
