"""Makes sure that no key which was sent from one server to another can still arrive.

A MIGRATE whose answer the source did not get may have left its keys on the way, to be restored at any later time: when
the slot has turned round, that would be a key that nobody looks for any more (**one-way**). The target runs nothing of
a connection that it has ended, so those that could carry a key are ended there, see :mod:`slots.moving`. Who calls has
seen to it that no proxy sends keys this way; migrators that were left behind are ended at both servers first, and the
permit to move keys off the source is taken away.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from migrator.connection import Timeouts
from migrator.ends import CHECKING, Ends
from migrator.errors import Unsettled
from slots import moving
from slots.access import ServerAccess
from slots.connections import migrator_prefix
from slots.moving import WRITING


async def settle(
    source: str, target: str, *, access: ServerAccess, instance: str, timeouts: Timeouts | None = None, term: int = 0
) -> None:
    """Return once nothing that was sent from ``source`` to ``target`` can arrive there any more.

    Args:
        source, target: ``host:port`` of both.
        access: how to get in at them.
        instance: id of the process that calls; part of the names of the connections.
        timeouts: limits of waiting.
        term: of the topom that calls, see :mod:`migrator.terms`.

    Raises:
        SourceUnavailable, SourceRefused, TargetUnavailable, TargetRefused: a server does not answer, or will not.
        Superseded: a topom of a later term has been there.
        NotApart: both are one server.
        Unsettled: connections to the target keep coming that could carry keys.
    """
    async with AsyncExitStack() as stack:
        ends = Ends(stack, source, target, access, instance, timeouts or Timeouts(), term)
        giving = await ends.at_source()
        await ends.end_earlier(giving, migrator_prefix())
        await moving.clear_source(giving)
        receiving = await ends.at_target(CHECKING)
        await ends.end_earlier(receiving, WRITING)
        try:
            await moving.end_migrations(receiving)
        except moving.NotSettled as error:
            raise Unsettled(
                f"connections to {target} without a name keep coming, which may carry keys from {source}; find out who "
                "connects there with CLIENT LIST and have it set a name with CLIENT SETNAME"
            ) from error
