"""Names of the connections that Slotferry opens to Redis servers, and how a process is cut off from a server.

A connection may be lost, or its process may die, while its commands are in the server's socket buffer. The server would
still run them. So **drained** needs more than a closed socket: the server itself has to say that the connection is
gone. Every connection therefore gets a name (CLIENT SETNAME) before its first command. By that name it can be found and
ended.

A process may also come back: it was paused, or its link was cut. Such a process is fenced first: the server is given a
mark. Every connection sets its name, then looks for the mark, and only then sends anything else. A connection made
before the fence is found by its name and ended. A connection made after the fence sees the mark. The mark has two
parts:

- a user named :func:`fence_user`. The user is off and has no rights; it only has to exist. Clients cannot remove it.
  But a server that restarts without an ``aclfile`` forgets it, and some servers have no ACL;
- a field of the hash :data:`slots.reserved.FENCED`. It comes back with the server's data and is replicated. Clients of
  proxies can remove it by a script alone. A FLUSHALL sent to the server itself also removes it.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from redis.exceptions import ResponseError

from slots.replies import MOST_RUN_ID, understood
from slots.reserved import FENCED
from slots.scripts import load

if TYPE_CHECKING:
    from redis.asyncio import Redis

PREFIX = "slotferry"
MOST_FENCED = 4096
"""The most fields that :data:`slots.reserved.FENCED` has; the oldest goes first. There are at most half as many
proxies."""
FENCE_USERS = f"{PREFIX}-fenced-"
AT_A_TIME = 100
"""How many proxies are fenced with one round trip."""
_FENCE = load("fence")
ADMIN = f"{PREFIX}.admin"
"""What the names of the connections begin with over which a proxy looks at a server, or has it end lost connections.
They are never ended that way."""


class RedisClient(Protocol):
    """The part of redis.asyncio.Redis that is needed here."""

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command and give its reply, raising redis.ResponseError for an error."""


def proxy_prefix(instance: str) -> str:
    """What the names of all connections of a proxy begin with. ``instance`` is the id it made at its start."""
    return f"{PREFIX}.proxy.{instance}."


def worker_prefix(instance: str, incarnation: int) -> str:
    """What the names of all connections of one worker process begin with; a restarted worker counts up."""
    return f"{proxy_prefix(instance)}{incarnation}."


def admin_name(lost: str) -> str:
    """The name of a connection that ends the connection ``lost``, or of all that end those of the prefix ``lost``."""
    return ADMIN + lost.removeprefix(f"{PREFIX}.proxy")


def migrator_prefix(instance: str = "") -> str:
    """The prefix of the connection names of one migrator; without ``instance``, of every migrator."""
    return f"{PREFIX}.migrator.{instance}." if instance else f"{PREFIX}.migrator."


def fence_user(instance: str) -> str:
    """Name of the ACL user whose existence at a server fences the proxy off that server."""
    return f"{FENCE_USERS}{instance}"


def run_id_in(info: bytes) -> str:
    """The run id that INFO names; "" if INFO names none that can be one. Each process of a server has its own."""
    _, found, rest = info.partition(b"run_id:")
    run_id = rest.partition(b"\r")[0].decode(errors="replace").strip() if found else ""
    return run_id if len(run_id) <= MOST_RUN_ID and run_id.isprintable() else ""


def parse_client_list(text: str) -> list[dict[str, str]]:
    """CLIENT LIST's lines as dictionaries of their ``field=value`` parts."""
    return [dict(field.partition("=")[::2] for field in line.split()) for line in text.splitlines() if line]


async def list_connections(client: RedisClient) -> list[dict[str, str]]:
    """Every connection at the server of ``client``, as CLIENT LIST's fields. Errors are those of ``client``."""
    # CLIENT LIST is sent without TYPE on purpose: a connection may be listed as normal, pubsub or replica.
    text = await client.execute_command("CLIENT", "LIST")
    if isinstance(text, list):  # redis-py parses the reply
        return text
    return parse_client_list(text.decode(errors="replace") if isinstance(text, bytes) else text)


_OF_A_PROXY = re.compile(re.escape(f" name={PREFIX}.proxy.").encode() + rb"([0-9a-f]{32})\.")


async def connected_proxies(client: "Redis") -> set[str]:
    """The proxies that have connections to the server of ``client``, by instance. Errors are those of ``client``.

    Thousands of connections may be listed, so the list is searched and not parsed. Raises
    :class:`~slots.replies.NotUnderstood` for a reply of another kind.
    """
    said = await client.execute_command("CLIENT", "LIST", NEVER_DECODE=True)
    with understood("CLIENT LIST"):
        return {name.decode() for name in _OF_A_PROXY.findall(said)}


