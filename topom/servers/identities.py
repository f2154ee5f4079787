"""Which server is at an address. **run-id**: a server is its run id, which no two processes share; an address is only
where it was last seen.

``localhost:6379`` and ``127.0.0.1:6379`` are one server, a virtual address moves from one server to another, and a name
is resolved anew each time. A server that is told to follow itself stops being a master, and a slot that goes from a
server to itself loses its keys. So topom keeps, by address, the run id under which each server of groups and pool was
last seen. It takes the run id from the first answer and after each restart (:mod:`topom.servers.health` asks), and
stores it for the next leader. A run id that changes means a restart. Two addresses with the same run id are a
*conflict*: nothing is taken for granted about such a server. Until one of the names is removed, nothing is done to it,
and nothing moves to or from it.

- :meth:`Identities.admit` is asked wherever a server comes in. It goes by what the others have said lately, for to ask
  all of them takes long. A server that does not answer then is compared as soon as it does.
- :meth:`Identities.require` is asked before a server is told something, filled, wiped or swept, and before slots move
  to or from it. It allows none of that until the server was compared with all others as they are now: each has to
  say after it which process it is. So whoever changes behind topom's back is noticed before anything is done.
- What is done to a server goes over a connection to the very process that the decision was about
  (:meth:`topom.servers.replication.ServerReplication.follow`, :mod:`migrator.checks`).

One thing cannot be seen: two addresses may lead to one server while only one of them has answered topom since that
server was last restarted.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from topom.cluster.events import What
from topom.cluster.ledger import Ledger
from topom.cluster.state import ClusterState, known_servers
from topom.errors import Conflict, ServerInUse, Unavailable
from topom.periodic import Look, Loop
from topom.reasons import Kind, Reason, Reasons
from topom.servers.detector import Condition
from topom.servers.lastcopy import As, ServerFailed
from topom.servers.readings import Reading, Replication
from topom.servers.replication import ServerReplication, look_at_all

LOOK_SECONDS = 1.0
"""Seconds between two looks at what is to be stored."""
NOTE_SECONDS = 1.0
"""How long the event of a conflict waits for a write to take it along."""
LATELY_SECONDS = 5.0
"""A server that said which process it is at most so long ago is not asked again when another one comes in."""
FRESH_SECONDS = 5.0
"""How long topom does not ask again whose copy a server holds, because it has to ask every master."""
NAMED_BY = 8
"""How many digits of a run id are shown."""


class SameServer(ServerInUse):
    """Two addresses lead to one server."""

    kind = Kind.OPERATOR


class ReplicaOfAnother(Conflict):
    """The server is to be in one group, and holds a copy of another group."""

    kind = Kind.OPERATOR


class NotCompared(Unavailable):
    """It is not known yet whether topom has this server by another name."""

    kind = Kind.SERVER


@dataclass(frozen=True, slots=True)
class Seen:
    """The run id at an address, ``since`` when it is known, and when it was last said, by the event loop's clock."""

    run_id: str
    since: float
    last: float


def place_of(state: ClusterState, address: str) -> str:
    """Words that say in which group, or in the pool, topom has a server."""
    for group in state.table.groups.values():
        if address in group.servers:
            return f"in group {group.id}"
    return "in the pool" if address in state.pool else "nowhere"


def with_run_ids(state: ClusterState, found: Mapping[str, str]) -> ClusterState:
    """The state in which these are the run ids seen last, by address; only those of known servers are kept."""
    known = set(known_servers(state))
    new = {**state.run_ids, **{address: run_id for address, run_id in found.items() if address in known}}
    return state if new == state.run_ids else replace(state, run_ids=new)


