"""Makes the copies that are wanted: the one engine by which servers come to hold what a group's master has.

A look asks the servers of all copies that are wanted (:mod:`topom.copies.wanted`), and their masters, at once. Then it
decides about each copy (:mod:`topom.copies.deciding`). If it is whole, its asker is told. It may be being filled. Else
its server is told to follow (:mod:`topom.copies.telling`), by a task of its own, because that may wait for proxies.

**bounded**: a node gives one copy at a time, and takes one, no matter who wants it. Which nodes are free is decided for
all copies in one step, without a wait in between. At the beginning of a term no copy begins before all servers were
asked: an earlier topom may be having some filled. A server is told by one task at a time.
"""

import asyncio
import math
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import structlog

from topom.cluster.ledger import Ledger, LostPlace
from topom.cluster.state import ClusterState
from topom.copies.deciding import Answer, Decision, Verdict, decide, is_foreign
from topom.copies.telling import Telling
from topom.copies.wanted import Asker, Wanted
from topom.errors import NotLeading, TopomError
from topom.periodic import Look, Loop
from topom.reasons import Kind, Reason
from topom.servers.lastcopy import ServerFailed
from topom.servers.readings import Reading
from topom.servers.replication import ServerReplication
from topom.store import StoreError

log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.2
"""Between two looks at copies that are not whole."""
SILENT_LOOK_SECONDS = 2.0
"""The same, while no server of such a copy answers."""
FILLING_SECONDS = 10.0
"""How long a server that was told to follow, and is not being filled yet, keeps other servers of its nodes waiting."""

WantedBy = tuple[Asker, Wanted]


