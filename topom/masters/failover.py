"""``ha = "topom"``: a group whose master has failed gets another one by itself, the replica with the most data.

It takes the agreement of the majority of views that the master has failed (:mod:`topom.servers.detector`), that
protection mode is off (:mod:`topom.masters.protection`), and that no replica still hears from the master. Then every
proxy stops sending to it (**one-owner**; a lost proxy has to be fenced off it, or to have stood down:
:mod:`topom.proxies.standdown`), and the replica takes over (:meth:`topom.masters.promotions.Promotions.fail_over`).
What the master had acknowledged and not yet sent to that replica is lost, which is in the nature of Redis's
replication; a replica that is further behind than ``ha_lag_bytes_max`` is left for an operator to decide on, and so is
a master of which no topom knows how far it was (:mod:`topom.masters.offsets`). The former master is made a replica as
soon as it answers; until then nobody reads from it, and proxies write only to whom the table names.

What cannot be done is tried again with growing waits and full jitter, and said in ``slotferry status``.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import structlog

from slots.backoff import Backoff
from slots.table import Group
from topom.cluster.events import What
from topom.cluster.ledger import Ledger
from topom.cluster.state import Noted, leaving_servers
from topom.cluster.topology import all_servers
from topom.errors import NotReady, TopomError
from topom.masters.offsets import Offsets
from topom.masters.promotions import Promotions
from topom.masters.protection import Protection
from topom.proxies.barrier import Barrier
from topom.proxies.lost import LostProxies, StandingDown
from topom.proxies.members import Members
from topom.servers.detector import Condition
from topom.servers.health import Health
from topom.servers.lastcopy import ServerFailed
from topom.servers.readings import Replication
from topom.servers.replication import ServerReplication, look_at_all

log = structlog.get_logger(__name__)

NOTE_SECONDS = 1.0
"""How often proxies that have gone are fenced, and how long events of this module wait for a write of others."""
TELL_SECONDS = 60.0
"""Between two events of one group that say why its failed master is not replaced."""
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 10.0
MOST_WAIT_SECONDS = 0.5
"""Between two looks whether lost proxies have stood down."""


@dataclass(frozen=True, slots=True)
class MastersSettings:
    """When a master is replaced.

    Attributes:
        active: whether masters are replaced at all.
        lag_bytes: how far a replica may be behind what its master had when it was last heard of.
        fail_seconds: for how long a replica has not to have heard from its master.
        wait_for_lost_proxies: whether a proxy that is lost has to be fenced off the master first.
        proxy_suspect_seconds: after which a proxy that was not heard of counts for protection mode.
    """

    active: bool
    lag_bytes: int
    fail_seconds: float
    wait_for_lost_proxies: bool
    proxy_suspect_seconds: float = math.inf


class Masters:
    """Watches the masters of one topom.

    Args:
        settings: when masters are replaced; if they are not, protection mode is kept up to date all the same.
        problem_of: why a replica's copy is not to be relied on; None if nothing is known against it.
        lost_proxies: has lost proxies stand down; None if that is not relied on.
    """

    def __init__(
        self,
        ledger: Ledger,
        members: Members,
        barrier: Barrier,
        health: Health,
        promotions: Promotions,
        replication: ServerReplication,
        protection: Protection,
        offsets: Offsets,
        settings: MastersSettings,
        problem_of: Callable[[str], str | None] = lambda server: None,
        lost_proxies: LostProxies | None = None,
    ) -> None:
        self._problem_of = problem_of
        self._lost_proxies = lost_proxies
        self._ledger = ledger
        self._members = members
        self._barrier = barrier
        self._health = health
        self._promotions = promotions
        self._replication = replication
        self._protection = protection
        self._settings = settings
        self._offsets = offsets
        self._backoffs: dict[int, Backoff] = {}
        self._not_before: dict[int, float] = {}
        self._noted_at = 0.0
        self._told: dict[int, tuple[float, str]] = {}
        self.reasons: dict[int, str] = {}
        """By group: why its failed master was not replaced yet."""

    async def run(self) -> None:
        """Replace masters that fail, until cancelled."""
        while True:
            await self._health.looked.wait()
            self._health.looked.clear()
            if self._settings.active:
                await self._fence_gone()
            self._protect()
            await self._protection.end_lifting()
            if not self._settings.active:
                continue
            failed = [group.id for group in self._ledger.table.groups.values() if self._has_failed(group.master)]
            for group_id in self.reasons.keys() - {*failed}:
                del self.reasons[group_id]
                self._told.pop(group_id, None)
                self._backoffs.pop(group_id, None)
                self._not_before.pop(group_id, None)
            for group_id in failed:
                # While the group before was seen to, this one may have been given another master.
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
            # Those that are about to be found lost count, too: the first one that is found is acted on at once.
            lost.update(server for server in servers if self._health.of(server).doubted)
            seconds = self._settings.proxy_suspect_seconds
            missed = [member for member in proxies if self._members.missed(member, seconds)]
        unsure = sum(self._is_unsure(server) for server in servers if server not in lost)
        unsure += sum(not member.met and member not in missed for member in proxies)
        now = asyncio.get_running_loop().time()
        self._protection.look(len(lost) + len(missed), len(servers) + len(proxies), unsure, now)

    async def _fence_gone(self) -> None:
        """Fence proxies that have gone, while it can be done."""
        now = asyncio.get_running_loop().time()
        if now < self._noted_at + NOTE_SECONDS:
            return
        self._noted_at = now
        servers = all_servers(self._ledger.table)
        alive = [server for server in servers if self._health.of(server).condition is Condition.ALIVE]
        try:
            if self._lost_proxies is not None:
                await self._lost_proxies.note_watched()
            await self._barrier.fence_removed(alive)
        except TopomError as error:
            log.debug("proxies_fenced_later", reason=str(error))

    async def _replace(self, group: Group) -> None:
        if group.locked or not group.replicas:
            return
        # What was seen before the group before this one was seen to may be old by now.
        self._protect()
        if self._protection.active:
            self._say_why(
                group,
                f"{self._protection.lost} of {self._protection.members} members are lost at a time, so nothing is done "
                "by itself; bring them back, or say 'slotferry protection off'",
            )
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
            if group.id not in self.reasons:
                log.warning("master_replaced_later", group=group.id, master=group.master, reason=str(waiting))
            self._not_before[group.id] = loop.time() + min(waiting.seconds, MOST_WAIT_SECONDS)
            self.reasons[group.id] = str(waiting)
        except TopomError as error:
            backoff = self._backoffs.setdefault(group.id, Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS))
            self._not_before[group.id] = loop.time() + backoff.next()
            self._say_why(group, str(error))

    def _say_why(self, group: Group, reason: str) -> None:
        """Say why a failed master is not replaced: a log line whenever that is news, an event once a minute at most."""
        if self.reasons.get(group.id) != reason:
            log.error("master_not_replaced", group=group.id, master=group.master, reason=reason)
        self.reasons[group.id] = reason
        text = f"{group.master}, the master of group {group.id}, has failed and is not replaced yet: {reason}"
        now = asyncio.get_running_loop().time()
        told_at, told = self._told.get(group.id, (-math.inf, ""))
        if text != told and now >= told_at + TELL_SECONDS:
            self._told[group.id] = now, text
            self._ledger.note(What.MASTER_NOT_REPLACED, text, wait=NOTE_SECONDS)

    async def _choose(self, group: Group) -> str:
        if self._ledger.table.master_of(group.id) != group.master:
            raise NotReady(f"{group.master} is not the master of group {group.id} any more")
        if not self._has_failed(group.master):
            raise NotReady(f"{group.master} answers again")
        said = await look_at_all(self._replication, list(group.replicas))
        silent = self._health.silence(group.servers[0])
        silence = None if self._offsets.age(group) <= silent + self._settings.fail_seconds else silent
        # Who was never seen whole may hold a part, unless it was seen lately that its stream is the master's.
        joining = self._ledger.state.joining.keys() if silence is not None else ()
        answering = {
            server: found
            for server, found in said.items()
            if not isinstance(found, ServerFailed) and (found.link_up or server not in joining)
        }
        problems = {server: problem for server in answering if (problem := self._problem_of(server)) is not None}
        if problems and len(problems) == len(answering):
            raise NotReady("; ".join(problems.values()) + "; or promote one with --force, if that is the best there is")
        # A replica that differs still says whether it hears from the master; it is only not chosen.
        return best(
            group,
            answering,
            self._offsets.of(group),
            self._settings,
            problems,
            leaving_servers(self._ledger.state),
            silence,
        )


def best(
    group: Group,
    said: Mapping[str, Replication],
    last: Noted | None,
    settings: MastersSettings,
    excluded: Collection[str] = (),
    leaving: Collection[str] = (),
    silence: float | None = None,
) -> str:
    """The replica with the most data, of those that may take the place of their master.

    One that is on its way out is chosen if it has more than all others, for nobody else has that: it hands over to
    another one by a planned promotion then (:mod:`topom.leaving.servers`).

    Args:
        group: with the master that has failed.
        said: by those of its replicas that answer.
        last: how far the master was when it was last asked; None if no topom knows.
        settings: as for :class:`Masters`.
        excluded: replicas that are not to be chosen, whatever they have.
        leaving: servers that are not chosen where another one has as much.
        silence: for how long the master has been silent, where it was not this topom that has asked it up to then:
            what it wrote while nobody led, or this topom was cut off from it, is noted nowhere, so its replica is to
            have had a link to it. None if it was.

    Raises:
        NotReady: there is none.
    """
    for server, found in said.items():
        # Less than none at all is said by a server whose clock was set back, and which has heard nothing since.
        if found.link_up and 0 <= found.silent_seconds < settings.fail_seconds:
            raise NotReady(f"{server} still hears from {group.master}")
    followers = {server: found for server, found in said.items() if not found.is_master and not found.may_be_partial}
    if not followers:
        raise NotReady(f"group {group.id} has no replica that answers and holds a whole copy")
    if last is None:
        raise NotReady(
            f"no topom knows how far {group.master} was, so nobody knows what its replicas lack; promote the best one "
            "with --force"
        )
    candidates = {
        server: found.offset
        for server, found in followers.items()
        if found.stream == last.stream and server not in excluded
    }
    if not candidates:
        raise NotReady(f"no replica of group {group.id} holds what its master had; promote one with --force")
    chosen = max(_in_order(group, candidates), key=lambda server: (candidates[server], server not in leaving))
    behind = last.offset - candidates[chosen]
    if behind > settings.lag_bytes:
        raise NotReady(
            f"{chosen}, the best replica, is {behind} bytes behind what its master had; promote it with --force"
        )
    down = followers[chosen].down_seconds
    if silence is not None and down > silence + settings.fail_seconds:
        raise NotReady(
            f"{chosen}, the best replica, lost its link {down - silence:.0f} s before {group.master} fell silent, and "
            "no topom saw what that wrote since; promote it with --force"
        )
    return chosen


def _in_order(group: Group, servers: Collection[str]) -> list[str]:
    """Of servers that have equally much, the first in the group is taken."""
    return [server for server in group.replicas if server in servers]
