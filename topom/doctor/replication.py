"""Whether replicas can follow, and whether a move of slots disturbs them."""

from collections.abc import Iterator
from typing import NamedTuple

from migrator.facts import shown
from migrator.replicabuffers import MOST_BEHIND
from topom.doctor.facts import ClusterFacts, ServerFacts
from topom.doctor.findings import Finding, Rule, Severity

LEAST_FOR_REPLICAS = 2 * MOST_BEHIND
"""Bytes. A move writes on while a replica has up to half of it to receive."""
LEAST_FOR_SUBSCRIBERS = 8 << 20
LEAST_BACKLOG = 16 << 20
LEAST_TIMEOUT_SECONDS = 20

ALONE = Rule(
    "no-replica",
    Severity.WARNING,
    "its group has no replica",
    "if this server fails, its slots are not served until it is back; if its disk is lost, so are its keys",
    "slotferry server add {group} HOST:PORT",
)
LINK_DOWN = Rule(
    "replica-without-link",
    Severity.CRITICAL,
    "it has no link to its master, for {seconds} s",
    "it does not have what was written since, and cannot take its master's place without losing that",
    "see its log and that of its master; {command} INFO replication",
)
TOO_FEW_REPLICAS = Rule(
    "too-few-replicas-to-write",
    Severity.CRITICAL,
    "it has {good} good replicas, and takes writes only with {needed} (min-replicas-to-write)",
    "it refuses clients' writes with NOREPLICAS; no slot can move to it",
    "see to its replicas, or {command} CONFIG SET min-replicas-to-write {good}",
)
WRITABLE = Rule(
    "replica-takes-writes",
    Severity.WARNING,
    "it is a replica that takes writes of anybody (replica-read-only no)",
    "it can come to differ from its master; no copy of slots can be made from it",
    "{command} CONFIG SET replica-read-only yes, and compare it: slotferry digest run {group}",
)
REPLICA_BUFFER = Rule(
    "replica-buffer-small",
    Severity.WARNING,
    "it ends a replica that has {limit} still to receive (client-output-buffer-limit replica)",
    "a move of slots cuts its replicas off, again and again, and each begins anew with a whole copy; copies by the "
    "stream from it are cut off likewise",
    "{command} CONFIG SET client-output-buffer-limit 'replica 256mb 64mb 60'",
)
SUBSCRIBER_BUFFER = Rule(
    "subscriber-buffer-small",
    Severity.WARNING,
    "it ends a subscriber that has {limit} still to receive (client-output-buffer-limit pubsub)",
    "a proxy subscribes for all its clients by one connection; a burst of messages ends that, and all miss some",
    "{command} CONFIG SET client-output-buffer-limit 'pubsub 32mb 8mb 60'",
)
BACKLOG = Rule(
    "backlog-small",
    Severity.NOTE,
    "it keeps {backlog} of its stream for those that come back (repl-backlog-size)",
    "after a short loss of the connection, a replica, and a copy by the stream, begins anew with a whole snapshot",
    "{command} CONFIG SET repl-backlog-size 64mb",
)
TIMEOUT = Rule(
    "repl-timeout-short",
    Severity.WARNING,
    "it gives up a link that is silent for {seconds} s (repl-timeout)",
    "a busy server, or one that loads a copy, loses its link and begins anew with a whole copy",
    "{command} CONFIG SET repl-timeout 60",
)
ON_DISK = Rule(
    "snapshot-by-disk",
    Severity.NOTE,
    "it writes snapshots for replicas to its disk first (repl-diskless-sync no)",
    "slots move from it key by key, because a snapshot that is left there might be loaded by a restart",
    "{command} CONFIG SET repl-diskless-sync yes",
)
RULES = (
    *(LINK_DOWN, TOO_FEW_REPLICAS, ALONE, WRITABLE, REPLICA_BUFFER, SUBSCRIBER_BUFFER, TIMEOUT),
    *(BACKLOG, ON_DISK),
)


class Limit(NamedTuple):
    """Of what a client of one class has still to receive: bytes at once, and bytes that last too long; 0 is none."""

    hard: int
    soft: int

    def least(self) -> int | None:
        """The smaller one of those that are set."""
        return min((one for one in self if one), default=None)


def check(cluster: ClusterFacts) -> Iterator[Finding]:
    """What is wrong with replicas, and with what servers allow them."""
    for group, servers in cluster.groups():
        master = servers[0]
        if len(servers) == 1 and not master.silent:
            yield ALONE.of(master.subject, group=group)
    for server in cluster.answering:
        yield from (_replica(server) if server.info.get("role") == "slave" else _master(server))
        yield from _settings(server)


def _replica(server: ServerFacts) -> Iterator[Finding]:
    if server.info.get("master_link_status") == "down" and not server.told("master_sync_in_progress"):
        seconds = server.told("master_link_down_since_seconds") or 0
        yield LINK_DOWN.of(server.subject, seconds=seconds, command=server.command)
    if server.told("slave_read_only") == 0:
        yield WRITABLE.of(server.subject, group=server.group or "GROUP", command=server.command)


def _master(server: ServerFacts) -> Iterator[Finding]:
    good, needed = server.told("min_slaves_good_slaves"), server.number("min-replicas-to-write")
    if good is not None and needed is not None and good < needed:
        yield TOO_FEW_REPLICAS.of(server.subject, good=good, needed=needed, command=server.command)


def _settings(server: ServerFacts) -> Iterator[Finding]:
    limits = output_limits(server.config.get("client-output-buffer-limit", ""))
    for rule, kinds, least in (
        (REPLICA_BUFFER, ("slave", "replica"), LEAST_FOR_REPLICAS),
        (SUBSCRIBER_BUFFER, ("pubsub",), LEAST_FOR_SUBSCRIBERS),
    ):
        limit = next((limits[kind].least() for kind in kinds if kind in limits), None)
        if limit is not None and limit < least:
            yield rule.of(server.subject, limit=shown(limit), command=server.command)
    backlog = server.number("repl-backlog-size")
    if backlog is not None and backlog < LEAST_BACKLOG:
        yield BACKLOG.of(server.subject, backlog=shown(backlog), command=server.command)
    timeout = server.number("repl-timeout")
    if timeout is not None and timeout < LEAST_TIMEOUT_SECONDS:
        yield TIMEOUT.of(server.subject, seconds=timeout, command=server.command)
    if server.config.get("repl-diskless-sync") == "no":
        yield ON_DISK.of(server.subject, command=server.command)


def output_limits(told: str) -> dict[str, Limit]:
    """What ``client-output-buffer-limit`` says, by class of clients; what cannot be read is left out."""
    words = told.split()
    found = {}
    for kind, hard, soft, _ in zip(words[::4], words[1::4], words[2::4], words[3::4], strict=False):
        if hard.isascii() and hard.isdigit() and soft.isascii() and soft.isdigit():
            found[kind] = Limit(int(hard[:19]), int(soft[:19]))
    return found
