"""The connections of one call to its source and its target, and the end of those of earlier calls.

A migrator that died, was paused or given up may have left commands in a server's socket buffer. What moves keys does
nothing any more once the permit was renewed (:mod:`slots.permits`); but a piece of a big key would be written into the
copy that a later call makes. Closing a socket is no proof; the servers themselves end such connections here, by their
names.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from itertools import count

import structlog

from migrator.connection import Connection, Timeouts
from migrator.errors import (
    MigrationError,
    NotApart,
    SourceRefused,
    SourceUnavailable,
    TargetRefused,
    TargetUnavailable,
)
from migrator.terms import take
from slots.access import ServerAccess
from slots.connections import PREFIX, end_connections, migrator_prefix
from slots.moving import RESERVED
from slots.permits import run_id_of

log = structlog.get_logger()

QUIET_SECONDS = 2.0
"""How long a call that fails or is cancelled waits for a command under way, which lasts milliseconds."""

WRITING = f"{PREFIX}.migrator-writing."
"""What the names of connections to a target begin with. A server may be the source of another call, which is not to end
these."""

TEMPORARY = RESERVED + b"piece:"

_numbers = count(1)


def temporary_name(source: str, who: bytes) -> bytes:
    """Name of an unfinished copy at a target; ``who`` is unique within one call."""
    return TEMPORARY + source.encode() + b":" + who


class Ends:
    """Opens the connections of one call; they are closed with ``stack``.

    Args:
        source, target: ``host:port``.
        access: how to get in at both.
        instance: id of the process that calls; part of the names of the connections.
        term: of the topom that calls, see :mod:`migrator.terms`.
    """

    def __init__(
        self,
        stack: AsyncExitStack,
        source: str,
        target: str,
        access: ServerAccess,
        instance: str,
        timeouts: Timeouts,
        term: int = 0,
    ) -> None:
        self.source = source
        self.target = target
        self.access = access
        self.timeouts = timeouts
        self._stack = stack
        self._instance = instance
        self._term = term
        self._names: set[str] = set()
        self._run_ids: dict[str, str] = {}

    async def at_source(self, *, leaves_quietly: bool = True) -> Connection:
        """A connection to the source; ``leaves_quietly`` unless its commands change nothing that matters later.

        Raises SourceUnavailable, SourceRefused, NotApart, Superseded.
        """
        connection = await Connection.open(
            self.source,
            name=self._name(migrator_prefix(self._instance)),
            access=self.access,
            unavailable=SourceUnavailable,
            refused=SourceRefused,
            timeouts=self.timeouts,
        )
        self._leave_with(connection, leaves_quietly)
        await self._identify(connection, SourceUnavailable)
        await take(connection, self._term, self._instance)
        return connection

    async def at_target(self) -> Connection:
        """A connection to the target.

        Raises TargetUnavailable, TargetRefused, NotApart, Superseded.
        """
        connection = await Connection.open(
            self.target,
            name=self._name(f"{WRITING}{self._instance}."),
            access=self.access,
            unavailable=TargetUnavailable,
            refused=TargetRefused,
            timeouts=self.timeouts,
        )
        self._leave_with(connection)
        await self._identify(connection, TargetUnavailable)
        await take(connection, self._term, self._instance)
        return connection

    async def _identify(self, connection: Connection, unavailable: type[MigrationError]) -> None:
        """See to it that all connections to an end lead to one process, and those to the other end to another one.

        run-id: a connection does not outlive its process, so whatever goes over it is checked in the same step.
        """
        run_id = run_id_of(await connection.call("INFO", "server"))
        if not run_id:
            raise unavailable(f"{connection.address} does not say in INFO what its run id is; it has to")
        if self._run_ids.setdefault(connection.address, run_id) != run_id:
            raise unavailable(f"another process than a moment ago answers at {connection.address}; it is begun anew")
        if self.source != self.target and self._run_ids.get(self.source) == self._run_ids.get(self.target):
            raise NotApart(
                f"{self.source} and {self.target} are one server under two names; no key was touched. Remove one of "
                "them from its group"
            )

    async def end_earlier(self, connection: Connection, prefix: str) -> None:
        """Have a server end every connection whose name begins so and that is not one of this call's."""
        ended = await end_connections(connection, prefix, keep=self._names.__contains__)
        if ended:
            log.info("earlier_migrators_ended", server=connection.address, connections=ended)

    def _name(self, prefix: str) -> str:
        name = f"{prefix}{next(_numbers)}"
        self._names.add(name)
        return name

    def _leave_with(self, connection: Connection, quietly: bool = True) -> None:
        self._stack.callback(connection.close)
        if quietly:
            self._stack.push_async_callback(_leave_quietly, connection)


async def _leave_quietly(connection: Connection) -> None:
    # Whoever cancels a call may turn the slot round next: nothing should be under way by then.
    if not await connection.quiet(QUIET_SECONDS):
        log.warning("command_left_under_way", server=connection.address, waited_seconds=QUIET_SECONDS)
