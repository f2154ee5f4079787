"""Tells Sentinels which groups to watch, and with which masters.

A Sentinel is told a master only if that server itself says that it is one. If a Sentinel were told a replica, it would
take it for a failed master.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

import structlog

from slots.failures import FAILURES
from topom.cluster.ledger import Ledger
from topom.masters.sentinels import addresses, monitoring
from topom.masters.sentinels.addresses import Resolver
from topom.masters.sentinels.following import View
from topom.masters.sentinels.link import SentinelLink
from topom.masters.sentinels.monitoring import SentinelSettings
from topom.masters.sentinels.watch import Watch
from topom.servers.redis_servers import RedisServers

log = structlog.get_logger(__name__)


class Telling:
    """Brings Sentinels into step with the slot table."""

    def __init__(
        self,
        ledger: Ledger,
        servers: RedisServers,
        resolver: Resolver,
        settings: SentinelSettings,
        watch: Watch,
    ) -> None:
        self._ledger = ledger
        self._servers = servers
        self._resolver = resolver
        self._settings = settings
        self._watch = watch

    async def masters_that_are(self, wanted: Mapping[int, str]) -> dict[int, tuple[str, int]]:
        """The places of masters, by group, without those that do not answer or do not say that they are masters."""

        async def look(master: str) -> tuple[str, int] | None:
            found = await self._servers.read(master)
            return addresses.first(await self._resolver.ends(master)) if found and found.replication.is_master else None

        ends = await asyncio.gather(*(look(master) for master in wanted.values()))
        return {group_id: end for group_id, end in zip(wanted, ends, strict=True) if end is not None}

    async def keep_in_step(self, link: SentinelLink) -> None:
        """Make a Sentinel watch the right groups with the right options. A group that it watches at another address is
        left as it is.

        Raises as calls to a Sentinel do (:meth:`topom.masters.sentinels.link.SentinelLink.call`).
        """
        product = self._ledger.state.product.name
        async with link.correcting:
            found = await link.masters()
            wanted = self._watch.masters
            for name in monitoring.superfluous(product, found, wanted):
                await link.forget(name)
                log.info("sentinel_forgets", sentinel=link.address, name=name)
            healthy = await self.masters_that_are(
                {id: master for id, master in wanted.items() if monitoring.name_of(product, id) not in found}
            )
            for group_id in wanted:
                name = monitoring.name_of(product, group_id)
                if name in found:
                    login = () if name in link.told else self._settings.login
                    for command in monitoring.adjust(name, found[name], self._options(), login):
                        await link.call(command)
                    link.told.add(name)
                elif group_id in healthy:
                    await self._begin(link, group_id, healthy[group_id])
                else:
                    link.due = True

    async def forget(self, link: SentinelLink, group_id: int) -> None:
        """Let a Sentinel forget a group. Raises as :meth:`keep_in_step` does."""
        async with link.correcting:
            await link.forget(self._watch.name_of(group_id))

    async def _begin(self, link: SentinelLink, group_id: int, end: tuple[str, int]) -> None:
        if group_id not in self._watch.masters:
            return  # its master is just being decided; link.due is set once that is over
        name = self._watch.name_of(group_id)
        for command in monitoring.begin(name, *end, self._options(), self._settings.login):
            await link.call(command)
        link.told.add(name)
        log.info("sentinel_watches", sentinel=link.address, name=name, master=addresses.text(*end))

    async def begin_anew(self, link: SentinelLink, healthy: Mapping[int, tuple[str, int]]) -> None:
        """Let a Sentinel forget all groups except those that are not ``healthy``, and watch the healthy ones anew.

        Raises as :meth:`keep_in_step` does.
        """
        product = self._ledger.state.product.name
        left = self._watch.masters.keys() - healthy.keys()
        async with link.correcting:
            for name in monitoring.superfluous(product, await link.masters(), left):
                await link.forget(name)
            for group_id, end in healthy.items():
                await self._begin(link, group_id, end)
        link.wake.set()

    async def begin_one_anew(self, link: SentinelLink, group_id: int) -> bool:
        """Let a Sentinel begin a group anew, as if it knew none of its replicas; gives whether it has.

        It does so only if it names the group's master, takes it for up and is not in a failover, and while the master
        says that it is one. Raises as :meth:`keep_in_step` does.
        """
        master = self._watch.masters.get(group_id)
        if master is None:
            return False
        name = self._watch.name_of(group_id)
        async with link.correcting:
            found = (await link.masters()).get(name)
            if found is None or found["flags"] != "master":
                return False
            end = (await self.masters_that_are({group_id: master})).get(group_id)
            named = addresses.text(found["ip"], found["port"])
            if end is None or await self._resolver.same(named, [master]) is None:
                return False
            if self._watch.masters.get(group_id) != master:
                return False
            await link.forget(name)
            await self._begin(link, group_id, end)
        link.wake.set()
        return True

    async def correct(self, view: View, links: Sequence[SentinelLink]) -> None:
        """Tell Sentinels the master in the slot table instead of the one that they name."""
        end = (await self.masters_that_are({view.group_id: view.master})).get(view.group_id)
        if end is None or self._ledger.table.master_of(view.group_id) != view.master:
            return
        name = self._watch.name_of(view.group_id)
        log.warning(
            "sentinels_corrected", group=view.group_id, master=view.master, sentinels=[link.address for link in links]
        )
        # All forget first: a Sentinel that still knew the other master would tell it to a Sentinel that has just begun
        # with this one.
        for link in links:
            with suppress(*FAILURES):
                async with link.correcting:
                    await link.forget(name)
        for link in links:
            with suppress(*FAILURES):
                async with link.correcting:
                    await self._begin(link, view.group_id, end)
            link.wake.set()

    def _options(self) -> dict[str, int]:
        return self._settings.options(len(self._watch.sentinels))
