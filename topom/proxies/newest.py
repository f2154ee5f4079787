"""Looks for signs that the store is an older one (**newest-store**, :mod:`topom.cluster.lineage`): proxies know newer
tables, and servers have marks of newer states.

A topom that has just come to lead does nothing to servers, by itself or for an operator, until each proxy that it knows
has registered or is lost. It also gives no table to a proxy that it does not know: that one may have been a member
after the store was saved. A proxy that registers says which table it has had. If that shows that the store is older,
the term ends, and the proof is stored: no topom begins from that store again, whichever proxies are left.

All servers of the table are asked meanwhile whose marks they have (:mod:`topom.proxies.strangers`). Those that do not
answer are asked again before anything is done to them.

**bounded**: a proxy is lost after a lease's time, and a store that knows no proxy is taken for the newest after a
lease's time, too. A new store is so at once. Whoever asks for something meanwhile is told after a while to try again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import structlog

from slots.messages.control import KnownTable
from topom.cluster import lineage
from topom.cluster.ledger import Ledger
from topom.cluster.lineage import AnotherCluster, NotSealed, StoreIsOlder
from topom.errors import NotLeading, Unavailable
from topom.reasons import Kind

log = structlog.get_logger(__name__)


UsedBy = Callable[[], Awaitable[Mapping[str, str]]]
"""Gives who has used servers, by server (:meth:`topom.servers.redis_servers.RedisServers.used_by`)."""


class NotSettled(Unavailable):
    """Known proxies could still say that the store is an older one."""

    kind = Kind.PROXY


class NewestStore:
    """What proxies have said of the store in this term.

    Args:
        missing: names the known proxies that have not registered and are not lost.
        used_by: asks the servers of the table whose marks they have; None for no question.
    """

    def __init__(self, ledger: Ledger, missing: Callable[[], Sequence[str]], used_by: UsedBy | None = None) -> None:
        self._ledger = ledger
        self._missing = missing
        self._used_by = used_by
        self._asked = used_by is None
        self._settled = False
        self._spoken = False
        self._over = False
        self._ended = False
        self._news = asyncio.Event()
        self._contradicted = asyncio.Event()
        self._error: StoreIsOlder | None = None

    def hear(self, known: KnownTable | None, who: str) -> None:
        """A proxy that registers has had this table; None for no table.

        Raises:
            AnotherCluster, NotSealed, StoreIsOlder: the proxy may not register.
        """
        if self._error is not None:
            raise self._error
        if known is None:
            return
        state = self._ledger.state
        try:
            lineage.require_older(state.cluster_id, state.seal_key, state.starts, known, who)
        except StoreIsOlder as error:
            log.error("store_is_older", reason=str(error))
            self._error = error
            self._contradicted.set()
            self._news.set()
            raise

    def hear_fences(self, marks: Mapping[str, Collection[str]]) -> None:
        """Who has fenced members of this topom, by server, as :func:`topom.cluster.lineage.signature` says it.

        A fence that this store does not have was made by a newer store, or by a copy of it. By this one's table the
        proxy would write where slots are no longer.

        Raises:
            StoreIsOlder: the proxy may not register.
        """
        for server, signatures in marks.items():
            for signature in signatures:
                self._hear_topom(signature, f"another topom, which has fenced a proxy off {server},")

    def hear_use(self, server: str, signature: str) -> None:
        """Who has changed the owner of slots at a server last, likewise; "" for nobody.

        Raises:
            StoreIsOlder: nothing may be done at the server.
        """
        self._hear_topom(signature, f"another topom, which has changed the owner of slots at {server},")

    def _hear_topom(self, signature: str, who: str) -> None:
        known = lineage.signed(signature)
        # Another topom may lead by now, and have done so in order.
        if known is not None and self._ledger.may_change:
            with suppress(AnotherCluster, NotSealed):
                self.hear(known, who)

    def spoke(self) -> None:
        """A proxy has registered."""
        self._spoken = True
        self._news.set()

    def lost(self) -> None:
        """A proxy is lost, or is no member any more."""
        self._news.set()

    def over(self) -> None:
        """A lease's time has passed."""
        self._over = True
        self._news.set()

    def end(self) -> None:
        """The term is over."""
        self._ended = True
        self._news.set()

    async def settled(self) -> None:
        """Wait for the known proxies.

        Raises:
            StoreIsOlder: as soon as that is proven; the term ends.
            NotLeading: the term has ended.
        """
        while self._error is None and not self._ended and not self._settled:
            if self._has_all():
                # Who registers from now on is waited for by nobody.
                self._settled = True
                break
            self._news.clear()
            await self._news.wait()
        if self._error is not None:
            raise self._error
        if self._ended:
            raise NotLeading("this topom does not lead any more; ask again, and the one that leads will answer")

    async def settled_within(self, seconds: float) -> None:
        """As :meth:`settled`, for who cannot wait for longer. Raises :class:`NotSettled`, too."""
        try:
            async with asyncio.timeout(seconds):
                await self.settled()
        except TimeoutError:
            missing = self._missing()
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            who = f"{', '.join(missing[:3])}{more}" if missing else "proxies that it does not know, or servers"
            raise NotSettled(
                "topom has just come to lead, and cannot know yet that its store is the newest: it waits for a lease's "
                f"time for {who}",
                "try again in a while",
            ) from None

    async def watch(self) -> None:
        """Ask servers, and wait for a proof that the store is older. Raises :class:`StoreIsOlder`."""
        if self._used_by is not None and not self._asked:
            for server, signature in (await self._used_by()).items():
                self.hear_use(server, signature)
            self._asked = True
            self._news.set()
        await self._contradicted.wait()
        assert self._error is not None
        raise self._error

    async def store_proof(self) -> None:
        """Store the proof, if there is one. Raises as :meth:`topom.cluster.ledger.Ledger.change`."""
        error = self._error
        if error is not None:
            await self._ledger.change(lambda state, epoch: replace(state, older=error.what))

    def _has_all(self) -> bool:
        if self._missing():
            return False
        state = self._ledger.state
        if len(state.starts) == 1:
            return True
        # Who knows no proxy cannot wait for it: slots may have moved under proxies that came after the store was saved.
        return self._asked and (self._spoken or self._over or not state.assigned)
