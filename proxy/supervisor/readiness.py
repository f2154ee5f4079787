"""Whether the proxy serves clients now, and what is missing if it does not: for the log, and for ``/readyz``."""

from collections.abc import Callable, Sequence

from proxy.supervisor.identity import Identity
from proxy.supervisor.standdown.standdown import StandDown
from proxy.supervisor.workforce import Workforce


class Readiness:
    """Looks at the parts of a proxy.

    Args:
        topom: where it is dialled.
        seats: how many workers there should be.
        identity, workforce, standdown: what it takes to serve.
        draining: whether the proxy drains.
    """

    def __init__(
        self,
        topom: Sequence[str],
        seats: int,
        identity: Identity,
        workforce: Workforce,
        standdown: StandDown,
        draining: Callable[[], bool],
    ) -> None:
        self._topom = topom
        self._seats = seats
        self._identity = identity
        self._workforce = workforce
        self._standdown = standdown
        self._draining = draining

    def missing(self) -> list[str]:
        """What is still missing to serve; empty if nothing is."""
        ready = self._workforce.ready
        if self._identity.product is None:
            return [f"not registered with topom at {', '.join(self._topom)}"]
        if self._identity.table is None:
            return ["no slot table from topom yet"]
        return [] if ready == self._seats else [f"{ready} of {self._seats} workers are ready"]

    def not_ready(self) -> str | None:
        """Why no client should be sent to this proxy now; None if it serves. Anybody may read it, so it names nothing.

        A proxy that waits or was fenced is well: it serves again by itself, so only who sends clients may heed this.
        """
        if self._draining():
            return "this proxy drains"
        if self._identity.is_new:
            return "this proxy was shut out as lost or fenced off, and waits until topom takes it in again"
        table = self._identity.table
        if table is None:
            return "this proxy has no slot table from topom yet"
        if self._workforce.ready == 0:
            return "no worker of this proxy listens"
        if over := set(self._standdown.groups_over()):
            owners = {slot.group_id for slot in table.slots if slot.group_id}
            if owners <= over:
                return "this proxy serves no group until topom or all replicas of a group answer it"
        return None
