"""Waiting until slots have moved, with progress on standard error."""

import asyncio
import time
from collections.abc import Collection

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from slotferry.calls import Answer, TopomError, TopomUnreachable
from slotferry.client import TopomClient
from slotferry.output import err, in_words, note

POLL_SECONDS = 0.25
LINE_SECONDS = 5.0
"""How often progress is printed if there is no terminal."""
UNREACHABLE_SECONDS = 30.0
"""How long topom may be away meanwhile; it may just be restarting, and then continues by itself."""
COURSES = {"turning": ", to be turned round", "back": ", back"}
"""Added to the state of an action that was cancelled."""


class WaitedTooLong(TopomError):
    """The slots had not moved when the time was over."""


class MoveAbandoned(TopomError):
    """Slots came to rest in another group than they were sent to."""


async def wait_moved(topom: TopomClient, targets: dict[int, int], limit: float) -> None:
    """Wait until each slot is at rest in the group that it is moving to.

    Args:
        targets: the group id by slot.
        limit: seconds after which to stop waiting; the move goes on.

    Raises:
        WaitedTooLong: at the limit.
        MoveAbandoned: when a slot came to rest in another group.
        TopomError: when topom refuses, or is away for more than :data:`UNREACHABLE_SECONDS`.
    """
    deadline = time.monotonic() + limit
    last_heard = last_line = time.monotonic()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("slots"),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[detail]}"),
        console=err,
        disable=not err.is_terminal,
    ) as progress:
        task = progress.add_task("moving", total=len(targets), detail="")
        while True:
            detail = ""
            left = len(targets)
            try:
                slots = (await topom.slots())["slots"]
                migration = await topom.migration()
                left = len(_moving(slots, targets))
                last_heard = time.monotonic()
                detail = describe(migration)
                progress.update(task, completed=len(targets) - left, detail=detail)
                if not left:
                    return
            except TopomUnreachable as error:
                detail = "topom does not answer, trying again"
                progress.update(task, detail=detail)
                if time.monotonic() - last_heard > UNREACHABLE_SECONDS:
                    raise error from None
            now = time.monotonic()
            if now > deadline:
                raise WaitedTooLong(
                    f"{left} of {len(targets)} slots have not moved after {limit:g} s; the move goes on, "
                    "look at it with `slotferry migration status`"
                )
            if not err.is_terminal and now - last_line >= LINE_SECONDS:
                last_line = now
                note(f"{len(targets) - left} of {len(targets)} slots moved; {detail}")
            await asyncio.sleep(POLL_SECONDS)


def _moving(slots: Collection[Answer], targets: dict[int, int]) -> list[int]:
    """Slots still on their way. Raises :class:`MoveAbandoned`."""
    moving = []
    for slot in slots:
        target = targets.get(slot["id"])
        if target is None:
            continue
        if slot["action"]:
            moving.append(slot["id"])
        elif slot["group_id"] != target:
            where = f"in group {slot['group_id']}" if slot["group_id"] else "offline"
            raise MoveAbandoned(
                f"slot {slot['id']} is at rest {where} instead of group {target}: its move was called off or changed"
            )
    return moving


def describe(migration: Answer) -> str:
    """One line about the state of the migration."""
    parts = [f"{migration['keys_per_second']:,.0f} keys/s"]
    if migration.get("remaining_keys") is not None:
        parts.append(f"about {migration['remaining_keys']:,} keys left")
    if migration["paused"]:
        parts = ["paused; `slotferry migration resume` lets it go on"]
    elif migration.get("halted"):
        parts = [in_words(migration["halted"])]
    reasons = [batch.get("reason") for batch in migration["batches"]]
    # What halts all of them is said once.
    halted = (migration.get("halted") or {}).get("kind")
    reasons = [reason for reason in reasons if reason and reason["kind"] != halted]
    reasons += [pacing["reason"] for batch in migration["batches"] if (pacing := batch.get("pacing"))]
    parts += sorted({in_words(reason) for reason in reasons if reason})
    return ", ".join(parts)
