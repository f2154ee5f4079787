"""The servers' conditions: topom's own questions to them, and what proxies report, put to the detector.

Servers of the pool are asked too. Proxies do not know them, so that they are suspected at most, and not failed.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from functools import partial

import structlog

from slots.access import ServerAccess
from slots.probing import Probing
from topom.cluster.events import What
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState, known_servers
from topom.servers.detector import OWN, Condition, Detector, DetectorSettings, Judgement

log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.25
"""How often the conditions are judged."""
NOTE_SECONDS = 1.0
"""How long events of conditions wait for a write to take them along: what is done about a failure does not wait."""


class Health:
    """The servers of one topom.

    Args:
        probe_seconds: between two questions to a server.
        timeout_seconds: how long it may take to answer.
        heard: told of each server that answers, by its address, and of its run id.
    """

    def __init__(
        self,
        ledger: Ledger,
        access: ServerAccess,
        settings: DetectorSettings,
        probe_seconds: float,
        timeout_seconds: float,
        heard: Callable[[str, str], None] = lambda server, run_id: None,
    ) -> None:
        self._ledger = ledger
        self._detector = Detector(settings)
        self._suspect_seconds = settings.suspect_seconds
        self._begin_probing = partial(Probing, access, probe_seconds, timeout_seconds, heard)
        self._probing = self._begin_probing()
        self._judged: dict[str, Judgement] = {}
        self._own: Mapping[str, float] = {}
        self.looked = asyncio.Event()
        """Set each time the servers have been judged."""

    def heard(self, proxy_id: int, silences: Mapping[str, float]) -> None:
        """A proxy says for how long servers have not answered it; one that says nothing has no view."""
        if silences:
            self._detector.report(str(proxy_id), silences, asyncio.get_running_loop().time())

    def of(self, server: str) -> Judgement:
        """What is thought of a server; ``unknown`` until it has been looked at."""
        return self._judged.get(server, Judgement(Condition.UNKNOWN, 0, 0))

    def has_failed(self, server: str) -> bool:
        """Whether the majority of views has it that a server does not answer."""
        return self.of(server).condition is Condition.FAILED

    def hears(self, server: str) -> bool:
        """Whether a server answers this topom itself, whatever others say of it."""
        return self._own.get(server, math.inf) < self._suspect_seconds

    def silence(self, server: str) -> float:
        """For how long a server has been silent, as the detector has it."""
        return self._detector.silence(server, asyncio.get_running_loop().time())

    async def run(self) -> None:
        """Ask servers and judge them, until cancelled."""
        self._probing = self._begin_probing()
        self._probing.keep(known_servers(self._ledger.state))
        # Who has not reported to this topom yet may see servers that it does not.
        self._detector.keep_only(str(proxy_id) for proxy_id in self._ledger.state.proxies)
        self._ledger.listen(self._changed)
        try:
            while True:
                self._look()
                self.looked.set()
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            await self._probing.close()

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        # One that has just been asked for the first time has neither answered nor been silent.
        looked = self._probing.silences(unanswered_from=self._suspect_seconds)
        self._own = looked
        self._detector.report(OWN, looked, now)
        before = self._judged
        self._judged = {server: self._detector.judge(server, now) for server in known_servers(self._ledger.state)}
        for server, judged in self._judged.items():
            was = before[server].condition if server in before else Condition.UNKNOWN
            news = {was, judged.condition} != {Condition.UNKNOWN, Condition.ALIVE}
            if judged.condition is not was and news:
                say = log.info if judged.condition is Condition.ALIVE else log.warning
                say(f"server_{judged.condition}", server=server, silent=judged.silent, views=judged.views)
        self._tell({server: judged.condition for server, judged in before.items()})

    def _tell(self, before: Mapping[str, Condition]) -> None:
        """Have events stored of the servers that have failed, and of those that are back; one for all at a time."""
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

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        if old.table is not new.table or old.pool is not new.pool:
            self._probing.keep(known_servers(new))
        if old.proxies is not new.proxies:
            self._detector.keep_only(str(proxy_id) for proxy_id in new.proxies)
