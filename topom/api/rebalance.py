"""Rebalancing by a planner."""

from typing import Annotated

from fastapi import Query

from topom.api import rebalance_models as models
from topom.api.access import ServedTopom
from topom.api.cost_models import Cost
from topom.api.routers import resource
from topom.balance.planners.request import DEFAULT_TOLERANCE
from topom.balance.rebalancing import PlanOptions
from topom.errors import Invalid
from topom.term.service import Topom

MOST_GROUPS = 10_000

router = resource("", "slots")


class InvalidCapacity(Invalid):
    """Not a group and its weight."""


@router.post("/rebalance")
async def rebalance(
    topom: ServedTopom,
    policy: Annotated[
        str,
        Query(
            description="The planner: `codis` evens out numbers of slots, `bytes` the memory of their keys, `load` "
            "what clients ask of them."
        ),
    ] = "codis",
    dry_run: Annotated[bool, Query(description="Only say what would be moved.")] = False,
    confirm: Annotated[
        bool,
        Query(description="By `codis`: also if that undoes what the last plan, by `bytes` or `load`, has done."),
    ] = False,
    tolerance: Annotated[
        float,
        Query(ge=0, le=1, description="By `bytes` and `load`: by how much of its share a group may differ from it."),
    ] = DEFAULT_TOLERANCE,
    most_slots: Annotated[int | None, Query(ge=0, description="Slots that the plan moves at most.")] = None,
    most_bytes: Annotated[int | None, Query(ge=0, description="Bytes that the plan moves at most.")] = None,
    drain: Annotated[
        list[int] | None, Query(max_length=MOST_GROUPS, description="Groups that are to have nothing left.")
    ] = None,
    capacity: Annotated[
        list[str] | None,
        Query(
            max_length=MOST_GROUPS,
            examples=[["1=64", "2=32"]],
            description="By `bytes` and `load`: weights of groups, as `GROUP=WEIGHT`; a group's share is its weight's"
            " share of all weights. One that is not named has the mean of those that are.",
        ),
    ] = None,
) -> models.Rebalance:
    """Plan which slots move where, say what that costs, and begin the moves."""
    options = PlanOptions(
        policy=policy,
        tolerance=tolerance,
        most_slots=most_slots,
        most_bytes=most_bytes,
        drain=frozenset(drain or ()),
        capacity=dict(_capacity(text) for text in capacity or ()),
    )
    planned = await topom.rebalancing.rebalance(options, dry_run, confirm)
    return models.Rebalance(
        policy=policy,
        dry_run=dry_run,
        epoch=topom.ledger.table.epoch,
        moves=[models.Move.model_validate(move.to_wire()) for move in planned.plan.moves],
        cost=Cost.model_validate(
            {
                **planned.cost.to_wire(),
                "keys_per_second": _rounded(planned.rate.keys),
                "bytes_per_second": _rounded(planned.rate.bytes),
            }
        ),
        reasons=list(planned.plan.reasons),
        warnings=list(planned.warnings),
    )


@router.get("/rebalance/decision")
async def decision(topom: ServedTopom) -> models.Decision:
    """What topom decided last about moving slots by itself, and why."""
    return describe(topom)


def describe(topom: Topom) -> models.Decision:
    """The decision, as :func:`decision` gives it."""
    auto = topom.auto_rebalance
    made = auto.decision
    return models.Decision(
        auto=topom.settings.rebalance == "auto",
        at=made.at or None,
        cause=made.why,
        text=made.text,
        moves=[models.Move.model_validate(move.to_wire()) for move in made.moves],
        greatest=made.greatest,
        expected=made.expected,
        enter=auto.rules.enter,
        leave=auto.rules.leave,
        above=[models.Above(group=group_id, since=since) for group_id, since in sorted(made.above.items())],
    )


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 1)


def _capacity(text: str) -> tuple[int, float]:
    group_id, _, weight = text.partition("=")
    try:
        return int(group_id), float(weight)
    except ValueError:
        raise InvalidCapacity(f"{text!r} is no capacity; write GROUP=WEIGHT, for example 3=1.5") from None
