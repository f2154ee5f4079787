"""How the migration goes, and how fast it may go."""

from collections.abc import Collection, Mapping

from migrator import progress
from slots import ranges
from slots.states import SlotState
from topom.api import migration_models as models
from topom.api import slot_models
from topom.api.access import ServedTopom
from topom.api.routers import resource
from topom.migration.batches import Batch, Pair
from topom.migration.ways import Way
from topom.migrators.copies import RemoteCopy
from topom.reasons import Kind, Reason
from topom.term.service import Topom

router = resource("/migration", "migration")


def describe(topom: Topom) -> models.Migration:
    """The state of all actions, the settings in force and what was moved."""
    settings = topom.actions.settings
    halt = topom.actions.halt
    states = [slot.action.state for slot in topom.ledger.table.slots if slot.action is not None]
    pending = sum(state == SlotState.PENDING for state in states)
    totals = topom.actions.totals
    return models.Migration(
        epoch=topom.ledger.table.epoch,
        paused=settings.paused,
        halted=topom.actions.halted(),
        halted_until=halt.until if halt else None,
        settings=models.MigrationLimits.model_validate(settings, from_attributes=True),
        slots_pending=pending,
        slots_moving=len(states) - pending,
        slots_moved=topom.actions.slots_moved,
        keys_moved=totals.keys_moved,
        bytes_moved=totals.bytes_moved,
        keys_per_second=round(totals.keys_per_second, 1),
        remaining_keys=totals.remaining_keys,
        batches=[_describe(batch, topom) for batch in topom.actions.batches]
        + [_describe_deferred(*entry) for entry in topom.actions.deferred],
        skipped=_describe_skipped(topom.ledger.state.skipped),
    )


@router.get("")
async def show(topom: ServedTopom) -> models.Migration:
    """How the migration goes."""
    return describe(topom)


@router.post("/pause")
async def pause(topom: ServedTopom) -> models.Migration:
    """Begin nothing new, and move only keys that clients ask for. Remembered over a restart."""
    await topom.orders.set({"paused": True})
    return describe(topom)


@router.post("/resume")
async def resume(topom: ServedTopom) -> models.Migration:
    """Go on."""
    await topom.orders.set({"paused": False})
    return describe(topom)


@router.patch("")
async def change(topom: ServedTopom, body: models.MigrationChange) -> models.Migration:
    """Change settings, from the next step on. Remembered, over the configured ones."""
    await topom.orders.set(body.model_dump(exclude_none=True))
    return describe(topom)


@router.post("/cancel")
async def cancel(topom: ServedTopom, body: slot_models.SlotsMaybe) -> models.SlotsCancelled:
    """Cancel the actions of slots: keys that have moved go back. A slot that is `finished` stays moved."""
    outcome = await topom.orders.cancel(body.slots)
    return models.SlotsCancelled(
        epoch=topom.ledger.table.epoch,
        ended=outcome.ended,
        returning=outcome.returning,
        too_late=outcome.too_late,
    )


@router.post("/skip")
async def skip(topom: ServedTopom, body: slot_models.SlotsOnly) -> slot_models.SlotsChanged:
    """Let slots whose action does not go on step aside for others until they are retried, also over restarts."""
    slots = await topom.orders.skip(body.slots)
    return slot_models.SlotsChanged(epoch=topom.ledger.table.epoch, slots=slots)


@router.post("/retry")
async def retry(topom: ServedTopom, body: slot_models.SlotsMaybe) -> slot_models.SlotsChanged:
    """Try at once what has failed and waits; skipped slots (the named ones, or all) go on as well."""
    slots = await topom.orders.retry(body.slots)
    return slot_models.SlotsChanged(epoch=topom.ledger.table.epoch, slots=slots)


def _describe(batch: Batch, topom: Topom) -> models.BatchProgress:
    slots = topom.ledger.table.slots
    actions = [action for slot in batch.slots if (action := slots[slot].action) is not None]
    chosen = bool(actions) and batch.state is not SlotState.PENDING
    way = Way.STREAM if any(action.copy for action in actions) else Way.KEYS
    copy = topom.actions.steps.copies.of(batch)
    made_by = copy.made_by if isinstance(copy, RemoteCopy) else ""
    return models.BatchProgress(
        source=batch.source_id,
        target=batch.target_id,
        state=batch.state,
        course=batch.course.value,
        slots=ranges.show(batch.slots),
        keys_moved=batch.progress.keys_moved,
        bytes_moved=batch.progress.bytes_moved,
        remaining_keys=batch.progress.remaining_keys,
        passes=batch.progress.passes,
        pacing=_describe_pacing(batch.progress.pacing()),
        reason=topom.actions.reason(batch),
        way=way.value if chosen else None,
        notes=[
            *batch.notes,
            *filter(None, (made_by and f"copied by {made_by}", batch.follows)),
            *batch.restarted.values(),
        ],
    )


def _describe_pacing(pacing: progress.Pacing | None) -> models.Pacing | None:
    if pacing is None:
        return None
    return models.Pacing(
        speed=round(pacing.speed, 3),
        source=_describe_latency(pacing.source),
        target=_describe_latency(pacing.target),
        reason=Reason(Kind.PACE, pacing.held_back, pacing.since) if pacing.held_back else None,
    )


def _describe_latency(latency: progress.ServerLatency) -> models.ServerLatency:
    return models.ServerLatency(
        address=latency.address,
        p99_milliseconds=None if latency.p99 is None else round(latency.p99, 3),
        quiet_p99_milliseconds=None if latency.quiet is None else round(latency.quiet, 3),
        allowed_milliseconds=round(latency.allowed, 3),
    )


def _describe_deferred(pair: Pair, slots: Collection[int], reason: Reason) -> models.BatchProgress:
    source, target = pair
    return models.BatchProgress(
        source=source,
        target=target,
        state=SlotState.PENDING,
        slots=ranges.show(slots),
        keys_moved=0,
        bytes_moved=0,
        remaining_keys=None,
        passes=0,
        pacing=None,
        reason=reason,
    )


def _describe_skipped(skipped: Mapping[int, Reason]) -> list[models.SkippedSlots]:
    by_reason: dict[Reason, list[int]] = {}
    for slot, reason in sorted(skipped.items()):
        by_reason.setdefault(reason, []).append(slot)
    return [models.SkippedSlots(slots=ranges.show(slots), reason=reason) for reason, slots in by_reason.items()]
