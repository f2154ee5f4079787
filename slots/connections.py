"""Names of the connections that Slotferry opens to Redis servers, and how a process is cut off from one.

A connection that was lost, or whose process died, may have left commands in the server's socket buffer,
which the server would still run. **drained** therefore needs more than a closed socket: the server itself
has to say that the connection is gone. Every connection carries a name (CLIENT SETNAME) before its first
command, so that it can be found and ended by that name.

A process that may come back (it was paused, or its link was cut) is fenced first: a user named
:func:`fence_user` is made at the server, and every connection looks for it after it has set its name and
before it sends anything else. Whatever connected before the fence is found by name and ended; whatever
connects after it sees the fence. The user is off and has no rights; it only has to exist.
"""

from collections.abc import Callable
from typing import Any, Protocol

PREFIX = "slotferry"
SETTLING = f"{PREFIX}.settling"
"""Name of the connections over which a proxy has servers end what it has lost. It is none of those that are ended."""


class RedisClient(Protocol):
    """What is needed of redis.asyncio.Redis here."""

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send one command and give its reply, raising redis.ResponseError for an error."""


def proxy_prefix(instance: str) -> str:
    """What the names of all connections of a proxy begin with. ``instance`` is the id it made at its start."""
    return f"{PREFIX}.proxy.{instance}."


def worker_prefix(instance: str, incarnation: int) -> str:
    """What the names of all connections of one worker process begin with; a restarted worker counts up."""
    return f"{proxy_prefix(instance)}{incarnation}."


def migrator_prefix(instance: str = "") -> str:
    """What the names of all connections of one migrator begin with; of every migrator, without ``instance``."""
    return f"{PREFIX}.migrator.{instance}." if instance else f"{PREFIX}.migrator."


def fence_user(instance: str) -> str:
    """Name of the ACL user whose existence at a server fences the proxy off that server."""
    return f"{PREFIX}-fenced-{instance}"


def parse_client_list(text: str) -> list[dict[str, str]]:
    """CLIENT LIST's lines as dictionaries of their ``field=value`` parts."""
    return [dict(field.partition("=")[::2] for field in line.split()) for line in text.splitlines() if line]


async def end_connections(client: RedisClient, prefix: str, keep: Callable[[str], bool] = lambda name: False) -> int:
    """End every connection whose name begins with ``prefix`` at the server of ``client``; say how many.

    When this returns, the server runs nothing more of what they sent. Errors are those of ``client``.
    """
    # TYPE is left out on purpose: a connection may be listed as normal, pubsub or replica.
    text = await client.execute_command("CLIENT", "LIST")
    if isinstance(text, list):  # redis-py parses the reply
        listed = text
    else:
        listed = parse_client_list(text.decode(errors="replace") if isinstance(text, bytes) else text)
    ended = 0
    for entry in listed:
        name = str(entry.get("name", ""))
        if name.startswith(prefix) and not keep(name):
            ended += int(await client.execute_command("CLIENT", "KILL", "ID", entry["id"]))
    return ended


async def fence(client: RedisClient, instance: str) -> int:
    """Cut a proxy off the server of ``client``, now and when it comes back; say how many connections ended."""
    await client.execute_command("ACL", "SETUSER", fence_user(instance), "reset", "off")
    return await end_connections(client, proxy_prefix(instance))
