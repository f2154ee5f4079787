"""What topom asks and tells Redis servers about replication. Every call has the short limit of topom's questions."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol, TypeVar

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from slots.permits import WITHDRAW_ALL
from slots.replies import info_of
from slots.reserved import LEADER, STATE
from topom.cluster.topology import parse_address
from topom.reasons import Reason
from topom.servers.lastcopy import As, MasterLacks, NotToFollow, ServerFailed, refusal, still_needed
from topom.servers.readings import Reading, Replication, read, read_replication

Answer = TypeVar("Answer")

REPLICAOF = "SLAVEOF"
"""The name that servers of all versions know for this setting."""
PRIORITY = "slave-priority"
"""Likewise: the setting by which Sentinels choose among replicas. They never elect a server with 0."""


class Servers(Protocol):
    """Runs work with a server's client; see :class:`topom.servers.redis_servers.RedisServers`."""

    async def guarded(self, address: str, work: Callable[[Redis], Awaitable[None]]) -> str | None:
        """Run ``work`` with the server's client; None when it was done in time, else the reason. Does not raise."""


class Seen(Protocol):
    """What is known of servers without asking them now; see :class:`topom.servers.health.Health`."""

    def replication(self, server: str, seconds: float) -> Replication | None:
        """A server's answer about its replication, if it was asked at most so many seconds ago; else None."""

    def has_failed(self, server: str) -> bool:
        """Whether a server does not answer by the majority of views."""


