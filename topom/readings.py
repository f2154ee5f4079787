"""What a Redis server says of itself, checked where it comes in: its replication, its run id, how much it holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redis.exceptions import ResponseError

from topom.topology import parse_address


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

    def follows(self, master: str) -> bool:
        """Whether it is a replica of the server of this address, by the very name."""
        host, port = parse_address(master)
        return self.following == (host, port)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a server says of itself in one step, by which it is decided whom it may follow (:mod:`topom.lastcopy`).

    ``run_id`` is what its process calls itself, another one after each start. ``keys`` are those of all databases
    without Slotferry's own, ``replicas`` how many follow it. While it is ``loading`` it tells only of what it has
    loaded.
    """

    replication: Replication
    run_id: str
    keys: int
    replicas: int = 0
    loading: bool = False


def read_replication(info: Mapping[str, Any]) -> Replication:
    """What INFO replication says. Raises :class:`redis.exceptions.ResponseError` for what is none."""
    is_master = info.get("role") == "master"
    try:
        end = int(info.get("second_repl_offset", -1))  # the first byte that it has from elsewhere; -1 without a former
        former = (str(info.get("master_replid2", "")), end - 1) if end >= 0 else ("", -1)
        if is_master:
            stream, offset = str(info.get("master_replid", "")), int(info["master_repl_offset"])
            return Replication(True, stream, offset, former=former[0], former_offset=former[1])
        filling = bool(int(info.get("master_sync_in_progress", 0)))
        return Replication(
            False,
            str(info.get("master_replid", "")),
            int(info.get("slave_repl_offset", 0)),
            (str(info["master_host"]), int(info["master_port"])),
            info.get("master_link_status") == "up" and not filling,
            filling,
            int(info.get("master_last_io_seconds_ago", 0)),
            *former,
            max(0, int(info.get("master_link_down_since_seconds", 0))),
        )
    except KeyError as error:
        raise ResponseError(f"INFO replication lacks {error}") from error


def read(info: Mapping[str, Any], keys: int) -> Reading:
    """What INFO says of a server that holds so many keys. Raises as :func:`read_replication`."""
    run_id = str(info.get("run_id", ""))
    if not run_id:
        raise ResponseError("INFO lacks run_id")
    replicas, loading = int(info.get("connected_slaves", 0)), bool(int(info.get("loading", 0)))
    return Reading(read_replication(info), run_id, keys, replicas, loading)
