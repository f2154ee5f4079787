"""What goes wrong in a run, and when: faults drawn from a seed. Each lasts a bounded time."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a fault does. *Stopped* is SIGSTOP, and SIGCONT afterwards; *killed* is SIGKILL, and a start afterwards.

    *Held up* data arrives later, also if its sender has closed the connection by then. If a link is held up, that holds
    for all of its connections, new ones too. Otherwise only existing connections are held up, and later data overtakes.
    """

    WORKER_KILLED = "worker killed"
    WORKER_STOPPED = "worker stopped"
    SUPERVISOR_STOPPED = "supervisor stopped"
    PROXY_STOPPED = "proxy stopped"
    PROXY_KILLED = "proxy killed"
    TOPOM_KILLED = "topom killed"
    TOPOM_STOPPED = "topom stopped"
    SERVER_KILLED = "server killed"
    SERVER_STOPPED = "server stopped"
    SERVER_CUT = "connections to a server cut"
    SERVER_HELD = "link to a server held up"
    REPLIES_HELD = "replies of a server held up"
    CONNECTIONS_HELD = "connections to a server held up"
    STEP_HELD = "step of keys held up"
    ANSWER_HELD = "answer to a step of keys held up"
    CONTROL_CUT = "control stream cut"
    MIGRATION_PAUSED = "migration paused"
    JOURNEYS_CUT = "control stream cut while slots go there and back"
    FENCE_FORGOTTEN = "fence forgotten by a server that slots have left"
    SWEEP_HELD = "sweep of a server held up until slots return"
    TURN_HELD = "place of keys held up until slots have turned round"
    PROXIES_STOPPED = "all proxies stopped"
    SERVER_OLDER = "server restarted with data of before"
    MARKS_EVICTED = "marks of a server evicted"
    TARGET_FULL = "server full"
    MIGRATOR_KILLED = "migrator killed"
    MIGRATOR_STOPPED = "migrator stopped"
    STREAM_LATE = "stream of a source late"
    BATCHES_LOST = "answers to batches of a copy lost"
    MASTER_CHANGED = "replica made the master"
    MASTER_LOST = "master killed, and its replica made the master"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        kind: what.
        at: seconds of the run at which it begins.
        seconds: how long it lasts.
        place: which of the processes or links of its kind, counted from 0.
        worker: which worker of the proxy, where one is meant.
        seed: of what else is left to chance.
    """

    kind: Kind
    at: float
    seconds: float
    place: int
    worker: int = 0
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.kind}{self.where}"

    @property
    def where(self) -> str:
        """Which process or link it is about; empty where it is about all."""
        if self.kind in ANYWHERE:
            return ""
        worker = f" worker {self.worker}" if self.kind in (Kind.WORKER_KILLED, Kind.WORKER_STOPPED) else ""
        return f", number {self.place + 1}{worker}"


WEIGHTS: dict[Kind, int] = {
    Kind.WORKER_KILLED: 4,
    Kind.WORKER_STOPPED: 4,
    Kind.SUPERVISOR_STOPPED: 2,
    Kind.PROXY_STOPPED: 4,
    Kind.PROXY_KILLED: 2,
    Kind.TOPOM_KILLED: 4,
    Kind.TOPOM_STOPPED: 3,
    Kind.SERVER_KILLED: 4,
    Kind.SERVER_STOPPED: 4,
    Kind.SERVER_CUT: 4,
    Kind.SERVER_HELD: 5,
    Kind.REPLIES_HELD: 4,
    Kind.CONNECTIONS_HELD: 3,
    Kind.STEP_HELD: 6,
    Kind.ANSWER_HELD: 4,
    Kind.CONTROL_CUT: 2,
    Kind.MIGRATION_PAUSED: 2,
    Kind.JOURNEYS_CUT: 3,
    Kind.FENCE_FORGOTTEN: 3,
    Kind.SWEEP_HELD: 2,
    Kind.TURN_HELD: 3,
    Kind.PROXIES_STOPPED: 2,
    Kind.SERVER_OLDER: 4,
    Kind.MARKS_EVICTED: 3,
    Kind.TARGET_FULL: 3,
    Kind.MIGRATOR_KILLED: 3,
    Kind.MIGRATOR_STOPPED: 3,
    Kind.STREAM_LATE: 6,
    Kind.BATCHES_LOST: 6,
    Kind.MASTER_CHANGED: 4,
    Kind.MASTER_LOST: 4,
}
"""How often each kind is drawn."""
SERVERS = (
    Kind.SERVER_KILLED,
    Kind.SERVER_STOPPED,
    Kind.SERVER_CUT,
    Kind.SERVER_HELD,
    Kind.REPLIES_HELD,
    Kind.CONNECTIONS_HELD,
    Kind.STEP_HELD,
    Kind.ANSWER_HELD,
    Kind.SERVER_OLDER,
    Kind.FENCE_FORGOTTEN,
    Kind.SWEEP_HELD,
    Kind.TURN_HELD,
    Kind.MARKS_EVICTED,
    Kind.TARGET_FULL,
    Kind.STREAM_LATE,
    Kind.MASTER_CHANGED,
    Kind.MASTER_LOST,
)
"""Faults whose place is that of a server."""
ANYWHERE = (
    Kind.STEP_HELD,
    Kind.ANSWER_HELD,
    Kind.TOPOM_KILLED,
    Kind.TOPOM_STOPPED,
    Kind.MIGRATION_PAUSED,
    Kind.PROXIES_STOPPED,
    Kind.MIGRATOR_KILLED,
    Kind.MIGRATOR_STOPPED,
    Kind.BATCHES_LOST,
)
"""Faults that have no place: they concern the only topom, its migrators, all proxies, or the first server at which a
step comes."""
JOURNEYS = (Kind.JOURNEYS_CUT, Kind.FENCE_FORGOTTEN, Kind.SWEEP_HELD, Kind.TURN_HELD)
"""Faults of several steps (:mod:`tests.histories.journeys`)."""
OF_COPIES = (Kind.MIGRATOR_KILLED, Kind.MIGRATOR_STOPPED, Kind.STREAM_LATE, Kind.BATCHES_LOST)
"""Faults of slots that move by the replication stream."""
OF_REPLICAS = (Kind.MASTER_CHANGED, Kind.MASTER_LOST)
"""Faults of groups that have a replica."""
OLDER = (Kind.SERVER_OLDER, Kind.FENCE_FORGOTTEN, Kind.SWEEP_HELD)
"""Faults that put a server's earlier files back. The files of a server that is no master any more are of no use."""
ONCE = (Kind.SERVER_OLDER, Kind.MASTER_LOST)
"""Faults that come once in a run, like one of the journeys. Otherwise too little would be left to be judged."""
HELD = (Kind.SERVER_HELD, Kind.REPLIES_HELD, Kind.CONNECTIONS_HELD, Kind.STEP_HELD, Kind.ANSWER_HELD)
AT_ONCE = 0.8
"""Faults at a time, on average. Many faults together hide what each one does, but some have to meet."""
SHORTEST_SECONDS = 0.6
"""Seconds of the run for each fault, at the least."""
LONGEST_SECONDS = 4.5
"""Longer than the proxies' lease, shorter than the clients' patience."""
JOURNEYS_SECONDS = 17.0
"""At most so long: in this time a proxy is fenced, and slots go there, back and there again, even on a busy machine."""
LENGTHS_SECONDS = (0.05, 0.3, 1.0, 2.5, LONGEST_SECONDS)
"""How long a fault may last at most. Its effect depends on which limits it is longer than."""
HELD_SECONDS = (0.3, 1.5, 2.8, LONGEST_SECONDS)
"""The same for a fault that holds data up. It mostly lasts longer than the sender waits, so that the data comes
late."""


