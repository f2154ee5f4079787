"""Has the proxy stand down where it cannot know any more who is a group's master (:mod:`proxy.unfenced`).

While topom answers heartbeats, workers may use every group for some seconds more with each answer. While it does not,
all replicas are asked whether the proxy is fenced there, again and again, and workers may use the groups of which all
replicas say that it is not. topom counts on that only once it was told, and stored, that this proxy does so; told it is
once all workers hold a limit, and the file with the kept table has the rule, so that whoever starts from it does, too.

**bounded**: one question to a server at a time, given up after two fifths of the allowance, or a second.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Protocol

import structlog
from redis.asyncio import Redis

from proxy.allowances import UNLIMITED
from proxy.channel import Message
from proxy.engine.allowance import clock
from proxy.looking import client_of, look
from proxy.unfenced import Unfenced
from slots.access import ServerAccess
from slots.failures import FAILURES

SHARE = 5
"""Into so many parts the allowance is cut: workers are told, and replicas asked, in each of them."""
MOST_STEP_SECONDS = 1.0
LEARN_SECONDS = 5.0
"""How often replicas are asked while topom is heard, so that it is known which of them were started anew."""
MOST_UNANSWERED = 64
"""Heartbeats that topom may still answer; of older ones the answers do not count."""

log = structlog.get_logger()


class Proxy(Protocol):
    """What is needed of the supervisor."""

    @property
    def workers_instance(self) -> str:
        """The identity under which workers connect to servers."""

    def group_replicas(self) -> Mapping[int, Collection[str]]:
        """By group, its replicas in the newest table: no other could become its master while this proxy is lost."""

    def tell_workers(self, message: Message) -> None:
        """Tell every worker what it may use: ``all`` and ``groups`` of :class:`proxy.allowances.Allowances`."""

    def workers_limited(self) -> bool:
        """Whether every worker has said that it holds a limit."""

    def keeps_rule(self, seconds: float | None) -> bool:
        """Have the rule kept with the table; whether nobody can start from a file with a laxer one."""

    def beat(self) -> None:
        """Send a heartbeat now."""

    def fence_found(self, server: str) -> None:
        """A server has fenced the proxy off."""


class StandDown:
    """The rule of one proxy. It is a :class:`proxy.control.Listener`.

    Args:
        access: how to get in at the servers.
        proxy: whose rule it is.
        now: a clock as that of :mod:`proxy.engine.allowance`.
    """

    def __init__(self, access: ServerAccess, proxy: Proxy, now: Callable[[], float] = clock) -> None:
        self._access = access
        self._proxy = proxy
        self._now = now
        self.seconds: float | None = None
        """The allowance that topom has told the proxy of; None for no rule."""
        self._of_former: float | None = None
        """The allowance of the identity that workers have, while it is not the one that topom has told of."""
        self._stored: float | None = None  # by which topom may count, as far as this proxy has said
        self._granted = -math.inf  # the latest time until which workers may use anything
        self._of_workers = Unfenced(0.0)
        self._of_next: Unfenced | None = None  # of the identity that workers do not have yet
        self._number = 0
        self._sent: deque[tuple[int, float]] = deque(maxlen=MOST_UNANSWERED)
        self._registering_at = -math.inf
        self._trusts_before: float | None = None
        self._clients: dict[str, Redis] = {}
        self._asked_at = -math.inf
        self._news = asyncio.Event()

    # -- identities ----------------------------------------------------------------------------------------

    def new_identity(self, workers_have_it: bool) -> None:
        """The proxy registers anew. What is known of the identity before still goes for workers that have that."""
        fresh = Unfenced(self.seconds or 0.0)
        self._stored = None
        self._sent.clear()
        if workers_have_it:
            self._of_workers, self._of_next = fresh, None
        else:
            if self._of_next is None:
                self._of_former = self.seconds
            self._of_next = fresh

    def identity_taken(self) -> None:
        """Workers are about to be given the identity under which the proxy has registered."""
        if self._of_next is not None:
            self._of_workers, self._of_next = self._of_next, None
            self._trusts_before = None
            self._asked_at = -math.inf

    def start_alone(self, seconds: float | None, age: float) -> None:
        """The proxy serves by a kept table, under its identity and its rule; topom was heard in the last ``age``."""
        self.seconds = self._stored = seconds
        self._of_workers, self._of_next = Unfenced(seconds or 0.0), None
        self._trusts_before = self._now() - age
        self._news.set()

    # -- what topom says (proxy.control.Listener) ----------------------------------------------------------

    def registration(self) -> Message:
        """What is said when the proxy registers: the rule that topom may count on."""
        self._sent.clear()
        self._registering_at = self._now()
        return {"stands_down": self._stored}

    def registered(self, answer: Message) -> None:
        """topom has taken the proxy on, and says what the rule is; one that does not know of it leaves it as it is."""
        if "stand_down_seconds" in answer:
            raw = answer["stand_down_seconds"]
            seconds = None if raw is None else float(raw)
            if seconds is not None and not 0 < seconds < math.inf:
                raise ValueError(f"stand_down_seconds is {seconds}")
            if seconds != self.seconds:
                log.info("told_to_stand_down", seconds=seconds)
            self.seconds = seconds
            # one-owner: of a former identity topom counts on what was stored of it, whatever it tells this one.
            known = self._of_workers if self._of_next is None else self._of_next
            known.seconds = seconds or 0.0
            # topom has stored so much before it said so (:func:`topom.standdown.registered`).
            self._stored = None if seconds is None or self._stored is None else max(self._stored, seconds)
            if seconds is None:
                self._tell()
            self._proxy.keeps_rule(seconds)
        self._heard(self._registering_at)

    def heard(self, message: Message) -> bool:
        """A message from topom; whether it was an answer to a heartbeat."""
        if message["type"] != "heard":
            return False
        number = int(message["number"])
        while self._sent and self._sent[0][0] <= number:
            sent, at = self._sent.popleft()
            if sent == number:
                self._heard(at)
        return True

    def lost(self) -> None:
        """There is no stream any more: nothing of it is answered."""
        self._sent.clear()

    def heartbeat(self) -> Message:
        """More fields of a heartbeat that is sent now."""
        self._number += 1
        self._sent.append((self._number, self._now()))
        return {"number": self._number, "stands_down": self._confirmed()}

    def _heard(self, sent_at: float) -> None:
        known = self._of_workers if self._of_next is None else self._of_next
        was_silent = self.silent
        known.heard(sent_at)
        if was_silent:
            self._news.set()

    def _confirmed(self) -> float | None:
        """The rule that topom may count on from now on."""
        if (
            self.seconds is not None
            and self._of_next is None
            and self._proxy.workers_limited()
            and self._granted <= self._now() + self.seconds
            and self._proxy.keeps_rule(self.seconds)
        ):
            self._stored = self.seconds
        return self._stored

    # -- what workers may do -------------------------------------------------------------------------------

    @property
    def silent(self) -> bool:
        """Whether topom has not answered for so long that replicas have to be asked."""
        return self._of_workers.heard_at + 2 * self._step < self._now()

    @property
    def doubts(self) -> bool:
        """Whether there is a rule, and topom is silent."""
        return self._rule is not None and self.silent

    @property
    def _rule(self) -> float | None:
        """The allowance of the identity that workers have; None for no rule."""
        return self.seconds if self._of_next is None else self._of_former

    @property
    def _step(self) -> float:
        return min(MOST_STEP_SECONDS, (self._rule or math.inf) / SHARE)

    @property
    def _limit(self) -> float:
        """How long a question may take: twice that is less than the allowance."""
        return min(MOST_STEP_SECONDS, (self._rule or math.inf) * 2 / SHARE)

    def grant(self) -> Mapping[str, Any]:
        """What workers may use now (:class:`proxy.allowances.Allowances`)."""
        if self._rule is None:
            self._granted = math.inf
            return UNLIMITED
        known = self._of_workers
        groups = {
            str(group): until
            for group, replicas in self._proxy.group_replicas().items()
            if known.until < (until := known.group_until(replicas)) < math.inf
        }
        # What was unlimited before is limited once workers have said so (:meth:`_confirmed`).
        before = -math.inf if self._granted == math.inf else self._granted
        self._granted = max(before, known.until, *groups.values())
        return {"all": max(0.0, known.until), "groups": groups}

    def groups_over(self) -> list[int]:
        """Groups that the proxy may not serve now."""
        if self._rule is None:
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
                if self._rule is not None:
                    await self._ask()
                    self._tell()
                try:
                    # A question that takes long is no reason to put the next one later.
                    async with asyncio.timeout_at(began + self._step):
                        await self._news.wait()
                except TimeoutError:
                    pass
        finally:
            await self._keep_clients(())

    def _tell(self) -> None:
        self._proxy.tell_workers({"type": "allowance", "instance": self._proxy.workers_instance, **self.grant()})

    async def _ask(self) -> None:
        """Ask all replicas, if it is time to."""
        replicas = {server for servers in self._proxy.group_replicas().values() for server in servers}
        await self._keep_clients(replicas)
        if not replicas or not (self.silent or self._asked_at + LEARN_SECONDS <= self._now()):
            return
        self._asked_at = self._now()
        known, instance = self._of_workers, self._proxy.workers_instance
        known.keep_only(replicas)
        found = await asyncio.gather(*(self._look(known, instance, server) for server in replicas))
        # What was found is of the identity that was asked about.
        if not self.silent and not known.trusts(replicas):
            # Their word counts once topom has answered something that was sent after theirs.
            self._proxy.beat()
        fenced = next((server for server in found if server is not None), None)
        if fenced is not None and known is self._of_workers:
            self._proxy.fence_found(fenced)

    async def _look(self, known: Unfenced, instance: str, server: str) -> str | None:
        """Ask one replica; its address if the proxy is fenced there."""
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
            before = self._trusts_before
            if before is not None and asked_at - found.uptime_seconds < before:
                known.trust(server, found.run_id)
            known.unmarked(server, found.run_id, asked_at, self._now())
        return None

    async def _keep_clients(self, servers: Collection[str]) -> None:
        gone = [self._clients.pop(server) for server in self._clients.keys() - set(servers)]
        # All at once: the connection of a server that is lost may take its time, and workers wait to be told.
        await asyncio.gather(*map(_close, gone))
        for server in set(servers) - self._clients.keys():
            self._clients[server] = client_of(server, self._access, self._limit)
            self._asked_at = -math.inf  # it is to be known before topom falls silent


async def _close(client: Redis) -> None:
    with suppress(*FAILURES):
        await client.aclose()
