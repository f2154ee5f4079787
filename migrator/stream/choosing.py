"""Which server the copies of one stream follow: a replica of the source that is whole and near, or the source itself.

A replica's snapshot costs the master no fork, and what follows a replica is counted by nobody. What only the master can
tell stays with it: the marker, the values that are read within the lock, the run id. A replica is judged by its own
INFO and its master's; :mod:`migrator.stream.standing` and :mod:`migrator.stream.direct` say what proves that it
follows this process. It is passed over with a reason.

**bounded**: the replicas are asked side by side, within :data:`ASK_SECONDS`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from migrator.connection import Connection, Timeouts
from migrator.errors import MigrationError, Refused, ServerUnavailable
from migrator.facts import Facts
from migrator.forking import require_memory
from migrator.stream.direct import link_of, links_of
from migrator.stream.standing import require_direct, require_followable
from slots.access import ServerAccess
from slots.replies import Info, NotUnderstood

ASK_SECONDS = 3.0
MOST_LAG_BYTES = 1 << 20
"""A replica that is further behind its master would have the lock wait."""
ABSOLUTE = (False, (7, 0))
"""The version from which on a stream names deadlines (:func:`_version`). Before, a replica that lagged when it was told
how long a key lives has a later deadline than its master."""
MOST_SILENT_SECONDS = 30
"""A replica that has heard nothing from its master for so long may be cut off. A master says something each 10 s."""


class Replica(NamedTuple):
    """A replica that can be followed: where it is, its process, how many bytes of the stream it lacks, and its end of
    its connection to its master."""

    address: str
    run_id: str
    lag: int
    link: str = ""


class PassedOver(MigrationError):
    """A replica is not followed."""


class Choice(NamedTuple):
    """``replicas`` that can be followed, the best one first, the replication id of their stream (``history``), and why
    the others are ``passed_over``."""

    replicas: tuple[Replica, ...]
    history: str
    passed_over: tuple[str, ...]


def judge(address: str, info: Info, master: Info, targets: Collection[Info]) -> Replica:
    """See whether a replica can be followed in its master's place.

    Args:
        address: ``host:port`` of the replica.
        info: what it says of itself; read after ``master``.
        master: what the source says of itself.
        targets: what the target of each copy says of itself.

    Raises:
        MigrationError: it cannot, and why.
        NotUnderstood: no Redis server says so.
    """
    if info.is_master:
        raise PassedOver(f"{address} is a master")
    require_followable(address, info, _history(master))
    if (version := _version(master)) is None or version < ABSOLUTE:
        raise PassedOver(f"{address}'s master tells it how long keys live, and not until when; it may keep them longer")
    if "slave_read_only" not in info:
        raise PassedOver(f"{address} does not say whether it takes writes itself")
    lag = max(0, master.number("master_repl_offset") - info.number("slave_repl_offset", least=-1))
    if lag > MOST_LAG_BYTES:
        raise PassedOver(f"{address} lags behind its master by {lag} bytes")
    if (silent := info.number("master_last_io_seconds_ago", least=-1)) > MOST_SILENT_SECONDS:
        raise PassedOver(f"{address} has heard nothing from its master for {silent} s")
    facts = Facts.from_info(address, info)
    # A server reads no snapshot that is newer than itself; that a target reads the source's was tried.
    if not _reads(master, info) and not all(_reads(target, info) for target in targets):
        raise PassedOver(f"{address} is newer ({facts.version}) than its master and a target")
    require_memory(facts)
    return Replica(address, info.run_id, lag)


def _history(master: Info) -> str:
    if not (found := master.text("master_replid", "")):
        raise PassedOver("the source does not name its stream, as servers before Redis 4 do")
    return found


def _reads(server: Info, other: Info) -> bool:
    """Whether a server surely reads the format of another one."""
    mine, its = _version(server), _version(other)
    return mine is not None and its is not None and mine[0] == its[0] and its[1] <= mine[1]


def _version(info: Info) -> tuple[bool, tuple[int, int]] | None:
    """Whether it is a Valkey, and its version as far as formats depend on it."""
    said = info.text("valkey_version", info.text("redis_version", ""))
    found = re.match(r"(\d{1,5})\.(\d{1,5})\b", said, re.ASCII)
    return ("valkey_version" in info, (int(found[1]), int(found[2]))) if found else None


async def choose(
    source: Connection,
    targets: Collection[Info],
    addresses: Sequence[str],
    access: ServerAccess,
    name: str,
    timeouts: Timeouts,
) -> Choice:
    """Ask the source's replicas.

    Args:
        source: a connection to the source.
        targets: what the target of each copy says of itself.
        addresses: ``host:port`` of each replica that may be followed.
        access: how to log in there.
        name: of the connections.
        timeouts: their limits.

    Raises:
        MigrationError: the source cannot be asked.
    """
    if not addresses:
        return Choice((), "", ())
    master = await source.info()
    with source.understood("INFO"):
        history = master.text("master_replid", "")
    try:
        links = await links_of(source)
    except Refused as error:
        return Choice((), history, (error.what,))

    async def ask(address: str) -> Replica | str:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                connection = await Connection.open(
                    address,
                    name=name,
                    access=access,
                    unavailable=ServerUnavailable,
                    refused=Refused,
                    timeouts=timeouts,
                )
                try:
                    replica = judge(address, await connection.info(), master, targets)
                    link = await link_of(connection)
                    require_direct(address, link, links)
                    return replica._replace(link=link)
                finally:
                    connection.close()
        except TimeoutError:
            return f"{address} does not answer within {ASK_SECONDS:g} s"
        except MigrationError as error:
            return error.what
        except NotUnderstood as error:
            return f"{address}: {error}"

    found = await asyncio.gather(*(ask(address) for address in addresses))
    replicas = sorted((one for one in found if isinstance(one, Replica)), key=lambda replica: replica.lag)
    return Choice(tuple(replicas), history, tuple(one for one in found if isinstance(one, str)))
