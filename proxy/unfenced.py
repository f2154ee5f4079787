"""What a proxy may conclude from a server that has no mark of its fence, and until when: two rules of one kind.

**Which process of a server is known.** A server that was started anew may have forgotten a mark. A leader answers a
proxy only while it leads, and while no fence of the proxy is stored, and a mark is set after the fence is stored. So
every mark is newer than whatever the proxy had sent when topom answered it, and a process of a server that had been
seen before that was sent has every mark: it is *known*. **final-fence**: of no other process the proxy believes that
it has no mark, be it as a replica that is asked or as a server that is dialled (:mod:`proxy.knownservers`). So a proxy
that was paused or cut off, and fenced meanwhile, does no harm at a server that was started anew since. It needs no
clock. What was seen belongs to the server, and what is known of it to one identity of the proxy.

**Until when nobody has been made a master in its absence**: the rule of standing down.

topom may have a replica take the place of a master that it cannot fence a lost proxy off. Before it does, it stores
that the proxy is fenced, has the mark of the fence set at that replica, and waits for longer than the proxy's
*allowance*. **one-owner** then rests on this rule, which a proxy that was told of it keeps to:

- A leader answers a proxy only while it leads, and while no fence of the proxy is stored. What it answers at some time
  was sent by the proxy before; so all marks are newer than that, and the allowance counted from when it was *sent*
  ends before topom has waited for as long since a mark.
- A replica that says that it has no mark says so of the time when it was asked, or a later one. Where **all** replicas
  of a group say so, as the proxy's table has them, the one that topom chooses is among them.
- A replica's word counts only if it is a known process.
- A group without replicas has nobody who could become its master.

Pure logic. Times are seconds of any one clock that goes on while the machine is suspended.
"""

import math
from collections.abc import Collection, Mapping

KNOWN_SECONDS = 7 * 86_400.0
"""For how long after topom was heard processes stay known. topom removes no mark before twice that has passed."""


class Unfenced:
    """What is known of one identity of a proxy not being fenced.

    Args:
        seconds: the allowance.
        former: what is known of the identity before this one.
    """

    def __init__(self, seconds: float, former: "Unfenced | None" = None) -> None:
        self.seconds = seconds
        self.heard_at = -math.inf
        """When that was sent which topom has answered last."""
        # The process of each server at its latest answer, and when that one was seen first.
        self._seen: dict[str, tuple[str, float]] = dict(former._seen) if former is not None else {}
        self._trusted: dict[str, str] = {}  # the process of each server that cannot have forgotten a mark
        self._unmarked: dict[str, float] = {}  # when each server was asked that said that it has no mark

    def heard(self, sent_at: float) -> None:
        """topom, which leads, has answered what was sent then."""
        if sent_at <= self.heard_at:
            return
        self.heard_at = sent_at
        self._trusted |= {server: process for server, (process, seen_at) in self._seen.items() if seen_at <= sent_at}

    def saw(self, server: str, process: str, at: float) -> float:
        """A process of a server has answered; since when it is known to be there."""
        known, since = self._seen.get(server, ("", at))
        if known != process:
            since = at
        self._seen[server] = process, since
        return since

    def unmarked(self, server: str, process: str, asked_at: float, answered_at: float) -> None:
        """A server that is a replica has said that it has no mark."""
        self.saw(server, process, answered_at)
        if self._trusted.get(server) == process:
            self._unmarked[server] = asked_at

    def trust(self, server: str, process: str) -> None:
        """This process of a server had every mark when topom was last heard of, as the proxy's kept table says."""
        self._trusted[server] = process

    def knows(self, server: str, process: str) -> bool:
        """Whether this process of a server cannot have forgotten a mark."""
        return self._trusted.get(server) == process

    @property
    def known(self) -> Mapping[str, str]:
        """The processes that cannot have forgotten a mark, by server."""
        return self._trusted

    def trusts(self, servers: Collection[str]) -> bool:
        """Whether the processes that these servers had when they answered last are sure to know of any mark."""
        return all(self._trusted.get(server) == self._seen[server][0] for server in servers if server in self._seen)

    def keep_only(self, servers: Collection[str]) -> None:
        """Forget all servers but these."""
        for known in (self._seen, self._trusted, self._unmarked):
            for server in known.keys() - servers:
                del known[server]

    @property
    def until(self) -> float:
        """Until when all groups may be served."""
        return self.heard_at + self.seconds

    def group_until(self, replicas: Collection[str]) -> float:
        """Until when a group may be served that has these replicas, by their word alone; infinity if it has none."""
        return min((self._unmarked.get(server, -math.inf) + self.seconds for server in replicas), default=math.inf)
