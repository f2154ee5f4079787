"""Checks, before a slot is touched, whether its keys can go to the target.

The servers' own figures come first, because they cost nothing. Then a key of our own is moved (:mod:`migrator.trial`).
A failed check raises a :class:`~migrator.errors.MigrationError` that says what to do. Facts that the operator should
know, and that do not stop the move, are returned as notes.

Eviction: a target that evicts deletes keys to make room for those that come. If the source never evicts
(``noeviction``), such a target is refused where the keys surely do not fit, and noted where they do. If the source
evicts as well, it holds a cache, and its clients know that keys may go at any time. Then an evicting target is noted
and never refused, since a cache is full as a rule. Keys that a source evicts while their slot moves are gone, as they
would be at rest: nothing waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count

from migrator.connection import Connection, Timeouts
from migrator.errors import (
    PUT_FIRST,
    ModuleMissing,
    NotApart,
    NotEnoughMemory,
    NotMaster,
    Refusal,
    Refused,
    ReplicasMissing,
    ServerUnavailable,
    SourceRefused,
    SourceUnavailable,
    StillLoading,
    TargetRefused,
    TargetUnavailable,
    TooFewDatabases,
)
from migrator.facts import Facts, facts_of, shown
from migrator.followable import Followable, followable_of
from migrator.trial import reads_payloads, try_a_key
from slots.access import ServerAccess
from slots.connections import PREFIX
from slots.kinds import Kind
from slots.permits import run_id_of
from slots.reserved import SWEPT

HEADROOM = 1.1
"""The estimate has to fit so many times: keys of one slot may be larger than those of another."""

ENGINES = frozenset({"lua"})
"""Modules that run scripts, which other servers do without a module. No key has a type of such a module."""
BUILT_IN = frozenset({"vectorset"})
"""Modules that are part of a server's own version: nobody can unload them, or load them in an older one. A value of
theirs that a target does not take is refused by its name."""

SAME_SECONDS = 1.0
"""How long a server has to confirm that it is the same process; slots are locked meanwhile."""

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of a check: notes for the operator, how many of the target's replicas have to have a key before it is
    dropped at the source, and the run ids of both servers. ``source``, ``target`` and ``followable`` are for the choice
    of a way; None for what was not asked. A target that does not read the source's payloads takes no key one by one.
    ``hides``: until the source is swept, DBSIZE may leave out keys of its own slots (**hidden**)."""

    notes: tuple[str, ...] = ()
    min_replicas: int = 0
    source_run_id: str = ""
    target_run_id: str = ""
    source: Facts | None = None
    target: Facts | None = None
    followable: Followable | None = None
    reads_payloads: bool = True
    hides: bool = False


async def check(
    source: str | None,
    target: str,
    *,
    share: float,
    databases: int,
    access: ServerAccess,
    instance: str,
    min_replicas: int = 0,
    timeouts: Timeouts | None = None,
    may_follow: bool = False,
    may_copy: bool = False,
) -> Findings:
    """See whether ``target`` can take a share of the source's keys now.

    Nothing is left behind at either server.

    Args:
        source: ``host:port``; None if there are no keys to move.
        target: ``host:port``.
        share: the part of the source's keys that moves, from 0 to 1.
        databases: that clients may use.
        access: how to log in at both servers.
        instance: id of the process that calls; part of the names of the connections.
        min_replicas: how many of the target's replicas have to have a key before it is dropped at the source.
        timeouts: limits of waiting.
        may_follow: ask also whether the source can be followed.
        may_copy: let a target pass that does not read the source's payloads; only a copy by the replication stream can
            give it the keys.

    Raises:
        TargetUnfit: the target is a replica, loading, or lacks memory, databases, modules or replicas; see its
            subclasses.
        TargetUnavailable, TargetRefused, SourceUnavailable, SourceRefused: as moving keys would.
    """
    limits = timeouts or Timeouts()
    name = f"{PREFIX}.check.{instance}.{next(_numbers)}"
    receiving = await Connection.open(
        target, name=name, access=access, unavailable=TargetUnavailable, refused=TargetRefused, timeouts=limits
    )
    try:
        taker = await facts_of(receiving)
        if source is None:
            judge_target(taker)
            return Findings(target_run_id=taker.run_id)
        giving = await Connection.open(
            source, name=name, access=access, unavailable=SourceUnavailable, refused=SourceRefused, timeouts=limits
        )
        try:
            hides = bool(await giving.call("HEXISTS", SWEPT, "left"))
            giver = await facts_of(giving)
            notes = judge(giver, taker, share)
            notes += await _count_databases(receiving, giver, databases)
            judge_replicas(taker, min_replicas)
            reads = True
            if may_copy:
                reads = await reads_payloads(giving, receiving)
            else:
                await try_a_key(giving, receiving)
            followable = await followable_of(giving) if may_follow else None
            return Findings(
                tuple(notes), min_replicas, giver.run_id, taker.run_id, giver, taker, followable, reads, hides
            )
        finally:
            giving.close()
    finally:
        receiving.close()


async def look(
    server: str, *, access: ServerAccess, instance: str, timeouts: Timeouts | None = None
) -> tuple[Facts, Followable]:
    """What a server says of itself, for a forecast; nothing is written there.

    Raises:
        ServerUnavailable, Refused: as the server answers.
    """
    name = f"{PREFIX}.check.{instance}.{next(_numbers)}"
    connection = await Connection.open(
        server,
        name=name,
        access=access,
        unavailable=ServerUnavailable,
        refused=Refused,
        timeouts=timeouts or Timeouts(),
    )
    try:
        return await facts_of(connection), await followable_of(connection)
    finally:
        connection.close()


