"""What topom asks and tells Redis servers about replication. Every call has the short limit of topom's questions."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from slots.table import Group
from topom.errors import Unavailable
from topom.topology import parse_address

Answer = TypeVar("Answer")

REPLICAOF = "SLAVEOF"
"""The name that servers of all versions know."""
PRIORITY = "slave-priority"
"""Likewise: the setting by which Sentinels choose among replicas. Of 0, they never elect the server."""

RUN_ID = re.compile(r"[0-9A-Za-z-]{1,64}")
"""What a run id looks like."""


class ServerFailed(Unavailable):
    """A server does not answer, or refuses what topom needs of it."""


class Servers(Protocol):
    """Runs work with a server's client; see :class:`topom.redis_servers.RedisServers`."""

    async def guarded(self, address: str, work: Callable[[Redis], Awaitable[None]]) -> str | None:
        """Run ``work`` with the server's client; None when it was done in time, else the reason. Does not raise."""


@dataclass(frozen=True, slots=True)
class Replication:
    """What a server says of its replication.

    ``stream`` is the id of the stream of writes that it is in, ``offset`` how many bytes of it the server has run,
    ``following`` host and port of its master as it was told them, None for a master. ``link_up`` is whether a replica
    is connected to its master and holds a whole copy, ``filling`` whether it is just being given one,
    ``silent_seconds`` for how long it has not heard from its master, as far as it is connected. ``former`` is the
    stream that it was in before its own, as far as it knows one, and ``former_offset`` how much of that it had run.
    ``run_id`` is that of its process; empty where it does not say.
    """

    is_master: bool
    stream: str
    offset: int
    following: tuple[str, int] | None = None
    link_up: bool = False
    filling: bool = False
    silent_seconds: int = 0
    former: str = ""
    former_offset: int = -1
    run_id: str = ""

    def follows(self, master: str) -> bool:
        """Whether it is a replica of the server of this address, by the very name."""
        host, port = parse_address(master)
        return self.following == (host, port)


class ServerReplication:
    """The servers' replication, asked and changed one server at a time.

    Every method raises :class:`ServerFailed`, naming the server. Of a change it is then unknown whether it was made.

    Args:
        servers: run work with a server's client.
        leads: whether anything may be changed at a server at this instant.
    """

    def __init__(self, servers: Servers, leads: Callable[[], bool] = lambda: True) -> None:
        self._servers = servers
        self._leads = leads

    def may_change(self) -> bool:
        """Whether anything may be changed at a server at this instant."""
        return self._leads()

    async def look(self, address: str) -> Replication:
        """What the server says now."""

        async def ask(client: Redis) -> Replication:
            async with client.pipeline(transaction=False) as both:
                both.info("server")
                both.info("replication")
                server, replication = await both.execute()
            return replace(read(replication), run_id=run_id_of(server))

        return await self._run(address, ask, changes=False)

    async def pause_writes(self, address: str, seconds: float) -> None:
        """Have the server hold whatever writes, for so long at the most; one that cannot (before 6.2) is let be."""

        async def pause(client: Redis) -> None:
            # Before 6.2, a pause holds every command up, INFO too.
            with suppress(ResponseError):
                await client.execute_command("CLIENT", "PAUSE", str(max(1, round(seconds * 1000))), "WRITE")

        await self._run(address, pause)

    async def resume_writes(self, address: str) -> None:
        """The reverse of :meth:`pause_writes`."""

        async def resume(client: Redis) -> None:
            with suppress(ResponseError):
                await client.execute_command("CLIENT", "UNPAUSE")

        await self._run(address, resume)

    async def make_master(self, address: str) -> None:
        """Have the server follow nobody any more, and take writes."""

        async def promote(client: Redis) -> None:
            await client.execute_command(REPLICAOF, "NO", "ONE")

        await self._run(address, promote)

    async def follow(self, address: str, master: str, run_id: str = "") -> None:
        """Make the server a replica of ``master``; what it has that the master has not is lost.

        **run-id**: the server that is told is another process than its master, by whatever names the two are known, and
        the one that it was decided about. Raises :class:`ServerFailed` if not; it was not told then.

        Args:
            run_id: the server's, as it was looked at (:attr:`Replication.run_id`); empty for whoever answers.
        """
        host, port = parse_address(master)

        async def follow(client: Redis) -> None:
            await client.execute_command(REPLICAOF, host, str(port))
            with suppress(ResponseError):
                await client.execute_command("CLIENT", "UNPAUSE")

        await self._run(address, follow, require=await self._only(run_id, master))

    async def refill(self, address: str, master: str, run_id: str = "") -> None:
        """Have a replica of ``master`` forget what it has and ask for everything; else as :meth:`follow`.

        ``REPLICAOF NO ONE`` gives a server a history of its own, so its master cannot go on from where it was and sends
        it everything (tried on Redis 6.2.14, 7.0.15 and Valkey 9.1.2). Both that and the ``REPLICAOF`` back go in one
        MULTI: nobody ever sees the server as a master, and no write gets in between.
        """
        host, port = parse_address(master)

        async def refill(client: Redis) -> None:
            # A pipeline of redis-py would have a connection of its own.
            for command in (("MULTI",), (REPLICAOF, "NO", "ONE"), (REPLICAOF, host, str(port)), ("EXEC",)):
                await client.execute_command(*command)

        await self._run(address, refill, require=await self._only(run_id, master))

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
        """Have the server write its role into its configuration file, if it has one, to have it after a restart."""

        async def rewrite(client: Redis) -> None:
            with suppress(ResponseError):
                await client.execute_command("CONFIG", "REWRITE")

        await self._run(address, rewrite)

    async def _only(self, run_id: str, master: str) -> Callable[[str], None]:
        """Raises ResponseError for the run id of a server that is not to follow this master."""

        async def ask(client: Redis) -> str:
            return run_id_of(await client.info("server"))

        leader = await self._run(master, ask, changes=False)

        def require(mine: str) -> None:
            if mine and mine == leader:
                raise ResponseError(f"it is the same server as {master}, which it is to follow; remove one name")
            if run_id and mine != run_id:
                raise ResponseError("another server answers there by now, or it was restarted; it is looked at again")

        return require

    async def _run(
        self,
        address: str,
        work: Callable[[Redis], Awaitable[Answer]],
        changes: bool = True,
        require: Callable[[str], None] = lambda run_id: None,
    ) -> Answer:
        """``require`` raises ResponseError if nothing is to be changed at the server of this run id."""
        answers: list[Answer] = []

        async def answered(client: Redis) -> None:
            if not changes:
                answers.append(await work(client))
                return
            # run-id: a connection leads to one process, from the look to the act. Nothing is connected to in between.
            async with client.client() as one:
                run_id = run_id_of(await one.info("server"))
                # epochs: a topom that led before another one must not undo what that one does.
                if not self._leads():
                    raise ResponseError("this topom does not lead any more")
                require(run_id)
                answers.append(await work(one))

        reason = await self._servers.guarded(address, answered)
        if reason is not None:
            raise ServerFailed(f"{address} does not do what is needed: {reason}")
        return answers[0]


