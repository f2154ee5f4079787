"""Whether a server can be followed, by its INFO: a pure look, made before, at each connection, and before a lock.

The stream of a replica is that of its master, byte for byte, and has the same *replication id*. Two servers that name
one id have one history. A server that becomes a master, or is given another master, names another id. So the id says
that a replica follows the master that is copied from, whatever names it has for that. It may do so by way of another
replica: :mod:`migrator.stream.direct`.

A replica that takes writes itself is not followed. Nor is one that has evicted keys by itself, or has not run a command
of its master (both with ``replica-ignore-maxmemory no``). That is in its snapshot, and in no stream.
"""

from __future__ import annotations

from collections.abc import Collection

from migrator.stream.errors import CountsFollowers, HistoryChanged, NotDirect, NotFollowable, ReplicaDiffers
from slots.replies import Info


def require_followable(address: str, info: Info, history: str = "") -> None:
    """See whether a server can be followed now.

    Args:
        address: ``host:port``.
        info: what it says of itself, with the sections persistence, stats and replication.
        history: the replication id that its stream has to have. "" if the server has to be a master, with any id.

    Raises:
        NotFollowable: it loads its data, or has no whole link to its master.
        ReplicaDiffers, CountsFollowers, HistoryChanged: as these say.
        NotUnderstood: no Redis server says so.
    """
    if info.number("loading", 0) or info.number("async_loading", 0):
        raise NotFollowable(f"{address} is still loading its data")
    # A master before Redis 4 names no id; whether it goes on with its stream is said by PSYNC alone.
    if history and (found := info.text("master_replid", history if info.is_master else "")) != history:
        raise another_stream(address, history, found)
    if not info.is_master:
        if not history:
            raise HistoryChanged(f"{address} is a replica by now, and was followed as a master")
        if info.text("master_link_status") != "up" or info.number("master_sync_in_progress", 0):
            raise NotFollowable(f"{address} is a replica without a link to its master", "see why it lost it")
        if not info.number("slave_read_only", 1):
            raise ReplicaDiffers(
                f"{address} is a replica that takes writes itself (replica-read-only no)",
                "have it take none, and fill it anew if it took some",
            )
        if evicted := info.number("evicted_keys", 0):
            raise ReplicaDiffers(
                f"{address} is a replica that has evicted {evicted} keys since its start",
                "set replica-ignore-maxmemory there, and restart it",
            )
        if failed := info.number("unexpected_error_replies", 0):
            raise ReplicaDiffers(
                f"{address} is a replica that has not run {failed} commands of its master since its start",
                "see its log, set replica-ignore-maxmemory there, and have it filled anew and restarted",
            )
    elif "min_slaves_good_slaves" in info:
        raise CountsFollowers(
            f"master {address} has min-replicas-to-write and would count what follows it as a replica that has each "
            "write",
            "follow a replica of the group, or move these slots without `stream`",
        )


def require_direct(address: str, link: str, links: Collection[str]) -> None:
    """See whether a replica follows the master itself.

    Args:
        address: ``host:port`` of the replica.
        link: its end of its connection to its master (:func:`migrator.stream.direct.link_of`).
        links: the ends that its master names (:func:`migrator.stream.direct.links_of`).

    Raises:
        NotDirect: as far as is known, it does not.
    """
    if not link or link not in links:
        raise NotDirect(
            f"replica {address} and the master do not name one connection between them, so it may follow another "
            "replica, whose own writes it would have",
            "have it follow the master itself, without a relay or translated addresses in between",
        )


def another_stream(address: str, history: str, found: str) -> HistoryChanged:
    """The error of a server whose replication id is not the one that it has to be."""
    return HistoryChanged(
        f"{address} has another stream ({found}) than the one that is copied ({history}): it "
        "became a master, or was given another one"
    )
