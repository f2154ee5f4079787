"""Which server may be told to follow which: the one decision that keeps the last whole copy from being wiped
(**last-copy**).

A server that is told to follow another loses whatever only it has. Servers are told so in a change of masters, when
they join or are strays, in a placement, and when they are filled anew. In each case :func:`refusal` is asked first,
with what both servers say of themselves at that moment. Only
:meth:`topom.servers.replication.ServerReplication.follow` tells servers to follow. For a server that leaves its group,
``departure`` of :mod:`topom.masters.choice` decides likewise.

The decision looks at these things, in this order:

1. *Who they are.* Two names of one process must not follow each other. The one to be followed must be a master, and
   both must have loaded their data.
2. *The operator's word* that what the server holds may be lost.
3. *Nothing there*: a server without keys loses nothing.
4. *In which role it is told* (:class:`As`). The histories decide if both servers tell of the same stream, else the
   numbers of keys do. If the master lacks what the server has, that raises an alarm (:class:`MasterLacks`), and the
   master fills nobody.

No decision here can prevent one case. When a master comes back without its data, a replica that follows it asks for
everything by itself, and is emptied. docs/strays.md says which persistence prevents that.

Pure, except for :class:`Alarms`.
"""

import asyncio
import math
from enum import Enum

import structlog

from slots.counting import counted
from topom.cluster.events import What
from topom.cluster.ledger import Ledger
from topom.cluster.topology import leads_elsewhere
from topom.errors import Conflict, Unavailable
from topom.reasons import Kind, Reason
from topom.servers.readings import Reading, Replication

log = structlog.get_logger(__name__)

MOST_TIMES_THE_KEYS = 2
"""If a server has more than so many times its master's keys, an operator decides, even if the histories show that the
master had those keys: the master may have been emptied by mistake."""
TELL_SECONDS = 60.0
"""Seconds between two events of one server."""


class ServerFailed(Unavailable):
    """A server does not answer, or refuses what topom needs of it."""

    kind = Kind.SERVER


class LastCopy(Conflict):
    """The master of the server's group is away, and no other server is known to have as much."""

    kind = Kind.DATA


class NotToFollow(Conflict):
    """The server is not told to follow that master, because it might lose what nobody else has."""

    kind = Kind.DATA


class HoldsKeys(NotToFollow):
    """The server holds keys, or has replicas or a master, and nobody said that it may be wiped."""


class MasterLacks(NotToFollow):
    """The master lacks what the server has: the master came back empty or with older data, and fills nobody."""


class As(Enum):
    """In which role a server is told to follow. The role says how much of what the server holds may be lost."""

    SPARE = "spare"
    """An operator said that what it holds may be lost."""
    ANEW = "anew"
    """An operator said that it is to be filled anew by its master, and that the master's data is right."""
    POOL = "pool"
    """It comes from the pool: it should hold nothing and follow nobody."""
    NEW = "new"
    """It was never in the group: what it holds has to be somewhere else, too."""
    AGAIN = "again"
    """It was a whole replica and is a stray: its master has to have had everything that it has."""
    MEMBER = "member"
    """A change of masters was about it: it may have what a failover was allowed to lose, and no more."""


def refusal(
    server: str, mine: Reading, master: str, ahead: Reading, told_as: As, bound: int, sure: str = ""
) -> NotToFollow | None:
    """Why a server must not be told to follow a master; None if it may be told.

    Args:
        server, master: their addresses. ``mine`` is what the server says of itself, ``ahead`` what the master says.
        bound: how many bytes of writes a failover may lose (``ha_lag_bytes_max``).
        sure: the run id of the process that was made the master by a change of masters; empty if that is not known.
    """
    if wrong := leads_elsewhere(master, server):
        return NotToFollow(wrong)
    # run-id: an address is only where a server was last seen.
    if mine.run_id == ahead.run_id:
        return NotToFollow(f"{server} and {master} are one server under two names", "remove one of them from its group")
    if not ahead.replication.is_master:
        return NotToFollow(f"{master}, its master by the table, is a replica itself")
    for address, reading in ((master, ahead), (server, mine)):
        if reading.loading:
            what = f"{address} is loading its data, so nobody knows what it holds; wait until it has"
            return NotToFollow(what, kind=Kind.BUSY)
    if told_as is As.SPARE:
        return None
    if told_as is As.ANEW:
        return _of_one_to_fill(server, mine, master, ahead)
    if _loses_nothing(mine, ahead, told_as):
        return None
    if told_as in (As.POOL, As.NEW):
        return _of_a_stranger(server, mine, master, ahead, told_as, bound)
    if told_as is As.AGAIN:
        return _of_a_stray(server, mine, master, ahead)
    return _of_a_member(server, mine, master, ahead, bound, sure)


def still_needed(server: str, mine: Reading, master: str, ahead: Reading, bound: int) -> NotToFollow | None:
    """Why an old copy of a group must not be wiped, no matter which master it is to follow; None if it may be wiped.

    Args:
        server, master: the server, and the master of the group of which it has a copy. They say ``mine`` and ``ahead``.
        bound: as for :func:`refusal`.
    """
    said = mine.replication
    if not mine.keys or (not said.is_master and said.link_up):
        return None
    if not ahead.replication.is_master or ahead.loading:
        return NotToFollow(
            f"{server} has an old copy of what {master} is to have, which is no master with its data now"
        )
    missing = lacking(said, ahead.replication)
    if mine.keys <= MOST_TIMES_THE_KEYS * ahead.keys if missing is None else missing <= bound:
        return None
    return MasterLacks(
        f"{server} has an old copy with {counted(mine.keys, 'key')} of a group whose master {master} has "
        f"{ahead.keys:,}, and may have lost its data: it is not wiped",
        f"if {server} has what is to be kept, take it from there; if that may be lost, add it again with --wipe",
    )


