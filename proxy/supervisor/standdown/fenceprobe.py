"""Asks a server whether the proxy is fenced there, and whether the server can know."""

from dataclasses import dataclass

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from slots import address
from slots.access import ServerAccess
from slots.connections import ADMIN, is_fenced
from slots.replies import info_of

CONNECT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Look:
    """A server's answer.

    Attributes:
        fenced: whether it has a mark of the proxy's fence (:mod:`slots.connections`).
        is_master: whether it is a master.
        run_id: of the process that was asked, or of a later one; another process may have forgotten a mark.
    """

    fenced: bool
    is_master: bool
    run_id: str


def client_of(server: str, access: ServerAccess, reply_seconds: float) -> Redis:
    """A client that keeps one connection, and gives up at the first failure. Close it."""
    host, port = address.split(server)
    return access.client(
        host,
        port,
        client_name=ADMIN,
        socket_connect_timeout=min(CONNECT_SECONDS, reply_seconds),
        socket_timeout=reply_seconds,
        retry=Retry(NoBackoff(), 0),
        max_connections=1,
    )


async def look(client: Redis, instance: str) -> Look:
    """Ask a server about the proxy of this ``instance``.

    Raises:
        Those of :data:`slots.failures.FAILURES`: it does not answer.
    """
    # In this order: if the server is restarted in between, the later process is named.
    fenced = await is_fenced(client, instance)
    facts = await info_of(client)
    return Look(fenced, facts.is_master, facts.run_id)
