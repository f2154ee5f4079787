"""What a Redis server says of itself: its replication, its run id, how much it holds.

It is checked where it comes in.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import BusyLoadingError, ResponseError

from slots.counting import counted
from slots.replies import Info, NotUnderstood, info_of, integer
from slots.reserved import RESERVED_KEYS
from topom.cluster.topology import parse_address

NO_PLACE = 1
"""The offset that a replica gives while it knows of no stream. It is not a real one: no command is one byte long."""


class ProxyAnswers(NotUnderstood):
    """A proxy of Slotferry answers. It holds nothing itself."""


class SentinelAnswers(NotUnderstood):
    """A Redis Sentinel answers. It holds nothing."""


@dataclass(frozen=True, slots=True)
class Replication:
    """What a server says of its replication.

    ``stream`` is the id of the server's stream of writes, and ``offset`` how many bytes of that stream it has run.
    ``following`` is host and port of its master as it was told them, None for a master. ``link_up`` is whether a
    replica is connected to its master and holds a whole copy, and ``filling`` whether it is just being given one.
    ``silent_seconds`` is how long a connected replica has not heard from its master. ``former`` is the server's stream
    before this one, if it knows one, and ``former_offset`` how many bytes of that it had run. ``down_seconds`` is how
    long a replica has been without a link, 0 if it has one or does not know.
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
        """Whether a replica is just being given a copy, or does not know of a whole one that it was given.

        A replica that was cut off from its master amid a full copy may have emptied itself for that copy, and may still
        name its former stream. But it has no place in any stream, and gives the offset 1 for that. (A replica with a
        whole copy of a master that has written nothing since gives 0.)
        """
        return self.filling or (not self.is_master and not self.link_up and self.offset == NO_PLACE)

    def follows(self, master: str) -> bool:
        """Whether it is a replica of the server at this address, by exactly this address."""
        host, port = parse_address(master)
        return self.following == (host, port)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a server says of itself in one step (:func:`read`).

    ``run_id`` is the id of its process, another one after each start. ``keys`` is the number of keys in all databases
    without Slotferry's own, ``replicas`` is how many servers follow it, and ``used_memory`` is in bytes. While a server
    is ``loading`` it counts only what it has loaded. ``clustered`` says whether it is a node of a Redis Cluster.
    """

    replication: Replication
    run_id: str
    keys: int
    replicas: int = 0
    loading: bool = False
    used_memory: int = 0
    clustered: bool = False

    @property
    def role(self) -> str:
        """Its role: ``master`` or ``replica``."""
        return "master" if self.replication.is_master else "replica"

    @property
    def following(self) -> str:
        """``host:port`` of its master, as it was told them; empty for a master."""
        told = self.replication.following
        return "" if told is None else f"{told[0]}:{told[1]}"

    @property
    def has_a_past(self) -> bool:
        """Whether it holds keys or has followed another server. An empty server that has just started has done neither.

        A group's replica has a past. A server without one at the replica's address came up without its data, or is
        another server.
        """
        return self.keys > 0 or bool(self.replication.former.strip("0"))

    def why_not_wipe(self, address: str) -> str:
        """Why an operator has to be asked before it is wiped; empty if nothing would be lost."""
        if self.keys:
            return f"{address} holds {counted(self.keys, 'key')}, which becoming a replica would delete"
        if self.following:
            return f"{address} is a replica of {self.following}"
        if self.replicas:
            return f"{address} has {counted(self.replicas, 'replica')} of its own"
        return ""


def read_replication(said: Mapping[str, Any]) -> Replication:
    """What INFO replication says. Raises :class:`slots.replies.NotUnderstood` for any other text."""
    info = Info(said)
    end = info.number("second_repl_offset", -1, least=-1)  # the first byte of another stream; -1 without a former one
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

    This number alone decides whether a server is empty. All keys and the marks are counted in one step: a mark that
    came or went in between would hide somebody's key. For a server that cannot be asked for the marks, for instance
    because it is loading its data, all keys count.

    Raises:
        ProxyAnswers: it is a proxy.
        SentinelAnswers: it is a Sentinel.
        :class:`slots.replies.NotUnderstood`, and what ``client`` raises.
    """
    info, marks = await _ask(client)
    if is_proxy(info):
        raise ProxyAnswers("a Slotferry proxy answers there, and no Redis server")
    if info.get("redis_mode") == "sentinel":
        raise SentinelAnswers("a Redis Sentinel answers there, and no Redis server")
    return reading_of(info, max(0, _count_keys(info) - marks))


def reading_of(said: Mapping[str, Any], keys: int) -> Reading:
    """The reading of a server from its INFO, and the number of keys that it holds.

    Raises as :func:`read_replication`.
    """
    info = Info(said)
    return Reading(
        read_replication(info),
        info.run_id,
        keys,
        info.replicas_connected,
        bool(info.number("loading", 0)),
        info.number("used_memory", 0),
        info.get("redis_mode") == "cluster",
    )


def is_proxy(info: Info) -> bool:
    """Whether ``info`` comes from a proxy of ours: its section ``Slotferry`` tells of the masters behind the proxy."""
    return "masters_without_answer" in info


async def _ask(client: Redis) -> tuple[Info, int]:
    """What INFO says, and the number of Slotferry's own keys; 0 where that cannot be asked."""
    with suppress(ResponseError, BusyLoadingError):
        async with client.pipeline(transaction=True) as together:
            together.info()
            together.exists(*RESERVED_KEYS)
            info, marks = await together.execute()
        return info, integer(marks)
    return await info_of(client), 0


def _count_keys(info: Info) -> int:
    # last-copy: if an answer is cut off before its keys, nobody knows how many keys there are.
    if "Keyspace" not in info.sections:
        raise NotUnderstood("INFO lacks its section Keyspace")
    return sum(info.keys_of_databases.values())
