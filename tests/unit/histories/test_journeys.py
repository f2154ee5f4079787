"""Faults of several steps: what they have done is known even if they are broken off."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.histories.cluster import PROXIES, SLOTS
from tests.histories.journeys import Journeys
from tests.histories.losses import Older
from tests.histories.schedule import Fault, Kind


class Api:
    """Slots move at once, and topom answers all."""

    async def set_migration(self, **changes: Any) -> None: ...

    async def move_slots(self, slots: str, group: int) -> None: ...

    async def status(self) -> dict[str, Any]:
        online = [{"address": str(number), "state": "online"} for number in range(PROXIES)]
        return {"slots": {"moving": 0}, "proxies": online}

    async def slots(self) -> dict[str, Any]:
        return {"slots": [{"group_id": 1, "action": None}] * SLOTS}


class Link:
    def catch(self, hold: object) -> None: ...

    async def accept(self) -> None: ...

    async def refuse(self) -> None: ...

    def break_all(self) -> None: ...


class Losses:
    def __init__(self) -> None:
        self.older: list[Older] = []

    async def look(self) -> None: ...


@pytest.mark.long
@pytest.mark.parametrize("kind", [Kind.SWEEP_HELD, Kind.FENCE_FORGOTTEN])
async def test_a_server_that_came_back_with_older_data_is_known_where_its_restart_is_broken_off(
    kind: Kind, tmp_path: Path
) -> None:
    restarting = asyncio.Event()

    async def restart(place: int, kept: Path) -> None:
        restarting.set()
        await asyncio.sleep(60)

    cluster: Any = SimpleNamespace(
        api=Api(),
        server_links=[Link()],
        control_links=[Link()] * PROXIES,
        proxy_addresses=[str(number) for number in range(PROXIES)],
        topom=SimpleNamespace(pid=2**22 + 1),
    )
    mover: Any = SimpleNamespace(turn=asyncio.Lock())
    losses: Any = Losses()
    workload: Any = SimpleNamespace(resting=False)
    journeys = Journeys(cluster, mover, workload, losses, lambda: 1.0, restart, lambda proxy: ())
    said = await journeys.go(Fault(kind, 0.0, 2.0, 0), lambda place: tmp_path)
    assert restarting.is_set(), said
    assert "no further" in said
    assert [one.group for one in losses.older] == [1]
