"""What a proxy may conclude from a server that has no mark of its fence, and until when: two rules of one kind.

**Which process of a server is known.** A restarted server may have forgotten a mark. A leader answers a proxy only
while it leads, and while no fence of the proxy is stored. A mark is set after the fence is stored. So every mark is
newer than any message of the proxy that topom has answered. A process of a server that was seen before such a message
was sent has every mark: the process is *known*. **final-fence**: only of a known process does the proxy believe that it
has no mark, whether the process is a replica that is asked or a server that is connected to
(:mod:`proxy.servers.knownservers`). So if a proxy was paused or cut off, and fenced meanwhile, it does no harm at a
server that was restarted since. This needs no clock. What was seen belongs to the server; whether it is known belongs
to one identity of the proxy.

**Until when no replica has become a master in its absence**: the rule of standing down.

topom may have a replica replace a master that it cannot fence a lost proxy off. Before it does, it stores that the
proxy is fenced, sets the mark of the fence at that replica, and waits for longer than the proxy's *allowance*.
**one-owner** then rests on this rule, which a proxy follows once it was told of it:

- A leader answers a proxy only while it leads, and while no fence of the proxy is stored. The proxy sent its message
  before the answer, so all marks are newer than the message. The allowance counts from when the message was *sent*. So
  it ends before topom has waited for as long since a mark.
- A replica that says that it has no mark had none when it was asked, or later. If **all** replicas of a group in the
  proxy's table say so, the one that topom chooses is among them.
- A replica's word counts only if it is a known process.
- A group without replicas has no server that could become its master.

Pure logic. Times are seconds of any one clock that goes on while the machine is suspended.
"""

import math
from collections.abc import Collection, Mapping

KNOWN_SECONDS = 7 * 86_400.0
"""Seconds after the last contact with topom for which processes stay known. topom keeps each mark for at least twice
that."""


class Evidence:
    """The evidence that one identity of a proxy is not fenced.

    Args:
        seconds: the allowance.
        former: the evidence of the identity before this one.
    """

    def __init__(self, seconds: float, former: "Evidence | None" = None) -> None:
        self.seconds = seconds
        self.heard_at = -math.inf
        """When the latest message was sent that topom has answered."""
        # The process of each server at its latest answer, and when that process was first seen.
        self._seen: dict[str, tuple[str, float]] = dict(former._seen) if former is not None else {}
        self._trusted: dict[str, str] = {}  # the process of each server that cannot have forgotten a mark
        self._unmarked: dict[str, float] = {}  # when each server was asked that has no mark

    def heard(self, sent_at: float) -> None:
        """topom, which leads, has answered a message that was sent then."""
        if sent_at <= self.heard_at:
            return
        self.heard_at = sent_at
        self._trusted |= {server: process for server, (process, seen_at) in self._seen.items() if seen_at <= sent_at}

    def saw(self, server: str, process: str, at: float) -> float:
        """A process of a server has answered; give the time since which it is known to be there."""
        known, since = self._seen.get(server, ("", at))
        if known != process:
            since = at
        self._seen[server] = process, since
        return since

    def unmarked(self, server: str, process: str, asked_at: float, answered_at: float) -> None:
        """A replica has said that it has no mark."""
        self.saw(server, process, answered_at)
        if self._trusted.get(server) == process:
            self._unmarked[server] = asked_at

    def trust(self, server: str, process: str) -> None:
        """This process of a server had every mark at the last contact with topom, by the proxy's kept table."""
        self._trusted[server] = process

    def knows(self, server: str, process: str) -> bool:
        """Whether this process of a server cannot have forgotten a mark."""
        return self._trusted.get(server) == process

    @property
    def known(self) -> Mapping[str, str]:
        """The processes that cannot have forgotten a mark, by server."""
        return self._trusted

    def trusts(self, servers: Collection[str]) -> bool:
        """Whether the processes of these servers, at their latest answers, certainly know of any mark."""
        return all(self._trusted.get(server) == self._seen[server][0] for server in servers if server in self._seen)

    def keep_only(self, servers: Collection[str]) -> None:
        """Forget all servers but these."""
        for known in (self._seen, self._trusted, self._unmarked):
            for server in known.keys() - servers:
                del known[server]

    @property
    def until(self) -> float:
        """The time until which all groups may be served."""
        return self.heard_at + self.seconds

    def group_until(self, replicas: Collection[str]) -> float:
        """The time until which a group with these replicas may be served, by their word alone; infinity if it has
        none."""
        return min((self._unmarked.get(server, -math.inf) + self.seconds for server in replicas), default=math.inf)
