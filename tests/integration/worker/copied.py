"""Slots whose keys the target has by a copy, as a worker sees them; the test is the migrator, and topom."""

from collections.abc import Iterable

from slots.slot import Action, Slot
from slots.states import SlotState
from tests.integration.worker.harness import WorkerHarness

COPY = "c0" * 16


async def act_by_copy(
    worker: WorkerHarness, slots: Iterable[int], *states: SlotState, source: int = 1, target: int = 2
) -> None:
    """Put slots into these states of an action by copy, one after the other, and wait until each holds."""
    chosen = list(slots)
    for state in states:
        await worker.apply([Slot(index, source, Action(state, target, copy=COPY)) for index in chosen])


async def switch(worker: WorkerHarness, slots: Iterable[int], source: int = 1, target: int = 2) -> None:
    """The target becomes the owner of slots that are locked."""
    await act_by_copy(worker, slots, SlotState.FINISHED, source=source, target=target)
