"""What an operator does in topom's unit tests, over the fakes, and what the tests look at then."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

import httpx

from slots.states import Course, SlotState
from slots.table import SlotTable
from tests.unit.topom.topom_fakes import Bench
from topom import api
from topom.api.callers import Callers
from topom.cluster import cancelling as interventions
from topom.cluster import topology
from topom.cluster.cancelling import Cancelled
from topom.cluster.state import ClusterState
from topom.reasons import Kind, Reason
from topom.term.service import Topom
from topom.term.tokens import Tokens

Key = TypeVar("Key")


async def send(one: Bench, slots: Iterable[int], group_id: int = 2) -> None:
    await one.edit(lambda table, epoch: topology.move(table, epoch, slots, group_id))


async def cancel(one: Bench, slots: Iterable[int] = range(16)) -> Cancelled:
    outcome = Cancelled()

    def change(state: ClusterState, epoch: int) -> ClusterState:
        nonlocal outcome
        new, outcome = interventions.cancel(state, epoch, list(slots))
        return new

    await one.ledger.change(change)
    one.actions.retry()
    return outcome


def whats(reasons: Mapping[Key, Reason]) -> dict[Key, str]:
    """What things wait for, by key, without the time since when."""
    return {key: reason.what for key, reason in reasons.items()}


def waits_of(one: Bench) -> str:
    """What the first batch waits for; empty if it does not wait, or there is none."""
    reason = one.actions.reason(one.actions.batches[0]) if one.actions.batches else None
    return reason.what if reason is not None else ""


async def skip(one: Bench, slots: Iterable[int]) -> None:
    reasons = one.actions.reasons()
    wanted = {slot: reasons.get(slot, Reason(Kind.PAUSED, "wanted", 1.0)) for slot in slots}
    await one.ledger.change(lambda state, epoch: interventions.skip(state, epoch, wanted))


async def retry(one: Bench, slots: Iterable[int] = range(16)) -> None:
    await one.ledger.change(lambda state, epoch: interventions.unskipped(state, list(slots)))
    one.actions.retry()


def groups_of(table: SlotTable) -> list[int]:
    return [slot.group_id for slot in table.slots]


def in_state(state: SlotState, *slots: int, course: Course = Course.FORWARD) -> Callable[[SlotTable], bool]:
    def holds(table: SlotTable) -> bool:
        actions = [table.slots[slot].action for slot in slots]
        return all(action is not None and (action.state, action.course) == (state, course) for action in actions)

    return holds


def client_of(topom: Topom, headers: Mapping[str, str] = MappingProxyType({})) -> httpx.AsyncClient:
    """A client of the HTTP API, without a network, that has the token ``secret``."""
    transport = httpx.ASGITransport(api.build(topom, Callers(Tokens("secret"))), raise_app_exceptions=False)
    return httpx.AsyncClient(
        transport=transport, base_url="http://topom/api/v1", headers={"Authorization": "Bearer secret", **headers}
    )


async def eventually(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.002)


class Gate:
    """What a mover does meanwhile: it waits until this is opened."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.entered = 0

    async def __call__(self) -> None:
        self.entered += 1
        await self.open.wait()


def history_of(one: Bench) -> list[SlotTable]:
    tables: list[SlotTable] = []
    one.ledger.listen(lambda old, new: tables.append(new.table))
    return tables
