"""How long a copy tries to become level."""

from pathlib import Path
from typing import cast

import pytest

from migrator.pace import Pace
from migrator.progress import Progress
from migrator.stream.following import Following
from migrator.stream.running import LEVEL_SECONDS, NEARLY_BYTES, NeverLevel, RunningCopy
from slots.access import ServerAccess
from tests.unit.migrator.virtual import in_virtual_time, now


class NeverNear:
    """A following at whose target always as much is missing."""

    lag = NEARLY_BYTES + 1

    def __init__(self) -> None:
        self.rested_until = 0.0

    def rest_no_more(self) -> None:
        self.rested_until = self.rested_until or now()


@in_virtual_time
async def test_a_copy_rests_for_a_latency_goal_during_half_of_the_time_that_it_has() -> None:
    copy = RunningCopy(
        "s:1",
        "t:1",
        (),
        "id",
        run_ids=("", ""),
        folder=Path(),
        function="crc32",
        number_of_slots=1024,
        access=ServerAccess(),
        pace=Pace(),
        progress=Progress(),
        instance="i",
    )
    following = NeverNear()
    copy._following = cast(Following, following)
    began = now()

    with pytest.raises(NeverLevel):
        await copy._nearly_level()

    assert following.rested_until - began == pytest.approx(LEVEL_SECONDS / 2, abs=1)
    assert now() - began == pytest.approx(LEVEL_SECONDS, abs=1)
