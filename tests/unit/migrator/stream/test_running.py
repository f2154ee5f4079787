"""How long a copy tries to become level."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from migrator.pace import Pace
from migrator.progress import Progress
from migrator.stream.following import Following
from migrator.stream.running import LEVEL_SECONDS, NEARLY_BYTES, NeverLevel, RunningCopy
from migrator.stream.sourcestream import SourceStream
from slots.access import ServerAccess
from slots.keyslots import KeySlots
from tests.unit.migrator.virtual import in_virtual_time, now


class NeverNear:
    """A following at whose target always as much is missing."""

    lag = NEARLY_BYTES + 1

    def __init__(self) -> None:
        self.rested_until = 0.0

    def rest_no_more(self) -> None:
        self.rested_until = self.rested_until or now()


def a_copy(pace: Pace) -> tuple[RunningCopy, NeverNear]:
    stream = SourceStream("s:1", "", id="id", folder=Path(), access=ServerAccess(), instance="i")
    copy = RunningCopy(
        stream, "t:1", (), "id", run_id="", key_slots=KeySlots("crc32", 1024), pace=pace, progress=Progress()
    )
    following = NeverNear()
    copy._following = cast(Following, following)
    return copy, following


@in_virtual_time
async def test_a_copy_rests_for_a_latency_goal_during_half_of_the_time_that_it_has() -> None:
    copy, following = a_copy(Pace())
    began = now()

    with pytest.raises(NeverLevel):
        await copy._nearly_level()

    assert following.rested_until - began == pytest.approx(LEVEL_SECONDS / 2, abs=1)
    assert now() - began == pytest.approx(LEVEL_SECONDS, abs=1)


@pytest.mark.long
@in_virtual_time
async def test_the_time_of_a_pause_does_not_count() -> None:
    pace = Pace()
    copy, following = a_copy(pace)
    began = now()
    loop = asyncio.get_running_loop()
    loop.call_later(LEVEL_SECONDS / 4, pace.pause)
    loop.call_later(LEVEL_SECONDS * 10, pace.resume)

    with pytest.raises(NeverLevel):
        await copy._nearly_level()

    assert following.rested_until - began == pytest.approx(LEVEL_SECONDS * 10.25, abs=1)
    assert now() - began == pytest.approx(LEVEL_SECONDS * 10.75, abs=1)
