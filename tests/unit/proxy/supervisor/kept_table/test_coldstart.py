"""When a proxy that is started may serve by its kept table."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from proxy.settings import ProxySettings
from proxy.supervisor.kept_table import coldstart
from proxy.supervisor.kept_table.tablefile import Kept
from proxy.supervisor.standdown.fenceprobe import Look
from slots.access import ServerAccess
from slots.group import Group
from slots.messages.message import Product
from slots.slot import Slot
from slots.table import SlotTable

PRODUCT = Product(name="local", number_of_slots=1, slot_function="crc32", databases=16)
KEPT = Kept("a" * 32, PRODUCT, SlotTable(1, (Slot(0),), {}))


async def test_the_age_is_that_after_the_servers_were_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """one-owner: the age tells the proxy for how long it has not heard topom."""
    ages: Iterator[float] = iter((1.0, 9.0))

    async def slow(kept: Kept, access: ServerAccess) -> None:
        return None

    monkeypatch.setattr(coldstart, "ALONE_SECONDS", 0.0)
    monkeypatch.setattr(coldstart, "look_at_masters", slow)
    assert await coldstart.may_serve(KEPT, lambda: next(ages), ProxySettings(), ServerAccess(), lambda: True) == 9.0


@pytest.mark.parametrize(("run_id", "reason"), [("r", None), ("q", "may have forgotten a fence")])
async def test_final_fence_a_process_that_was_not_known_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, run_id: str, reason: str | None
) -> None:
    """A missing mark says nothing: the process may have been started after the mark was set."""

    async def look(client: object, instance: str) -> Look:
        return Look(False, True, run_id)

    async def nothing_to_end(client: object, prefix: str) -> int:
        return 0

    monkeypatch.setattr(coldstart, "look", look)
    monkeypatch.setattr(coldstart, "end_connections", nothing_to_end)
    kept = replace(KEPT, table=SlotTable(1, (Slot(0),), {1: Group(1, ("h:1",))}), processes={"h:1": "r"})
    said = await coldstart.look_at_masters(kept, ServerAccess())
    assert said is None if reason is None else reason in str(said)
