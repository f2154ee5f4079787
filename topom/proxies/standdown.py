"""``ha_lost_proxies = "stand_down"``: a failed master is replaced although a lost proxy cannot be fenced off it.

The lost proxy may still reach the master, and serves on without topom. But it was told to stand down, and has said that
it does: it uses a group that has replicas only while it knows that it is not fenced. It knows that from topom's
answers, or from the word of all of the group's replicas, for an *allowance* each time
(:mod:`proxy.supervisor.standdown.evidence`). So **one-owner** holds if, before a replica is made the master,

- the proxy's fence is stored, so that no leader answers it;
- the mark of the fence is at that replica, set by this leader, and still there;
- that replica is in the proxy's table as a server of the group, so that the proxy asks it. A server is *unwatched* from
  when it comes to its group until every proxy has acknowledged a table with it. That is stored, and so is whether a
  server was unwatched when a proxy was fenced, or came later (:mod:`topom.cluster.fences`);
- the proxy's allowance, and a margin, have passed since the mark was set, by the clock of this leader. Another leader
  does not know that time, so it sets the mark and waits anew.

The stored allowance of a proxy is never less than the one by which it goes: a longer one is stored before the proxy is
told it, a shorter one after the proxy has said that it goes by it. Once the former master is back it is fenced like any
other server.
"""

import asyncio
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

import structlog

from slots.group import Group
from topom.cluster.state import ClusterState, Fenced
from topom.servers.redis_servers import Fencing

log = structlog.get_logger(__name__)

MARGIN_SECONDS = 0.5
DRIFT = 0.01
"""How far two machines' clocks may differ in their pace."""


def registered(rule: float | None, said: float | None) -> float | None:
    """The allowance to store for a proxy that goes by ``said`` when it registers, and is told ``rule`` then."""
    return None if rule is None or said is None else max(rule, said)


def all_watched(state: ClusterState) -> ClusterState:
    """The state in which every proxy has the table."""
    return replace(state, unwatched=frozenset()) if state.unwatched else state


def seconds_of(allowance: float) -> float:
    """How long topom waits for a proxy that stands down by this allowance."""
    return allowance * (1 + DRIFT) + MARGIN_SECONDS


class Marker(Protocol):
    """Sets marks at servers; see :class:`topom.servers.redis_servers.RedisServers`. Does not raise; bounded in time."""

    async def fence(self, wanted: Mapping[str, Collection[str]]) -> Mapping[str, Fencing]:
        """Fence proxies, by instance, at each of these servers."""

    async def unmarked(self, instances: Collection[str], address: str) -> Mapping[str, str]:
        """Which of these have no mark at a server, or cannot be looked up there, and why."""


class Marks:
    """The marks that this leader has set, and when it knew of each.

    **bounded**: they are kept only for fenced proxies that are remembered, and servers that those watch.
    """

    def __init__(self, marker: Marker) -> None:
        self._marker = marker
        self._since: dict[tuple[str, str], float] = {}
        self._unset: dict[tuple[str, str], str] = {}

    async def set(self, group: Group, entries: Collection[Fenced]) -> None:
        """Set the marks of these proxies at all replicas of the group that do not have them yet."""

        wanted = {
            server: missing
            for server in group.replicas
            if (missing := [one.instance for one in entries if (one.instance, server) not in self._since])
        }
        for server, outcome in (await self._marker.fence(wanted)).items():
            for instance in wanted[server]:
                if outcome.refusal is None:
                    # Count only from the answer: by then the mark is there.
                    self._since[instance, server] = self._now()
                else:
                    self._unset[instance, server] = outcome.refusal
            if outcome.refusal is None:
                log.info("proxies_marked", proxies=sorted(wanted[server]), group=group.id, server=server)

    async def confirm(self, server: str, entries: Iterable[Fenced]) -> None:
        """Forget the marks of these proxies at a server, if it is not sure that they are still there."""
        gone = await self._marker.unmarked([entry.instance for entry in entries], server)
        for instance, refusal in gone.items():
            self._since.pop((instance, server), None)
            self._unset[instance, server] = refusal

    def left(self, entry: Fenced, server: str) -> float:
        """Seconds until it is sure that a proxy has stood down because of its mark there; infinity if it has none."""
        since = self._since.get((entry.instance, server))
        if since is None or entry.stand_down is None:
            return math.inf
        return since + seconds_of(entry.stand_down) - self._now()

    def refusal(self, entry: Fenced, server: str) -> str:
        """Why there is no mark."""
        return self._unset.get((entry.instance, server), "that was not tried yet")

    def keep_only(self, instances: Iterable[str]) -> None:
        """Forget all other proxies."""
        kept = set(instances)
        for known in (self._since, self._unset):
            for key in [key for key in known if key[0] not in kept]:
                del known[key]

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
