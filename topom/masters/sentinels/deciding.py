"""Follows the Sentinels: compares the masters that they name with the slot table, whenever one of them has answered.

:mod:`topom.masters.sentinels.following` decides what that means for a group. Sentinels that are out of date are told
the slot table's master.
"""

import asyncio

from topom.cluster.ledger import Ledger
from topom.masters.sentinels.ability import nobody_replaces
from topom.masters.sentinels.addresses import Resolver
from topom.masters.sentinels.following import Astray, Following, Verdict, View
from topom.masters.sentinels.links import LOOK_SECONDS, Links
from topom.masters.sentinels.telling import Telling
from topom.masters.sentinels.watch import Watch
from topom.periodic import Look, Loop
from topom.reasons import Reason, Reasons

MOST_HURRY_SECONDS = 15.0
"""How long Sentinels that disagree with the slot table are asked more often."""


class Deciding(Loop):
    """Keeps the links, and decides for every group.

    Args:
        quorum: how many Sentinels have to agree that a master has failed; 0 for a majority of them.
    """

    name = "sentinels"
    pause_seconds = 0.0

    def __init__(
        self,
        ledger: Ledger,
        watch: Watch,
        links: Links,
        telling: Telling,
        following: Following,
        resolver: Resolver,
        quorum: int,
    ) -> None:
        super().__init__()
        self._ledger = ledger
        self._watch = watch
        self._links = links
        self._telling = telling
        self._following = following
        self._resolver = resolver
        self._quorum = quorum
        self._astray = Astray()
        self._nobody = Reasons[None]("sentinels_replace_nobody")
        # Groups on which Sentinels and slot table do not agree, and since when.
        self._disagreeing: dict[int, float] = {}
        links.listen(self.wake)

    def reason(self) -> Reason | None:
        """Why the Sentinels could replace no failed master; None if no reason is known."""
        silent = [link.address for link in self._links.values() if link.silent]
        error = nobody_replaces(self._quorum, len(self._watch.sentinels), silent)
        if error is None:
            self._nobody.over(None)
            return None
        return self._nobody.waits(None, error)

    async def look(self) -> Look:
        """Decide for all groups once."""
        await self._links.keep()
        undecided = await self._decide()
        reasons = (self._following.reason(group_id) for group_id in undecided)
        why = self.reason() or next((one for one in reasons if one is not None), None)
        says = f"{len(self._links)} Sentinels watch {len(self._watch.masters)} groups"
        if undecided:
            says = f"Sentinels and slot table do not agree on the master of group {undecided[0]}"
        return Look(says if why is None else str(why), LOOK_SECONDS)

    async def run(self) -> None:
        """Look again and again, until cancelled; the links end with it."""
        try:
            await super().run()
        finally:
            await self._links.close()

    async def _decide(self) -> list[int]:
        """Decide for all groups; gives those on which Sentinels and slot table do not agree."""
        known = len(self._watch.sentinels)
        servers = {server for group in self._ledger.table.groups.values() for server in group.servers}
        self._resolver.keep({*servers, *self._named()})
        found = [await self._view(group_id) for group_id in self._watch.masters]
        views = [view for view in found if view is not None]
        verdicts = await asyncio.gather(*(self._following.look(view, known) for view in views))
        now = asyncio.get_running_loop().time()
        disagreeing = {
            view.group_id: self._disagreeing.get(view.group_id, now)
            for view, verdict in zip(views, verdicts, strict=True)
            if verdict is not Verdict.AGREED
        }
        news = disagreeing.keys() - self._disagreeing.keys()
        self._disagreeing = disagreeing
        self._links.hurries = any(now - since < MOST_HURRY_SECONDS for since in disagreeing.values())
        if news:
            self._links.ask()
        for view, verdict in zip(views, verdicts, strict=True):
            astray = self._astray.note(view, known, now)
            if verdict is Verdict.OUTDATED:
                astray = [one for one, named in view.named.items() if named not in (view.master, None)]
            if astray:
                await self._telling.correct(view, [self._links[one] for one in astray if one in self._links])
        return sorted(disagreeing)

    def _named(self) -> set[str]:
        found = (link.named for link in self._links.values())
        return {address for named in found if named for address in named.values() if address is not None}

    async def _view(self, group_id: int) -> View | None:
        """What all Sentinels that answer say of a group, with the addresses of the slot table; None if the group is
        gone.
        """
        group = self._ledger.table.groups.get(group_id)
        if group is None or not group.servers:
            return None
        name = self._watch.name_of(group_id)
        said: dict[str, str | None] = {}
        for link in list(self._links.values()):
            named = link.named
            if named is not None and name in named:
                address = named[name]
                if address is not None:
                    address = await self._resolver.same(address, group.servers) or address
                said[link.address] = address
        return View(group_id, group.servers[0], group.servers, said)