class Identities(Loop):
    """The servers of one topom.

    Args:
        condition_of: gives the condition of a server (:mod:`topom.servers.detector`).
    """

    name = "run ids"

    def __init__(
        self, ledger: Ledger, replication: ServerReplication, condition_of: Callable[[str], Condition]
    ) -> None:
        super().__init__()
        self._ledger = ledger
        self._replication = replication
        self._condition_of = condition_of
        self._seen: dict[str, Seen] = {}
        self._names: dict[str, list[str]] | None = None
        self._twice = Reasons[tuple[str, ...]]("server_twice", self._note, level="error")
        self._copies: dict[tuple[int, str, str, tuple[str, int] | None], tuple[float, str]] = {}

    def start(self) -> None:
        """Follow the stored state from now on."""
        self._ledger.listen(self._changed)

    async def look(self) -> Look:
        """Tell of conflicts, and store what was seen."""
        self._tell()
        await self._store()
        twice = "; ".join(str(reason) for reason in self._twice.values())
        return Look(twice, LOOK_SECONDS)

    def heard(self, address: str, run_id: str) -> None:
        """Note that a known server says this run id now."""
        now = asyncio.get_running_loop().time()
        known = self._seen.get(address)
        if known is not None and known.run_id == run_id:
            self._seen[address] = Seen(run_id, known.since, now)
        else:
            self._seen[address] = Seen(run_id, now, now)
            self._names = None

    def conflict(self, address: str) -> Reason | None:
        """By which other names topom has this server, and what to do; None if there is no other name."""
        run_id = self.run_id_of(address)
        others = [other for other in self._by_run_id().get(run_id, ()) if other != address] if run_id else []
        if not others:
            return None
        state = self._ledger.state
        named = " and ".join(f"{one} {place_of(state, one)}" for one in (address, *others))
        known = self._twice.get(tuple(sorted((address, *others))))
        return Reason(
            Kind.OPERATOR,
            f"{named} are one server, with the run id {run_id[:NAMED_BY]}..., so nothing is done to it and no slot "
            "moves to or from it",
            time.time() if known is None else known.since,
            "remove what is not its name (slotferry server remove, slotferry pool remove)",
        )

    def conflicts(self) -> list[tuple[str, ...]]:
        """For each server that topom has by more than one address, its addresses."""
        return sorted(tuple(sorted(names)) for names in self._by_run_id().values() if len(names) > 1)

    def doubt(self, address: str) -> Reason | None:
        """Why topom may have this server by another name as well; None if it surely has not."""
        if conflict := self.conflict(address):
            return conflict
        if other := self._not_compared_with(address):
            return Reason.now(Kind.BUSY, f"{address} is being compared with the other servers ({other}); wait a moment")
        return None

    def require(self, *addresses: str) -> None:
        """Raises SameServer or NotCompared unless topom surely has each of these servers by this one name only."""
        for address in addresses:
            self.require_one_name(address)
            if doubt := self.doubt(address):
                raise doubt.to(NotCompared)

    def require_one_name(self, address: str) -> None:
        """Raises SameServer if topom is known to have this server by another name."""
        if conflict := self.conflict(address):
            raise conflict.to(SameServer)

    async def admit(
        self, servers: Sequence[str], replicas: Sequence[str], group_id: int | None, wipe: bool
    ) -> dict[str, str]:
        """Look at the servers that are to come in. Gives the run ids of those that answer, to be stored with them.

        Args:
            replicas: the servers that are to be filled, by their group, or later by a group that takes them from the
                pool.
            group_id: the group that they are to be in; None for the pool.
            wipe: whether the data of these servers may be lost.

        Raises:
            SameServer: topom has one of them by another name.
            ReplicaOfAnother: one is a replica in a group, and is to be in another.
        """
        if not servers:
            return {}
        read = await self._read_all(servers)
        found = {server: reading.run_id for server, reading in read.items()}
        kept = {server for server in read if not (wipe and server in replicas)}
        may_be_copies = any(not read[server].replication.is_master for server in kept)
        state = self._ledger.state
        masters = {group.servers[0] for group in state.table.groups.values() if group.servers and may_be_copies}
        others = [
            other
            for other in known_servers(state)
            if other not in servers
            and self._condition_of(other) is not Condition.FAILED
            and (other in masters or self._may_be(other, found.values()))
        ]
        read |= await self._read_all(others)
        for other in others:
            if other in read:
                self.heard(other, read[other].run_id)
        self.require_new(self._ledger.state, found)
        said = {address: reading.replication for address, reading in read.items()}
        for server in kept:
            _require_no_copy(state, group_id, server, said)
        return found

    def _may_be(self, other: str, run_ids: Collection[str]) -> bool:
        """Whether a known address may lead to one of these processes by now: it is not known, or was one of them."""
        seen = self._seen.get(other)
        heard_lately = seen is not None and asyncio.get_running_loop().time() - seen.last < LATELY_SECONDS
        return not heard_lately or self.run_id_of(other) in run_ids

    def require_new(self, state: ClusterState, found: Mapping[str, str]) -> None:
        """Raises SameServer if two of these addresses lead to one server, or one of them to a server that topom has.

        This is asked again when they are stored, because another request may have brought one in meanwhile.
        """
        names: dict[str, str] = {}
        for address in known_servers(state):
            if address not in found:
                # A server that another request brought in meanwhile was not heard yet.
                names[self.run_id_of(address) or state.run_ids.get(address, "")] = address
        for address, run_id in found.items():
            other = names.setdefault(run_id, address)
            if other != address:
                raise SameServer(
                    f"{address} is the same server as {other}, which topom has {place_of(state, other)}; use one name "
                    "for it, or remove the other one there first"
                    if other not in found
                    else f"{address} and {other} are the same server; use one name for it"
                )

    async def require_no_copy(self, group_id: int, server: str, told_as: As) -> None:
        """Raises ReplicaOfAnother for a server that holds a copy of another group's data, unless that may be lost."""
        if told_as is As.SPARE:
            return
        said = await self._replication.look(server)
        if said.is_master:
            return
        now = asyncio.get_running_loop().time()
        self._copies = {key: known for key, known in self._copies.items() if now < known[0] + FRESH_SECONDS}
        key = group_id, server, said.stream, said.following
        known = self._copies.get(key)
        if known is None:
            try:
                await self._look_whose_copy(group_id, server, said)
                known = self._copies[key] = now, ""
            except ReplicaOfAnother as error:
                known = self._copies[key] = now, str(error)
        if known[1]:
            raise ReplicaOfAnother(known[1])

    async def _look_whose_copy(self, group_id: int, server: str, said: Replication) -> None:
        state = self._ledger.state
        masters = [
            group.servers[0]
            for group in state.table.groups.values()
            if group.servers and group.id != group_id and self._condition_of(group.servers[0]) is not Condition.FAILED
        ]
        looked = await look_at_all(self._replication, masters)
        answers = {address: answer for address, answer in looked.items() if isinstance(answer, Replication)}
        _require_no_copy(state, group_id, server, {**answers, server: said})

    async def _read_all(self, addresses: Sequence[str]) -> dict[str, Reading]:
        """What the servers that answer say."""

        async def read(address: str) -> Reading | None:
            try:
                return await self._replication.read(address)
            except ServerFailed:
                return None

        readings = await asyncio.gather(*map(read, addresses))
        return {address: one for address, one in zip(addresses, readings, strict=True) if one is not None}

    def _not_compared_with(self, address: str) -> str:
        """A server that may be another name of this address: it may answer, and was not heard since topom knows the run
        id here. It is the address itself while that has no known run id; empty if there is no such server.
        """
        mine = self._seen.get(address)
        if mine is None:
            return address
        for other in known_servers(self._ledger.state):
            condition = self._condition_of(other)
            seen = self._seen.get(other)
            if other == address or condition not in (Condition.UNKNOWN, Condition.ALIVE):
                continue
            if seen is None or seen.last < mine.since:
                return other
        return ""

    def run_id_of(self, address: str) -> str:
        """The run id under which a server was last seen; empty if it was never seen."""
        seen = self._seen.get(address)
        return seen.run_id if seen is not None else self._ledger.state.run_ids.get(address, "")

    def _by_run_id(self) -> Mapping[str, Sequence[str]]:
        if self._names is None:
            self._names = {}
            for address in known_servers(self._ledger.state):
                if run_id := self.run_id_of(address):
                    self._names.setdefault(run_id, []).append(address)
        return self._names

    async def _store(self) -> None:
        found = {address: seen.run_id for address, seen in self._seen.items()}
        if with_run_ids(self._ledger.state, found) is not self._ledger.state:
            await self._ledger.change(lambda state, epoch: with_run_ids(state, found))

    def _tell(self) -> None:
        found = self.conflicts()
        self._twice.keep_only(found)
        for names in found:
            if (reason := self.conflict(names[0])) is not None:
                self._twice.waits(names, reason, servers=names)

    def _note(self, names: tuple[str, ...], reason: Reason) -> None:
        self._ledger.note(What.SERVER_TWICE, str(reason), wait=NOTE_SECONDS, reason=reason)

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        if old.table.groups is new.table.groups and old.pool is new.pool and old.run_ids is new.run_ids:
            return
        self._names = None
        known = set(known_servers(new))
        self._seen = {address: seen for address, seen in self._seen.items() if address in known}
        now = asyncio.get_running_loop().time()
        for address in _brought_in(old, new):
            # It was compared with what others said before it. They may have changed since.
            self._seen.setdefault(address, Seen(new.run_ids[address], now, now))


def _brought_in(old: ClusterState, new: ClusterState) -> Iterable[str]:
    """Servers that came with their run ids."""
    return new.run_ids.keys() - set(known_servers(old)) if old.run_ids is not new.run_ids else ()


def _require_no_copy(state: ClusterState, group_id: int | None, server: str, said: Mapping[str, Replication]) -> None:
    """Raises ReplicaOfAnother for a replica of another group's master. The master it follows, or its stream, shows
    that.

    A replica that was just told to follow has no stream yet, so the address that it follows counts. The stream counts,
    too, because that address may be right only at the replica itself.
    """
    mine = said[server]
    if mine.is_master:
        return
    for group in state.table.groups.values():
        if not group.servers or group.id == group_id:
            continue
        master = said.get(group.servers[0])
        in_its_stream = master is not None and master.is_master and mine.stream != "" and master.stream == mine.stream
        if in_its_stream or mine.follows(group.servers[0]):
            raise ReplicaOfAnother(
                f"{server} is a replica of {group.servers[0]}, the master of group {group.id}, and holds a copy of its "
                "data; name another server. If that copy may be lost and it is to be filled anew, say so (--wipe)"
            )
