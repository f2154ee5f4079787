"""What a Redis server says of itself, checked where it comes in: its replication, its run id, how much it holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slots.replies import Info
from topom.cluster.topology import parse_address

NO_PLACE = 1
"""What a replica gives as its offset while it knows of no stream: no command is one byte long."""


@dataclass(frozen=True, slots=True)
class Replication:
    """What a server says of its replication.

    ``stream`` is the id of the stream of writes that it is in, ``offset`` how many bytes of it the server has run,
    ``following`` host and port of its master as it was told them, None for a master. ``link_up`` is whether a replica
    is connected to its master and holds a whole copy, ``filling`` whether it is just being given one,
    ``silent_seconds`` for how long it has not heard from its master, as far as it is connected. ``former`` is the
    stream that it was in before its own, as far as it knows one, and ``former_offset`` how much of that it had run.
    ``down_seconds`` is for how long a replica has been without a link, 0 if it has one or does not know.
    """

    is_master: bool
    stream: str
    offset: int
    following: tuple[str, int] | None = None
    link_up: bool = False
    filling: bool = False
    silent_seconds: int = 0
    former: str = ""
    former_offset: int = -1
    down_seconds: int = 0

    @property
    def may_be_partial(self) -> bool:
        """Whether a replica is just being given a copy, or knows of none that it was given whole.

        One that was cut off from its master amid a full copy may have emptied itself for that, and may still name the
        stream that it was in; but it has no place in any stream, for which it says 1. (One that was given a copy of a
        master that has written nothing since says 0.)
        """
        return self.filling or (not self.is_master and not self.link_up and self.offset == NO_PLACE)

    def follows(self, master: str) -> bool:
        """Whether it is a replica of the server of this address, by the very name."""
        host, port = parse_address(master)
        return self.following == (host, port)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a server says of itself in one step, by which it is decided whom it may follow
    (:mod:`topom.servers.lastcopy`).

    ``run_id`` is what its process calls itself, another one after each start. ``keys`` are those of all databases
    without Slotferry's own, ``replicas`` how many follow it. While it is ``loading`` it tells only of what it has
    loaded.
    """

    replication: Replication
    run_id: str
    keys: int
    replicas: int = 0
    loading: bool = False


def read_replication(said: Mapping[str, Any]) -> Replication:
    """What INFO replication says. Raises :class:`slots.replies.NotUnderstood` for what is none."""
    info = Info(said)
    end = info.number("second_repl_offset", -1, least=-1)  # the first byte from elsewhere; -1 without a former
    former = (info.text("master_replid2", ""), end - 1) if end >= 0 else ("", -1)
    stream = info.text("master_replid", "")
    following = info.following
    if following is None:
        return Replication(True, stream, info.number("master_repl_offset"), former=former[0], former_offset=former[1])
    filling = bool(info.number("master_sync_in_progress", 0))
    return Replication(
        False,
        stream,
        max(0, info.number("slave_repl_offset", 0, least=-1)),
        following,
        info.get("master_link_status") == "up" and not filling,
        filling,
        info.number("master_last_io_seconds_ago", 0, least=-1),
        *former,
        max(0, info.number("master_link_down_since_seconds", 0, least=-1)),
    )


def read(said: Mapping[str, Any], keys: int) -> Reading:
    """What INFO says of a server that holds so many keys. Raises as :func:`read_replication`."""
    info = Info(said)
    run_id = info.text("run_id")
    replicas, loading = info.number("connected_slaves", 0), bool(info.number("loading", 0))
    return Reading(read_replication(info), run_id, keys, replicas, loading)


@dataclass(frozen=True, slots=True)
class Content:
    """What a server holds: keys, replicas, the master it follows, if any.

    Keys are counted as :func:`topom.servers.redis_servers.look_inside` does.
    """

    keys: int
    replicas: int
    following: str

    def problem(self, address: str) -> str:
        """Why it is not to be wiped unasked; empty if nothing would be lost."""
        if self.keys:
            return f"{address} holds {self.keys} keys, which becoming a replica would delete"
        if self.following:
            return f"{address} is a replica of {self.following}"
        if self.replicas:
            return f"{address} has {self.replicas} replicas of its own"
        return ""
