"""How the moving of keys goes, and how fast it may go."""

from fastapi import APIRouter

from slots import ranges
from slots.states import SlotState
from topom.api import models
from topom.api.access import ServedTopom
from topom.batches import Batch
from topom.service import Topom

router = APIRouter(prefix="/migration", tags=["migration"])


def describe(topom: Topom) -> models.Migration:
    """The state of all actions, the settings in force and what was moved."""
    settings = topom.actions.settings
    states = [slot.action.state for slot in topom.ledger.table.slots if slot.action is not None]
    pending = sum(state == SlotState.PENDING for state in states)
    totals = topom.actions.totals
    return models.Migration(
        paused=settings.paused,
        settings=models.MigrationLimits(
            parallel_slots=settings.parallel_slots,
            keys_per_second=settings.keys_per_second,
            bytes_per_second=settings.bytes_per_second,
            batch_keys=settings.batch_keys,
            batch_bytes=settings.batch_bytes,
            batch_milliseconds=settings.batch_milliseconds,
        ),
        slots_pending=pending,
        slots_moving=len(states) - pending,
        slots_moved=topom.actions.slots_moved,
        keys_moved=totals.keys_moved,
        bytes_moved=totals.bytes_moved,
        keys_per_second=round(totals.keys_per_second, 1),
        remaining_keys=totals.remaining_keys,
        batches=[_describe(batch) for batch in topom.actions.batches],
    )


@router.get("")
async def show(topom: ServedTopom) -> models.Migration:
    """How it goes."""
    return describe(topom)


@router.post("/pause")
async def pause(topom: ServedTopom) -> models.Migration:
    """Begin nothing new and move no key but those that clients ask for. Remembered over a restart."""
    await topom.set_migration({"paused": True})
    return describe(topom)


@router.post("/resume")
async def resume(topom: ServedTopom) -> models.Migration:
    """Go on."""
    await topom.set_migration({"paused": False})
    return describe(topom)


@router.patch("")
async def change(topom: ServedTopom, wish: models.MigrationChange) -> models.Migration:
    """Change settings, from the next MIGRATE on. Remembered, over the configured ones."""
    await topom.set_migration(wish.model_dump(exclude_none=True))
    return describe(topom)


def _describe(batch: Batch) -> models.BatchProgress:
    return models.BatchProgress(
        source=batch.source_id,
        target=batch.target_id,
        state=batch.state,
        slots=ranges.show(batch.slots),
        keys_moved=batch.progress.keys_moved,
        bytes_moved=batch.progress.bytes_moved,
        remaining_keys=batch.progress.remaining_keys,
        passes=batch.progress.passes,
        message=batch.message,
    )
