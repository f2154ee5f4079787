"""Whether the versions of servers go together."""

from collections import Counter
from collections.abc import Iterator

from topom.doctor.facts import ClusterFacts, ServerFacts
from topom.doctor.findings import Finding, Rule, Severity

WITHOUT_ACL = (6, 0)
"""The first version with users, RESP3, and HELLO."""

OLD = Rule(
    "old-server",
    Severity.WARNING,
    "it runs Redis {version}",
    "clients get RESP2 only while it has slots, a fence of a proxy does not outlive a FLUSHALL there, and before Redis "
    "5 blocking commands are refused",
    "move its slots to a current server: slotferry rebalance --drain GROUP; see docs/old-servers.md",
)
REPLICA_OLDER = Rule(
    "replica-older",
    Severity.CRITICAL,
    "it runs version {version}, and its master {master} runs {newer}",
    "it may not be able to read the master's copy, so it cannot take its place when that fails",
    "upgrade the replica before its master",
)
MIXED = Rule(
    "versions-differ",
    Severity.NOTE,
    "masters are of versions {versions}, and some cannot read what others write",
    "from a newer one to an older one slots move by the stream only, and not at all where that is not possible",
    "upgrade the older ones: replicas first, then slotferry group promote GROUP REPLICA",
)
RULES = (REPLICA_OLDER, OLD, MIXED)


def check(cluster: ClusterFacts) -> Iterator[Finding]:
    """Versions that are too old, alone or beside others."""
    for server in cluster.answering:
        if server.version is not None and server.version < WITHOUT_ACL:
            yield OLD.of(server.subject, version=".".join(map(str, server.version)))
    for _, servers in cluster.groups():
        yield from _older_replicas([server for server in servers if not server.silent])
    masters = [(server, figures) for server in cluster.masters if (figures := server.figures) is not None]
    # Of each version one is enough: 1,000 masters are of a few versions.
    kinds = {figures.version: figures for _, figures in masters}
    if any(not one.reads_payloads_of(other) for one in kinds.values() for other in kinds.values()):
        counted = Counter(figures.version for _, figures in masters)
        versions = ", ".join(f"{version or 'unknown'} ({count})" for version, count in sorted(counted.items()))
        yield MIXED.of("cluster", versions=versions)


def _older_replicas(servers: list[ServerFacts]) -> Iterator[Finding]:
    master = next((server for server in servers if server.master), None)
    newer = master.figures if master is not None else None
    if newer is None:
        return
    for server in servers:
        figures = server.figures
        if figures is not None and not server.master and not figures.reads_payloads_of(newer):
            yield REPLICA_OLDER.of(server.subject, version=figures.version, master=newer.address, newer=newer.version)
