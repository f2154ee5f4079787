"""Ends what earlier streams of a source have at its replicas, before a new stream begins.

A process that stands still keeps its link open, and reads nothing. A server sends a snapshot no faster than the slowest
of its followers reads it, and begins no other one meanwhile. So a new stream would wait for the old link until the
server drops that, after ``repl-timeout``.

Whoever decides about copies does this. The process that follows does not: it may have been paused, and would end the
link of a later stream. A topom may have been paused as well, and go on when another one leads. The connections of a
later one's stream come after it has ended all that its predecessor has at the source (:mod:`migrator.terms`). So what
was found at a replica is ended only if this topom's connection to the source is still there after that.

**bounded**: the replicas are asked side by side, within :data:`~migrator.stream.choosing.ASK_SECONDS`. One that does
not answer by then is not followed either, as a rule.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from migrator.connection import Connection, Timeouts
from migrator.errors import MigrationError, Refused, ServerUnavailable
from migrator.pair import COPYING
from migrator.stream.choosing import ASK_SECONDS
from slots.access import ServerAccess
from slots.connections import PREFIX, end_connections

log = structlog.get_logger()


async def end_at_replicas(
    replicas: Sequence[str],
    own: str,
    access: ServerAccess,
    instance: str,
    timeouts: Timeouts,
    require: Callable[[], Awaitable[object]],
) -> None:
    """Return once no connection of an earlier stream is left at these replicas, as far as they answer.

    Args:
        own: the prefix of the names of the new stream's connections.
        access, instance, timeouts: as for :func:`migrator.stream.running.make_ready`.
        require: raises MigrationError if a topom of a later term has been at the source.
    """

    async def end_at(address: str) -> None:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                connection = await Connection.open(
                    address,
                    name=f"{PREFIX}.check.{instance}.earlier",
                    access=access,
                    unavailable=ServerUnavailable,
                    refused=Refused,
                    timeouts=timeouts,
                )
                try:
                    ended = await end_connections(
                        connection, COPYING, keep=lambda name: name.startswith(own), require=require
                    )
                finally:
                    connection.close()
        except (TimeoutError, MigrationError, AttributeError, LookupError, TypeError, ValueError) as error:
            # Also whatever an odd list of connections causes: this replica is not followed, or as if nothing was there.
            reason = str(error) or "it does not answer in time"
            log.warning("earlier_streams_not_ended", server=address, reason=reason)
        else:
            if ended:
                log.info("earlier_migrators_ended", server=address, connections=ended)

    await asyncio.gather(*map(end_at, replicas))