def run_id_of(info: object) -> str:
    """The run id that INFO's section ``server`` says; empty if it says none."""
    found = info.get("run_id") if isinstance(info, Mapping) else None
    return str(found) if found is not None and RUN_ID.fullmatch(str(found)) is not None else ""


def read(info: dict[str, Any]) -> Replication:
    """What INFO replication says. Raises :class:`redis.exceptions.ResponseError` for what is none."""
    is_master = info.get("role") == "master"
    try:
        end = int(info.get("second_repl_offset", -1))  # the first byte that it has from elsewhere; -1 without a former
        former = (str(info.get("master_replid2", "")), end - 1) if end >= 0 else ("", -1)
        if is_master:
            stream, offset = str(info.get("master_replid", "")), int(info["master_repl_offset"])
            return Replication(True, stream, offset, former=former[0], former_offset=former[1])
        filling = bool(int(info.get("master_sync_in_progress", 0)))
        return Replication(
            False,
            str(info.get("master_replid", "")),
            int(info.get("slave_repl_offset", 0)),
            (str(info["master_host"]), int(info["master_port"])),
            info.get("master_link_status") == "up" and not filling,
            filling,
            int(info.get("master_last_io_seconds_ago", 0)),
            *former,
        )
    except KeyError as error:
        raise ResponseError(f"INFO replication lacks {error}") from error


def obstacle(address: str, master: str, ahead: Replication, behind: Replication, near: int | None = None) -> str | None:
    """Why a replica is no whole copy, and cannot take its master's place; None if it is one.

    Args:
        address: the replica's, which says ``behind`` of itself.
        master: the address of its master, which says ``ahead``.
        near: how many bytes it may be behind; None for any number.
    """
    if not ahead.is_master:
        return f"{master} is the master of its group and says that it is a replica itself"
    if behind.is_master:
        return f"{address} is a master itself, not a replica"
    if behind.filling or not behind.link_up:
        return f"{address} has no link to its master, or is still being filled"
    if behind.stream != ahead.stream:
        return f"{address} is a replica, but not of {master}"
    if near is not None and ahead.offset - behind.offset > near:
        return f"{address} is {ahead.offset - behind.offset} bytes behind its master"
    return None


def shortcomings(
    group: Group,
    said: Mapping[str, Replication | ServerFailed],
    problem_of: Callable[[str], str | None],
    near: int | None = None,
) -> dict[str, str | None]:
    """Of each of a group's servers, why it does not count as a whole copy now; None if it does.

    While the master does not say that it is one, nobody does: nobody knows what a whole copy would have to hold.

    Args:
        group: with a master.
        said: by each of its servers.
        problem_of: why a replica's copy is not to be relied on; None if nothing is known against it.
        near: as for :func:`obstacle`.
    """
    master = group.servers[0]
    ahead = said[master]
    if isinstance(ahead, ServerFailed):
        return dict.fromkeys(group.servers, f"{master}, the master of group {group.id}, does not answer: {ahead}")
    if not ahead.is_master:
        return dict.fromkeys(
            group.servers, f"{master} is the master of group {group.id} and says that it is a replica itself"
        )
    found: dict[str, str | None] = {master: None}
    for server in group.replicas:
        behind = said[server]
        if isinstance(behind, ServerFailed):
            found[server] = str(behind)
        else:
            found[server] = problem_of(server) or obstacle(server, master, ahead, behind, near)
    return found


async def look_at_all(replication: ServerReplication, addresses: list[str]) -> dict[str, Replication | ServerFailed]:
    """What each of several servers says, or why it does not."""

    async def look(address: str) -> Replication | ServerFailed:
        try:
            return await replication.look(address)
        except ServerFailed as error:
            return error

    return dict(zip(addresses, await asyncio.gather(*map(look, addresses)), strict=True))
