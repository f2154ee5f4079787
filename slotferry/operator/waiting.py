"""Waiting until slots have moved, with progress on standard error.

A topom that follows shows slots as it has read them, so it may not know yet of a move that its leader has just begun.
What is older than the table with the change, or than a table that was seen, does not count.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from slotferry.calls import Answer, TopomError, TopomRefused, TopomUnreachable
from slotferry.client import TopomClient
from slotferry.output import err, in_words, note
from slots.counting import counted
from slots.ranges import parse

POLL_SECONDS = 0.25
LINE_SECONDS = 5.0
"""How often progress is printed if there is no terminal."""
UNREACHABLE_SECONDS = 30.0
"""How long topom may be away meanwhile; it may just be restarting, or another is elected, and then it continues by
itself."""
AWAY = (502, 503, 504)
"""HTTP statuses that say so, of topom or of what stands before it."""
MOST_SLOTS = 16384
STUCK_SECONDS = 30.0
"""How long nothing may happen, where an operator has to do something, before the wait ends."""
PASSING = ("hours", "pace", "busy")
"""Kinds of reasons that pass without an operator."""
Targets = Mapping[int, int] | Callable[[Sequence[Answer]], Mapping[int, int]]
"""Group ids by slot, or how they follow from the slots of a table that has the change."""
COURSES = {"turning": ", to be turned round", "back": ", back"}
"""Added to the state of an action that was cancelled."""


class WaitedTooLong(TopomError):
    """The slots had not moved when the time was over."""


class MoveAbandoned(TopomError):
    """Slots came to rest in another group than they were sent to."""


class MoveStuck(TopomError):
    """Nothing moves, and nothing will before an operator has done something."""


class Patience:
    """Bears a topom that does not answer for a moment."""

    def __init__(self) -> None:
        self._heard = time.monotonic()

    def heard(self) -> None:
        """topom has answered."""
        self._heard = time.monotonic()

    def bear(self, error: TopomUnreachable | TopomRefused) -> str:
        """What to say meanwhile. Raises the error if it is no such moment, or one of more than
        :data:`UNREACHABLE_SECONDS`."""
        if isinstance(error, TopomRefused) and error.status not in AWAY:
            raise error from None
        if time.monotonic() - self._heard > UNREACHABLE_SECONDS:
            raise error from None
        return f"{error}; trying again" if isinstance(error, TopomRefused) else "topom does not answer, trying again"


class Standstill:
    """Notes whether anything happens, and why not."""

    def __init__(self) -> None:
        self._seen: object = None
        self._since = 0.0

    def reason(self, now: float, left: Sequence[Answer], migration: Answer) -> str:
        """What an operator has to do, once nothing has happened for :data:`STUCK_SECONDS`; empty until then, and where
        the wait ends by itself."""
        seen = [(slot["id"], slot["action"]) for slot in left], _moved_of({slot["id"] for slot in left}, migration)
        because = _needs_operator(left, migration)
        if seen != self._seen or not because:
            self._seen, self._since = seen, now
            return ""
        return because if now - self._since >= STUCK_SECONDS else ""


class _Moving(Progress):
    """A bar, and the details below it: beside it they would leave no room for the bar."""

    detail = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        """What is drawn."""
        yield from super().get_renderables()
        if self.detail:
            yield Text(self.detail)


async def wait_moved(topom: TopomClient, targets: Targets, limit: float, epoch: int = 0) -> None:
    """Wait until each slot has come to rest in the group that it is moving to.

    Args:
        limit: seconds after which to stop waiting; the move goes on.
        epoch: of the table with the change; 0 if it is not known.

    Raises:
        WaitedTooLong: at the limit.
        MoveAbandoned: when a slot came to rest in another group.
        MoveStuck: when nothing happens any more, and will not before an operator has done something.
        TopomError: when topom refuses, or is away for more than :data:`UNREACHABLE_SECONDS`.
    """
    deadline = time.monotonic() + limit
    last_line = time.monotonic()
    patience, looking = Patience(), _Looking(topom, targets, epoch)
    with _Moving(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("slots"),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=err,
        disable=not err.is_terminal,
    ) as progress:
        task = progress.add_task("moving", total=None)
        while True:
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    migration, table = await looking.look()
                patience.heard()
                detail = describe(migration)
                if looking.is_over(migration, table):
                    return
            except TimeoutError:
                detail = ""
            except (TopomUnreachable, TopomRefused) as error:
                detail = patience.bear(error)
            progress.detail = detail
            if (way := looking.way) is not None:
                progress.update(task, total=way.total, completed=way.done)
            now = time.monotonic()
            if now >= deadline:
                slots = "the slots" if way is None else f"{way.told} slots"
                raise WaitedTooLong(
                    f"{slots} have not moved after {limit:g} s; the move goes on, "
                    "look at it with `slotferry migration show`"
                )
            if not err.is_terminal and now - last_line >= LINE_SECONDS:
                last_line = now
                note(f"{way.done} of {way.total} slots moved; {detail}" if way is not None else detail)
            await asyncio.sleep(POLL_SECONDS)


class _Looking:
    """Looks at a move, by no table from before it. ``way``: its slots, once they are known."""

    def __init__(self, topom: TopomClient, targets: Targets, epoch: int) -> None:
        self._topom = topom
        self._targets = targets
        self._epoch = epoch
        self._standstill = Standstill()
        self.way = None if callable(targets) else _Way(targets)

    async def look(self) -> tuple[Answer, Answer]:
        """What topom says of moving, and the table."""
        migration = await self._topom.migration()
        self._epoch = self._epoch or migration.get("epoch", 0)  # an earlier topom does not say it
        return migration, await self._topom.slots()

    def is_over(self, migration: Answer, table: Answer) -> bool:
        """Whether all slots have come to rest. Raises :class:`MoveAbandoned` and :class:`MoveStuck`."""
        if table["epoch"] < self._epoch:
            return False
        self._epoch = table["epoch"]
        if self.way is None:
            assert callable(self._targets)
            self.way = _Way(self._targets(table["slots"]))
        moving = self.way.still(table["slots"])
        if not moving:
            return True
        if because := self._standstill.reason(time.monotonic(), moving, migration):
            raise MoveStuck(
                f"{self.way.told} slots do not move, and will not by themselves: {because}; "
                "they go on once that is done; to take them back: slotferry migration cancel"
            )
        return False


class _Way:
    """The slots of a move. One that has arrived once counts as moved, wherever it is sent from there."""

    def __init__(self, targets: Mapping[int, int]) -> None:
        self._left = dict(targets)
        self.total = len(self._left)

    @property
    def done(self) -> int:
        """How many have arrived."""
        return self.total - len(self._left)

    @property
    def told(self) -> str:
        """How many are left, and of how many."""
        return f"{len(self._left)} of {self.total}"

    def still(self, slots: Collection[Answer]) -> list[Answer]:
        """Slots still on their way. Raises :class:`MoveAbandoned`."""
        moving = []
        for slot in slots:
            target = self._left.get(slot["id"])
            if target is None:
                continue
            if slot["action"]:
                moving.append(slot)
            elif slot["group_id"] == target:
                del self._left[slot["id"]]
            else:
                where = f"in group {slot['group_id']}" if slot["group_id"] else "offline"
                raise MoveAbandoned(
                    f"slot {slot['id']} is at rest {where} instead of group {target}: "
                    "its move was called off or changed"
                )
        return moving


def _moved_of(slots: set[int], migration: Answer) -> list[tuple[int, int]]:
    """How much has moved of the batches that have some of these slots. What moves of others does not help these."""
    return [
        (batch["keys_moved"], batch["bytes_moved"])
        for batch in migration["batches"]
        if batch["slots"] and not slots.isdisjoint(parse(batch["slots"], MOST_SLOTS))
    ]


def _needs_operator(left: Sequence[Answer], migration: Answer) -> str:
    """What keeps all of these slots from going on, if that ends only by an operator; else empty.

    A slot without a reason only waits for its turn, behind those that have one.
    """
    if migration["paused"]:
        return "moving of keys is paused; `slotferry migration resume` lets it go on"
    halted = migration.get("halted")
    if halted:
        return in_words(halted) if _waits_for_operator(halted) else ""
    held = [slot for slot in left if slot.get("skipped") or slot.get("reason")]
    if not all(slot.get("skipped") or _waits_for_operator(slot["reason"]) for slot in held):
        return ""
    if any(slot["action"]["state"] != "pending" for slot in left if not (slot.get("skipped") or slot.get("reason"))):
        return ""
    said = {f"{'skipped: ' if slot.get('skipped') else ''}{in_words(slot.get('reason'))}" for slot in held}
    return ", ".join(sorted(said))


def _waits_for_operator(reason: Answer) -> bool:
    return bool(reason["to_do"]) and reason["kind"] not in PASSING


def describe(migration: Answer) -> str:
    """One line about the state of the migration."""
    parts = [f"{migration['keys_per_second']:,.0f} keys/s"]
    if migration.get("remaining_keys") is not None:
        parts.append(f"about {counted(migration['remaining_keys'], 'key')} left")
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
