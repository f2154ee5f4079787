"""Opens the connections of one call to its source and its target, and ends the connections of earlier calls.

A migrator that died, was paused or was cancelled may have left commands in a server's socket buffer. Steps that move
keys do nothing once the permit was renewed (:mod:`slots.permits`). But a piece of a big key would be written into the
copy that a later call makes. Closing a socket does not prove that the server has stopped reading. So the servers
themselves end such connections, by their names.
"""

from __future__ import annotations

import secrets
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
from slots.permits import run_id_of
from slots.reserved import PIECE

log = structlog.get_logger()

QUIET_SECONDS = 2.0
"""How long a call that fails or is cancelled waits for a command under way. Such a command takes milliseconds."""

WRITING = f"{PREFIX}.migrator-writing."
"""The prefix of the names of connections to a target. The same server may be the source of another call, which must not
end these."""

COPYING = f"{PREFIX}.migrator-copying."
"""The prefix of the names of connections that copies by the replication stream have to their source, and to the server
that they follow. Behind it stands the stream (:func:`copying_prefix`). Only what begins another stream there ends these
(:func:`migrator.stream.running.make_ready`)."""

_PROCESS = secrets.token_hex(8)
"""Part of the names of this process's connections. Several processes work for one topom, and each ends the connections
of those before it, whatever numbers they had."""

_numbers = count(1)


def copying_prefix(stream: str) -> str:
    """The prefix of the names of those connections that copies of this stream have."""
    return f"{COPYING}{stream}."


def temporary_name(source: str, who: bytes) -> bytes:
    """Name of an unfinished copy at a target; ``who`` is unique within one call."""
    return PIECE + source.encode() + b":" + who


class ServerPair:
    """Opens the connections of one call; they are closed with ``stack``.

    Args:
        source, target: ``host:port``.
        access: how to log in at both.
        instance: id of the process that calls; part of the names of the connections.
        term: the term of the topom that calls, see :mod:`migrator.terms`.
        run_ids: the run ids that source and target have to have; by default, those that they have at first.
        at_source: the prefix of the names of connections to the source.
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
        run_ids: tuple[str, str] | None = None,
        at_source: str = migrator_prefix(),
    ) -> None:
        self.source = source
        self.target = target
        self.access = access
        self.timeouts = timeouts
        self._stack = stack
        self._instance = instance
        self._term = term
        self._at_source = at_source
        self._names: set[str] = set()
        self._run_ids: dict[str, str] = {} if run_ids is None else {source: run_ids[0], target: run_ids[1]}

    async def connect_source(self, *, leaves_quietly: bool = True) -> Connection:
        """A connection to the source. Set ``leaves_quietly`` unless its commands change nothing that matters later.

        Raises SourceUnavailable, SourceRefused, NotApart, Superseded.
        """
        connection = await Connection.open(
            self.source,
            name=self._name(f"{self._at_source}{self._instance}."),
            access=self.access,
            unavailable=SourceUnavailable,
            refused=SourceRefused,
            timeouts=self.timeouts,
        )
        self._leave_with(connection, leaves_quietly)
        await self._identify(connection, SourceUnavailable)
        await take(connection, self._term, self._instance)
        return connection

    async def connect_target(self) -> Connection:
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

    def run_id_of(self, address: str) -> str:
        """The run id of an end to which there is, or was, a connection."""
        return self._run_ids[address]

    async def _identify(self, connection: Connection, unavailable: type[MigrationError]) -> None:
        """Make sure that all connections to an end lead to one process, and those to the other end to another one.

        run-id: a connection does not outlive its process, so the check holds for every later command over it.
        """
        run_id = run_id_of(await connection.call("INFO", "server"))
        if not run_id:
            raise unavailable(f"{connection.address} gives no run id in INFO; it has to")
        if self._run_ids.setdefault(connection.address, run_id) != run_id:
            raise unavailable(
                f"another process than before answers at {connection.address}; the move starts again",
                "if that goes on, see that a migrator reaches the same servers by their addresses as topom does",
            )
        if self.source != self.target and self._run_ids.get(self.source) == self._run_ids.get(self.target):
            raise NotApart(
                f"{self.source} and {self.target} are one server under two names; no key was touched",
                "remove one of them from its group",
            )

    async def end_earlier(self, connection: Connection, prefix: str, but: str | None = None) -> None:
        """Have a server end every connection whose name begins so and that does not belong to this call, nor begins
        with ``but``."""

        def is_kept(name: str) -> bool:
            return name in self._names or (but is not None and name.startswith(but))

        ended = await end_connections(connection, prefix, keep=is_kept)
        if ended:
            log.info("earlier_migrators_ended", server=connection.address, connections=ended)

    def _name(self, prefix: str) -> str:
        name = f"{prefix}{_PROCESS}.{next(_numbers)}"
        self._names.add(name)
        return name

    def _leave_with(self, connection: Connection, quietly: bool = True) -> None:
        self._stack.callback(connection.close)
        if quietly:
            self._stack.push_async_callback(_leave_quietly, connection)


async def _leave_quietly(connection: Connection) -> None:
    # The process that cancels a call may turn the slot round next: no command should be under way by then.
    if not await connection.quiet(QUIET_SECONDS):
        log.warning("command_left_under_way", server=connection.address, waited_seconds=QUIET_SECONDS)
