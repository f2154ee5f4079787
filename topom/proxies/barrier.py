"""The barrier: waits until every proxy applies a table.

Tables are pushed as soon as they are stored. A barrier waits until each member has acknowledged an epoch or a later
one. **drained** rests on it: the slot state machine lets the target own a slot only when the barrier of the locking
epoch has passed. The barrier does not wait for a proxy whose lease has ended. It fences that proxy off the servers that
the slots concern, and goes on without it only when those servers confirm the fence.

Without proxies a barrier passes at once.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

import structlog

from slots.backoff import Backoff
from topom.cluster import fences
from topom.cluster.ledger import Ledger
from topom.cluster.state import Fenced, Marked
from topom.errors import ProxiesNotReady, Unavailable
from topom.proxies.members import Members, Wait
from topom.reasons import Kind
from topom.servers.redis_servers import Fencing

log = structlog.get_logger(__name__)


class BarrierFailed(Unavailable):
    """Not every proxy acknowledged the table."""

    kind = Kind.PROXY


class BarrierRefused(BarrierFailed):
    """A proxy said that it cannot apply the table now."""


class BarrierTimeout(BarrierFailed):
    """A proxy did not say anything in time, or a lost one could not be fenced."""


class Fencer(Protocol):
    """Cuts proxies off servers; see :class:`topom.servers.redis_servers.RedisServers`."""

    async def fence(self, wanted: Mapping[str, Collection[str]]) -> Mapping[str, Fencing]:
        """Fence proxies, by instance, at each of these servers. Does not raise; bounded in time."""


class Barrier:
    """Barriers over the members of one topom."""

    def __init__(
        self,
        ledger: Ledger,
        members: Members,
        fencer: Fencer,
        process_of: Callable[[str], str | None] = lambda server: None,
    ) -> None:
        """``process_of``: gives the run id by which a server was seen last; None for a server that was not seen yet."""
        self._process_of = process_of
        self._ledger = ledger
        self._members = members
        self._fencer = fencer
        self._emptied: dict[str, int] = {}
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def locking(self) -> AsyncIterator[None]:
        """Held by whatever locks slots or a group, or may not run while they are locked: one at a time.

        Others wait, and enter in the order in which they came. It cannot be entered again from within.
        """
        async with self._lock:
            yield

    def passed(self, epoch: int, servers: Collection[str]) -> bool:
        """Whether every member acknowledged ``epoch``, and every fenced one is cut off from ``servers``."""
        return not self._members.missing(epoch) and not self._missing_fences(servers)

    async def reach(self, epoch: int, servers: Collection[str], seconds: float, stop_at_refusal: bool) -> None:
        """Return once :meth:`passed` holds.

        Args:
            epoch: the epoch of a table that is stored.
            servers: the servers that the slots in question are on or may come to; lost proxies are fenced there.
            seconds: how long to wait.
            stop_at_refusal: give up at the first refusal; otherwise wait until a newer table is acknowledged.

        Raises:
            BarrierRefused, BarrierTimeout: it names the proxies.
            StoreError: a lost proxy's fence could not be stored.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        backoff = Backoff(0.1, 1.0)
        with self._members.waiting(epoch) as wait:
            while True:
                wait.event.clear()
                failures = await self._fence_lost(wait, servers)
                if self.passed(epoch, servers):
                    return
                if stop_at_refusal and wait.refusals:
                    raise BarrierRefused(self._describe_refusals(wait))
                # The new process of a server that was just restarted is known in a moment.
                again = failures or self._missing_fences(servers)
                until = min(deadline, loop.time() + backoff.next()) if again else deadline
                try:
                    async with asyncio.timeout_at(until):
                        await wait.event.wait()
                except TimeoutError:
                    if loop.time() >= deadline:
                        raise BarrierTimeout(self._describe_missing(wait, failures, seconds)) from None

    async def everyone_current(self, servers: Collection[str], seconds: float) -> None:
        """Return once every proxy applies the table that is stored now, or a newer one that came meanwhile.

        Raises:
            ProxiesNotReady: it takes too long; names the proxies.
        """
        try:
            await self.reach(self._ledger.table.epoch, servers, seconds, stop_at_refusal=False)
        except BarrierFailed as error:
            raise ProxiesNotReady(f"{error}; try again, or remove a proxy that is gone for good") from error

    async def fence_removed(self, servers: Collection[str]) -> dict[str, str]:
        """Fence every removed instance where it is not yet known to be fenced; gives the reasons, by server that
        failed.
        """
        missing = self._missing_fences(servers)
        known, every = self._ledger.state.marked, len(self._ledger.state.fenced)
        before = dict(self._emptied)
        outcomes = await self._fencer.fence(
            {server: [entry.instance for entry in entries] for server, entries in missing.items()}
        )
        done: dict[str, Marked] = {}
        failures: dict[str, str] = {}
        for server, outcome in outcomes.items():
            if outcome.refusal is not None:
                failures[server] = outcome.refusal
            elif before.get(server) != self._emptied.get(server):
                failures[server] = "it was told to follow another server meanwhile"
            elif len(missing[server]) < every and known[server].process != outcome.process:
                # run-id: it was given what another process lacked, and it may lack more than that.
                failures[server] = "it was started anew meanwhile"
                done[server] = Marked(outcome.process, 0)
            else:
                # A fence that is stored meanwhile has a later number.
                done[server] = Marked(outcome.process, max(entry.number for entry in missing[server]))
        await self._members.fenced_at(done)
        if done:
            log.info("proxies_fenced", servers=sorted(done), failed=sorted(failures))
        return failures

    def emptied(self, server: str) -> None:
        """Note that a server is about to lose what it holds, also marks, or just lost it: fences under way there do not
        count.
        """
        self._emptied[server] = self._emptied.get(server, 0) + 1

    async def _fence_lost(self, wait: Wait, servers: Collection[str]) -> dict[str, str]:
        lost = [member for member in self._members.missing(wait.epoch) if member.lost]
        if lost:
            await self._members.fence(
                [member.record.id for member in lost],
                "fenced",
                "nothing was heard of the proxy for longer than its lease, so it was fenced off the servers",
                only_lost=True,
            )
        return await self.fence_removed(servers) if self._missing_fences(servers) else {}

    def _missing_fences(self, servers: Collection[str]) -> dict[str, list[Fenced]]:
        """The fences that are not known to be up at these servers, for each server that lacks any."""
        state = self._ledger.state
        if not state.fenced:
            return {}
        found = {server: fences.lacking(state, server, self._process_of(server)) for server in servers}
        return {server: entries for server, entries in found.items() if entries}

    def _describe_refusals(self, wait: Wait) -> str:
        said = [f"{self._name(proxy_id)} said: {reason}" for proxy_id, reason in sorted(wait.refusals.items())]
        return f"the table of epoch {wait.epoch} was refused; " + "; ".join(said[:3])

    def _describe_missing(self, wait: Wait, failures: Mapping[str, str], seconds: float) -> str:
        names = [self._name(proxy_id) for proxy_id in sorted(wait.pending)]
        parts = []
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            parts.append(f"{', '.join(names[:3])}{more} did not acknowledge epoch {wait.epoch} within {seconds:g} s")
        for address, reason in sorted(failures.items())[:3]:
            parts.append(f"a lost proxy cannot be fenced at {address}: {reason}")
        return "; ".join(parts) or f"epoch {wait.epoch} was not acknowledged within {seconds:g} s"

    def _name(self, proxy_id: int) -> str:
        found = next((member for member in self._members.all() if member.record.id == proxy_id), None)
        return found.describe() if found is not None else f"proxy {proxy_id}"
