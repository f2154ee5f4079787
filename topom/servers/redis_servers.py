"""topom's own connections to the Redis servers, for their status and for fencing.

Every call has a short time limit: a server that hangs costs its caller that long, never more.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from slots import connections
from slots.access import ServerAccess
from slots.failures import FAILURES, in_words
from slots.moving import put_aside, strangers
from slots.reserved import LEADER
from topom.cluster.topology import parse_address
from topom.errors import TopomError
from topom.servers.readings import Reading, read

log = structlog.get_logger(__name__)

AT_ONCE = 128
"""The most servers that are asked at a time."""
SHOWN_AT_ONCE = 64
"""Of these, the most that are asked for :meth:`RedisServers.status`. However many are dead, what topom does, and its
page, need not wait for that."""
MOST_CONNECTIONS = 8
"""The most connections to one server."""
FRESH_SECONDS = 1.0
"""How long an answer to :meth:`RedisServers.status` is given again, once it is whole."""
FRESH_SECONDS_A_SERVER = 0.002
"""If that is longer, for each server of the answer. Asking one takes half a millisecond of topom's time: so those who
ask again and again take a fifth of a core."""


@dataclass(frozen=True, slots=True)
class Fencing:
    """The outcome of fencing at a server: the run id of the process that has the marks, or why there are none."""

    process: str
    refusal: str | None = None


class RedisServers:
    """Clients by address, opened when first needed."""

    def __init__(
        self,
        access: ServerAccess,
        timeout_seconds: float,
        leads: Callable[[], bool] = lambda: True,
        by: Callable[[], str] = lambda: "",
    ) -> None:
        """
        Args:
            leads: whether this topom may change anything at a server at this instant.
            by: what its marks say of it.
        """
        self._access = access
        self._by = by
        self._leads = leads
        self._timeout = timeout_seconds
        self._clients: dict[str, Redis] = {}
        self._places = asyncio.Semaphore(AT_ONCE)
        self._shown_places = asyncio.Semaphore(SHOWN_AT_ONCE)
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._in_use: Counter[str] = Counter()
        """How many calls each server has, those that wait for their turn included."""
        self._known: dict[str, Reading | None] = {}
        self._known_at: float | None = None
        self._asking: asyncio.Lock = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    async def status(self, addresses: Iterable[str]) -> Mapping[str, Reading | None]:
        """What :meth:`read` gave for each server, which was there lately. Does not raise."""
        wanted = list(addresses)
        async with self._asking:
            clock = asyncio.get_running_loop().time
            fresh_seconds = max(FRESH_SECONDS, FRESH_SECONDS_A_SERVER * len(self._known))
            fresh = self._known_at is not None and clock() - self._known_at < fresh_seconds
            if not fresh or any(address not in self._known for address in wanted):
                answers = await asyncio.gather(*(self._shown(address) for address in wanted))
                self._known = dict(zip(wanted, answers, strict=True))
                # bounded: those that came while servers did not answer are all given this.
                self._known_at = clock()
                await self.keep_only(wanted)
            return {address: self._known[address] for address in wanted}

    async def fence(self, wanted: Mapping[str, Collection[str]]) -> Mapping[str, Fencing]:
        """Cut proxies off servers, with one connection for all the fences of a server. Does not raise."""
        outcomes = await asyncio.gather(*(self._fence_at(server, instances) for server, instances in wanted.items()))
        return dict(zip(wanted, outcomes, strict=True))

    async def fenced_by(self, instances: Collection[str], addresses: Iterable[str]) -> Mapping[str, set[str]]:
        """Who has fenced these proxies, by server; servers that do not say are left out. Does not raise."""
        found: dict[str, set[str]] = {}

        async def look(address: str) -> None:
            async def ask(client: Redis) -> None:
                found[address] = await connections.fenced_by(client, instances)

            await self.guarded(address, ask)

        await asyncio.gather(*(look(address) for address in addresses))
        return found

    async def used_by(self, addresses: Iterable[str]) -> Mapping[str, str]:
        """Who has changed the owner of slots at each server last, as its mark says; "" for no mark. Servers that do not
        say are left out. Does not raise.
        """
        found: dict[str, str] = {}

        async def look(address: str) -> None:
            async def ask(client: Redis) -> None:
                mark = await client.hget(LEADER, "by")
                found[address] = mark.decode(errors="replace") if isinstance(mark, bytes) else str(mark or "")

            await self.guarded(address, ask)

        await asyncio.gather(*(look(address) for address in addresses))
        return found

    async def use(self, addresses: Iterable[str]) -> Mapping[str, str]:
        """Note at these servers that this topom changes the owner of slots there. Gives those that have no mark of it,
        and why. Does not raise.
        """

        async def note(client: Redis) -> None:
            await client.hset(LEADER, "by", self._by())

        wanted = list(addresses)
        if not self._leads():
            return dict.fromkeys(wanted, "this topom does not lead any more")
        outcomes = await asyncio.gather(*(self.guarded(address, note) for address in wanted))
        return {address: outcome for address, outcome in zip(wanted, outcomes, strict=True) if outcome is not None}

    async def strangers(self, address: str) -> list[bytes]:
        """Keys of somebody else that have one of our names (:func:`slots.moving.strangers`). Does not raise."""
        found: list[bytes] = []

        async def look(client: Redis) -> None:
            found.extend(await strangers(client))

        await self.guarded(address, look)
        return found

    async def put_aside(self, address: str) -> list[bytes]:
        """Put aside keys with one of our names and a wrong type (:func:`slots.moving.put_aside`). Does not raise."""
        found: list[bytes] = []

        async def look(client: Redis) -> None:
            found.extend(await put_aside(client))

        if self._leads():
            await self.guarded(address, look)
        return found

    async def unmarked(self, instances: Collection[str], address: str) -> Mapping[str, str]:
        """Which of these proxies have no fence mark at a server, or cannot be asked about, and why.

        Does not raise.
        """
        found: dict[str, str] = {}

        async def ask(client: Redis) -> None:
            there = await connections.fenced_among(client, instances)
            found.update((instance, "the mark is gone") for instance in instances if instance not in there)

        reason = await self.guarded(address, ask) if instances else None
        return dict.fromkeys(instances, reason) if reason is not None else found

    async def unreachable(self, addresses: Iterable[str]) -> Mapping[str, str]:
        """Why servers do not answer, by address; those that answer are left out."""
        wanted = list(addresses)
        outcomes = await asyncio.gather(*(self.guarded(address, self._ping) for address in wanted))
        return {address: outcome for address, outcome in zip(wanted, outcomes, strict=True) if outcome is not None}

    async def connected(self, addresses: Iterable[str]) -> Mapping[str, frozenset[str]]:
        """Which proxies have connections, by instance, for each server; one that does not answer is left out.

        Does not raise.
        """
        found: dict[str, frozenset[str]] = {}

        async def look(address: str) -> None:
            async def listed(client: Redis) -> None:
                found[address] = frozenset(await connections.connected_proxies(client))

            await self.guarded(address, listed)

        await asyncio.gather(*(look(address) for address in addresses))
        return found

    async def close(self) -> None:
        """Close every connection, for good: no call that goes on opens another one."""
        self._closed = True
        self._in_use.clear()
        await self.keep_only(())
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def keep_only(self, addresses: Iterable[str]) -> None:
        """Close the connections to all other servers, but for those in use: a server that is looked at before it is
        added is none of a cluster's yet."""
        keep = {*addresses, *self._in_use}
        # All of them in one step: two calls may run side by side.
        others = [self._clients.pop(address) for address in list(self._clients) if address not in keep]
        self._turns = {address: turn for address, turn in self._turns.items() if address in keep}
        if not others:
            return
        closing = asyncio.create_task(_close_all(others), name="closing connections")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        # Whoever asked may be broken off; nobody else knows these connections.
        await asyncio.shield(closing)

    async def read(self, address: str) -> Reading | None:
        """What a server says of itself; None if it does not answer in time, or is not a server. Does not raise."""
        found: list[Reading] = []

        async def ask(client: Redis) -> None:
            found.append(await read(client))

        await self.guarded(address, ask)
        return found[0] if found else None

    async def _shown(self, address: str) -> Reading | None:
        async with self._shown_places:
            return await self.read(address)

    async def _fence_at(self, address: str, instances: Collection[str]) -> Fencing:
        process = ""

        async def fence(client: Redis) -> None:
            nonlocal process
            process = await connections.fence(client, instances, self._by())

        if not self._leads():
            return Fencing("", "this topom does not lead any more")
        # Each round trip has the usual limit, so a server that is silent costs no more.
        batches = -(-len(instances) // connections.AT_A_TIME)
        refusal = await self.guarded(address, fence, max(1, batches) * self._timeout)
        return Fencing(process, refusal)

    async def _ping(self, client: Redis) -> None:
        await client.execute_command("PING")

    async def guarded(self, address: str, work: Any, seconds: float = 0.0) -> str | None:
        """Run ``work`` with the server's client, in time; the reason when that fails.

        Args:
            seconds: how long the work may take; 0 for the time of one question.
        """
        self._in_use[address] += 1
        try:
            return await self._guarded(address, work, seconds or self._timeout)
        finally:
            self._in_use[address] -= 1
            if self._in_use[address] <= 0:
                del self._in_use[address]

    async def _guarded(self, address: str, work: Any, limit: float) -> str | None:
        # bounded: a call waits while all connections to a server are in use; the pool would refuse it.
        async with self._turns.setdefault(address, asyncio.Semaphore(MOST_CONNECTIONS)), self._places:
            if self._closed:
                return "this topom does not lead any more"
            try:
                async with asyncio.timeout(limit):
                    await work(self._client(address))
            except TimeoutError:
                return f"no answer within {limit:g} s"
            except FAILURES as error:
                return in_words(error)
            except TopomError:
                raise
            except Exception:
                # A wrong answer of any kind is a failure of that server alone.
                log.exception("server_not_understood", server=address)
                return "what it answers is not understood; topom's log says more"
        return None

    def _client(self, address: str) -> Redis:
        client = self._clients.get(address)
        if client is None:
            host, port = parse_address(address)
            client = self._access.client(
                host,
                port,
                client_name=f"{connections.PREFIX}.topom",
                socket_timeout=self._timeout,
                socket_connect_timeout=self._timeout,
                retry=Retry(NoBackoff(), 0),
                max_connections=MOST_CONNECTIONS,
            )
            self._clients[address] = client
        return client


async def _close_all(clients: Iterable[Redis]) -> None:
    await asyncio.gather(*(client.aclose() for client in clients), return_exceptions=True)