class ServerReplication:
    """Asks for and changes the servers' replication, one server at a time.

    Every method raises :class:`ServerFailed`, which names the server. Then it is unknown whether a change was made.

    Args:
        servers: runs work with a server's client.
        leads: whether anything may be changed at a server at this instant.
        bound: how many bytes of writes a failover may lose.
        alarm: is called with each server that is not told to follow because its master lacks what it has.
        conflict: why nothing may be done to a server; None if anything may be done (:mod:`topom.servers.identities`).
        seen: what is known of servers without asking them; None if nothing is.
        by: what this topom's mark at a new master says (**newest-store**, :mod:`topom.proxies.strangers`).
    """

    def __init__(
        self,
        servers: Servers,
        leads: Callable[[], bool] = lambda: True,
        bound: int = 0,
        alarm: Callable[[str, MasterLacks], None] = lambda server, error: None,
        conflict: Callable[[str], Reason | None] = lambda server: None,
        seen: Seen | None = None,
        by: Callable[[], str] = lambda: "",
    ) -> None:
        self._by = by
        self._seen = seen
        self._conflict = conflict
        self._servers = servers
        self._leads = leads
        self._bound = bound
        self._alarm = alarm

    def conflict(self, address: str) -> Reason | None:
        """Why nothing may be done to a server; None if anything may be done."""
        return self._conflict(address)

    def lately(self, address: str, seconds: float) -> Replication | None:
        """What the server said, if it was asked at most so many seconds ago; else None."""
        return self._seen.replication(address, seconds) if self._seen is not None else None

    def has_failed(self, address: str) -> bool:
        """Whether the server counts as failed, so that a question to it takes the whole time limit (**bounded**)."""
        return self._seen is not None and self._seen.has_failed(address)

    def may_change(self) -> bool:
        """Whether anything may be changed at a server at this instant."""
        return self._leads()

    async def look(self, address: str) -> Replication:
        """What the server says now."""

        async def ask(client: Redis) -> Replication:
            return read_replication(await info_of(client, "replication"))

        return await self._run(address, ask, changes=False)

    async def read(self, address: str) -> Reading:
        """What the server says of itself now. That decides which master it may follow."""
        return await self._run(address, _read, changes=False)

    async def pause_writes(self, address: str, seconds: float) -> None:
        """Have the server hold all writes, for so long at the most.

        A server that cannot (before 6.2) is left as it is.
        """

        async def pause(client: Redis) -> None:
            # Before 6.2 a pause holds every command, also INFO.
            with suppress(ResponseError):
                await client.execute_command("CLIENT", "PAUSE", str(max(1, round(seconds * 1000))), "WRITE")

        await self._run(address, pause)

    async def resume_writes(self, address: str) -> None:
        """The reverse of :meth:`pause_writes`."""

        async def resume(client: Redis) -> None:
            with suppress(ResponseError):
                await client.execute_command("CLIENT", "UNPAUSE")

        await self._run(address, resume)

    async def make_master(self, address: str, run_id: str = "") -> None:
        """Make the server a master that takes writes. From then on it accepts no keys by an earlier permit.

        **one-way**: it may have been a master before, and know a permit by which a late mover would bring it keys.

        Args:
            run_id: the process that this was decided for; another process is not told. Empty for any process.
        """

        async def promote(client: Redis) -> None:
            async with client.client() as one:
                if run_id:
                    await _require_same(one, run_id)
                self._require_leading()
                await _promote(one)
                with suppress(ResponseError):
                    await one.execute_command("HSET", LEADER, "by", self._by())

        await self._run(address, promote)

    async def require(self, address: str, master: str, told_as: As, sure: str = "") -> str:
        """The run id of a server that may be told to follow this master. :meth:`follow` then tells it.

        Raises:
            NotToFollow: it must not be told: it might lose what nobody else has (:mod:`topom.servers.lastcopy`).
        """
        for one in (address, master):
            # run-id: if a server has two names, nobody knows which role it should have.
            if reason := self._conflict(one):
                raise reason.to(NotToFollow)
        mine = await self.read(address)
        # last-copy: the master is asked after the server, so its answer covers what it had when the server answered.
        problem = refusal(address, mine, master, await self.read(master), told_as, self._bound, sure)
        if isinstance(problem, MasterLacks):
            self._alarm(address, problem)
        if problem is not None:
            raise problem
        return mine.run_id

    async def require_not_needed(self, address: str, master: str) -> None:
        """Raises NotToFollow for an old copy of this master's data, if it may be the only copy there is."""
        mine = await self.read(address)
        problem = still_needed(address, mine, master, await self.read(master), self._bound)
        if isinstance(problem, MasterLacks):
            self._alarm(address, problem)
        if problem is not None:
            raise problem

    async def follow(
        self, address: str, master: str, told_as: As, sure: str = "", anew: bool = False, decided: str = ""
    ) -> str:
        """Make the server a replica of ``master``; what only the server has is lost. Gives its run id.

        **last-copy**: this is the one place where a server is told to follow. It asks first whether it may be told, by
        what both say at this moment.

        Args:
            told_as, sure: as for :func:`~topom.servers.lastcopy.refusal`.
            anew: the server follows the master already, and is to forget what it has and ask for everything.
                ``REPLICAOF NO ONE`` gives the server a history of its own, so its master cannot go on from its place
                and sends it everything (tried on Redis 6.2.14, 7.0.15 and Valkey 9.1.2). That and the ``REPLICAOF``
                back go in one transaction: nobody sees the server as a master, and its own replicas stay connected to
                it.

            decided: the run id of the process that this was decided for; empty for any process.

        Raises as :meth:`require`; then the server was not told.
        """
        host, port = parse_address(master)
        run_id = await self.require(address, master, told_as, sure)
        if decided and decided != run_id:
            raise ServerFailed(f"{address} was restarted meanwhile, or leads to another server; it is looked at again")

        async def follow(client: Redis) -> None:
            async with client.client() as one:
                await _require_same(one, run_id)
                self._require_leading()
                await _replicaof(one, host, port, anew)
                with suppress(ResponseError):
                    await one.execute_command("CLIENT", "UNPAUSE")

        await self._run(address, follow)
        return run_id

    async def priority(self, address: str) -> int:
        """The server's :data:`PRIORITY`."""

        async def ask(client: Redis) -> int:
            found = await client.config_get(PRIORITY)
            value = found.get(PRIORITY)
            if value is None:
                raise ResponseError(f"it does not say its {PRIORITY}")
            return int(value)

        return await self._run(address, ask, changes=False)

    async def set_priority(self, address: str, priority: int) -> None:
        """Change the server's :data:`PRIORITY`, until it is restarted."""

        async def change(client: Redis) -> None:
            await client.config_set(PRIORITY, priority)

        await self._run(address, change)

    async def keep(self, address: str) -> None:
        """Have the server write its role into its configuration file, if it has one, to keep it after a restart."""

        async def rewrite(client: Redis) -> None:
            with suppress(ResponseError):
                await client.execute_command("CONFIG", "REWRITE")

        await self._run(address, rewrite)

    async def _run(self, address: str, work: Callable[[Redis], Awaitable[Answer]], changes: bool = True) -> Answer:
        answers: list[Answer] = []

        async def answered(client: Redis) -> None:
            if changes:
                # This connects first, so that there is no connecting between the look and the act. A replica without
                # its master may answer this and little else (``replica-serve-stale-data no``).
                await client.execute_command("INFO", "server")
                self._require_leading()
            answers.append(await work(client))

        reason = await self._servers.guarded(address, answered)
        if reason is not None:
            raise ServerFailed(f"{address} does not do what is needed: {reason}")
        return answers[0]

    def _require_leading(self) -> None:
        # epochs: a former leader must not undo what its successor does.
        if not self._leads():
            raise ResponseError("this topom does not lead any more")


