"""``ha = "topom"``: if a group's master fails, topom replaces it by itself with the replica that has the most data.

topom does so if the majority of views agree that the master has failed (:mod:`topom.servers.detector`), protection mode
is off (:mod:`topom.cluster.protection`), and no replica still hears from the master. First every proxy stops sending to
the master (**one-owner**). A lost proxy must be fenced off it, or have stood down (:mod:`topom.proxies.standdown`).
Then the replica takes over (:meth:`topom.masters.promotions.Promotions.fail_over`). What the master had acknowledged
but not yet sent to that replica is lost: that is how Redis's replication works. An operator decides if the replica is
further behind than ``ha_lag_bytes_max``, or if no topom knows how far the master was (:mod:`topom.masters.offsets`).
:mod:`topom.masters.choice` decides which replica takes over, if any. The former master is made a replica as soon as it
answers. Until then no proxy reads from it, and proxies write only to the master that the table names.

What cannot be done is tried again, with growing waits and full jitter, and ``slotferry status`` shows it.
"""

import asyncio
import math
from dataclasses import dataclass
from typing import ClassVar

import structlog

from slots.backoff import Backoff
from slots.group import Group
from topom.cluster.events import What
from topom.cluster.hands_off import HandsOff
from topom.cluster.ledger import Ledger
from topom.cluster.topology import all_servers
from topom.errors import TopomError
from topom.masters.choice import failover
from topom.masters.choicerules import Outage
from topom.masters.offsets import Offsets
from topom.masters.promotions import Promotions
from topom.periodic import Look, Loop
from topom.proxies.lost import LostProxies, StandingDown
from topom.proxies.members import Members
from topom.reasons import Reason, Reasons
from topom.servers.detector import Condition
from topom.servers.health import Health
from topom.servers.replication import ServerReplication, look_at_all

log = structlog.get_logger(__name__)

NOTE_SECONDS = 1.0
"""Seconds between two notes of which servers are watched. Events of this module also wait so long for another write."""
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 10.0
MOST_WAIT_SECONDS = 0.5
"""At most so many seconds are between two looks at whether lost proxies have stood down."""


@dataclass(frozen=True, slots=True)
class MastersSettings:
    """When a master is replaced.

    Attributes:
        active: whether masters are replaced at all.
        lag_bytes: how many bytes a replica may be behind what its master had when it was last heard of.
        fail_seconds: a replica must not have heard from its master for so many seconds.
        wait_for_lost_proxies: whether a lost proxy must be fenced off the master first.
        proxy_suspect_seconds: a proxy that is silent for so long counts for protection mode.
    """

    active: bool
    lag_bytes: int
    fail_seconds: float
    wait_for_lost_proxies: bool
    proxy_suspect_seconds: float = math.inf


