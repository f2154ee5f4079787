"""What a server says about a proxy: whether it is fenced there, and whether the server can know."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

from proxy import address
from slots.access import ServerAccess
from slots.connections import FENCED, SETTLING, fence_user

CONNECT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Look:
    """What one process of a server said, all of it over one connection.

    Attributes:
        fenced: whether it has a mark of the proxy's fence (:mod:`slots.connections`).
        is_master: whether it is one.
        run_id: of the process; another one may have forgotten a mark.
        uptime_seconds: for how long it has run, by its machine's clock.
    """

    fenced: bool
    is_master: bool
    run_id: str
    uptime_seconds: int


def client_of(server: str, access: ServerAccess, reply_seconds: float) -> Redis:
    """A client that keeps one connection, and gives up at the first failure. Close it."""
    host, port = address.split(server)
    return access.client(
        host,
        port,
        client_name=SETTLING,
        socket_connect_timeout=min(CONNECT_SECONDS, reply_seconds),
        socket_timeout=reply_seconds,
        retry=Retry(NoBackoff(), 0),
        max_connections=1,
    )


async def look(client: Redis, instance: str) -> Look:
    """Ask a server about the proxy of this ``instance``.

    Raises:
        Those of :data:`slots.failures.FAILURES`, KeyError: it cannot say.
    """
    questions = client.pipeline(transaction=False)
    for question in (
        ("HEXISTS", FENCED, instance),
        ("ACL", "GETUSER", fence_user(instance)),
        ("INFO", "server"),
        ("INFO", "replication"),
    ):
        questions.execute_command(*question)
    marked, user, *facts = await questions.execute(raise_on_error=False)
    for answer in (marked, *facts):
        if isinstance(answer, Exception):
            raise answer
    # A server without ACL has the hash only.
    no_acl = isinstance(user, ResponseError) and "unknown command" in str(user).lower()
    if isinstance(user, Exception) and not no_acl:
        raise user
    known: Mapping[str, Any] = {**facts[0], **facts[1]}
    return Look(
        fenced=bool(marked) or (user is not None and not no_acl),
        is_master=known["role"] == "master",
        run_id=str(known["run_id"]),
        uptime_seconds=int(known["uptime_in_seconds"]),
    )
