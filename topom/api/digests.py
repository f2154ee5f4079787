"""Digest checks of a group's replicas: the last checks of the leader, and what is stored against replicas."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import Query

from topom.api import digest_models as models
from topom.api.access import ServedTopom
from topom.api.routers import resource
from topom.copies.digests.checks import Check
from topom.copies.digests.sums import summary
from topom.term.service import Topom

router = resource("/groups/{group_id}/digest", "groups")


def _describe(topom: Topom, group_id: int, checks: Sequence[Check], slots: bool) -> models.Digests:
    return models.Digests(
        group_id=group_id,
        replicas=[
            models.Digest(
                server=check.server,
                master=check.master,
                stage=check.stage.value,
                reason=check.reason,
                began_at=check.began_at,
                seconds=round(check.seconds, 3),
                keys=check.tally.keys,
                keys_total=check.total,
                differences=check.tally.differences,
                named=check.tally.named,
                uncompared=check.tally.uncompared,
                uncompared_named=check.tally.uncompared_named,
                promotable=topom.differing.of(check.server) is None,
                resyncing=topom.differing.is_filled(check.server),
                slots=[
                    models.SlotDigest(slot=slot, keys=keys, master=master, replica=replica)
                    for slot, keys, master, replica in (summary(check.tally.slots) if slots else ())
                ],
            )
            for check in checks
        ],
        known=[
            models.Known(
                server=entry.server,
                keys=entry.keys,
                slots=entry.slots,
                named_slots=entry.named,
                at=entry.at,
                resyncing=topom.differing.is_filled(entry.server),
                reason=topom.differing.reason(entry.server),
            )
            for entry in topom.differing.entries
            if entry.group == group_id
        ],
    )


@router.post("", status_code=202)
async def start(topom: ServedTopom, group_id: int, new: models.NewDigest) -> models.Digests:
    """Begin to compare a replica, or all replicas of the group, with the master, key by key and in small steps."""
    checks = topom.digests.start(group_id, new.server, new.keys_per_second)
    return _describe(topom, group_id, checks, slots=False)


@router.get("")
async def show(
    topom: ServedTopom,
    group_id: int,
    slots: Annotated[bool, Query(description="With the digests of every slot.")] = False,
) -> models.Digests:
    """How the last check goes or went."""
    return _describe(topom, group_id, topom.digests.of(group_id), slots)


@router.delete("")
async def cancel(topom: ServedTopom, group_id: int) -> models.Digests:
    """End a check that is under way. A replica that was already found to differ counts as differing."""
    return _describe(topom, group_id, await topom.digests.cancel(group_id), slots=False)


@router.post("/resync", status_code=202)
async def resync(topom: ServedTopom, group_id: int, which: models.Resync) -> models.Resyncing:
    """Let the master fill a replica anew with a whole copy; until then the replica serves no client."""
    return models.Resyncing(servers=await topom.digests.resync(group_id, which.server))