class Masters(Loop):
    """Watches the masters of one topom.

    Args:
        settings: when masters are replaced. If they never are, protection mode is kept up to date all the same.
        lost_proxies: knows whether lost proxies have stood down; None if topom does not rely on that.
    """

    name = "masters"
    pause_seconds: ClassVar[float | None] = 0.0

    def __init__(
        self,
        ledger: Ledger,
        members: Members,
        health: Health,
        promotions: Promotions,
        replication: ServerReplication,
        hands_off: HandsOff,
        offsets: Offsets,
        settings: MastersSettings,
        lost_proxies: LostProxies | None = None,
    ) -> None:
        super().__init__()
        self._lost_proxies = lost_proxies
        self._ledger = ledger
        self._members = members
        self._health = health
        self._promotions = promotions
        self._replication = replication
        self._hands_off = hands_off
        self._settings = settings
        self._offsets = offsets
        self._backoffs: dict[int, Backoff] = {}
        self._not_before: dict[int, float] = {}
        self._noted_at = 0.0
        self.reasons = Reasons[int]("master_not_replaced", self._note, level="error")
        """For each group: why its failed master is not replaced yet."""

    async def look(self) -> Look:
        """Wait until the servers are judged; keep protection mode up to date, and replace masters that have failed."""
        await self._health.looked.wait()
        self._health.looked.clear()
        if self._settings.active and self._lost_proxies is not None:
            await self._note_watched(self._lost_proxies)
        self._protect()
        await self._hands_off.protection.end_lifting()
        if self._settings.active:
            await self._replace_failed()
        waiting = "; ".join(f"group {group_id}: {reason.what}" for group_id, reason in sorted(self.reasons.items()))
        return Look(f"failed masters are not replaced yet: {waiting}" if waiting else "", 0.0)

    async def _replace_failed(self) -> None:
        failed = [group.id for group in self._ledger.table.groups.values() if self._has_failed(group.master)]
        for group_id in self.reasons.keys() - {*failed}:
            self.reasons.over(group_id)
            self._backoffs.pop(group_id, None)
            self._not_before.pop(group_id, None)
        for group_id in failed:
            # While topom replaced the master of another group, this group may have got another master.
            group = self._ledger.table.groups.get(group_id)
            if group is not None and self._has_failed(group.master):
                await self._replace(group)

    def _has_failed(self, server: str | None) -> bool:
        return server is not None and self._health.of(server).condition is Condition.FAILED

    def _is_unsure(self, server: str) -> bool:
        return self._health.of(server).condition in (Condition.UNKNOWN, Condition.SUSPECTED)

    def _protect(self) -> None:
        servers = all_servers(self._ledger.table)
        proxies = self._members.all()
        lost = {server for server in servers if self._has_failed(server)}
        missed = [member for member in proxies if member.lost]
        if lost or missed:
            # Members that are about to be found lost count, too: topom acts at once when the first one is found.
            lost.update(server for server in servers if self._health.of(server).doubted)
            seconds = self._settings.proxy_suspect_seconds
            missed = [member for member in proxies if self._members.missed(member, seconds)]
        unsure = sum(self._is_unsure(server) for server in servers if server not in lost)
        unsure += sum(not member.met and member not in missed for member in proxies)
        now = asyncio.get_running_loop().time()
        self._hands_off.protection.look(len(lost) + len(missed), len(servers) + len(proxies), unsure, now)

    async def _note_watched(self, lost_proxies: LostProxies) -> None:
        """Remember which servers all proxies watch; at most once in ``NOTE_SECONDS``."""
        now = asyncio.get_running_loop().time()
        if now < self._noted_at + NOTE_SECONDS:
            return
        self._noted_at = now
        try:
            await lost_proxies.note_watched()
        except TopomError as error:
            log.debug("watched_servers_noted_later", reason=str(error))

    async def _replace(self, group: Group) -> None:
        if group.locked or not group.replicas:
            return
        # The last look was before topom replaced the master of another group, and may be old now.
        self._protect()
        if (held := self._hands_off.reason()) is not None:
            self._wait(group, held)
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._not_before.get(group.id, 0.0):
            return
        lost_proxies = self._lost_proxies
        try:
            if lost_proxies is not None:
                server = await self._choose(group)
                await lost_proxies.prepare(group)
                lost_proxies.require(group, server)
            table = await self._promotions.fail_over(
                group.id, lambda: self._choose(group), self._settings.wait_for_lost_proxies, lost_proxies
            )
            if lost_proxies is not None and (server := table.master_of(group.id) or group.servers[0]) != group.master:
                await lost_proxies.replaced(group, server)
        except StandingDown as waiting:
            self._not_before[group.id] = loop.time() + min(waiting.seconds, MOST_WAIT_SECONDS)
            self.reasons.waits_shortly(group.id, waiting, group=group.id, master=group.master)
        except TopomError as error:
            backoff = self._backoffs.setdefault(group.id, Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS))
            self._not_before[group.id] = loop.time() + backoff.next()
            self._wait(group, error)

    def _wait(self, group: Group, why: Reason | TopomError) -> None:
        self.reasons.waits(group.id, why, group=group.id, master=group.master)

    def _note(self, group_id: int, reason: Reason) -> None:
        master = self._ledger.table.master_of(group_id)
        text = f"{master}, the master of group {group_id}, has failed and is not replaced yet: {reason}"
        self._ledger.note(What.MASTER_NOT_REPLACED, text, wait=NOTE_SECONDS, reason=reason)

    async def _choose(self, group: Group) -> str:
        """The replica that takes the place of the failed master, by what all replicas say now."""
        said = await look_at_all(self._replication, list(group.replicas))
        settings, silent = self._settings, self._health.silence(group.servers[0])
        outage = Outage(
            self._offsets.of(group),
            None if self._offsets.age(group) <= silent + settings.fail_seconds else silent,
            settings.fail_seconds,
            settings.lag_bytes,
        )
        return failover(self._ledger.state, group, said, outage, self._has_failed(group.master)).require()
