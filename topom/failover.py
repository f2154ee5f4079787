"""``ha = "topom"``: a group whose master has failed gets another one by itself, the replica with the most data.

It takes the agreement of the majority of views that the master has failed (:mod:`topom.detector`), that protection mode
is off (:mod:`topom.protection`), and that no replica still hears from the master. Then every proxy stops sending to it
(**one-owner**), and the replica takes over (:meth:`topom.promotions.Promotions.fail_over`). What the master had
acknowledged and not yet sent to that replica is lost, which is in the nature of Redis's replication; a replica that is
further behind than ``ha_lag_bytes_max`` is left for an operator to decide on. The former master is made a replica as soon
as it answers, before anybody reads from it: proxies write to whom the table names only.

What cannot be done is tried again with growing waits and full jitter, and said in ``slotferry status``.
"""

import asyncio
from collections.abc import Collection, Mapping

import structlog

from slots.table import Group
from topom.backoff import Backoff
from topom.batches import all_servers
from topom.detector import Condition
from topom.errors import TopomError
from topom.health import Health
from topom.ledger import Ledger
from topom.members import Members
from topom.promotions import NotReady, Promotions
from topom.protection import Protection
from topom.replication import Replication, ServerFailed, ServerReplication, look_at_all

log = structlog.get_logger(__name__)

NOTE_SECONDS = 1.0
"""How often it is noted how far masters are."""
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 10.0


class Failover:
    """Watches the masters of one topom.

    Args:
        active: whether masters are replaced; otherwise only protection mode is kept up to date.
        lag_bytes: how far a replica may be behind what its master had when it was last heard of.
        fail_seconds: for how long a replica has not to have heard from its master.
    """

    def __init__(
        self,
        ledger: Ledger,
        members: Members,
        health: Health,
        promotions: Promotions,
        replication: ServerReplication,
        protection: Protection,
        active: bool,
        lag_bytes: int,
        fail_seconds: float,
    ) -> None:
        self._ledger = ledger
        self._members = members
        self._health = health
        self._promotions = promotions
        self._replication = replication
        self._protection = protection
        self._active = active
        self._lag_bytes = lag_bytes
        self._fail_seconds = fail_seconds
        self._last: dict[str, Replication] = {}
        self._backoffs: dict[int, Backoff] = {}
        self._not_before: dict[int, float] = {}
        self._noted_at = 0.0
        self.reasons: dict[int, str] = {}
        """By group: why its failed master was not replaced yet."""

    async def run(self) -> None:
        """Replace masters that fail, until cancelled."""
        while True:
            await self._health.looked.wait()
            self._health.looked.clear()
            self._protect()
            if not self._active:
                continue
            failed = [group for group in self._ledger.table.groups.values() if self._has_failed(group.master)]
            for group_id in self.reasons.keys() - {group.id for group in failed}:
                del self.reasons[group_id]
                self._backoffs.pop(group_id, None)
                self._not_before.pop(group_id, None)
            await self._note()
            for group in failed:
                await self._replace(group)

    def _has_failed(self, server: str | None) -> bool:
        return server is not None and self._health.of(server).condition is Condition.FAILED

    def _protect(self) -> None:
        servers = all_servers(self._ledger.table)
        proxies = self._members.all()
        lost = sum(self._has_failed(server) for server in servers) + sum(member.lost for member in proxies)
        self._protection.look(lost, len(servers) + len(proxies))

    async def _note(self) -> None:
        """Note how far each master is that could be missed."""
        now = asyncio.get_running_loop().time()
        if now < self._noted_at + NOTE_SECONDS:
            return
        self._noted_at = now
        masters = [
            group.servers[0]
            for group in self._ledger.table.groups.values()
            if group.replicas and self._health.of(group.servers[0]).condition is Condition.ALIVE
        ]
        for server, said in (await look_at_all(self._replication, masters)).items():
            if isinstance(said, Replication) and said.is_master:
                self._last[server] = said

    async def _replace(self, group: Group) -> None:
        if group.locked or not group.replicas:
            return
        if self._protection.active:
            self.reasons[group.id] = (
                f"{self._protection.lost} of {self._protection.members} members are lost at a time, so nothing is done "
                "by itself; bring them back, or say 'slotferry protection off'"
            )
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._not_before.get(group.id, 0.0):
            return
        try:
            await self._promotions.fail_over(group.id, lambda: self._choose(group))
        except TopomError as error:
            backoff = self._backoffs.setdefault(group.id, Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, least=0.0))
            self._not_before[group.id] = loop.time() + backoff.next()
            if self.reasons.get(group.id) != str(error):
                log.error("master_not_replaced", group=group.id, master=group.master, reason=str(error))
            self.reasons[group.id] = str(error)

    async def _choose(self, group: Group) -> str:
        if not self._has_failed(group.master):
            raise NotReady(f"{group.master} answers again")
        said = await look_at_all(self._replication, list(group.replicas))
        answering = {server: found for server, found in said.items() if not isinstance(found, ServerFailed)}
        return best(group, answering, self._last.get(group.servers[0]), self._lag_bytes, self._fail_seconds)


def best(
    group: Group,
    said: Mapping[str, Replication],
    last: Replication | None,
    lag_bytes: int,
    fail_seconds: float,
) -> str:
    """The replica with the most data, of those that may take the place of their master.

    Args:
        group: with the master that has failed.
        said: by those of its replicas that answer.
        last: what the master said when it was last heard of; None if that is not known.
        lag_bytes, fail_seconds: as for :class:`Failover`.

    Raises:
        NotReady: there is none.
    """
    for server, found in said.items():
        if found.link_up and found.silent_seconds < fail_seconds:
            raise NotReady(f"{server} still hears from {group.master}")
    followers = {server: found for server, found in said.items() if not found.is_master and not found.filling}
    if not followers:
        raise NotReady(f"group {group.id} has no replica that answers and holds a whole copy")
    streams = {last.stream} if last is not None else {found.stream for found in followers.values()}
    if len(streams) > 1:
        raise NotReady(
            f"the replicas of group {group.id} have different histories, and it is not known which one its master had; "
            "promote one yourself"
        )
    candidates = {server: found.offset for server, found in followers.items() if found.stream in streams}
    if not candidates:
        raise NotReady(f"no replica of group {group.id} holds what its master had; promote one yourself")
    chosen = max(_in_order(group, candidates), key=lambda server: candidates[server])
    behind = last.offset - candidates[chosen] if last is not None else 0
    if behind > lag_bytes:
        raise NotReady(f"{chosen}, the best replica, is {behind} bytes behind what its master had; promote it yourself")
    return chosen


def _in_order(group: Group, servers: Collection[str]) -> list[str]:
    """Of servers that have equally much, the first in the group is taken."""
    return [server for server in group.replicas if server in servers]
