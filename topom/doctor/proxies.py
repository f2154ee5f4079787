"""Whether proxies can serve, and do what topom tells them."""

from collections.abc import Iterator

from topom.doctor.facts import ClusterFacts
from topom.doctor.findings import Finding, Rule, Severity

NEARLY_FULL = 0.8

NONE = Rule(
    "no-proxy",
    Severity.CRITICAL,
    "no proxy is online",
    "clients have nothing to connect to",
    "slotferry proxy, on the machines where clients look for one",
)
REFUSES = Rule(
    "proxy-refuses-table",
    Severity.CRITICAL,
    "it does not apply the newest table: {why}",
    "no slot can move and no master can be replaced in order while it lacks the table",
    "see its log; restart it, or slotferry proxy drain {id}",
)
BEHIND = Rule(
    "proxy-behind",
    Severity.WARNING,
    "it applies the table of epoch {acked}, and topom is at epoch {epoch}",
    "slots that move wait for it, and it may be too busy to serve well",
    "look at its log and at the load of its machine; ask again in a moment: slotferry doctor",
)
SINGLE = Rule(
    "one-proxy",
    Severity.NOTE,
    "it is the only proxy",
    "clients are cut off while it restarts, or when its machine fails",
    "start another one on another machine: slotferry proxy",
)
VERSIONS = Rule(
    "proxy-version-differs",
    Severity.NOTE,
    "it is of version {version}, and topom of {topom}",
    "what one of them can do, the other may not know; an upgrade that was begun is not finished",
    "upgrade the older one, as docs/upgrading.md says",
)
FULL = Rule(
    "proxy-turned-clients-away",
    Severity.WARNING,
    "it has turned {refused} clients away since its start, because it had as many as it may have",
    "clients get an error, or a closed connection, instead of being served",
    "raise its max_clients and its limit of open files (LimitNOFILE), or start another proxy",
)
FILES = Rule(
    "proxy-lacks-files",
    Severity.WARNING,
    "it may have {most} clients instead of {wanted}, because the system lets it open too few files",
    "clients beyond that are turned away",
    "raise its limit of open files (LimitNOFILE in its unit, or ulimit -n) and restart it",
)
NEAR = Rule(
    "proxy-nearly-full",
    Severity.WARNING,
    "{clients} of at most {most} clients are connected",
    "clients beyond that are turned away",
    "raise its max_clients and its limit of open files (LimitNOFILE), or start another proxy",
)
RULES = (NONE, REFUSES, BEHIND, FULL, FILES, NEAR, SINGLE, VERSIONS)


def check(cluster: ClusterFacts) -> Iterator[Finding]:
    """Proxies that are missing, late, full or of another version."""
    online = [proxy for proxy in cluster.proxies if not proxy.lost]
    if not online and cluster.assigned:
        yield NONE.of("cluster")
    staying = [proxy for proxy in online if not proxy.draining]
    if len(staying) == 1:
        yield SINGLE.of(staying[0].subject)
    for proxy in online:
        if proxy.refuses:
            yield REFUSES.of(proxy.subject, why=proxy.refuses, id=proxy.id)
        elif proxy.acked < cluster.epoch:
            yield BEHIND.of(proxy.subject, acked=proxy.acked, epoch=cluster.epoch)
        if proxy.version and proxy.version != cluster.topom.version:
            yield VERSIONS.of(proxy.subject, version=proxy.version, topom=cluster.topom.version)
        most, lacking = (int(proxy.counters.get(name, 0)) for name in ("max_clients", "max_clients_lacking"))
        if lacking:
            yield FILES.of(proxy.subject, most=most, wanted=most + lacking)
        if (clients := int(proxy.counters.get("clients", 0))) > NEARLY_FULL * most > 0:
            yield NEAR.of(proxy.subject, clients=clients, most=most)
        if refused := int(proxy.counters.get("refused", 0)):
            yield FULL.of(proxy.subject, refused=refused)
