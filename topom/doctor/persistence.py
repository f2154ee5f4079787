"""What is left of a server's keys after a restart."""

from collections.abc import Iterator

from topom.doctor.facts import ClusterFacts, ServerFacts
from topom.doctor.findings import Finding, Rule, Severity

NOTHING_KEPT = Rule(
    "nothing-on-disk",
    Severity.CRITICAL,
    "it keeps nothing on disk: save is empty and appendonly is no",
    "a restart of this master loses all its keys, and a replica that follows it then is emptied as well",
    "{command} CONFIG SET appendonly yes, then {command} CONFIG REWRITE",
)
CACHE = Rule(
    "cache-not-on-disk",
    Severity.NOTE,
    "it keeps nothing on disk, and evicts keys ({policy})",
    "a restart of this master loses all its keys; if it is a cache, that may be meant",
    "if it is no cache: {command} CONFIG SET appendonly yes, then {command} CONFIG REWRITE",
)
SAVE_FAILS = Rule(
    "save-fails",
    Severity.CRITICAL,
    "its last attempt to write its data failed ({fields})",
    "with stop-writes-on-bgsave-error, or a failed append-only file, it refuses clients' writes; a restart loses what "
    "is not on disk",
    "see its log; look at the free space of its disk and at vm.overcommit_memory of its machine, then {command} BGSAVE",
)
NOT_SYNCED = Rule(
    "append-only-not-synced",
    Severity.WARNING,
    "it writes the append-only file when the kernel likes (appendfsync no)",
    "a crash of its machine loses up to half a minute of writes that clients were told are done",
    "{command} CONFIG SET appendfsync everysec, then {command} CONFIG REWRITE",
)
RULES = (NOTHING_KEPT, SAVE_FAILS, NOT_SYNCED, CACHE)
STATUSES = ("rdb_last_bgsave_status", "aof_last_bgrewrite_status", "aof_last_write_status")


def check(cluster: ClusterFacts) -> Iterator[Finding]:
    """Servers that forget, and those whose writing fails."""
    for server in cluster.answering:
        failed = [name for name in STATUSES if server.info.get(name) == "err"]
        if failed:
            yield SAVE_FAILS.of(server.subject, fields=", ".join(failed), command=server.command)
        if server.config.get("appendonly") == "yes" and server.config.get("appendfsync") == "no":
            yield NOT_SYNCED.of(server.subject, command=server.command)
    for server in cluster.masters:
        if _keeps_nothing(server):
            figures = server.figures
            evicts = figures is not None and figures.evicts
            policy = "" if figures is None else figures.policy
            yield (CACHE if evicts else NOTHING_KEPT).of(server.subject, policy=policy, command=server.command)


def _keeps_nothing(server: ServerFacts) -> bool:
    save = server.config.get("save")
    return save is not None and not save.strip() and server.config.get("appendonly") == "no"
