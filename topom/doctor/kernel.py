"""Settings of the kernel that Redis asks for. They are known of servers on topom's own machine only."""

from collections.abc import Iterator

from topom.doctor.facts import ClusterFacts
from topom.doctor.findings import Finding, Rule, Severity

OVERCOMMIT = Rule(
    "overcommit-memory",
    Severity.WARNING,
    "the kernel of its machine may refuse memory that is not used at once (vm.overcommit_memory = {value})",
    "saves and snapshots for replicas fail when its data is more than half of the memory; then it may refuse writes",
    "sysctl vm.overcommit_memory=1, and the same line in /etc/sysctl.conf",
)
HUGE_PAGES = Rule(
    "huge-pages",
    Severity.WARNING,
    "its machine gives huge pages to everybody, and it does not switch them off for itself",
    "while it saves or fills a replica, a write copies 2 MiB instead of 4 KiB: it answers late and takes more memory",
    "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, at each boot, and a restart of the server",
)
CONNECTIONS = Rule(
    "somaxconn-small",
    Severity.NOTE,
    "the kernel keeps {kernel} connections that wait to be accepted, and it asks for {wanted} (tcp-backlog)",
    "when many proxies connect at once, some connections are refused and tried again",
    "sysctl net.core.somaxconn={wanted}, the same line in /etc/sysctl.conf, and a restart of the server",
)
RULES = (OVERCOMMIT, HUGE_PAGES, CONNECTIONS)


def check(cluster: ClusterFacts) -> Iterator[Finding]:
    """What topom's own kernel does to servers beside it."""
    for server in cluster.answering:
        kernel = server.kernel
        if kernel is None:
            continue
        if kernel.overcommit_memory in (0, 2):
            yield OVERCOMMIT.of(server.subject, value=kernel.overcommit_memory)
        # Redis since 6.2 has the setting, and it is on unless told otherwise.
        if kernel.huge_pages_always and server.config.get("disable-thp", "no") == "no":
            yield HUGE_PAGES.of(server.subject)
        backlog = server.number("tcp-backlog")
        if kernel.most_connections is not None and backlog is not None and kernel.most_connections < backlog:
            yield CONNECTIONS.of(server.subject, kernel=kernel.most_connections, wanted=backlog)