def lacking(mine: Replication, ahead: Replication) -> int | None:
    """How many bytes of writes a server has run that the other server's history lacks; None if nobody knows.

    A server that leaves a stream, or is restarted with an RDB file (as of Redis 7.0), remembers where it was in the
    stream. Each change of its data counts from there.
    """
    if mine.stream and mine.stream == ahead.stream:
        return max(0, mine.offset - ahead.offset)
    if mine.stream and mine.stream == ahead.former:
        return max(0, mine.offset - ahead.former_offset)
    if mine.former:
        own = max(0, mine.offset - mine.former_offset)
        if mine.former == ahead.stream:
            return own + max(0, mine.former_offset - ahead.offset)
        if mine.former == ahead.former:
            return own + max(0, mine.former_offset - ahead.former_offset)
    return None


def _loses_nothing(mine: Reading, ahead: Reading, told_as: As) -> bool:
    """Whether the server holds nothing, or holds a copy of what its master has, with its link up."""
    said = mine.replication
    if said.is_master:
        return not mine.keys and (not mine.replicas or told_as is As.MEMBER)
    if told_as is As.POOL:
        return False
    return not mine.keys or (said.link_up and (said.stream == ahead.replication.stream or told_as is not As.MEMBER))


def _of_one_to_fill(server: str, mine: Reading, master: str, ahead: Reading) -> NotToFollow | None:
    if mine.keys > MOST_TIMES_THE_KEYS * ahead.keys:
        return _alarm(server, mine, master, ahead, "which may have lost its data since that was wanted")
    return None


def _of_a_stranger(
    server: str, mine: Reading, master: str, ahead: Reading, told_as: As, bound: int
) -> NotToFollow | None:
    said = mine.replication
    if told_as is As.NEW and said.follows(master):
        return None
    if told_as is As.NEW and not said.is_master and mine.keys <= MOST_TIMES_THE_KEYS * ahead.keys:
        # A former master of the group has filled it: foreign data is in another stream.
        missing = lacking(said, ahead.replication)
        if missing is not None and missing <= bound:
            return None
    if mine.keys:
        what = f"{server} holds {counted(mine.keys, 'key')}, which becoming a replica would delete"
    elif said.following is not None:
        what = f"{server} is a replica of {said.following[0]}:{said.following[1]}"
    else:
        what = f"{server} has {counted(mine.replicas, 'replica')} of its own"
    return HoldsKeys(what, "empty it, or remove it and add it again with --wipe")


def _of_a_stray(server: str, mine: Reading, master: str, ahead: Reading) -> NotToFollow | None:
    if mine.replicas:
        what = f"{server} has {counted(mine.replicas, 'replica')} of its own, so somebody has made it a master"
        return HoldsKeys(what, f"if what it holds may be lost, {_wipe(server)}")
    missing = lacking(mine.replication, ahead.replication)
    if mine.keys > MOST_TIMES_THE_KEYS * ahead.keys:
        return _alarm(server, mine, master, ahead, "which may have lost its data")
    if missing == 0:
        return None
    if missing is None:
        return _alarm(
            server,
            mine,
            master,
            ahead,
            "and nothing shows that it ever had all of them: one was restarted without "
            "its history, or the data changed since",
        )
    return _alarm(server, mine, master, ahead, f"and lacks {missing} bytes of writes that {server} has run")


def _of_a_member(server: str, mine: Reading, master: str, ahead: Reading, bound: int, sure: str) -> NotToFollow | None:
    missing = lacking(mine.replication, ahead.replication)
    same = sure == ahead.run_id
    if missing is not None:
        # A master that was restarted since may have lost more than the failover did, so then it must lack nothing.
        if missing <= (bound if same or not sure else 0):
            return None
        return _alarm(server, mine, master, ahead, f"and lacks {missing} bytes of writes that {server} has run")
    # The very process that was made the master cannot lack anything that was acknowledged since.
    if ahead.keys >= mine.keys or (same and ahead.keys):
        return None
    return _alarm(server, mine, master, ahead, "and nothing shows that it ever had all of them")


def _alarm(server: str, mine: Reading, master: str, ahead: Reading, why: str) -> MasterLacks:
    return MasterLacks(
        f"{server} holds {counted(mine.keys, 'key')} and its master {master} {ahead.keys:,}, {why}. It fills nobody",
        f"if {server} has what is to be kept, stop {master} and promote {server} with --force; if what {server} holds "
        f"may be lost, {_wipe(server)}",
    )


def _wipe(server: str) -> str:
    return f"remove it and add it again with --wipe (slotferry server remove {server})"


class Alarms:
    """Tells of masters that lack what their replicas have: an event and a log line, once a minute for each server."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._told: dict[str, float] = {}

    def raised(self, server: str, error: MasterLacks) -> None:
        """Note that a server is not told to follow its master, for this reason."""
        now = asyncio.get_running_loop().time()
        at = self._told.get(server, -math.inf)
        if now < at + TELL_SECONDS:
            return
        servers = {server for group in self._ledger.table.groups.values() for server in group.servers}
        self._told = {known: told for known, told in self._told.items() if known in servers}
        self._told[server] = now
        log.error("master_lacks_data", server=server, kind=error.kind, reason=str(error))
        self._ledger.note(What.MASTER_LACKS_DATA, str(error), reason=Reason.of(error))
