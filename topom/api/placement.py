"""Placement: on which nodes groups have their masters and replicas, and changes of that."""

from collections.abc import Mapping, Sequence

from topom.api import placement_models as models
from topom.api.access import ServedTopom
from topom.api.routers import resource
from topom.cluster.placement_run import Step
from topom.placement.applying import Shown
from topom.placement.changes import AllInPlace
from topom.placement.stepping import Key, key_of
from topom.reasons import Reason
from topom.term.service import Topom

router = resource("/placement", "placement")


@router.get("")
async def show(topom: ServedTopom) -> models.Placement:
    """The table over groups and nodes, what a plan would change, and what is being applied."""
    return _describe(topom, await topom.placements.show())


@router.post("/apply", status_code=202)
async def apply(topom: ServedTopom) -> models.Placement:
    """Make a plan now and begin to apply it, round by round. If there is nothing to do, ``run`` is null."""
    try:
        return _describe(topom, await topom.placements.apply())
    except AllInPlace:
        return _describe(topom, await topom.placements.show())


@router.post("/cancel")
async def cancel(topom: ServedTopom) -> models.Placement:
    """End the placement that is being applied: what is done stays, copies under way are given up."""
    await topom.placements.cancel()
    return _describe(topom, await topom.placements.show())


@router.post("/auto")
async def set_auto(topom: ServedTopom, change: models.Auto) -> models.Placement:
    """Let topom place by itself, or not."""
    await topom.placements.set_auto(change.on)
    return _describe(topom, await topom.placements.show())


def _describe(topom: Topom, shown: Shown) -> models.Placement:
    state = topom.ledger.state
    picture = shown.picture
    groups = [
        models.PlacedGroup(
            id=group.id,
            leader=group.node_of(group.master) if group.master else "",
            followers=[group.node_of(server) for server in group.replicas],
            reason=picture.left_out.get(group.id),
        )
        for group in sorted(state.table.groups.values(), key=lambda group: group.id)
    ]
    nodes = [
        models.PlacedNode(
            name=name,
            datacenter=picture.nodes[name].datacenter if name in picture.nodes else "",
            reason=picture.absent.get(name),
            leads=[group.id for group in groups if group.leader == name],
            follows=[group.id for group in groups if name in group.followers],
            pool=list(picture.free.get(name, ())),
        )
        for name in sorted({*picture.nodes, *picture.absent})
    ]
    steps = shown.planned.steps
    run = state.placement.run
    return models.Placement(
        epoch=state.table.epoch,
        replicas=topom.placements.rules.replicas,
        auto=state.placement.auto,
        reason=topom.placements.reason,
        nodes=nodes,
        groups=groups,
        plan=models.PlacementPlan(
            rounds=max((step.round for step in steps), default=0),
            steps=_steps(steps, {}),
            missing=[*shown.planned.missing, *picture.unusable.values()],
        ),
        run=None
        if run is None
        else models.PlacementRun(since=run.since, who=run.who, steps=_steps(run.steps, topom.placements.reasons)),
    )


def _steps(steps: Sequence[Step], reasons: Mapping[Key, Reason]) -> list[models.PlacementStep]:
    return [
        models.PlacementStep(
            round=step.round,
            group=step.group,
            kind=step.kind,
            node=step.node,
            server=step.server,
            text=step.text,
            state=step.state,
            reason=step.refusal or (None if step.over else reasons.get(key_of(step))),
        )
        for step in steps
    ]
