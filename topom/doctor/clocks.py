"""Whether clocks of day agree. Keys expire by the clock of the server that has them."""

from collections.abc import Iterator
from statistics import median

from topom.doctor.facts import ClusterFacts
from topom.doctor.findings import Finding, Rule, Severity

TOLERATED_SECONDS = 1.0
TOLERATED_OF_TOPOMS_SECONDS = 5.0
"""Their clocks are known by the second."""
ENOUGH_TO_AGREE = 3
"""With so many servers, the middle one of their clocks is taken for right."""

SERVER = Rule(
    "clock-differs",
    Severity.WARNING,
    "its clock is {seconds:.1f} s {way} {others}",
    "keys expire so much {effect}, and keys with a deadline that move to it, or from it, expire at another time",
    "have its machine keep time: timedatectl set-ntp true, or chronyc makestep",
)
TOPOM = Rule(
    "topom-clock-differs",
    Severity.WARNING,
    "its clock is {seconds:.1f} s {way} the servers' clocks",
    "times of events, ages of sizes and the hours in which slots may move are wrong by so much",
    "have its machine keep time: timedatectl set-ntp true, or chronyc makestep",
)
FOLLOWER = Rule(
    "topom-clocks-differ",
    Severity.WARNING,
    "its clock is {seconds:.0f} s {way} that of the topom that leads",
    "when it takes over, events seem to have happened earlier or later, and slots move in other hours than were set",
    "have its machine keep time: timedatectl set-ntp true, or chronyc makestep",
)
RULES = (SERVER, TOPOM, FOLLOWER)


def check(cluster: ClusterFacts) -> Iterator[Finding]:
    """Clocks that differ by more than it took to ask for the time."""
    clocks = [(server, *server.ahead) for server in cluster.answering if server.ahead is not None]
    right, others = 0.0, "topom's"
    if len(clocks) >= ENOUGH_TO_AGREE:
        right, others = median(ahead for _, ahead, _ in clocks), "those of most servers"
        if abs(right) > TOLERATED_SECONDS + median(slack for _, _, slack in clocks):
            yield TOPOM.of("topom", seconds=abs(right), way="behind" if right > 0 else "ahead of")
    for server, ahead, slack in clocks:
        off = ahead - right
        if abs(off) > TOLERATED_SECONDS + slack:
            way, effect = ("ahead of", "earlier") if off > 0 else ("behind", "later")
            yield SERVER.of(server.subject, seconds=abs(off), way=way, effect=effect, others=others)
    for url, ahead in cluster.topom.clocks.items():
        if abs(ahead) > TOLERATED_OF_TOPOMS_SECONDS:
            yield FOLLOWER.of(f"topom {url}", seconds=abs(ahead), way="ahead of" if ahead > 0 else "behind")
