"""What a Redis server says of itself, checked where it comes in: its replication, its run id, how much it holds."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import BusyLoadingError, ResponseError

from slots.moving import RESERVED_KEYS
from slots.replies import Info, NotUnderstood, info_of, integer
from topom.cluster.topology import parse_address

NO_PLACE = 1
"""What a replica gives as its offset while it knows of no stream: no command is one byte long."""


class ProxyAnswers(NotUnderstood):
    """What answers is a proxy of Slotferry, which holds nothing itself."""


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
    """What a server says of itself in one step (:func:`read`).

    ``run_id`` is what its process calls itself, another one after each start. ``keys`` are those of all databases
    without Slotferry's own, ``replicas`` how many follow it, ``used_memory`` in bytes. While it is ``loading`` it tells
    only of what it has loaded.
    """

    replication: Replication
    run_id: str
    keys: int
    replicas: int = 0
    loading: bool = False
    used_memory: int = 0

    @property
    def role(self) -> str:
        """As Redis names it: ``master`` or ``slave``."""
        return "master" if self.replication.is_master else "slave"

    @property
    def following(self) -> str:
        """``host:port`` of its master, as it was told them; empty for a master."""
        told = self.replication.following
        return "" if told is None else f"{told[0]}:{told[1]}"

    @property
    def has_a_past(self) -> bool:
        """Whether it holds keys or has followed another server: an empty one just started has done neither.

        A group's replica has. What is at its address with nothing in it came up without its data, or is another one.
        """
        return self.keys > 0 or bool(self.replication.former.strip("0"))

    def why_not_wipe(self, address: str) -> str:
        """Why it is not to be wiped unasked; empty if nothing would be lost."""
        if self.keys:
            return f"{address} holds {self.keys} keys, which becoming a replica would delete"
        if self.following:
            return f"{address} is a replica of {self.following}"
        if self.replicas:
            return f"{address} has {self.replicas} replicas of its own"
        return ""


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


async def read(client: Redis) -> Reading:
    """What a server says of itself now, and its keys over all databases without Slotferry's own.

    Whether a server is empty is decided by this number alone. Both are asked in one step: a mark that came or went in
    between would hide a key of somebody. A server that cannot be asked for the marks, because it is just loading its
    data for instance, has as many keys as it says.

    Raises:
        ProxyAnswers: it is a proxy.
        :class:`slots.replies.NotUnderstood`, and what ``client`` raises.
    """
    info, marks = await _ask(client)
    if is_proxy(info):
        raise ProxyAnswers("a Slotferry proxy answers there, and no Redis server")
    return reading_of(info, max(0, _count_keys(info) - marks))


def reading_of(said: Mapping[str, Any], keys: int) -> Reading:
    """What INFO says of a server that holds so many keys. Raises as :func:`read_replication`."""
    info = Info(said)
    return Reading(
        read_replication(info),
        info.text("run_id"),
        keys,
        info.number("connected_slaves", 0),
        bool(info.number("loading", 0)),
        info.number("used_memory", 0),
    )


def is_proxy(info: Info) -> bool:
    """Whether it was a proxy of ours that said ``info``: its section ``Slotferry`` tells of the masters behind it."""
    return "masters_without_answer" in info


async def _ask(client: Redis) -> tuple[Info, int]:
    """What INFO says, and how many of Slotferry's own keys there are; 0 where that cannot be asked."""
    with suppress(ResponseError, BusyLoadingError):
        async with client.pipeline(transaction=True) as together:
            together.info()
            together.exists(*RESERVED_KEYS)
            info, marks = await together.execute()
        return info, integer(marks)
    return await info_of(client), 0


def _count_keys(info: Info) -> int:
    # last-copy: what is cut off before it comes to its keys holds nobody knows how many.
    if "Keyspace" not in info.sections:
        raise NotUnderstood("INFO lacks its section Keyspace")
    return sum(info.keys_of_databases.values())
