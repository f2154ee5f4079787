"""Whether the store is the newest that there was. A topom may come back with an older one: from a backup, or from an
older copy of its disk.

**newest-store**: such a topom does nothing to servers and gives no proxy a table. By its table slots would be where
they no longer are, and a sweep would delete what clients have written since. That its epoch is lower than that of a
proxy's table shows it only at first, for each start makes the epoch grow. So the state keeps the *starts*: who took the
writer's place, and at which epoch. A table of a start that the state does not know, or of an epoch that the start did
not have by this state, was made after the state. Proxies tell of such tables (:mod:`topom.proxies.newest`), and a topom
knows its own (:mod:`topom.cluster.remembering`). Once that was seen of a state, it keeps the proof. Each further start
would push out an earlier one, until an unknown start looks like one that is kept no longer; and the proxy that had the
table may have ended by then.

Servers tell of it, too: the mark of a fence names the state by which topom put it up, like a table of the epoch that a
change of it would have got. So a topom finds that another one over a copy of the store has fenced its proxy, or has
changed the owner of slots at a server (:meth:`topom.proxies.newest.NewestStore.hear_fences` and ``hear_use``).

Whoever has a proxy's token could invent such a table, and so end topom for good. So each table goes with a *seal*, by a
key that is in the store and goes nowhere else. A table without its seal ends nothing; the proxy that names it gets no
table.
"""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from slots.kinds import Kind
from slots.messages.control import KnownTable
from topom.errors import TopomError, Unavailable

MOST_STARTS = 256
"""That the state keeps, the newest last."""


class AnotherCluster(TopomError):
    """The table is that of another cluster."""

    kind = Kind.OPERATOR


class NotSealed(TopomError):
    """Whoever has a proxy's token could say as much."""

    kind = Kind.OPERATOR


class StoreIsOlder(Unavailable):
    """A table is known that was made after the state that the store holds."""

    kind = Kind.OPERATOR

    def __init__(self, what: str) -> None:
        super().__init__(
            what,
            "put the newest store back, or build a new one from what proxies know, as docs/backup.md says",
        )


@dataclass(frozen=True, slots=True)
class Start:
    """A topom took the writer's place.

    Attributes:
        writer: its id.
        epoch: of its first write. All its tables have this epoch or a later one, and a lower one than the next start.
    """

    writer: str
    epoch: int


def started(starts: Sequence[Start], writer: str, epoch: int) -> tuple[Start, ...]:
    """The starts with one more."""
    return (*starts, Start(writer, epoch))[-MOST_STARTS:]


def made_after(starts: Sequence[Start], writer: str, epoch: int) -> bool:
    """Whether a table was made after the state that has these starts. ``writer`` is the start that made it."""
    if writer == starts[-1].writer:
        return False
    ends = {start.writer: following.epoch for start, following in pairwise(starts)}
    if writer in ends:
        return epoch >= ends[writer]
    return len(starts) < MOST_STARTS or epoch >= starts[0].epoch


def seal(key: str, writer: str, epoch: int) -> str:
    """What goes to proxies with a table: only who has the cluster's key can make it."""
    return hmac.new(key.encode(), f"{writer} {epoch}".encode(), "sha256").hexdigest()


def signature(cluster_id: str, key: str, writer: str, epoch: int) -> str:
    """A table, or a state, in words, for what topom leaves at servers."""
    return f"{cluster_id} {writer} {epoch} {seal(key, writer, epoch)}"


def signed(text: str) -> KnownTable | None:
    """The table of a :func:`signature`; None if it is none."""
    words = text.split(" ")
    if len(words) != 4 or not words[2].isascii() or not words[2].isdigit():
        return None
    try:
        return KnownTable(cluster=words[0], start=words[1], epoch=int(words[2]), seal=words[3])
    except ValueError:
        return None


def require_older(cluster_id: str, key: str, starts: Sequence[Start], known: KnownTable, who: str) -> None:
    """Make sure that a table was made before this state, or with it.

    Args:
        cluster_id, key, starts: of the state.
        known: the table.
        who: has it; for the message.

    Raises:
        AnotherCluster: it is another cluster's.
        NotSealed: nothing shows that this cluster has made it, and it would have been made after this state.
        StoreIsOlder: it was made after this state.
    """
    if known.cluster != cluster_id:
        raise AnotherCluster(
            f"{who} has the table of another cluster",
            "if it is meant to serve this one, end it, delete its table_file, and start it",
        )
    if made_after(starts, known.start, known.epoch):
        if not hmac.compare_digest(seal(key, known.start, known.epoch).encode(), known.seal.encode()):
            raise NotSealed(
                f"{who} says that it has a table of epoch {known.epoch} that was made after what the store holds, and "
                "nothing shows that this cluster has made it",
                "if it is meant to serve this cluster, end it, delete its table_file, and start it",
            )
        raise StoreIsOlder(
            f"{who} has a table of epoch {known.epoch} that was made after what the store holds, so the store is an "
            "older one: its slots may be where it does not say"
        )
