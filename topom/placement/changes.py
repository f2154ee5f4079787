"""How applying a placement changes what is stored: pure functions from one state to the next.

Nothing is removed before its replacement is whole. A server leaves its group only in the write that takes the
replacement in, or later, and never while it is the master.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from slots.group import Group
from slots.table import SlotTable
from topom.cluster import fences, topology
from topom.cluster.cancelling import with_table
from topom.cluster.placement_run import Kept, Progress, Run, Step
from topom.cluster.state import ClusterState, Leaving, PoolServer, leaving_servers
from topom.errors import Conflict, GroupLocked
from topom.reasons import Kind, Reason


class PlacementRuns(Conflict):
    """A placement is being applied already."""


class NothingToPlace(Conflict):
    """No placement is being applied, or there is nothing to change."""


class AllInPlace(NothingToPlace):
    """Everything is as it should be, and nothing is missing."""


class StepOvertaken(Conflict):
    """The group, the pool or the placement was changed meanwhile; it is looked at again."""


def begun(state: ClusterState, steps: Sequence[Step], who: str, now: float) -> ClusterState:
    """The state in which these steps are to be done. Raises :class:`PlacementRuns`, :class:`StepOvertaken`."""
    if state.placement.run is not None:
        raise PlacementRuns("a placement is being applied already; wait for it, or say slotferry placement cancel")
    for step in steps:
        group = topology.group_of(state.table, step.group)
        if step.kind != "copy" and step.server not in group.servers and not _to_come(steps, step):
            raise StepOvertaken(f"group {group.id} was changed meanwhile; try again")
    return replace(state, placement=Kept(state.placement.auto, Run(now, who, tuple(steps))))


def _to_come(steps: Sequence[Step], step: Step) -> bool:
    return any(one.kind == "copy" and (one.group, one.server) == (step.group, step.server) for one in steps)


def ended(state: ClusterState) -> ClusterState:
    """The state in which no placement is being applied. Raises :class:`NothingToPlace`."""
    if state.placement.run is None:
        raise NothingToPlace("no placement is being applied")
    return replace(state, placement=Kept(state.placement.auto))


def with_auto(state: ClusterState, auto: bool) -> ClusterState:
    """The state in which topom places by itself, or does not."""
    if state.placement.auto is auto:
        return state
    return replace(state, placement=replace(state.placement, auto=auto))


def advanced(state: ClusterState, step: Step, progress: Progress) -> ClusterState:
    """The state in which a step has come so far. Raises :class:`StepOvertaken` if there is no such step any more."""
    run = _run_with(state, step)
    steps = tuple(replace(one, state=progress) if one.is_same(step) else one for one in run.steps)
    return replace(state, placement=replace(state.placement, run=replace(run, steps=steps)))


def dropped(state: ClusterState, step: Step, refusal: Reason) -> ClusterState:
    """The state in which a step is dropped, with all later steps of its group."""
    run = _run_with(state, step)
    after = replace(refusal, kind=Kind.BUSY, what=f"{step.server} could not be placed", to_do="")
    steps = tuple(_dropped(one, step, refusal, after) for one in run.steps)
    return replace(state, placement=replace(state.placement, run=replace(run, steps=steps)))


def _dropped(one: Step, step: Step, refusal: Reason, after: Reason) -> Step:
    if one.is_same(step):
        return replace(one, state="dropped", refusal=refusal)
    if one.group == step.group and one.round > step.round and not one.over:
        return replace(one, state="dropped", refusal=after)
    return one


def joined(
    state: ClusterState, epoch: int, step: Step, master: str, may_hold_more: Collection[str] = ()
) -> ClusterState:
    """The state in which a whole copy is taken into its group, and what it replaces is in the pool, or gone for good.

    The master stays, even if the copy is to replace it; a copy that is to lead is ``joined`` until it does.

    Args:
        may_hold_more: servers that may hold what the group's master lacks; nobody may wipe them.

    Raises:
        StepOvertaken: the step, the group's master or the pool has changed, or the server is leaving.
        GroupLocked: another server is being made the group's master.
    """
    group = _group(state, step, master)
    entry = state.pool.get(step.server)
    if entry is None:
        raise StepOvertaken(f"{step.server} is not in the pool any more")
    if leaves(state, step):
        raise StepOvertaken(f"{step.server} is on its way out, or its node is")
    leaving = [server for server in step.instead_of if server in group.replicas]
    kept = _without(state.table, epoch, group.id, leaving)
    table = topology.add_server(kept, epoch, group.id, step.server, entry.datacenter, entry.node)
    pool = {address: one for address, one in state.pool.items() if address != step.server}
    new = replace(with_table(state, table), pool={**pool, **_pooled(state, group, leaving, may_hold_more)})
    return advanced(new, step, "joined" if step.leads else "done")


def left(
    state: ClusterState,
    epoch: int,
    step: Step,
    servers: Iterable[str],
    master: str,
    may_hold_more: Collection[str] = (),
) -> ClusterState:
    """The state in which replicas of the step's group are in the pool, or gone for good, and the step is over.

    Args and errors are those of :func:`joined`.
    """
    group = _group(state, step, master)
    leaving = [server for server in servers if server in group.replicas]
    if not leaving:
        return advanced(state, step, "done")
    table = _without(state.table, epoch, group.id, leaving)
    new = replace(with_table(state, table), pool={**state.pool, **_pooled(state, group, leaving, may_hold_more)})
    return advanced(new, step, "done")


def copying(state: ClusterState, step: Step) -> ClusterState:
    """The state in which a server of the pool is about to be filled, and may lose its marks.

    Raises :class:`StepOvertaken`.
    """
    if step.server not in state.pool:
        raise StepOvertaken(f"{step.server} is not in the pool any more")
    return fences.emptied(advanced(state, step, "copying"), step.server)


def told(state: ClusterState, server: str, group_id: int) -> ClusterState:
    """The state in which a server of the pool was told to follow a group's master: what it holds may be lost then."""
    entry = state.pool.get(server)
    if entry is None or (entry.wipe and entry.copy_of in (None, group_id)):
        return state
    return replace(state, pool={**state.pool, server: replace(entry, wipe=True, copy_of=group_id)})