def draw(
    seed: int, seconds: float, *, proxies: int, workers: int, servers: int, kinds: Sequence[Kind] = tuple(Kind)
) -> list[Fault]:
    """The faults of a run, in the order of their beginnings. The same arguments give the same faults.

    Args:
        seed: of the draw.
        seconds: the run's length; the last fault ends with it.
        proxies, workers, servers: how many there are, workers for each proxy.
        kinds: what may be drawn.
    """
    chance = random.Random(f"faults {seed}")
    found: list[Fault] = []
    while (
        len(found) < seconds / SHORTEST_SECONDS
        and sum(min(fault.seconds, LONGEST_SECONDS) for fault in found) < AT_ONCE * seconds
    ):
        had = {fault.kind for fault in found}
        over = had.intersection(ONCE) | {it for it in JOURNEYS if had.intersection(JOURNEYS)}
        if had.intersection(OF_REPLICAS):
            over.update(OLDER)
        if had.intersection(OLDER):
            over.update(OF_REPLICAS)
        left = [it for it in kinds if it not in over]
        if not left:
            break
        kind = chance.choices(left, [WEIGHTS[it] for it in left])[0]
        at = chance.uniform(0.05, 0.9) * seconds
        lengths = HELD_SECONDS if kind in HELD else LENGTHS_SECONDS
        lasting = min(chance.choice(lengths) * chance.uniform(0.7, 1.0), seconds - at)
        if kind in JOURNEYS:
            at = min(at, max(0.05 * seconds, seconds - JOURNEYS_SECONDS))
            lasting = min(JOURNEYS_SECONDS, seconds - at)
        places = servers if kind in SERVERS else proxies
        found.append(Fault(kind, at, lasting, chance.randrange(places), chance.randrange(workers), seed))
    return sorted(found, key=lambda fault: fault.at)