async def _read(client: Redis) -> Reading:
    return await read(client)


async def _require_same(one: Redis, run_id: str) -> None:
    """Raises ResponseError unless this process answers at this single connection.

    **run-id**: a connection ends with the process at its other end, so what is sent there next goes to this process.
    """
    found = (await info_of(one, "server")).text("run_id", "")
    if found != run_id:
        raise ResponseError(f"it was restarted meanwhile: its run id was {run_id}, and is {found}")


async def _promote(one: Redis) -> None:
    withdraw = ("EVAL", WITHDRAW_ALL.text, "1", STATE)
    await one.execute_command("MULTI")
    try:
        await one.execute_command(REPLICAOF, "NO", "ONE")
        await one.execute_command(*withdraw)
        await one.execute_command("EXEC")
    except ResponseError:
        # Before Redis 7, a replica that shows no data without its master (``replica-serve-stale-data no``) takes no
        # script.
        with suppress(ResponseError):
            await one.execute_command("DISCARD")
        await one.execute_command(REPLICAOF, "NO", "ONE")
        with suppress(ResponseError):
            await one.execute_command(*withdraw)


async def _replicaof(one: Redis, host: str, port: int, anew: bool) -> None:
    if not anew:
        await one.execute_command(REPLICAOF, host, str(port))
        return
    await one.execute_command("MULTI")
    try:
        await one.execute_command(REPLICAOF, "NO", "ONE")
        await one.execute_command(REPLICAOF, host, str(port))
        await one.execute_command("EXEC")
    except ResponseError:
        with suppress(ResponseError):
            await one.execute_command("DISCARD")
        raise


async def look_at_all(
    replication: ServerReplication, addresses: list[str], seconds: float = 0.0
) -> dict[str, Replication | ServerFailed]:
    """What each of several servers says, or why it does not.

    Args:
        seconds: how old an answer may be, if some part of topom has asked already; 0 asks every server now.
    """

    async def look(address: str) -> Replication | ServerFailed:
        try:
            return await replication.look(address)
        except ServerFailed as error:
            return error

    found: dict[str, Replication | ServerFailed] = {}
    if seconds:
        found = {address: said for address in addresses if (said := replication.lately(address, seconds)) is not None}
    rest = [address for address in addresses if address not in found]
    return found | dict(zip(rest, await asyncio.gather(*map(look, rest)), strict=True))
