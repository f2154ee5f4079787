"""Makes sure that no key which was sent from one server to another can still arrive.

A step of a mover that was paused or cut off may run at any later time. If the slot has turned round by then, that step
would make a key that nothing looks for any more (**one-way**). So the permit to move keys this way is withdrawn at the
target, then at the source, together with all that movers have left there. The caller has made sure that no proxy moves
keys this way any more. The connections of earlier migrators are ended at both servers.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from migrator.connection import Timeouts
from migrator.pair import WRITING, ServerPair
from slots import permits
from slots.access import ServerAccess
from slots.connections import migrator_prefix


async def withdraw(
    source: str | None,
    target: str | None,
    *,
    access: ServerAccess,
    instance: str,
    timeouts: Timeouts | None = None,
    term: int = 0,
) -> None:
    """Return once nothing that was sent from ``source`` to ``target`` can arrive there any more.

    Args:
        source, target: ``host:port`` of both. One of them may be None: it keeps its half of the permit, and what else
            movers have left there. Without a target no connection is ended at the source, where another move may have
            begun, which makes itself another permit.
        access: how to log in at them.
        instance: id of the process that calls; part of the names of the connections.
        timeouts: limits of waiting.
        term: the term of the topom that calls, see :mod:`migrator.terms`.

    Raises:
        SourceUnavailable, SourceRefused, TargetUnavailable, TargetRefused: a server does not answer, or will not.
        Superseded: a topom of a later term has been there.
        NotApart: both are one server.
    """
    async with AsyncExitStack() as stack:
        pair = ServerPair(stack, source or "", target or "", access, instance, timeouts or Timeouts(), term)
        giving = receiving = None
        if source is not None:
            giving = await pair.connect_source()
            if target is not None:
                await pair.end_earlier(giving, migrator_prefix())
        if target is not None:
            receiving = await pair.connect_target()
            await pair.end_earlier(receiving, WRITING)
        await permits.withdraw(giving, receiving)
