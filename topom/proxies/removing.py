"""An operator removes a proxy: it is fenced off every server, and forgotten."""

from collections.abc import Mapping

from topom.cluster.ledger import Ledger
from topom.cluster.topology import all_servers
from topom.errors import ServersUnreachable
from topom.proxies.barrier import Barrier
from topom.proxies.members import Members
from topom.servers.redis_servers import RedisServers


class Removals:
    """The removals of one topom's proxies."""

    def __init__(self, ledger: Ledger, members: Members, barrier: Barrier, servers: RedisServers) -> None:
        self._ledger = ledger
        self._members = members
        self._barrier = barrier
        self._servers = servers

    async def remove(self, proxy_id: int, force: bool) -> dict[str, str]:
        """Fence a proxy off every server and forget it; gives the reasons, by server where it could not be fenced.

        Raises:
            ProxyNotFound: there is no proxy of that id.
            ServersUnreachable: without ``force``, if servers do not answer. Then nothing was done. Or, if a server
                failed in between, the proxy is fenced there before slots next move to or from that server.
        """
        self._members.get(proxy_id)
        servers = all_servers(self._ledger.table)
        if not force:
            _require_reachable(proxy_id, await self._servers.unreachable(servers), done=False)
        await self._members.fence([proxy_id], "removed", "an operator removed the proxy", only_lost=False)
        failures = await self._barrier.fence_removed(servers)
        if not force:
            _require_reachable(proxy_id, failures, done=True)
        return failures


def _require_reachable(proxy_id: int, failures: Mapping[str, str], done: bool) -> None:
    if failures:
        reasons = "; ".join(f"{address}: {reason}" for address, reason in sorted(failures.items()))
        outcome = "was removed, but is not fenced" if done else "cannot be removed, for it cannot be fenced"
        raise ServersUnreachable(
            f"proxy {proxy_id} {outcome} everywhere ({reasons}); bring these servers back, or use force if it is "
            "sure that the proxy's process has ended"
        )
