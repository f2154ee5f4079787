"""Whether a server's replicas have all that it has: asked around the switch of slots that were copied."""

from __future__ import annotations

from itertools import count

from migrator.connection import Connection, Timeouts
from migrator.errors import TargetRefused, TargetUnavailable, TooFewReplicas
from migrator.options import Confirmation
from slots.access import ServerAccess
from slots.connections import PREFIX

_numbers = count(1)


async def confirm(
    server: str, replicas: int | None, *, access: ServerAccess, instance: str, timeouts: Timeouts | None = None
) -> None:
    """Return once so many replicas have all that a server has.

    Args:
        server: ``host:port`` of a master.
        replicas: how many; None for all that are online, which may be none.
        access: how to log in.
        instance: id of the process that calls; part of the name of the connection.

    Raises:
        TooFewReplicas: they do not, within a time that is enough for what they have to get
            (:class:`migrator.options.Confirmation`).
        TargetUnavailable, TargetRefused: the server does not answer, or will not.
    """
    connection = await Connection.open(
        server,
        name=f"{PREFIX}.check.{instance}.replicas.{next(_numbers)}",
        access=access,
        unavailable=TargetUnavailable,
        refused=TargetRefused,
        timeouts=timeouts or Timeouts(),
    )
    try:
        if replicas is None:
            await _all_caught_up(connection)
        else:
            await Confirmation(replicas).caught_up(connection)
    finally:
        connection.close()


async def _all_caught_up(connection: Connection) -> None:
    said = await connection.info("replication")
    with connection.understood("INFO"):
        online = sum(one.get("state") == "online" for one in said.replicas)
    try:
        await Confirmation(online).caught_up(connection)
    except TooFewReplicas as error:
        raise TooFewReplicas(
            f"not all of the {online} replicas of {connection.address} have what was written there last",
            "look at the replicas; one that stands still is waited for until its master drops it (repl-timeout)",
        ) from error
