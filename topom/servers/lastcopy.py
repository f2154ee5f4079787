"""Who may be told to follow whom: the one decision by which no last whole copy is wiped (**last-copy**).

A server that is told to follow another loses whatever only it has. So whoever tells one (a change of masters, a server
that joins or went astray, a placement, a replica that is filled anew) asks :func:`refusal` first, with what both
servers say of themselves at that moment; :meth:`topom.servers.replication.ServerReplication.follow` is the one place
that tells. Its counterpart for a server that leaves its group is ``departure`` of :mod:`topom.masters.choice`.

What is decided upon, in this order:

1. *Who they are.* Two names of one process are none to follow each other; what follows is a master and has loaded its
   data, and so has the server itself.
2. *The operator's word* that what the server holds may be lost.
3. *Nothing there*: a server without keys loses nothing.
4. *As what it is told* (:class:`As`), by histories where both tell of the same one, and else by keys. A master that
   lacks what the server has is an alarm (:class:`MasterLacks`) and not a source.

What no decision here can help: a replica that follows a master which comes back without its data asks it for
everything by itself, and is emptied. docs/high-availability.md says what persistence that takes.

Pure but for :class:`Alarms`.
"""

import asyncio
import math
from enum import Enum

import structlog

from topom.cluster.events import What
from topom.cluster.ledger import Ledger
from topom.cluster.topology import leads_elsewhere
from topom.errors import Conflict, Unavailable
from topom.reasons import Kind, Reason
from topom.servers.readings import Reading, Replication

log = structlog.get_logger(__name__)

MOST_TIMES_THE_KEYS = 2
"""Of a server with more than so many times its master's keys an operator is asked, whatever shows that the master had
them: it may have been emptied by mistake."""
TELL_SECONDS = 60.0
"""Between two events of one server."""


class ServerFailed(Unavailable):
    """A server does not answer, or refuses what topom needs of it."""

    kind = Kind.SERVER


class LastCopy(Conflict):
    """The master of the server's group is not there, and no other server is known to have as much."""

    kind = Kind.DATA


class NotToFollow(Conflict):
    """The server is not told to follow that master, for it might lose what nobody else has."""

    kind = Kind.DATA


class HoldsKeys(NotToFollow):
    """The server holds keys, or has replicas or a master, and nobody said that it may be wiped."""


class MasterLacks(NotToFollow):
    """The master lacks what the server has: it came back empty or with older data, and fills nobody."""


class As(Enum):
    """As what a server is told to follow, which says how much of what it holds may be lost."""

    SPARE = "spare"
    """An operator said that what it holds may be lost."""
    ANEW = "anew"
    """An operator said that it is to be filled anew by its master, which holds what it is to hold."""
    POOL = "pool"
    """It comes from the pool: it is to hold nothing and to follow nobody."""
    NEW = "new"
    """It was never in the group: what it holds is to be somewhere else, too."""
    AGAIN = "again"
    """It was a whole replica and went astray: its master is to have had everything that it has."""
    MEMBER = "member"
    """A change of masters was about it: it may have what a failover was allowed to lose, and no more."""


def refusal(
    server: str, mine: Reading, master: str, ahead: Reading, told_as: As, bound: int, sure: str = ""
) -> NotToFollow | None:
    """Why a server is not to be told to follow a master; None if it may be.

    Args:
        server, master: their addresses, which say ``mine`` and ``ahead`` of themselves.
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
        return _of_a_stranger(server, mine, master, told_as)
    if told_as is As.AGAIN:
        return _of_a_stray(server, mine, master, ahead)
    return _of_a_member(server, mine, master, ahead, bound, sure)


def still_needed(server: str, mine: Reading, master: str, ahead: Reading, bound: int) -> NotToFollow | None:
    """Why an old copy of a group is not to be wiped, for whomever it is to follow; None if it may be.

    Args:
        server, master: that of the group of which the server has a copy; they say ``mine`` and ``ahead``.
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
        f"{server} has an old copy with {mine.keys} keys of a group whose master {master} has {ahead.keys}, and may "
        f"have lost its data: it is not wiped",
        f"if {server} has what is to be kept, take it from there; if that may be lost, add it again with --wipe",
    )


def lacking(mine: Replication, ahead: Replication) -> int | None:
    """How many bytes of the writes that a server has run are not in another one's history; None if nobody knows.

    A server that leaves a stream, or is restarted with an RDB file (as of Redis 7.0), remembers where it was in it, and
    each change of its data counts from there.
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
    """Whether it holds nothing, or what it holds is a copy of what its master has, with its link up."""
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


def _of_a_stranger(server: str, mine: Reading, master: str, told_as: As) -> NotToFollow | None:
    said = mine.replication
    if told_as is As.NEW and said.follows(master):
        return None
    if mine.keys:
        what = f"{server} holds {mine.keys} keys, which becoming a replica would delete"
    elif said.following is not None:
        what = f"{server} is a replica of {said.following[0]}:{said.following[1]}"
    else:
        what = f"{server} has {mine.replicas} replicas of its own"
    return HoldsKeys(what, "empty it, or remove it and add it again with --wipe")


def _of_a_stray(server: str, mine: Reading, master: str, ahead: Reading) -> NotToFollow | None:
    if mine.replicas:
        what = f"{server} has {mine.replicas} replicas of its own, so somebody has made it a master"
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
        # One that was restarted since may have lost more than the failover did: then it is to lack nothing.
        if missing <= (bound if same or not sure else 0):
            return None
        return _alarm(server, mine, master, ahead, f"and lacks {missing} bytes of writes that {server} has run")
    # Nothing that was acknowledged since can be missing at the very process that was made the master.
    if ahead.keys >= mine.keys or (same and ahead.keys):
        return None
    return _alarm(server, mine, master, ahead, "and nothing shows that it ever had all of them")


def _alarm(server: str, mine: Reading, master: str, ahead: Reading, why: str) -> MasterLacks:
    return MasterLacks(
        f"{server} holds {mine.keys} keys and its master {master} {ahead.keys}, {why}. It fills nobody",
        f"if {server} has what is to be kept, stop {master} and promote {server} with --force; if what {server} holds "
        f"may be lost, {_wipe(server)}",
    )


def _wipe(server: str) -> str:
    return f"remove it and add it again with --wipe (slotferry server remove GROUP {server})"


class Alarms:
    """Tells of masters that lack what their replicas have, by an event and a log line: once a minute of each server."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._told: dict[str, float] = {}

    def raised(self, server: str, error: MasterLacks) -> None:
        """A server is not told to follow its master, for this reason."""
        now = asyncio.get_running_loop().time()
        at = self._told.get(server, -math.inf)
        if now < at + TELL_SECONDS:
            return
        servers = {server for group in self._ledger.table.groups.values() for server in group.servers}
        self._told = {known: told for known, told in self._told.items() if known in servers}
        self._told[server] = now
        log.error("master_lacks_data", server=server, kind=error.kind, reason=str(error))
        self._ledger.note(What.MASTER_LACKS_DATA, str(error), reason=Reason.of(error))
