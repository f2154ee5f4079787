"""Makes servers of the pool masters of their own, if they still followed a master when they came to the pool.

**last-copy**: a server that could be in a group by another name is left as it is (**run-id**).
"""

import asyncio
from collections.abc import Collection

import structlog

from topom.cluster.ledger import Ledger
from topom.proxies.barrier import Barrier
from topom.servers.detector import Condition
from topom.servers.health import Health
from topom.servers.lastcopy import ServerFailed
from topom.servers.replication import ServerReplication

log = structlog.get_logger(__name__)

POLL_SECONDS = 0.01
"""Seconds between two looks at whether every proxy has the table."""


class Detaching:
    """Detaches servers of one topom's pool.

    Args:
        barrier_seconds: how long proxies may take to acknowledge the table.
    """

    def __init__(
        self,
        ledger: Ledger,
        barrier: Barrier,
        health: Health,
        replication: ServerReplication,
        barrier_seconds: float,
    ) -> None:
        self._ledger = ledger
        self._barrier = barrier
        self._health = health
        self._replication = replication
        self._barrier_seconds = barrier_seconds

    async def detach(self, servers: Collection[str]) -> None:
        """Make servers of the pool follow nobody, once no proxy takes them for replicas. Never raises.

        A server that cannot be told now goes on following, which does no harm: it is told again when it is taken.
        """
        alive = [server for server in servers if self._health.of(server).condition is Condition.ALIVE]
        if not alive:
            return
        try:
            async with asyncio.timeout(self._barrier_seconds):
                while not self._barrier.passed(self._ledger.table.epoch, ()):
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            return
        for server in alive:
            try:
                async with self._barrier.locking():
                    # run-id: the server may be in a group by another name.
                    in_doubt = bool(self._replication.conflict(server))
                    if server in self._ledger.state.pool and not self._is_copying(server) and not in_doubt:
                        await self._replication.make_master(server)
                        await self._replication.keep(server)
            except ServerFailed as error:
                log.info("old_copy_still_follows", server=server, reason=str(error))

    def _is_copying(self, server: str) -> bool:
        run = self._ledger.state.placement.run
        return run is not None and any(step.server == server and step.state == "copying" for step in run.steps)
