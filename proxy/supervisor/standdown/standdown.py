"""Makes the proxy stand down when it can no longer know a group's master, or once it was fenced.

:mod:`proxy.supervisor.standdown.evidence` has the rules. This module asks replicas, tells topom, and grants time to
workers.

**final-fence**: an identity that was found to be fenced, or that topom refused, has ended. Workers get no grant under
it, even workers that start later, until there is a table for the next identity. Workers are also told which processes
of servers are known: they use no other.

While topom answers heartbeats, each answer lets workers use every group for some more seconds. While it does not, all
replicas are asked again and again whether the proxy is fenced there. Workers may use a group if all its replicas say
no. topom relies on that only after it was told, and has stored, that this proxy does so. It is told once all workers
have confirmed a limit, and the file with the kept table has the rule. So a proxy that starts from the file follows it,
too.

**bounded**: one question to a server at a time, given up after two fifths of the allowance, or a second.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Protocol

import structlog
from redis.asyncio import Redis

from proxy.engine.allowance import clock
from proxy.servers.allowances import UNLIMITED
from proxy.supervisor.standdown.evidence import KNOWN_SECONDS, Evidence
from proxy.supervisor.standdown.fenceprobe import client_of, look
from slots.access import ServerAccess
from slots.failures import FAILURES
from slots.messages.channel import Allowance, Grant, Known, KnownServers
from slots.messages.control import Heard, News, Registered

SHARE = 5
"""The allowance has so many parts. In each, workers are told and replicas asked."""
MOST_STEP_SECONDS = 1.0
KNOWN_AGAIN_SECONDS = 3600.0
"""How much more recently topom must have been heard before workers get a later end for the known processes."""
LEARN_SECONDS = 5.0
"""Seconds between two rounds of questions while topom is heard, by which restarted replicas are noticed."""
MOST_UNANSWERED = 64
"""Heartbeats that topom may still answer; answers to older ones do not count."""

log = structlog.get_logger()


class Proxy(Protocol):
    """The part of the supervisor that is needed here."""

    @property
    def workers_instance(self) -> str:
        """The identity under which workers connect to servers."""

    def group_replicas(self) -> Mapping[int, Collection[str]]:
        """By group, its replicas in the newest table: no other server could become its master while this proxy is
        lost."""

    def tell_workers(self, message: Allowance) -> None:
        """Tell every worker its grant."""

    def tell_known_servers(self, message: KnownServers) -> None:
        """Tell every worker which processes are known."""

    def workers_limited(self) -> bool:
        """Whether every worker has confirmed a limit."""

    def keeps_rule(self, seconds: float | None) -> bool:
        """Have the rule kept with the table; say whether no process can start from a file with a laxer one."""

    def beat(self) -> None:
        """Send a heartbeat now."""

    def fence_found(self, server: str) -> None:
        """A server has fenced the proxy off."""


class StandDown:
    """The rule of one proxy. It is a :class:`proxy.supervisor.control.Listener`.

    Args:
        access: how to log in at the servers.
        proxy: the proxy that follows the rule.
        now: a clock like that of :mod:`proxy.engine.allowance`.
    """

    def __init__(self, access: ServerAccess, proxy: Proxy, now: Callable[[], float] = clock) -> None:
        self._access = access
        self._proxy = proxy
        self._now = now
        self.seconds: float | None = None
        """The allowance from topom; None for no rule."""
        self._stored: float | None = None  # the allowance that topom may rely on, by this proxy's word
        self._granted = -math.inf  # the latest time until which workers may use any group
        self._of_workers = Evidence(0.0)
        self._of_next: Evidence | None = None  # of the identity that workers do not have yet, when theirs has ended
        self._told_known: tuple[Mapping[str, str], float] = {}, -math.inf
        self._number = 0
        self._sent: deque[tuple[int, float]] = deque(maxlen=MOST_UNANSWERED)
        self._registering_at = -math.inf
        self._clients: dict[str, Redis] = {}
        self._asked_at = -math.inf
        self._news = asyncio.Event()

    # -- identities ----------------------------------------------------------------------------------------

    def new_identity(self, workers_have_it: bool) -> None:
        """The former identity has ended: workers that have it get no more grants."""
        fresh = Evidence(self.seconds or 0.0, self._newest)
        self._stored = None
        self._sent.clear()
        if workers_have_it:
            self._of_workers, self._of_next = fresh, None
        else:
            self._of_next = fresh
            self._tell()

    def identity_taken(self) -> None:
        """Workers are about to get the identity under which the proxy has registered."""
        if self._of_next is not None:
            self._of_workers, self._of_next = self._of_next, None
            self._asked_at = -math.inf

    def start_alone(self, seconds: float | None, age: float, processes: Mapping[str, str]) -> None:
        """The proxy serves by a kept table, under its identity and its rule; topom was heard ``age`` seconds ago.

        ``processes`` of servers had every mark of its fence by then. The age is by the time of day, which may have been
        set back. So it alone allows no group with replicas: the replicas are asked first.
        """
        self.seconds = self._stored = seconds
        self._of_workers, self._of_next = Evidence(seconds or 0.0), None
        self._of_workers.heard_at = self._now() - max(age, seconds or 0.0)
        for server, process in processes.items():
            self._of_workers.trust(server, process)
        self._news.set()

    # -- messages of topom (proxy.supervisor.control.Listener)

    def registration(self) -> float | None:
        """The rule that topom may rely on, for the registration that is sent now."""
        self._sent.clear()
        self._registering_at = self._now()
        return self._stored

    def registered(self, answer: Registered) -> None:
        """topom has registered the proxy, and says what the rule is."""
        seconds = answer.stand_down_seconds
        if seconds != self.seconds:
            log.info("told_to_stand_down", seconds=seconds)
        self.seconds = seconds
        self._newest.seconds = seconds or 0.0
        # topom has stored that before it said so (:func:`topom.proxies.standdown.registered`).
        self._stored = None if seconds is None or self._stored is None else max(self._stored, seconds)
        if seconds is None:
            self._tell()
        self._proxy.keeps_rule(seconds)
        self._heard(self._registering_at)

    def heard(self, message: News) -> None:
        """Take an answer to a heartbeat."""
        if not isinstance(message, Heard):
            return
        while self._sent and self._sent[0][0] <= message.number:
            sent, at = self._sent.popleft()
            if sent == message.number:
                self._heard(at)

    def lost(self) -> None:
        """The stream has ended: its heartbeats get no answers."""
        self._sent.clear()

    def heartbeat(self) -> int:
        """The number of the heartbeat that is sent now."""
        self._number += 1
        self._sent.append((self._number, self._now()))
        return self._number

    def confirmed(self) -> float | None:
        """The rule that topom may rely on from now on."""
        if (
            self.seconds is not None
            and self._of_next is None
            and self._proxy.workers_limited()
            and self._granted <= self._now() + self.seconds
            and self._proxy.keeps_rule(self.seconds)
        ):
            self._stored = self.seconds
        return self._stored

    def _heard(self, sent_at: float) -> None:
        was_silent = self.silent
        self._newest.heard(sent_at)
        self._tell_known()
        if was_silent:
            self._news.set()

    # -- grants to workers

    @property
    def silent(self) -> bool:
        """Whether topom has not answered for so long that replicas have to be asked."""
        return self._of_workers.heard_at + 2 * self._step < self._now()

    @property
    def doubts(self) -> bool:
        """Whether the workers' identity has ended, or there is a rule and topom is silent."""
        return self._of_next is not None or (self.seconds is not None and self.silent)

    @property
    def _newest(self) -> Evidence:
        """The knowledge about the identity under which the proxy registers."""
        return self._of_workers if self._of_next is None else self._of_next

    @property
    def _step(self) -> float:
        return min(MOST_STEP_SECONDS, (self.seconds or math.inf) / SHARE)

    @property
    def _limit(self) -> float:
        """How long a question may take: twice that is less than the allowance."""
        return min(MOST_STEP_SECONDS, (self.seconds or math.inf) * 2 / SHARE)

    def grant(self) -> Grant:
        """The present grant to workers."""
        if self._of_next is not None:
            # final-fence: grants without a rule, and to groups without replicas, end, too.
            return Grant(all=0.0, ended=True)
        if self.seconds is None:
            self._granted = math.inf
            return UNLIMITED
        known = self._of_workers
        groups = {
            group: until
            for group, replicas in self._proxy.group_replicas().items()
            if known.until < (until := known.group_until(replicas)) < math.inf
        }
        # An unlimited grant becomes limited once workers have confirmed it (:meth:`confirmed`).
        before = -math.inf if self._granted == math.inf else self._granted
        self._granted = max(before, known.until, *groups.values())
        return Grant(all=max(0.0, known.until), groups=groups)

    def groups_over(self) -> list[int]:
        """Groups that the proxy may not serve now."""
        if self._of_next is not None:
            return sorted(self._proxy.group_replicas())
        if self.seconds is None:
            return []
        now, known = self._now(), self._of_workers
        return [
            group
            for group, replicas in self._proxy.group_replicas().items()
            if max(known.until, known.group_until(replicas)) <= now
        ]

    async def run(self) -> None:
        """Ask replicas and tell workers, until cancelled."""
        try:
            while True:
                self._news.clear()
                began = asyncio.get_running_loop().time()
                if self.seconds is not None:
                    if self._of_next is None:
                        await self._ask()
                        self._tell_known()
                    self._tell()
                try:
                    # A question that takes long does not delay the next one.
                    async with asyncio.timeout_at(began + self._step):
                        await self._news.wait()
                except TimeoutError:
                    pass
        finally:
            await self._keep_clients(())

    # -- which processes of servers are known ---------------------------------------------------------------

    def saw(self, server: str, process: str) -> float:
        """A process of a server has just answered; give the time since which it is known to be there."""
        return self._newest.saw(server, process, self._now())

    def met(self, server: str, process: str) -> None:
        """A worker waits until this process of a server is known: have topom answer as soon as it can."""
        since = self.saw(server, process)
        # bounded: one heartbeat since then is enough for all that wait.
        if not self._newest.knows(server, process) and all(at < since for _, at in self._sent):
            self._proxy.beat()

    def keep_only(self, servers: Collection[str]) -> None:
        """Forget all servers but these."""
        self._newest.keep_only(servers)

    @property
    def known(self) -> Mapping[str, str]:
        """The processes of servers that cannot have forgotten a mark of the workers' identity."""
        return {} if self._of_next is not None else dict(self._of_workers.known)

    def known_servers(self) -> Known:
        """The present knowledge for workers."""
        if self._of_next is not None:
            return Known(processes={}, until=0.0)
        known = self._of_workers
        return Known(processes=dict(known.known), until=max(0.0, known.heard_at + KNOWN_SECONDS))

    def _tell_known(self) -> None:
        told, heard_at = self._told_known
        known = self._of_workers
        if self._of_next is None and (known.known != told or known.heard_at > heard_at + KNOWN_AGAIN_SECONDS):
            self._told_known = dict(known.known), known.heard_at
            message = KnownServers(instance=self._proxy.workers_instance, known=self.known_servers())
            self._proxy.tell_known_servers(message)

    # -- asking ----------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        self._proxy.tell_workers(Allowance(instance=self._proxy.workers_instance, grant=self.grant()))

    async def _ask(self) -> None:
        """Ask all replicas, if it is time to."""
        replicas = {server for servers in self._proxy.group_replicas().values() for server in servers}
        await self._keep_clients(replicas)
        if not replicas or not (self.silent or self._asked_at + LEARN_SECONDS <= self._now()):
            return
        self._asked_at = self._now()
        known, instance = self._of_workers, self._proxy.workers_instance
        found = await asyncio.gather(*(self._look(known, instance, server) for server in replicas))
        # The result belongs to the identity that was asked about.
        if not self.silent and not known.trusts(replicas):
            # A replica's answer counts once topom has answered a heartbeat that was sent later.
            self._proxy.beat()
        fenced = next((server for server in found if server is not None), None)
        if fenced is not None and known is self._of_workers:
            self._proxy.fence_found(fenced)

    async def _look(self, known: Evidence, instance: str, server: str) -> str | None:
        """Ask one replica; give its address if the proxy is fenced there."""
        asked_at = self._now()
        try:
            async with asyncio.timeout(self._limit):
                found = await look(self._clients[server], instance)
        except (*FAILURES, KeyError) as error:
            log.debug("replica_not_asked", server=server, reason=str(error) or type(error).__name__)
            return None
        if found.fenced:
            return server
        if not found.is_master:
            known.unmarked(server, found.run_id, asked_at, self._now())
        return None

    async def _keep_clients(self, servers: Collection[str]) -> None:
        gone = [self._clients.pop(server) for server in self._clients.keys() - set(servers)]
        # All at once: a connection to a lost server may take time, and workers wait for the result.
        await asyncio.gather(*map(_close, gone))
        for server in set(servers) - self._clients.keys():
            self._clients[server] = client_of(server, self._access, self._limit)
            self._asked_at = -math.inf  # so that it is known before topom falls silent


async def _close(client: Redis) -> None:
    with suppress(*FAILURES):
        await client.aclose()
