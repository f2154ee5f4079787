"""Asks all servers of a cluster, and has every check look at what is known.

**bounded**: :data:`AT_ONCE` servers are asked at a time, for :data:`SECONDS` in all, and a server that topom does not
hear is not asked. Those asked longest ago come first. Those that were being asked when the time was over come before
them, but get half of the places only: servers that hang keep nobody from the others. What a server said counts for
:data:`KEPT_SECONDS` if there is no time to ask it again. Whoever asks within :data:`FRESH_SECONDS` gets the servers'
answers again: asking often costs no more.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from redis.asyncio import Redis

from slots.access import ServerAccess
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState
from topom.doctor import (
    clocks,
    kernel,
    memory,
    persistence,
    proxies,
    replication,
    rights,
    serving,
    topoms,
    versions,
    waits,
)
from topom.doctor.asking import ask
from topom.doctor.facts import ClusterFacts, ProxyFacts, ServerFacts, TopomFacts
from topom.doctor.findings import Finding
from topom.proxies.member import Member
from topom.proxies.members import Members
from topom.reasons import Reason
from topom.servers.detector import Condition
from topom.servers.health import Health
from topom.servers.redis_servers import RedisServers

AT_ONCE = 32
"""Of the places that :mod:`topom.servers.redis_servers` has, so others need not wait."""
SECONDS = 6.0
"""Together with :data:`topom.api.doctor.CLOCK_SECONDS`, and with what it takes to look at the answers of thousands of
servers, it is less than a follower waits for its leader (:mod:`topom.term.peers`), and the command line for topom."""
FRESH_SECONDS = 5.0
KEPT_SECONDS = 300.0
CHECKS = (waits, serving, persistence, memory, replication, rights, clocks, kernel, versions, proxies, topoms)
"""In the order of findings that are equally bad."""
RULES = tuple(sorted((rule for module in CHECKS for rule in module.RULES), key=lambda rule: rule.severity.rank))
Wanted: TypeAlias = tuple[str, int | None, bool]
"""A server's address, its group, and whether it is the master there."""
_ORDER = {rule.name: place for place, rule in enumerate(RULES)}


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found, the worst first.

    Attributes:
        at: when the servers were asked, in seconds since 1970, UTC.
        servers: how many there are.
        not_asked: how many of them there was no time for.
    """

    at: float
    servers: int
    not_asked: int
    findings: tuple[Finding, ...]


def examined(cluster: ClusterFacts) -> list[Finding]:
    """What all checks find: the worst first, and what one rule finds together."""
    found = (finding for module in CHECKS for finding in module.check(cluster))
    return sorted(found, key=lambda finding: _ORDER[finding.rule])


class Doctor:
    """Looks at one cluster.

    Args:
        access: how topom logs in at servers.
        seconds: how long asking may take.
    """

    def __init__(
        self,
        ledger: Ledger,
        servers: RedisServers,
        health: Health,
        members: Members,
        access: ServerAccess,
        seconds: float = SECONDS,
    ) -> None:
        self._ledger = ledger
        self._servers = servers
        self._health = health
        self._members = members
        self._access = access
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self._known = ClusterFacts()
        self._known_at: float | None = None
        self._at = 0.0
        self._said: dict[str, tuple[float, ServerFacts]] = {}
        """By address, when each server was asked last, by the loop's clock, and what is known since."""
        self._begun: dict[str, float] = {}
        """Likewise, when asking began last. If that is another moment, the time was over before the answer."""

    async def examine(self, topom: TopomFacts, waits_for: Iterable[tuple[str, Reason]] = ()) -> Examination:
        """Look at everything.

        Args:
            waits_for: what topom waits for, and what that is about.
        """
        asked = await self._asked()
        cluster = replace(
            asked,
            proxies=tuple(_proxy(member) for member in self._members.all()),
            topom=topom,
            waits=tuple(waits_for),
        )
        left_out = len(cluster.not_asked)
        return Examination(self._at, len(cluster.servers) + left_out, left_out, tuple(examined(cluster)))

    async def _asked(self) -> ClusterFacts:
        """What the servers said lately."""
        async with self._turn:
            clock = asyncio.get_running_loop().time
            if self._known_at is None or clock() - self._known_at >= FRESH_SECONDS:
                self._at = time.time()
                self._known = await self._ask_all(self._ledger.state)
                self._known_at = clock()
            return self._known

    async def _ask_all(self, state: ClusterState) -> ClusterFacts:
        wanted: list[Wanted] = [
            (address, group.id, place == 0)
            for group in state.table.groups.values()
            for place, address in enumerate(group.servers)
        ]
        wanted += [(address, None, False) for address in state.pool]
        clock = asyncio.get_running_loop().time
        began = clock()
        self._said = {address: self._said[address] for address, *_ in wanted if address in self._said}
        self._begun = {address: self._begun[address] for address, *_ in wanted if address in self._begun}
        again, others = deque[Wanted](), deque[Wanted]()
        for entry in sorted(wanted, key=lambda entry: self._begun.get(entry[0], -math.inf)):
            (again if self._cut_off(entry[0]) else others).append(entry)

        async def go_on(*lines: deque[Wanted]) -> None:
            while line := next(filter(None, lines), None):
                address, group, master = line.popleft()
                self._begun[address] = clock()
                self._said[address] = self._begun[address], await self._ask_one(address, group, master)

        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds), asyncio.TaskGroup() as tasks:
                for _ in range(AT_ONCE // 2):
                    tasks.create_task(go_on(again, others))
                    tasks.create_task(go_on(others, again))
        known = {
            address: facts for address, (at, facts) in self._said.items() if at >= began or began - at < KEPT_SECONDS
        }
        return ClusterFacts(
            # A server may be another group's by now, or its group's master.
            servers=tuple(
                _placed(known[address], group, master) for address, group, master in wanted if address in known
            ),
            epoch=state.table.epoch,
            databases=state.product.databases,
            assigned=any(slot.owner_id for slot in state.table.slots),
            not_asked=tuple(ServerFacts(*entry) for entry in wanted if entry[0] not in known),
        )

    def _cut_off(self, address: str) -> bool:
        at, _ = self._said.get(address, (None, None))
        return self._begun.get(address) != at

    async def _ask_one(self, address: str, group: int | None, master: bool) -> ServerFacts:
        judged = self._health.of(address)
        if judged.condition in (Condition.SUSPECTED, Condition.FAILED):
            why = f"{judged.silent} of {judged.views} views have no answer from it"
            return ServerFacts(address, group, master, silent=why)
        found: list[ServerFacts] = []

        async def look(client: Redis) -> None:
            found.append(await ask(client, address, group, master, self._access))
            # Worked out here, one server at a time: of all servers at once it would hold topom up.
            _ = found[0].figures

        reason = await self._servers.guarded(address, look)
        return found[0] if found else ServerFacts(address, group, master, silent=reason or "it said nothing")


def _placed(facts: ServerFacts, group: int | None, master: bool) -> ServerFacts:
    same = (facts.group, facts.master) == (group, master)
    return facts if same else replace(facts, group=group, master=master)


def _proxy(member: Member) -> ProxyFacts:
    record = member.record
    epoch, why = member.refused
    return ProxyFacts(
        id=record.id,
        address=record.address,
        hostname=record.hostname,
        version=record.version,
        lost=member.lost,
        draining=member.draining,
        acked=member.acked,
        refuses=why if epoch > member.acked else "",
        counters=member.counters,
    )