async def end_connections(
    client: RedisClient,
    *prefixes: str,
    keep: Callable[[str], bool] = lambda name: False,
    require: Callable[[], Awaitable[object]] | None = None,
) -> int:
    """End every connection whose name begins with one of these at the server of ``client``; say how many.

    When this returns, the server runs no more of their commands. Errors are those of ``client``, and of ``require``:
    that is asked once they are known, and before the first is ended.
    """
    found = []
    for entry in await list_connections(client):
        name = str(entry.get("name", ""))
        if name.startswith(prefixes) and not keep(name):
            found.append(entry["id"])
    if found and require is not None:
        await require()
    return sum([int(await client.execute_command("CLIENT", "KILL", "ID", id)) for id in found])


async def fence(client: "Redis", instances: Collection[str], by: str = "") -> str:
    """Cut proxies off the server of ``client``, now and when they come back. Give its run id, "" if it says none.

    Args:
        by: who fences them; for the marks.

    Raises:
        redis.ResponseError: the server can be given no mark of either kind.
        Other errors of ``client``.
    """
    process = ""
    for some in _batches(instances):
        together = client.pipeline(transaction=False)
        # run-id: asked first, over the same connection. So a process that is started later is not taken for the one
        # with marks.
        together.info("server")
        together.execute_command("EVAL", _FENCE.text, 1, FENCED, MOST_FENCED, by, *some)
        for instance in some:
            together.execute_command("ACL", "SETUSER", fence_user(instance), "reset", "off")
        info, fields, *users = await together.execute(raise_on_error=False)
        if isinstance(info, Exception):
            raise info
        process = process or str(info.get("run_id", ""))
        for user in users:
            # Either the server has no ACL, or it is a replica, which has the hash from its master.
            if isinstance(user, Exception) and isinstance(fields, Exception):
                raise user
    await end_connections(client, *map(proxy_prefix, instances))
    return process


async def fenced_among(client: "Redis", instances: Collection[str]) -> set[str]:
    """Those of these proxies whose fence has a mark at the server of ``client``. Errors are those of ``client``."""
    found: set[str] = set()
    for some in _batches(instances):
        together = client.pipeline(transaction=False)
        # The user comes first: a replica without its master may answer that, but no data (``replica-serve-stale-data
        # no``).
        for instance in some:
            together.execute_command("ACL", "GETUSER", fence_user(instance))
            together.execute_command("HEXISTS", FENCED, instance)
        said = await together.execute(raise_on_error=False)
        for instance, user, field in zip(some, said[::2], said[1::2], strict=True):
            if isinstance(user, Exception):
                # A server without ACL has only the hash.
                if not isinstance(user, ResponseError) or "unknown command" not in str(user).lower():
                    raise user
            elif user is not None:
                found.add(instance)
                continue
            if isinstance(field, Exception):
                raise field
            if field:
                found.add(instance)
    return found


async def is_fenced(client: "Redis", instance: str) -> bool:
    """Whether the server of ``client`` has a mark of this proxy's fence. Errors are those of ``client``."""
    return bool(await fenced_among(client, [instance]))


async def fenced_by(client: "Redis", instances: Collection[str]) -> set[str]:
    """Who has fenced these proxies off the server of ``client``, as far as marks say so. Errors are those of
    ``client``."""
    said = await client.hmget(FENCED, list(instances))
    marks = [mark.decode(errors="replace") if isinstance(mark, bytes) else str(mark) for mark in said if mark]
    return {by for _, _, by in (mark.partition(" ") for mark in marks) if by}


async def marks_of(client: "Redis") -> set[str]:
    """The proxies whose fence marks the server of ``client`` has. Errors are those of ``client``."""
    users = [name.decode(errors="replace") for name in await client.execute_command("ACL", "USERS")]
    held: list[Any] = await client.hkeys(FENCED)
    fields = [name.decode(errors="replace") for name in held]
    return {name.removeprefix(FENCE_USERS) for name in users if name.startswith(FENCE_USERS)} | {*fields}


async def forget_marks(client: "Redis", instances: Collection[str]) -> None:
    """Have the server of ``client`` forget the marks of these fences. Errors are those of ``client``."""
    for some in _batches(instances):
        await client.execute_command("ACL", "DELUSER", *map(fence_user, some))
        with suppress(ResponseError):  # a replica has what its master has
            await client.hdel(FENCED, *some)


def _batches(instances: Collection[str]) -> Iterator[list[str]]:
    """Parts so small that no single one holds up the server for long."""
    every = list(instances)
    return (every[first : first + AT_A_TIME] for first in range(0, len(every), AT_A_TIME))
