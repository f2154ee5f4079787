"""How far a target's replicas are behind it, so that a move does not overrun them.

A server keeps what a replica has still to receive. At ``client-output-buffer-limit`` (256 MB at once, or 64 MB for a
minute) it ends the replica's connection, and the replica begins again with a snapshot; while keys come fast, that
happens again and again. So a move waits while the buffer of any replica is large.

**bounded**: it waits :data:`LONGEST_WAIT_SECONDS` at a time. A server gives up a replica that is silent for as long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing

import structlog

from migrator.connection import Connection, Timeouts
from migrator.errors import MigrationError, Refused
from slots.access import ServerAccess
from slots.connections import parse_client_list

log = structlog.get_logger()

MOST_BEHIND = 32 << 20
"""Bytes of a replica's buffer above which nothing more is moved."""
LOOK_SECONDS = 0.1
"""Between two looks. A target takes some tens of megabytes within it at most."""
RETRY_SECONDS = 2.0
"""Until a server that cannot be reached is asked again. The migration itself reports what is wrong with it."""
LONGEST_WAIT_SECONDS = 60.0


class ReplicasBehind:
    """Whether a target's replicas are too far behind it.

    Args:
        server: ``host:port``, for the log.
        clock: seconds.
    """

    def __init__(self, server: str, clock: Callable[[], float]) -> None:
        self._server = server
        self._clock = clock
        self._since: float | None = None

    def take(self, behind: int) -> None:
        """Learn how many bytes the largest buffer of a replica has."""
        if behind <= MOST_BEHIND:
            self._since = None
        elif self._since is None:
            self._since = self._clock()
            log.info("replicas_behind", server=self._server, bytes=behind)

    @property
    def seconds(self) -> float:
        """Seconds to wait before it is asked again; 0 to go on."""
        waits = self._since is not None and self._clock() - self._since < LONGEST_WAIT_SECONDS
        return LOOK_SECONDS if waits else 0.0


async def watch(address: str, name: str, access: ServerAccess, timeouts: Timeouts, take: Callable[[int], None]) -> None:
    """Give how many bytes the largest buffer of a server's replicas has to ``take``, again and again; 0 while that is
    not known. It ends if the server does not tell. ``name`` is that of the connection."""
    while True:
        try:
            connection = await Connection.open(
                address, name=name, access=access, unavailable=MigrationError, refused=Refused, timeouts=timeouts
            )
            with closing(connection):
                while True:
                    take(await _behind(connection))
                    await asyncio.sleep(LOOK_SECONDS)
        except Refused as error:
            # Servers before Redis 5 have no TYPE.
            log.warning("replicas_not_watched", server=address, reason=str(error))
            return
        except MigrationError as error:
            log.warning("replicas_unknown", server=address, reason=str(error))
            await asyncio.sleep(RETRY_SECONDS)
        finally:
            take(0)


async def _behind(server: Connection) -> int:
    reply = await server.call("CLIENT", "LIST", "TYPE", "replica")
    with server.understood("CLIENT LIST"):
        if not isinstance(reply, bytes):
            raise TypeError(f"{reply!r:.50} is no list of clients")
        buffers = [one["omem"] for one in parse_client_list(reply.decode(errors="replace"))]
        return max((int(one) for one in buffers), default=0)