class Filling(Loop):
    """The copies of one topom."""

    name = "copies"
    pause_seconds = 0.1

    def __init__(self, ledger: Ledger, replication: ServerReplication, telling: Telling) -> None:
        super().__init__()
        self._ledger = ledger
        self._replication = replication
        self._telling = telling
        self._askers: tuple[Asker, ...] = ()
        self._asked = False
        self._tasks: dict[tuple[Asker, str], asyncio.Task[None]] = {}
        self._failed: list[BaseException] = []
        self._told_at: dict[str, float] = {}
        self._tried_at: dict[str, float] = {}
        self._foreign_since: dict[tuple[str, str], float] = {}
        self._taken: dict[str, frozenset[str]] = {}
        """The nodes of servers that were being filled when they were last asked."""
        self._begun: dict[str, frozenset[str]] = {}
        """The nodes of servers that are just being told, or for which :meth:`taking` keeps them."""
        ledger.listen(self._changed)

    def serve(self, *askers: Asker) -> None:
        """Make what these ask for. If two askers want a copy on one server, the first asker comes first."""
        self._askers += askers

    async def run(self) -> None:
        """Look again and again, until cancelled. Then all that it has begun ends, too."""
        self._asked = False
        try:
            await super().run()
        finally:
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._begun.clear()

    async def look(self) -> Look:
        """Ask the servers of all copies, and do what can be done for each."""
        if self._failed:
            failed, self._failed = self._failed[0], []
            raise failed
        wanted = self._wanted(self._ledger.state)
        self._forget(wanted)
        # What these say now may be out of date when it is decided about.
        at_work = {server for _, server in self._tasks} | self._begun.keys()
        said = await self._ask([copy for _, copy in wanted])
        decided = [(asker, copy, self._decide(copy, said)) for asker, copy in wanted]
        self._taken = {
            copy.server: copy.nodes
            for _, copy, decision in decided
            if decision.verdict is not Verdict.WHOLE and self._is_filled(copy, said[copy.server])
        }
        self._asked = True
        free = [one for one in decided if one[1].server not in at_work]
        self._begin_whole([one for one in free if one[0].held_whole() is None])
        free = [one for one in free if one[0].held() is None]
        for asker, copy, decision in free:
            if decision.verdict is Verdict.FILLED and decision.why is not None:
                await asker.being_filled(copy, decision.why)
            elif decision.why is not None:
                asker.waits(copy, decision.why)
            elif decision.verdict is Verdict.OTHERS:
                asker.reasons.over(copy.server)
        await self._begin_telling([(asker, copy) for asker, copy, one in free if one.verdict is Verdict.TELL], said)
        return self._say_what(decided)

    @contextmanager
    def taking(self, server: str, nodes: frozenset[str]) -> Iterator[None]:
        """Let no other copy begin at these nodes meanwhile. Ask :meth:`in_the_way` right before."""
        self._begun[server] = nodes
        try:
            yield
        finally:
            self._begun.pop(server, None)

    def in_the_way(self, server: str, nodes: frozenset[str]) -> Reason | None:
        """Why a copy that concerns these nodes cannot begin now; None if it can."""
        if not self._asked:
            return Reason(Kind.BUSY, "topom has not asked yet which servers are being filled")
        return _in_the_way(self._all_taken(), server, nodes)

    async def require(self, copy: Wanted) -> None:
        """Raises a TopomError for a server that must not be told, as :meth:`topom.copies.telling.Telling.require`."""
        await self._telling.require(copy)

    def _changed(self, old: ClusterState, new: ClusterState) -> None:
        kept = (old.joining, old.promotions, old.placement, old.table.groups, old.pool, old.pause)
        now = (new.joining, new.promotions, new.placement, new.table.groups, new.pool, new.pause)
        if any(one is not other for one, other in zip(kept, now, strict=True)):
            self.wake()

    def _wanted(self, state: ClusterState) -> list[WantedBy]:
        return [(asker, copy) for asker in self._askers for copy in asker.wanted(state)]

    def _forget(self, wanted: Sequence[WantedBy]) -> None:
        """Keep only what is known of copies that are still wanted (**bounded**)."""
        for asker in self._askers:
            asker.reasons.keep_only({copy.server for one, copy in wanted if one is asker})
        servers = {copy.server for _, copy in wanted}
        for known in (self._told_at, self._tried_at):
            for server in known.keys() - servers:
                del known[server]
        for key in self._foreign_since.keys() - {(copy.server, copy.master) for _, copy in wanted}:
            del self._foreign_since[key]

    async def _ask(self, copies: Sequence[Wanted]) -> dict[str, Answer]:
        servers = sorted({server for copy in copies for server in (copy.master, copy.server)})
        answers = await asyncio.gather(*map(self._read, servers))
        return dict(zip(servers, answers, strict=True))

    async def _read(self, server: str) -> Answer:
        # bounded: the questions to many servers that are gone would hold up all others.
        if self._replication.has_failed(server):
            return ServerFailed(f"{server} does not answer")
        try:
            return await self._replication.read(server)
        except ServerFailed as error:
            return error

    def _decide(self, copy: Wanted, said: dict[str, Answer]) -> Decision:
        mine = said[copy.server]
        key, now = (copy.server, copy.master), _now()
        if isinstance(mine, Reading) and is_foreign(mine.replication, copy.master):
            self._foreign_since.setdefault(key, now)
        else:
            self._foreign_since.pop(key, None)
        return decide(copy, said[copy.master], mine, now - self._foreign_since.get(key, now))

    def _is_filled(self, copy: Wanted, mine: Answer) -> bool:
        """Whether a server is just being filled, or will be at any moment."""
        if isinstance(mine, ServerFailed):
            return False
        return mine.replication.filling or _now() < self._told_at.get(copy.server, -math.inf) + FILLING_SECONDS

    def _all_taken(self) -> dict[str, frozenset[str]]:
        """For each server whose copy is being made, the nodes that this copy concerns."""
        stored = {copy.server: copy.nodes for _, copy in self._wanted(self._ledger.state) if copy.takes_nodes}
        return {**self._taken, **self._begun, **stored}

    def _begin_whole(self, decided: Sequence[tuple[Asker, Wanted, Decision]]) -> None:
        for asker in self._askers:
            copies = [copy for one, copy, got in decided if one is asker and got.verdict is Verdict.WHOLE]
            if copies:
                self._begin(asker.whole(copies), asker, copies)

    async def _begin_telling(self, wanted: Sequence[WantedBy], said: dict[str, Answer]) -> None:
        """Have those servers told that may be told and whose nodes are free."""
        refused = await asyncio.gather(*(self._refused(copy, said) for _, copy in wanted))
        taken = self._all_taken()
        allowed = [one for one, refusal in zip(wanted, refused, strict=True) if refusal is None]
        for (asker, copy), refusal in zip(wanted, refused, strict=True):
            if refusal is not None:
                asker.waits(copy, refusal)
        # A server that was tried lately comes after the others: what stops it does not stop them.
        for asker, copy in sorted(allowed, key=lambda one: self._tried_at.get(one[1].server, -math.inf)):
            if copy.server in self._begun:
                continue
            # A copy that holds its nodes already has asked for them before.
            if not copy.takes_nodes and (busy := _in_the_way(taken, copy.server, copy.nodes)) is not None:
                asker.waits(copy, busy)
                continue
            taken[copy.server] = self._begun[copy.server] = copy.nodes
            self._tried_at[copy.server] = _now()
            mine = said[copy.server]
            assert isinstance(mine, Reading), "only a server that has answered is to be told"
            self._begin(self._tell(asker, copy, mine.run_id), asker, [copy])

    async def _refused(self, copy: Wanted, said: dict[str, Answer]) -> TopomError | None:
        """Why a server is not to be told, by what it and its master say now."""
        mine = said[copy.server]
        try:
            run_id = await self._telling.require(copy)
        except TopomError as error:
            return error
        if isinstance(mine, Reading) and run_id == mine.run_id:
            return None
        # run-id: what is thought of one process is not done to another.
        return ServerFailed(f"{copy.server} was restarted just now; it is looked at again")

    async def _tell(self, asker: Asker, copy: Wanted, run_id: str) -> None:
        def is_wanted() -> bool:
            return asker.held() is None and any(one.is_same(copy) for one in asker.wanted(self._ledger.state))

        try:
            await self._telling.tell(copy, run_id, is_wanted)
            self._told_at[copy.server], self._taken[copy.server] = _now(), copy.nodes
        except (StoreError, LostPlace, NotLeading):
            raise
        except TopomError as error:
            asker.waits(copy, error)
            return
        finally:
            self._begun.pop(copy.server, None)
            self.wake()
        self._foreign_since.pop((copy.server, copy.master), None)
        log.info("server_told_to_follow", group=copy.group, server=copy.server, master=copy.master)
        await asker.told(copy, run_id)

    def _begin(self, work: Coroutine[Any, Any, None], asker: Asker, copies: Sequence[Wanted]) -> None:
        task = asyncio.create_task(work)
        keys = [(asker, copy.server) for copy in copies]
        self._tasks.update(dict.fromkeys(keys, task))

        def over(task: asyncio.Task[None]) -> None:
            for key in keys:
                del self._tasks[key]
            if not task.cancelled() and (error := task.exception()) is not None:
                self._failed.append(error)

        task.add_done_callback(over)

    def _say_what(self, decided: Sequence[tuple[Asker, Wanted, Decision]]) -> Look:
        if not decided:
            return Look()
        filled = sorted(self._taken)
        waiting = [
            f"{copy.server} waits: {asker.reasons[copy.server]}"
            for asker, copy, one in decided
            if copy.server in asker.reasons and copy.server not in self._taken
        ]
        parts = [f"{_some(filled)} being filled"] if filled else []
        parts += waiting[:1]
        moving = any(
            one.verdict in (Verdict.FILLED, Verdict.TELL)
            or (one.verdict is Verdict.WAITS and not isinstance(one.why, ServerFailed))
            for _, _, one in decided
        )
        return Look("; ".join(parts), LOOK_SECONDS if moving else SILENT_LOOK_SECONDS)


def _in_the_way(taken: dict[str, frozenset[str]], server: str, nodes: frozenset[str]) -> Reason | None:
    for other, concerned in taken.items():
        if other != server and nodes & concerned:
            return Reason(Kind.BUSY, f"it waits until {other} is whole: a node gives or takes one copy at a time")
    return None


def _some(servers: Sequence[str]) -> str:
    if len(servers) > 2:
        return f"{len(servers)} servers are"
    return " and ".join(servers) + (" are" if len(servers) > 1 else " is")


def _now() -> float:
    return asyncio.get_running_loop().time()
