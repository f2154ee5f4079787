"""How far a copy is, and what is to be done about it: one decision, by what both servers say. Pure."""

from dataclasses import dataclass
from enum import Enum

from topom.copies.wanted import Wanted
from topom.errors import TopomError
from topom.reasons import Kind, Reason
from topom.servers.lastcopy import ServerFailed
from topom.servers.readings import Reading, Replication
from topom.servers.whole import copy_refused

FOREIGN_SECONDS = 3.0
"""How long a patient copy has to follow another address than its master's before it is told to follow its master."""

Answer = Reading | ServerFailed
"""What a server says of itself, or why it does not."""


class Verdict(Enum):
    """How far a copy is."""

    WHOLE = "whole"
    FILLED = "filled"
    """It follows its master, and is not whole yet."""
    TELL = "tell"
    """It is to be told to follow its master."""
    WAITS = "waits"
    """Nothing can be done now."""
    OTHERS = "others"
    """Another part of topom deals with it."""


@dataclass(frozen=True, slots=True)
class Decision:
    """How far a copy is, and why it is not whole. There is no reason if it is whole, or is to be told."""

    verdict: Verdict
    why: Reason | TopomError | None = None


def decide(copy: Wanted, ahead: Answer, mine: Answer, foreign_seconds: float) -> Decision:
    """How far a copy is.

    Args:
        ahead, mine: what the master says, and the server.
        foreign_seconds: how long :func:`is_foreign` has been true of the server.
    """
    if isinstance(ahead, ServerFailed):
        return Decision(Verdict.WAITS, ahead)
    if isinstance(mine, ServerFailed):
        return Decision(Verdict.WAITS, mine)
    said, master = mine.replication, copy.master
    if said.is_master and not copy.also_a_master:
        return Decision(Verdict.OTHERS)
    if not ahead.replication.is_master:
        what = f"{master}, its master by the table, is a replica itself"
        return Decision(Verdict.WAITS, Reason(Kind.SERVER, what))
    if copy.anew and copy.told != mine.run_id:
        # A process that was started later may have the old data.
        return Decision(Verdict.TELL)
    refusal = copy_refused(copy.server, master, ahead.replication, said, copy.near)
    if refusal is None:
        return Decision(Verdict.WHOLE if said.follows(master) or not copy.directly else Verdict.TELL)
    if said.follows(master) or (copy.patient and said.filling):
        return Decision(Verdict.FILLED, _progress(said, master) or refusal.reason)
    if copy.patient and is_foreign(said, master) and foreign_seconds < FOREIGN_SECONDS:
        return Decision(Verdict.WAITS, Reason(Kind.SERVER, f"it follows another server than {master}, as it seems"))
    return Decision(Verdict.TELL)


def is_foreign(said: Replication, master: str) -> bool:
    """Whether a replica seems to follow another server than its master, and is not just being filled.

    A replica that was told another name of its master looks the same before it is connected.
    """
    return not said.is_master and not said.follows(master) and not said.filling


def _progress(said: Replication, master: str) -> Reason | None:
    if said.filling:
        return Reason(Kind.BUSY, f"it is being filled by {master}")
    return None if said.link_up else Reason(Kind.BUSY, f"it has no link to {master} yet")
