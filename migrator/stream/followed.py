"""The server whose stream copies have: one of the source's replicas, or the source.

Each that can be followed is tried in its turn, the source last. Once a snapshot has begun, the copies stay with their
server: if that is lost, so are they. The next ones follow another server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import structlog

from migrator.connection import Connection, Timeouts
from migrator.errors import MigrationError, Refused, ServerUnavailable
from migrator.facts import Facts
from migrator.forking import require_memory
from migrator.pair import copying_prefix
from migrator.stream.choosing import choose
from migrator.stream.direct import link_of
from migrator.stream.errors import ReplicaLost, SpoolFull, SpoolUnusable
from migrator.stream.link import Link
from migrator.stream.spool import Spool
from migrator.stream.standing import require_direct, require_followable
from slots.access import ServerAccess
from slots.connections import PREFIX
from slots.replies import Info, NotUnderstood

log = structlog.get_logger()

SPOOL_BYTES = 64 << 30
"""Of what the source has sent and not all targets have taken yet, snapshot and stream together."""
OF_THE_SPOOL = (SpoolFull, SpoolUnusable)
"""These end a link, and are not about the server that it follows."""


class Followed:
    """Follows one server.

    Args:
        source: ``host:port``.
        replicas: of the source, likewise.
        access: how to log in.
        instance: part of the names of the connections.
        stream: the id of the stream, which is part of the link's name.
        timeouts: of the connections.
        folder: for spools.

    Attributes:
        address: that of the followed server; "" before :meth:`begin`.
    """

    def __init__(
        self,
        source: str,
        replicas: Sequence[str],
        access: ServerAccess,
        instance: str,
        stream: str,
        timeouts: Timeouts,
        folder: Path,
    ) -> None:
        self.address = ""
        self._source = source
        self._replicas = replicas
        self._access = access
        self._instance = instance
        self._link_name = f"{copying_prefix(stream)}{instance}.follow"
        self._timeouts = timeouts
        self._folder = folder
        self._history = ""
        self._spool: Spool | None = None

    async def begin(self, stack: AsyncExitStack, source: Connection, targets: Collection[Info]) -> Spool:
        """Follow a server; gives the spool, in which a snapshot has begun. ``stack`` ends both.

        Args:
            source: a connection to the source.
            targets: what the target of each copy says of itself.

        Raises:
            NoMemoryForSnapshot: no replica can be followed, and the source may lack the memory for a snapshot.
            MigrationError: neither can the source.
        """
        choice = await choose(source, targets, self._replicas, self._access, self._name, self._timeouts)
        passed_over = list(choice.passed_over)
        for replica in choice.replicas:
            try:
                spool = await self._link(stack, replica.address, replica.run_id, choice.history, replica.link)
            except MigrationError as error:
                passed_over.append(error.what)
                continue
            log.info("copy_follows", server=replica.address, role="replica", lag=replica.lag, passed_over=passed_over)
            return spool
        info = await source.info()
        with source.understood("INFO"):
            facts = Facts.from_info(self._source, info)
        not_known = require_memory(facts)
        spool = await self._link(stack, self._source, facts.run_id, "")
        log.info("copy_follows", server=self._source, role="master", passed_over=passed_over, memory=not_known)
        return spool

    async def look_again(self, source: Connection) -> None:
        """See whether the server can still be followed: an operator may have changed it.

        Raises:
            CountsFollowers, ReplicaLost: it cannot.
            MigrationError: it cannot be asked.
        """
        if self.address == self._source:
            _require(self.address, await source.info(), self._history)
            return
        try:
            async with self._connected(self.address) as replica:
                _require(self.address, await replica.info(), self._history)
        except MigrationError as error:
            raise self._lost(error) from error

    def require_no_loss(self, error: MigrationError) -> None:
        """Raise ReplicaLost if this error, which ended a copy, is about a replica: it says nothing against others."""
        about_server = self._spool is not None and error is self._spool.failure and not isinstance(error, OF_THE_SPOOL)
        if about_server and self.address != self._source:
            raise self._lost(error) from error

    def _lost(self, error: MigrationError) -> ReplicaLost:
        return ReplicaLost(f"replica {self.address} cannot be followed any more: {error.what}", error.to_do)

    async def _link(self, stack: AsyncExitStack, server: str, run_id: str, history: str, to_master: str = "") -> Spool:
        """Follow this server; see :class:`Link`. A replica has to be at its master by the connection ``to_master``."""
        async with AsyncExitStack() as own:
            spool = Spool(self._folder, SPOOL_BYTES)
            own.callback(spool.close)
            link = Link(server, self._access, spool, self._link_name, run_id, history)
            own.push_async_callback(asyncio.to_thread, link.close)
            link.start()
            origin = await link.begun()
            if to_master:
                await self._require_still_direct(server, to_master)
            stack.push_async_exit(own.pop_all())
        self.address, self._history, self._spool = server, origin.replication_id, spool
        return spool

    async def _require_still_direct(self, server: str, to_master: str) -> None:
        """Raises NotDirect if a replica, whose snapshot has begun, may have been filled by another one meanwhile.

        From here on it may follow the master in any way: a replica's own writes are in its snapshots and in no stream.
        """
        async with self._connected(server) as replica:
            require_direct(server, await link_of(replica), (to_master,))

    @asynccontextmanager
    async def _connected(self, server: str) -> AsyncIterator[Connection]:
        connection = await Connection.open(
            server,
            name=self._name,
            access=self._access,
            unavailable=ServerUnavailable,
            refused=Refused,
            timeouts=self._timeouts,
        )
        try:
            yield connection
        finally:
            connection.close()

    @property
    def _name(self) -> str:
        return f"{PREFIX}.check.{self._instance}.followed"


def _require(address: str, info: Info, history: str) -> None:
    """:func:`require_followable`, with a MigrationError for what no Redis server says."""
    try:
        require_followable(address, info, history)
    except NotUnderstood as error:
        raise ServerUnavailable(f"{address}: {error}", "look at what is running there") from error
