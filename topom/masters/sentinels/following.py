"""Whether a group has another master now, decided by what all Sentinels and the servers themselves say.

| a majority of all known Sentinels names | the server named | what is done |
|---|---|---|
| the master in the slot table | | nothing |
| no server | | nothing |
| another server of the group | says that it is a master, and has a past | it becomes the master in the slot table |
| another server of the group | is a replica, and the table's master is one | Sentinels are told the table's master |
| another server of the group | anything else | nothing until the next look |
| a server that is not in the group | is a master, or does not answer | an error for the operator |
| a server that is not in the group | is a replica; the table's master is one | Sentinels are told the table's master |

If the majority names the table's master and a single Sentinel names another server for :data:`ASTRAY_SECONDS`, topom
tells that Sentinel the table's master, too: it was away, or was set up anew.

**one-owner** is bounded, not kept, while a group fails over: a proxy that topom does not reach may still reach the
former master. Then it may go on sending to it until a Sentinel has made the former master a replica. **epochs**: a
decision counts only if the table still has the master for which it was made.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import structlog

from topom.cluster import cancelling as interventions
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState
from topom.cluster.topology import promote
from topom.errors import TopomError
from topom.masters.sentinels.votes import elected
from topom.reasons import Kind, Reason, Reasons
from topom.servers.redis_servers import RedisServers

log = structlog.get_logger(__name__)

ASTRAY_SECONDS = 10.0
"""How long a Sentinel may name another master than all others before topom tells it theirs."""


class Verdict(Enum):
    """What follows from a look at one group."""

    AGREED = "agreed"
    """There is nothing to do, by all that is known."""
    UNDECIDED = "undecided"
    """Sentinels do not agree with the slot table, and it is not clear yet which is right."""
    OUTDATED = "outdated"
    """The slot table is right: topom tells the Sentinels its master."""


@dataclass(frozen=True, slots=True)
class View:
    """What Sentinels say of one group: ``named`` has the master that each names; None if it does not watch it."""

    group_id: int
    master: str
    servers: tuple[str, ...]
    named: Mapping[str, str | None]


class Following:
    """Puts masters that Sentinels have elected into the slot table."""

    def __init__(self, ledger: Ledger, servers: RedisServers) -> None:
        self._ledger = ledger
        self._servers = servers
        self._reasons = Reasons[int]("switch_not_followed", level="error")
        self.switches = 0
        """How many masters were put into the table."""

    async def look(self, view: View, known: int) -> Verdict:
        """Decide for one group, with ``known`` Sentinels in all, by the table above."""
        address = elected(view.named.values(), known)
        if address is None or address == view.master:
            self._reasons.over(view.group_id)
            agreed = all(named in (view.master, None) for named in view.named.values())
            return Verdict.AGREED if agreed else Verdict.UNDECIDED
        found = await self._servers.read(address)
        is_master = found is not None and found.replication.is_master
        if not is_master:
            current = await self._servers.read(view.master)
            if found is not None and current is not None and current.replication.is_master:
                self._reasons.over(view.group_id)
                return Verdict.OUTDATED
        if address not in view.servers:
            self._wait(
                view.group_id,
                f"Sentinels name {address} as the master of group {view.group_id}, which has no such server",
                f"if it is right, add it with 'slotferry server add {view.group_id} {address}', else have them told "
                "again with 'slotferry sentinel resync'",
            )
            return Verdict.UNDECIDED
        if found is None or not is_master:
            what = "is no master" if found is not None else "does not answer"
            self._wait(
                view.group_id, f"Sentinels name {address} as the master of group {view.group_id}, but that {what}"
            )
            return Verdict.UNDECIDED
        if not found.has_a_past:
            self._wait(
                view.group_id,
                f"Sentinels name {address} as the master of group {view.group_id}, but it is empty and has followed "
                "nobody since it was started",
                "if its data are lost for good, write any key there, else give it its data back",
            )
            return Verdict.UNDECIDED
        return Verdict.AGREED if await self._follow(view, address, known) else Verdict.UNDECIDED

    async def _follow(self, view: View, address: str, known: int) -> bool:
        """Store the switch; gives whether the table names the new master now."""

        def change(state: ClusterState, epoch: int) -> ClusterState:
            # epochs: only the master with which the Sentinels were compared is replaced. A locked group has a promotion
            # under way; once that has ended, one way or the other, the next look decides.
            if state.table.master_of(view.group_id) != view.master or state.table.groups[view.group_id].locked:
                return state
            return interventions.with_table(state, promote(state.table, epoch, view.group_id, address))

        try:
            state = await self._ledger.change(change)
        except TopomError as error:
            log.error("switch_not_stored", group=view.group_id, master=address, reason=str(error))
            return False
        if state.table.master_of(view.group_id) != address:
            return False
        self._reasons.over(view.group_id)
        self.switches += 1
        # newest-store
        await self._servers.use([address])
        log.warning(
            "master_switched",
            group=view.group_id,
            former=view.master,
            master=address,
            epoch=state.table.epoch,
            sentinels=sum(named == address for named in view.named.values()),
            known=known,
        )
        return True

    def reason(self, group_id: int) -> Reason | None:
        """Why topom does not follow what Sentinels say of a group; None if there is no such reason."""
        return self._reasons.get(group_id)

    def _wait(self, group_id: int, what: str, to_do: str = "") -> None:
        self._reasons.waits(group_id, Reason(Kind.SENTINEL, what, to_do=to_do), group=group_id)


class Astray:
    """How long each Sentinel has named another master than the table's, while the majority names the table's."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, int], float] = {}

    def note(self, view: View, known: int, now: float) -> list[str]:
        """Sentinels that must be told the table's master now."""
        found = []
        for sentinel, named in view.named.items():
            place = sentinel, view.group_id
            if named in (view.master, None) or elected(view.named.values(), known) != view.master:
                self._since.pop(place, None)
            elif now - self._since.setdefault(place, now) >= ASTRAY_SECONDS:
                found.append(sentinel)
        return found
