"""Looks for signs that the store is an older one (**newest-store**, :mod:`topom.cluster.lineage`): proxies know newer
tables.

A topom that has just come to lead does nothing to servers until each proxy that it knows has registered, or has had a
lease's time for it; nor does it give its table to a proxy that has none yet. A proxy that registers says which table it
has had. If that shows that the store is older, the term ends.
"""

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress

import structlog

from slots.messages.control import KnownTable
from topom.cluster import lineage
from topom.cluster.ledger import Ledger
from topom.cluster.lineage import StoreIsOlder

log = structlog.get_logger(__name__)


class NewestStore:
    """What proxies have said of the store in this term.

    Args:
        all_met: whether every known proxy has registered.
        seconds: for how long they are waited for at most.
    """

    def __init__(self, ledger: Ledger, all_met: Callable[[], bool], seconds: float) -> None:
        self._ledger = ledger
        self._all_met = all_met
        self._seconds = seconds
        self._until = math.inf
        self._came = asyncio.Event()
        self._contradicted = asyncio.Event()
        self._error: StoreIsOlder | None = None

    def begin(self) -> None:
        """Time begins."""
        self._until = asyncio.get_running_loop().time() + self._seconds

    def hear(self, known: KnownTable, who: str) -> None:
        """A proxy has had this table.

        Raises:
            AnotherCluster, StoreIsOlder: the proxy may not register.
        """
        if self._error is not None:
            raise self._error
        state = self._ledger.state
        try:
            lineage.require_older(state.cluster_id, state.starts, known, who)
        except StoreIsOlder as error:
            log.error("store_is_older", reason=str(error))
            self._error = error
            self._contradicted.set()
            self._came.set()
            raise

    def met(self) -> None:
        """A proxy has registered, or is no member any more."""
        self._came.set()

    async def settled(self) -> None:
        """Wait for the known proxies. Raises :class:`StoreIsOlder` as soon as that is proven: the term ends."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._until):
                while self._error is None and not self._all_met():
                    self._came.clear()
                    await self._came.wait()
        if self._error is not None:
            raise self._error

    async def watch(self) -> None:
        """Wait for a proof that the store is older. Raises :class:`StoreIsOlder`."""
        await self._contradicted.wait()
        assert self._error is not None
        raise self._error
