"""What topom says of the present: what fails, and what waits and does not end by itself."""

from collections.abc import Iterator

from topom.doctor.facts import ClusterFacts
from topom.doctor.findings import Finding, Rule, Severity
from topom.reasons import Kind

NOW = Rule(
    "hurts-now",
    Severity.CRITICAL,
    "{what}",
    "it hurts already: clients are refused, or what topom should do cannot be done",
    "{to_do}",
)
WAITS = Rule(
    "waits",
    Severity.WARNING,
    "{what}",
    "what topom should do waits for it",
    "{to_do}",
)
PAUSED = Rule(
    "paused",
    Severity.WARNING,
    "{what}",
    "no master that fails is replaced, and slots stand still, until somebody ends that",
    "slotferry resume, or slotferry migration resume",
)
RULES = (NOW, WAITS, PAUSED)
PASSING = frozenset({Kind.HOURS, Kind.PACE, Kind.BUSY})
"""They end by themselves, and were meant."""


def check(cluster: ClusterFacts) -> Iterator[Finding]:
    """What topom says, but for what passes, and servers whose silence has a finding of its own."""
    silent = {f"server {server.address}" for server in cluster.servers if server.silent}
    for about, reason in cluster.waits:
        if reason.kind in PASSING or (reason.kind is Kind.SERVER and about in silent):
            continue
        rule = {Kind.PAUSED: PAUSED, Kind.PROXY: WAITS}.get(reason.kind, NOW)
        yield rule.of(about, what=reason.what, to_do=reason.to_do or "slotferry status shows how it goes on")
