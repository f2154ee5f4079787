"""The servers' conditions: the detector gets the answers to topom's own questions, and what proxies report.

Servers of the pool are asked too. Proxies do not know these servers, so they may be suspected, but never fail.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import ClassVar

import structlog

from slots.access import ServerAccess
from slots.probing import Probing
from slots.replies import Info, NotUnderstood
from topom.cluster.events import What
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState, known_servers
from topom.cluster.topology import all_servers
from topom.periodic import Look, Loop
from topom.servers.detector import OWN, Condition, Detector, DetectorSettings, Judgement
from topom.servers.readings import Replication, read_replication

log = structlog.get_logger(__name__)

REPLICATION = ("INFO", "replication")
"""What servers are asked: it shows whether they answer, and how their replication is."""
LOOK_SECONDS = 0.25
"""How often the conditions are judged."""
SAID = 8
"""Servers that have failed and are named in one sentence."""
REST = 3
"""The pause after judging, in multiples of the time that judging took. So all else goes on when many servers fail."""
UNKNOWN = Judgement(Condition.UNKNOWN, 0, 0)
NOTE_SECONDS = 1.0
"""How long events of conditions wait for a write to take them along. The failover itself does not wait for them."""

Heard = Callable[[str, str], None]
"""Called with the address and the run id of a server that answers."""


class Health(Loop):
    """The servers of one topom.

    Args:
        timeout_seconds: how long a server may take to answer.
    """

    name = "health"
    pause_seconds: ClassVar[float | None] = LOOK_SECONDS

    def __init__(
        self,
        ledger: Ledger,
        access: ServerAccess,
        settings: DetectorSettings,
        timeout_seconds: float,
    ) -> None:
        super().__init__()
        self._ledger = ledger
        self._detector = Detector(settings)
        self._suspect_seconds = settings.suspect_seconds
        self._listeners: list[Heard] = []
        self._begin_probing = partial(Probing, access, timeout_seconds, self._tell_listeners, REPLICATION)
        self._probing = self._begin_probing()
        self._judged: Mapping[str, Judgement] = {}
        """The judgements of the latest look, for servers that not every process hears."""
        self._well = Judgement(Condition.UNKNOWN, 0, 0)
        """The judgement of all other servers."""
        self._since: dict[str, float] = {}
        """The servers, and for each the epoch since which proxies ask it."""
        self._looked_at: frozenset[str] = frozenset()
        self._silent: Mapping[str, float] = {}
        self._unanswered: frozenset[str] = frozenset()
        self.looked = asyncio.Event()
        """Set each time the servers have been judged."""

    def listen(self, heard: Heard) -> None:
        """Have ``heard`` called for each server that answers."""
        self._listeners.append(heard)

    def heard(self, proxy_id: int, asked: int | None, silent: Mapping[str, float], unanswered: Collection[str]) -> None:
        """Take a proxy's word on which servers of its table of epoch ``asked`` do not answer it; None: it has no table.

        A proxy that is not a member has no view. A proxy with a newer table than topom's has none either: after a
        backup was restored there may be such tables, and nobody knows which servers they have.
        """
        state = self._ledger.state
        if asked is not None and asked <= state.table.epoch and proxy_id in state.proxies:
            self._detector.report(str(proxy_id), silent, asyncio.get_running_loop().time(), asked, unanswered)

    def of(self, server: str) -> Judgement:
        """The judgement of a server; ``unknown`` until topom has looked at it."""
        if server not in self._looked_at:
            return UNKNOWN
        return self._judged.get(server, self._well)

    def condition_of(self, server: str) -> Condition:
        """The condition of :meth:`of`."""
        return self.of(server).condition

    def is_alive(self, server: str) -> bool:
        """Whether a server answers everybody."""
        return self.of(server).condition is Condition.ALIVE

    def has_failed(self, server: str) -> bool:
        """Whether a server does not answer by the majority of views."""
        return self.of(server).condition is Condition.FAILED

    def silent(self, servers: Iterable[str]) -> list[str]:
        """Those of these servers that do not answer everybody, or that nobody has looked at yet."""
        return [server for server in servers if not self.is_alive(server)]

    def hears(self, server: str) -> bool:
        """Whether a server answers this topom itself; what others say does not matter."""
        return server in self._looked_at and server not in self._silent and server not in self._unanswered

    def replication(self, server: str, seconds: float) -> Replication | None:
        """A server's answer about its replication, if it was asked at most so many seconds ago; else None."""
        said = self._probing.said(server, seconds)
        if said is None:
            return None
        try:
            return read_replication(Info.parse(said))
        except NotUnderstood:
            return None

    def silence(self, server: str) -> float:
        """How long a server has been silent, by the detector."""
        return self._detector.silence(server, asyncio.get_running_loop().time())

    async def run(self) -> None:
        """As :meth:`topom.periodic.Loop.run`; servers are asked meanwhile."""
        self._probing = self._begin_probing()
        state = self._ledger.state
        self._since = dict.fromkeys(all_servers(state.table), state.table.epoch)
        self._keep(state)
        # A proxy that has not reported to this topom yet may hear servers that this topom does not hear.
        self._detector.keep_only(str(proxy_id) for proxy_id in state.proxies)
        self._ledger.listen(self._changed)
        try:
            await super().run()
        finally:
            await self._probing.close()

    async def look(self) -> Look:
        """Judge the servers."""
        clock = asyncio.get_running_loop().time
        began = clock()
        self._judge()
        self.looked.set()
        failed = [server for server, judged in self._judged.items() if judged.condition is Condition.FAILED]
        says = f"{len(failed)} of {len(self._looked_at)} servers have failed: {', '.join(failed[:SAID])}"
        return Look(says if failed else "", REST * (clock() - began))

    def _tell_listeners(self, server: str, run_id: str) -> None:
        for heard in self._listeners:
            heard(server, run_id)

    def _judge(self) -> None:
        now = asyncio.get_running_loop().time()
        # A server that was just asked for the first time has neither answered nor been silent.
        self._silent, unanswered = self._probing.silent(self._suspect_seconds, self._suspect_seconds)
        self._unanswered = frozenset(unanswered)
        self._detector.report(OWN, self._silent, now, math.inf, self._unanswered)
        self._looked_at = frozenset(self._since)
        before = self._judged
        self._judged, self._well = self._detector.judge_all(now)
        for server, judged in self._judged.items():
            was = before[server].condition if server in before else Condition.UNKNOWN
            news = {was, judged.condition} != {Condition.UNKNOWN, Condition.ALIVE}
            if judged.condition is not was and news:
                self._log(server, judged)
        for server in before.keys() - self._judged.keys() & self._since.keys():
            if before[server].condition is Condition.SUSPECTED:
                self._log(server, self._well)
        self._tell({server: judged.condition for server, judged in before.items()})

    def _log(self, server: str, judged: Judgement) -> None:
        match judged.condition:
            case Condition.ALIVE:
                log.info("server_alive", server=server, silent=judged.silent, views=judged.views)
            case Condition.SUSPECTED:
                log.warning("server_suspected", server=server, silent=judged.silent, views=judged.views)
            case Condition.FAILED:
                log.warning("server_failed", server=server, silent=judged.silent, views=judged.views)
            case Condition.UNKNOWN:
                log.warning("server_unknown", server=server, silent=judged.silent, views=judged.views)

    def _tell(self, before: Mapping[str, Condition]) -> None:
        """Have events stored about servers that have failed or are back: one event for all of a kind and look."""
        failed, back = [], []
        for server, judged in self._judged.items():
            was = before.get(server, Condition.UNKNOWN)
            if judged.condition is Condition.FAILED and was is not Condition.FAILED:
                failed.append(f"{server} (silent to {judged.silent} of {judged.views} views)")
            elif was is Condition.FAILED and judged.condition in (Condition.ALIVE, Condition.SUSPECTED):
                back.append(f"{server} (silent to {judged.silent} of {judged.views} views)")
        for what, servers, verb in ((What.SERVER_FAILED, failed, "failed"), (What.SERVER_BACK, back, "answer again")):
            if servers:
                named = f"server {servers[0]}" if len(servers) == 1 else f"{len(servers)} servers: {', '.join(servers)}"
                self._ledger.note(what, f"{verb}: {named}", wait=NOTE_SECONDS)

    def _keep(self, state: ClusterState) -> None:
        """Ask and judge all servers of a state."""
        known = known_servers(state)
        asked = set(all_servers(state.table))
        # If only topom knew a server until now, proxies ask it from this table on.
        epoch = state.table.epoch
        self._since = {
            server: min(self._since.get(server, math.inf), epoch) if server in asked else math.inf for server in known
        }
        self._detector.judge_only(self._since)
        self._probing.keep(known)

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        if old.table.groups != new.table.groups or old.pool is not new.pool:
            self._keep(new)
        if old.proxies is not new.proxies:
            self._detector.keep_only(str(proxy_id) for proxy_id in new.proxies)
