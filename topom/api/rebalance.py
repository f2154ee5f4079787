"""Rebalancing by a planner."""

from typing import Annotated

from fastapi import APIRouter, Query

from topom.api import models
from topom.api.access import ServedTopom

router = APIRouter(tags=["slots"])


@router.post("/rebalance")
async def rebalance(
    topom: ServedTopom,
    policy: Annotated[str, Query(description="The planner.")] = "codis",
    dry_run: Annotated[bool, Query(description="Only say what would be moved.")] = False,
) -> models.Rebalance:
    """Plan which slots move where, and put them on their way."""
    moves = await topom.rebalance(policy, dry_run)
    return models.Rebalance(
        policy=policy,
        dry_run=dry_run,
        moves=[models.Move.model_validate(move.to_wire()) for move in moves],
    )