class Watch:
    """Connections to both servers of a move. **run-id**: as long as the connections last, both servers are the same
    processes.

    Attributes:
        run_ids: of the source, empty where there is none, and of the target.
    """

    def __init__(self, connections: Sequence[Connection], run_ids: tuple[str, str]) -> None:
        self._connections = connections
        self.run_ids = run_ids

    async def same(self) -> None:
        """Return if both are still there. Raises SourceUnavailable, TargetUnavailable, SourceRefused, TargetRefused."""
        # Slots are locked meanwhile, so both are asked at once.
        asked = [connection.call("PING", limit=SAME_SECONDS) for connection in self._connections]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer


@asynccontextmanager
async def watch(
    source: str | None, target: str, *, access: ServerAccess, instance: str, timeouts: Timeouts | None = None
) -> AsyncIterator[Watch]:
    """Find out which processes both servers are, and watch that they stay the same. Arguments and errors are as for
    :func:`check`."""
    limits = timeouts or Timeouts()
    name = f"{PREFIX}.check.{instance}.{next(_numbers)}"
    ends = ((source, SourceUnavailable, SourceRefused), (target, TargetUnavailable, TargetRefused))
    connections: list[Connection] = []
    run_ids: list[str] = []
    try:
        for address, unavailable, refused in ends:
            if address is None:
                run_ids.append("")
                continue
            connections.append(
                await Connection.open(
                    address, name=name, access=access, unavailable=unavailable, refused=refused, timeouts=limits
                )
            )
            run_ids.append(run_id_of(await connections[-1].call("INFO", "server")))
        yield Watch(connections, (run_ids[0], run_ids[1]))
    finally:
        for connection in connections:
            connection.close()


def judge_target(target: Facts) -> None:
    """Check that the target can take keys at all. Raises :class:`NotMaster` and :class:`StillLoading`."""
    _require_master(target, "target")
    if target.loading:
        raise StillLoading(f"target {target.address} is still loading its data from disk", kind=Kind.BUSY)


def judge(source: Facts, target: Facts, share: float) -> list[str]:
    """Notes on a move of ``share`` of the source's keys, by the figures of both servers.

    Raises:
        NotApart, NotMaster, StillLoading, ModuleMissing, NotEnoughMemory: the move cannot succeed.
    """
    _require_two(source, target)
    judge_target(target)
    _require_master(source, "source")
    missing = sorted(set(source.modules) - set(target.modules) - ENGINES - BUILT_IN)
    if missing:
        raise ModuleMissing(
            f"target {target.address} lacks modules of source {source.address}: {', '.join(missing)}, so "
            "it would know neither their keys nor their commands",
            "load the same ones there, or unload at the source what nobody uses",
        )
    return _judge_memory(source, target, round(source.dataset_bytes * share))


def judge_replicas(target: Facts, needed: int) -> None:
    """Check that so many replicas follow the target. Raises :class:`ReplicasMissing`."""
    if target.replicas_online < needed:
        raise ReplicasMissing(
            f"target {target.address} has {target.replicas_online} replicas online, and migration_min_replicas is "
            f"{needed}",
            "add replicas there, or set another number with 'slotferry migration set --min-replicas'",
        )


def _require_two(source: Facts, target: Facts) -> None:
    # run-id: if both were one server, the step that takes keys off the source would delete them for good.
    if (source.run_id and source.run_id == target.run_id) or source.address == target.address:
        raise NotApart(
            f"source {source.address} and target {target.address} are one server, with the run id {source.run_id}",
            "remove one of the two names from its group",
        )


def _require_master(server: Facts, role: str) -> None:
    if server.role != "master":
        raise NotMaster(
            f"{role} {server.address} is a replica of {server.follows}",
            PUT_FIRST,
        )


def _judge_memory(source: Facts, target: Facts, needed: int) -> list[str]:
    if not target.maximum_bytes:
        return []
    free = target.maximum_bytes - target.used_bytes
    said = (
        f"it uses {shown(target.used_bytes)} of its maxmemory of {shown(target.maximum_bytes)}, "
        f"and the slots take about {shown(needed)}"
    )
    if not target.evicts:
        if needed * HEADROOM > free:
            raise NotEnoughMemory(
                f"target {target.address} has too little memory: {said}",
                "raise its maxmemory, free memory there, or move fewer slots at a time",
            )
        return []
    if needed > free:
        if source.evicts:
            return [f"target {target.address} will evict keys ({target.policy}) to take these: {said}"]
        raise NotEnoughMemory(
            f"target {target.address} would evict keys ({target.policy}) to take these: {said}",
            f"raise its maxmemory, or set its maxmemory-policy to {source.policy} as at source {source.address}",
        )
    if source.evicts:
        return []
    return [
        f"target {target.address} evicts keys ({target.policy}) when its memory is used up, which source "
        f"{source.address} does not do; now {said}"
    ]


async def _count_databases(target: Connection, source: Facts, databases: int) -> list[str]:
    """Notes on the target's databases. Raises :class:`TooFewDatabases`, and the errors of the connection."""
    needed = max(source.keys, default=0)
    if not await _has_database(target, needed):
        raise TooFewDatabases(
            f"target {target.address} has no database {needed}, and source {source.address} has keys in its own",
            f"set `databases` to {databases} or more in its configuration, and restart it",
        )
    if databases - 1 > needed and not await _has_database(target, databases - 1):
        return [
            f"target {target.address} has fewer than the {databases} databases that clients may use; set `databases` "
            "in its configuration, and restart it"
        ]
    return []


async def _has_database(target: Connection, number: int) -> bool:
    try:
        await target.select(number)
    except TargetRefused as error:
        if error.refusal is Refusal.DATABASE:
            return False
        raise
    await target.select(0)
    return True
