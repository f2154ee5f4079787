"""Nodes: the machines on which servers run."""

from typing import Annotated

from fastapi import Depends, Query

from topom.api import leaving_models as models
from topom.api.access import ServedTopom, refuse_body
from topom.api.groups import Why, describe_leaving
from topom.api.routers import resource

router = resource("/nodes", "placement")


@router.post("/{node}/drain", dependencies=[Depends(refuse_body)])
async def drain_node(
    topom: ServedTopom,
    node: str,
    why: Why = "",
    fewer_copies: Annotated[bool, Query(description="Whether groups may be left with fewer copies.")] = False,
) -> models.LeavingList:
    """Let a node leave: its masters are replaced by promotions, its replicas from the pool, and all are removed.

    If it leaves already, the reason, and whether fewer copies will do, are set anew.
    """
    await topom.node_departures.drain(node, why, fewer_copies)
    return models.LeavingList(leaving=describe_leaving(topom))


@router.delete("/{node}/drain")
async def keep_node(topom: ServedTopom, node: str) -> models.LeavingList:
    """Let a node stay after all. What has left it does not come back by itself."""
    await topom.node_departures.keep(node)
    return models.LeavingList(leaving=describe_leaving(topom))
