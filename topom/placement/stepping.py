"""Does the steps of a placement that is being applied, one look at a time.

Every step is stored before anything is done, and looks at what is there before it does anything. So the next topom may
do it again. This module begins copies, stores that, and gives them up. Meanwhile the engine of all copies has the
server filled and taken into its group (:mod:`topom.placement.copying`).

**bounded**: a copy may take ``copy_seconds``. A step cannot be done while a server does not answer or refuses, or while
slots of the group are in motion. It is tried for :data:`PATIENCE_SECONDS`. Then it is dropped, with all later steps of
its group; another plan makes it again, if it is still wanted.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from slots.group import Group
from topom.cluster.ledger import Ledger, LostPlace
from topom.cluster.placement_run import Run, Step
from topom.copies.filling import Filling
from topom.copies.wanted import Wanted
from topom.errors import NotLeading, NotReady, ServersUnreachable, TopomError
from topom.masters.promotions import Promotions
from topom.placement import changes
from topom.placement.changes import StepOvertaken
from topom.placement.copying import CannotBeJudged, PlacedCopies, may_hold_more
from topom.placement.detaching import Detaching
from topom.placement.picture import draw
from topom.reasons import Kind, Reason, Reasons
from topom.servers.detector import Condition
from topom.servers.health import Health
from topom.servers.lastcopy import HoldsKeys, ServerFailed
from topom.servers.replication import ServerReplication, look_at_all
from topom.servers.whole import copies_refused
from topom.store import StoreError

log = structlog.get_logger(__name__)

PATIENCE_SECONDS = 60.0
"""How long a step that cannot be done is tried."""

Key = tuple[int, int, str, str]


@dataclass(frozen=True, slots=True)
class SteppingSettings:
    """How copies are made.

    Attributes:
        lag_bytes: how far a replica may be behind its master to count as whole.
        copy_seconds: how long that may take.
    """

    lag_bytes: int
    copy_seconds: float


class TooFewCopies(TopomError):
    """The group has fewer whole copies than it takes for one to be removed."""

    kind = Kind.DATA


class Stepping:
    """The steps of one topom.

    Args:
        filling: the engine that makes copies. ``placed``: the copies that placements want.
        detaching: has servers of the pool follow nobody.
    """

    def __init__(
        self,
        ledger: Ledger,
        health: Health,
        promotions: Promotions,
        replication: ServerReplication,
        filling: Filling,
        placed: PlacedCopies,
        detaching: Detaching,
        settings: SteppingSettings,
    ) -> None:
        self._ledger = ledger
        self._health = health
        self._promotions = promotions
        self._replication = replication
        self._filling = filling
        self._placed = placed
        self._detach = detaching.detach
        self._settings = settings
        self._promoting: tuple[Run | None, frozenset[int]] = (None, frozenset())
        self._since: dict[Key, float] = {}
        self._copying_since: dict[Key, float] = {}
        self.reasons = Reasons[Key]("placement_step_waits")
        """What steps wait for, by :func:`key_of`."""

    async def look(self, run: Run) -> None:
        """Do what can be done now of the round that is under way.

        Raises StoreError, LostPlace, NotLeading: nothing can be changed now.
        """
        current = run.current
        known = {key_of(step) for step in current}
        for times in (self._since, self._copying_since):
            for key in times.keys() - known:
                del times[key]
        self.reasons.keep_only(known)
        # Copies that are whole make room for those that wait; promotions come before the copies of their round.
        order = {"promote": 0, "copy": 1, "retire": 2}
        for step in sorted(current, key=lambda step: (order[step.kind], step.state == "waiting")):
            if step.kind == "copy" and step.state == "waiting" and self._is_promoting(step.group):
                continue
            if self._placed.held() is not None:
                # An operator may have paused topom since the look began, or many members may have been lost.
                return
            await self._try(step)

    def forget(self) -> None:
        """Nothing is being applied any more."""
        self._since.clear()
        self._copying_since.clear()
        self.reasons.keep_only(())

    async def let_go(self, run: Run) -> None:
        """Have the servers that a run was filling follow nobody, once it is over. Raises nothing."""
        copying = [step.server for step in run.steps if step.state == "copying"]
        await self._detach([server for server in copying if server in self._ledger.state.pool])

    def _is_promoting(self, group_id: int) -> bool:
        """Whether a promotion of this group is to come in the round; looked up once for each state of the steps."""
        run = self._ledger.state.placement.run
        if run is not self._promoting[0]:
            steps = run.current if run is not None else ()
            self._promoting = run, frozenset(step.group for step in steps if step.kind == "promote")
        return group_id in self._promoting[1]

    async def _try(self, step: Step) -> None:
        key = key_of(step)
        try:
            if unknown := self._unknown(step):
                # This is so right after topom's start, and nothing is decided by it.
                self.reasons.waits(key, Reason(Kind.BUSY, f"topom has not looked at {unknown} yet"), step=step.text)
            elif step.group not in self._ledger.table.groups:
                await self._drop(step, f"group {step.group} is not there any more")
            elif step.kind != "retire" and changes.leaves(self._ledger.state, step):
                await self._drop(step, f"{step.server} is on its way out, or its node is")
                if step.state == "copying":
                    await self._detach([step.server])
            elif step.kind == "promote":
                await self._promote(step)
            elif step.kind == "retire":
                await self._retire(step)
            else:
                await self._copy(step)
        except (StoreError, LostPlace, NotLeading):
            raise
        except HoldsKeys as error:
            await self._drop(step, error)
        except CannotBeJudged as error:
            # It may be filled just now, which takes as long as a copy.
            await self._wait(step, error, self._settings.copy_seconds)
        except TopomError as error:
            await self._wait(step, error, PATIENCE_SECONDS)
        else:
            self._since.pop(key, None)

    async def _wait(self, step: Step, error: TopomError, most_seconds: float) -> None:
        """Note what a step waits for; drop it once it has waited for so long."""
        key, now = key_of(step), asyncio.get_running_loop().time()
        self.reasons.waits(key, error, step=step.text)
        if now - self._since.setdefault(key, now) > most_seconds:
            await self._drop(step, error)

    def _unknown(self, step: Step) -> str:
        group = self._ledger.table.groups.get(step.group)
        servers = list(group.servers) if group is not None else []
        if step.server in self._ledger.state.pool:
            servers.append(step.server)
        return next((one for one in servers if self._health.of(one).condition is Condition.UNKNOWN), "")

    async def _promote(self, step: Step) -> None:
        group = self._ledger.table.groups[step.group]
        if step.server not in group.servers:
            await self._drop(step, f"{step.server} is not in group {group.id} any more")
            return
        if step.server != group.master:
            await self._promotions.promote(group.id, step.server)
        await self._ledger.change(lambda state, epoch: changes.advanced(state, step, "done"))

    async def _copy(self, step: Step) -> None:
        if step.state == "joined":
            await self._lead(step)
            return
        group = self._ledger.table.groups[step.group]
        if step.server not in self._ledger.state.pool or group.master is None:
            await self._drop(step, f"{step.server} is not in the pool any more, or group {group.id} has no master")
        elif step.state == "copying":
            await self._watch(step)
        else:
            await self._begin(step)

    async def _begin(self, step: Step) -> None:
        """Have a server of the pool filled, if neither its node nor the master's makes another copy."""
        copy = self._require_copy(step)
        if (busy := self._filling.in_the_way(copy.server, copy.nodes)) is not None:
            self.reasons.waits(key_of(step), busy, step=step.text)
            return
        if self._health.of(step.server).condition is not Condition.ALIVE:
            raise ServersUnreachable(f"{step.server} does not answer")
        with self._filling.taking(copy.server, copy.nodes):
            await self._filling.require(copy)
            await self._ledger.change(lambda state, epoch: changes.copying(state, step))

    def _require_copy(self, step: Step) -> Wanted:
        copy = self._placed.copy_of(self._ledger.state, step)
        if copy is None:
            raise StepOvertaken(f"{step.server} is not in the pool any more, or group {step.group} has no master")
        return copy

    async def _watch(self, step: Step) -> None:
        """Look how far a copy is. Raises the TopomError that keeps it from being made."""
        key = key_of(step)
        now = asyncio.get_running_loop().time()
        if now - self._copying_since.setdefault(key, now) > self._settings.copy_seconds:
            await self._drop(step, f"it was not whole within {self._settings.copy_seconds:g} s")
            await self._detach([step.server])
        elif (error := self._placed.failure(step.server)) is not None:
            raise error
        elif (reason := self._placed.reasons.get(step.server)) is not None:
            self.reasons.waits(key, reason, step=step.text)

    async def _lead(self, step: Step) -> None:
        """A copy that is in its group becomes the master, and what it replaces goes to the pool."""
        group = self._ledger.table.groups[step.group]
        if step.server not in group.servers:
            await self._drop(step, f"{step.server} is not in group {group.id} any more")
            return
        if step.server != group.master:
            await self._promotions.promote(group.id, step.server)
        await self._leave(step, step.instead_of)

    async def _retire(self, step: Step) -> None:
        group = self._ledger.table.groups[step.group]
        master = group.master
        if master is None or step.server == master:
            await self._drop(step, f"group {group.id} has no server any more, or {step.server} is its master")
            return
        if step.server not in group.servers:
            await self._ledger.change(lambda state, epoch: changes.advanced(state, step, "done"))
            return
        picture = draw(self._ledger.state, lambda server: self._health.of(server).condition)
        if step.server not in picture.gone.get(group.id, (step.server,)):
            await self._drop(step, f"{step.server} is there again, and stays")
            return
        whole = await self._whole_nodes(group, step.server)
        if len(whole) < step.keep:
            raise TooFewCopies(f"group {group.id} has whole copies on {len(whole)} of {step.keep} nodes")
        await self._leave(step, [step.server])

    async def _leave(self, step: Step, servers: Sequence[str]) -> None:
        """Have replicas leave the group; after a change of masters, those that answer must follow its master first."""
        group = self._ledger.table.groups.get(step.group)
        if group is None or group.master is None:
            raise StepOvertaken(f"group {step.group} was removed meanwhile, or its servers were")
        master = group.master
        if step.group in self._ledger.state.promotions:
            for server in servers:
                if server in group.replicas and self._health.of(server).condition is not Condition.FAILED:
                    said = await self._replication.look(server)
                    if said.is_master or not said.follows(master):
                        raise NotReady(f"{server} does not follow {master} yet, the master of group {group.id} now")
        leaving = [server for server in servers if server in group.replicas]
        held_back = await may_hold_more(self._replication, master, leaving)
        await self._ledger.change(lambda state, epoch: changes.left(state, epoch, step, servers, master, held_back))
        await self._detach([one for one in servers if one in self._ledger.state.pool])

    async def _whole_nodes(self, group: Group, without: str) -> set[str]:
        """Nodes with a whole copy of the group, also the master's node; servers that have failed are not asked."""
        asked = [
            server
            for server in group.servers
            if server != without and self._health.of(server).condition is not Condition.FAILED
        ]
        unasked = dict.fromkeys(group.servers, ServerFailed("it was not asked"))
        said = {**unasked, **await look_at_all(self._replication, asked)}
        refused = copies_refused(self._ledger.state, group, said, self._settings.lag_bytes)
        return {group.node_of(server) for server, refusal in refused.items() if refusal is None}

    async def _drop(self, step: Step, why: str | TopomError) -> None:
        refusal = Reason.of(why) if isinstance(why, TopomError) else Reason.now(Kind.BUSY, why)
        log.warning("placement_step_dropped", step=step.text, kind=refusal.kind, reason=str(refusal))
        await self._ledger.change(lambda state, epoch: changes.dropped(state, step, refusal))


def key_of(step: Step) -> Key:
    """What a step is found by, in each of its states."""
    return step.round, step.group, step.kind, step.server