def step_of(state: ClusterState, server: str, group_id: int) -> Step:
    """The step that fills this server for this group. Raises :class:`StepOvertaken` if there is none."""
    run = state.placement.run
    for step in run.steps if run is not None else ():
        if (step.server, step.group, step.state) == (server, group_id, "copying"):
            return step
    raise StepOvertaken(f"{server} is not to be filled any more: the placement was ended, or the step was dropped")


def leaves(state: ClusterState, step: Step) -> bool:
    """Whether a step's server, or its node, is on its way out."""
    return bool(state.leaving.keys() & {Leaving.key_of("server", step.server), Leaving.key_of("node", step.node)})


def _run_with(state: ClusterState, step: Step) -> Run:
    run = state.placement.run
    if run is None or not any(one.is_same(step) and not one.over for one in run.steps):
        raise StepOvertaken("the placement was ended meanwhile")
    return run


def _group(state: ClusterState, step: Step, master: str) -> Group:
    _run_with(state, step)
    group = topology.group_of(state.table, step.group)
    if group.locked:
        raise GroupLocked(f"a server of group {group.id} is being made its master; it is tried again then")
    if group.master != master:
        raise StepOvertaken(f"{master} is not the master of group {group.id} any more")
    return group


def _without(table: SlotTable, epoch: int, group_id: int, servers: Iterable[str]) -> SlotTable:
    for server in servers:
        table = topology.remove_server(table, epoch, group_id, server)
    return table


def _pooled(
    state: ClusterState, group: Group, servers: Sequence[str], may_hold_more: Collection[str]
) -> dict[str, PoolServer]:
    """The entries of the pool for servers that leave their group, with permission to wipe their old copies.

    **last-copy**: an old copy may be wiped while all that it holds is in the group. If it may hold more, an operator
    has to say so. A server that is leaving gets no entry: it is wanted nowhere, and may hold anything once somebody
    starts it again.
    """
    out = leaving_servers(state)
    found = {}
    for server in servers:
        if server in out:
            continue
        old_copy = server not in may_hold_more
        found[server] = PoolServer(
            server, group.nodes.get(server, ""), group.datacenter_of(server), old_copy, group.id if old_copy else None
        )
    return found
