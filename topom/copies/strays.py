"""Replicas that do not follow their group's master any more: they are made replicas again.

A server that has no configuration file, or cannot write to it, is a master after a restart. Then nobody reads from it,
it gets no write, and when its master dies there is one copy less than the table says. So if a server is listed as a
replica and says for a while that it is a master, or follows another server, it *joins* its group again
(:mod:`topom.copies.joining`). That is stored.

Joining replaces what the server holds. So it joins only if nothing can be lost (:mod:`topom.servers.lastcopy`): it
holds nothing, or an older copy of what its master has, by what both say of the streams of writes that they were in.
Else it is left as it is, and the reason is shown. It is not enough that it was once seen whole: its master may have
come up again without its data or with older data, or an operator may have made it a master by hand for clients to
write to.

**one-owner**: a replica is not judged while its group is locked, while its master does not say that it is one, or
while a change of masters that concerns the replica is not over (:mod:`topom.masters.followers` makes it follow then).
If Redis Sentinels decide which server is master, the table may be behind them. They make a stray a replica again
themselves, and topom only shows it.
**bounded**: one look at each replica at a time.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import structlog

from slots.group import Group
from topom.cluster.events import Said, What
from topom.cluster.hands_off import HandsOff
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState, Joining
from topom.periodic import Look, Loop
from topom.reasons import Kind, Reason, Reasons
from topom.servers.readings import Replication
from topom.servers.replication import ServerReplication, look_at_all

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
"""Between two looks at all replicas."""
LATELY_SECONDS = 1.5
"""How old a server's answer may be: servers are asked as often in any case (:mod:`topom.servers.health`)."""
LOST_SECONDS = 60
"""How long a replica may be without a link to a server that is not its master by the table."""
STRAY_SECONDS = 3.0
"""How long a replica has to be astray before anything is done: a change of masters may just be under way."""


def astray(said: Replication, master: str, ahead: Replication) -> str:
    """How a replica does not follow its master; empty if it does, also by another name or through another replica.

    A replica without a link may know its master by another name, and is given :data:`LOST_SECONDS` to find it.
    """
    if said.is_master:
        return "says that it is a master"
    if said.following is None or said.follows(master):
        return ""
    host, port = said.following
    if not said.link_up:
        has_lost_it = not said.filling and said.down_seconds >= LOST_SECONDS
        return f"has no link to {host}:{port}, and that is not {master}" if has_lost_it else ""
    return "" if said.stream == ahead.stream else f"follows {host}:{port}, not {master}"


def rejoining(state: ClusterState, server: str, group: Group) -> ClusterState:
    """The state in which a replica of this group joins it again.

    The state stays the same if the server is not a replica of the group any more, or joins already.
    """
    now = state.table.groups.get(group.id)
    if now is None or now.master != group.master or server not in candidates(state, now):
        return state
    return replace(state, joining={**state.joining, server: Joining(server, again=True)})


def candidates(state: ClusterState, group: Group) -> list[str]:
    """The replicas of a group that should follow its master now, and that no other part of topom deals with."""
    if group.locked or group.lost:
        return []
    promotion = state.promotions.get(group.id)
    concerned = promotion.concerned if promotion is not None else ()
    return [server for server in group.replicas if server not in state.joining and server not in concerned]


class Strays(Loop):
    """Looks after the replicas of one topom's groups.

    Args:
        is_alive: whether a server answers everybody (:mod:`topom.servers.detector`).
        others_decide: whether Redis Sentinels decide which server is master.
    """

    name = "strays"

    def __init__(
        self,
        ledger: Ledger,
        replication: ServerReplication,
        is_alive: Callable[[str], bool],
        hands_off: HandsOff,
        others_decide: bool,
    ) -> None:
        super().__init__()
        self._ledger = ledger
        self._replication = replication
        self._is_alive = is_alive
        self._hands_off = hands_off
        self._others_decide = others_decide
        self._since: dict[tuple[str, str], float] = {}
        self.reasons = Reasons[str]("server_strayed")
        """By address: how a replica does not follow its master, and what is done about it."""

    async def look(self) -> Look:
        """Look at all replicas, and have those that have been astray for a while join again."""
        found = await self._find()
        self._since = {key: since for key, since in self._since.items() if key in found}
        now = asyncio.get_running_loop().time()
        reasons: dict[str, Reason] = {}
        for (server, master), (group, how) in found.items():
            if now < self._since.setdefault((server, master), now) + STRAY_SECONDS:
                continue
            if self._others_decide:
                reasons[server] = Reason(Kind.SENTINEL, f"it {how}; the Sentinels make it a replica of {master} again")
            elif (held := self._hands_off.reason()) is not None:
                reasons[server] = replace(held, what=f"it {how}, and is left so: {held.what}")
            elif await self._is_so_now(server, group):
                await self._take_back(server, group, how)
        self.reasons.are(reasons)
        said = "; ".join(f"{server}: {reason}" for server, reason in sorted(reasons.items())[:1])
        more = f"; and {len(reasons) - 1} more" if len(reasons) > 1 else ""
        return Look(said + more, LOOK_SECONDS)

    async def _find(self) -> dict[tuple[str, str], tuple[Group, str]]:
        """The replicas that are astray now, each with the master that it should follow: its group, and how."""
        state = self._ledger.state
        groups = [group for group in state.table.groups.values() if group.replicas and self._is_alive(group.servers[0])]
        asked = [(group, server) for group in groups for server in candidates(state, group) if self._is_alive(server)]
        masters = sorted({group.servers[0] for group, _ in asked})
        said = await look_at_all(self._replication, [*masters, *(server for _, server in asked)], LATELY_SECONDS)
        found = {}
        for group, server in asked:
            ahead, mine = said[group.servers[0]], said[server]
            if not (isinstance(ahead, Replication) and isinstance(mine, Replication) and ahead.is_master):
                continue
            if how := astray(mine, group.servers[0], ahead):
                found[server, group.servers[0]] = group, how
        return found

    async def _is_so_now(self, server: str, group: Group) -> bool:
        """Whether a replica is astray. It is asked at this instant: an older answer is not enough to act on."""
        said = await look_at_all(self._replication, [group.servers[0], server])
        ahead, mine = said[group.servers[0]], said[server]
        if not (isinstance(ahead, Replication) and isinstance(mine, Replication) and ahead.is_master):
            return False
        return bool(astray(mine, group.servers[0], ahead))

    async def _take_back(self, server: str, group: Group, how: str) -> None:
        text = f"server {server} of group {group.id} {how}; it joins again as a replica of {group.master}, if it may"
        state = await self._ledger.change(
            lambda state, epoch: rejoining(state, server, group), [Said(What.SERVER_STRAYED, text)]
        )
        if server in state.joining:
            log.warning("server_strayed", group=group.id, server=server, master=group.master, how=how)
