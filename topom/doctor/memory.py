"""Whether servers have memory for what they hold, for what moves to them, and for snapshots."""

from collections.abc import Iterator

from migrator.facts import shown
from migrator.forking import NoMemoryForSnapshot, require_memory
from topom.doctor.facts import ClusterFacts, ServerFacts
from topom.doctor.findings import Finding, Rule, Severity

FULL = 0.95
NEARLY_FULL = 0.85

REFUSES = Rule(
    "memory-full",
    Severity.CRITICAL,
    "it uses {used} of its maxmemory of {most}, and does not evict",
    "it refuses, or soon will refuse, clients' writes with OOM; no slot can move to it",
    "{command} CONFIG SET maxmemory BYTES, or move slots away: slotferry slot move RANGES --to GROUP",
)
NEAR = Rule(
    "memory-nearly-full",
    Severity.WARNING,
    "it uses {used} of its maxmemory of {most}, and does not evict",
    "it will refuse clients' writes with OOM; slots move to it only as far as they fit",
    "{command} CONFIG SET maxmemory BYTES, or move slots away: slotferry slot move RANGES --to GROUP",
)
UNLIMITED = Rule(
    "no-maxmemory",
    Severity.WARNING,
    "it has no maxmemory",
    "it takes memory until the system kills it, with all its keys; a move of slots to it cannot check that they fit",
    "{command} CONFIG SET maxmemory BYTES, then {command} CONFIG REWRITE; over all servers of a machine at most six "
    "tenths of its memory, as a snapshot copies what is written meanwhile",
)
EVICTS = Rule(
    "some-evict",
    Severity.WARNING,
    "it evicts keys when its memory is full ({policy}), and other masters do not",
    "which keys may vanish depends on their slots, and slots of masters that do not evict wait instead of moving here",
    "{command} CONFIG SET maxmemory-policy noeviction, or the same policy everywhere",
)
REPLICA_EVICTS = Rule(
    "replica-evicts",
    Severity.WARNING,
    "it is a replica that evicts keys by itself (replica-ignore-maxmemory no)",
    "it loses keys that its master has, and no copy of slots can be made from it",
    "{command} CONFIG SET replica-ignore-maxmemory yes",
)
NO_SNAPSHOT = Rule(
    "no-memory-for-snapshot",
    Severity.WARNING,
    "{what}",
    "the system may kill it while it saves or fills a replica; slots move from it key by key only",
    "{to_do}",
)
RULES = (REFUSES, NEAR, UNLIMITED, EVICTS, REPLICA_EVICTS, NO_SNAPSHOT)


def check(cluster: ClusterFacts) -> Iterator[Finding]:
    """Too little memory, none set, or keys that vanish for the lack of it."""
    for server in cluster.answering:
        yield from _one(server)
    figures = [(server, said) for server in cluster.masters if (said := server.figures) is not None]
    if any(not said.evicts for _, said in figures):
        for server, said in figures:
            if said.evicts:
                yield EVICTS.of(server.subject, policy=said.policy, command=server.command)


def _one(server: ServerFacts) -> Iterator[Finding]:
    said = server.figures
    if said is None:
        return
    share = said.used_bytes / said.maximum_bytes if said.maximum_bytes else 0.0
    if share > NEARLY_FULL and not said.evicts:
        yield (REFUSES if share > FULL else NEAR).of(
            server.subject, used=shown(said.used_bytes), most=shown(said.maximum_bytes), command=server.command
        )
    if "maxmemory" in server.info and not said.maximum_bytes:
        yield UNLIMITED.of(server.subject, command=server.command)
    if not server.master and said.evicts and server.config.get("replica-ignore-maxmemory") == "no":
        yield REPLICA_EVICTS.of(server.subject, command=server.command)
    try:
        require_memory(said)
    except NoMemoryForSnapshot as error:
        yield NO_SNAPSHOT.of(server.subject, what=error.what, to_do=error.to_do)
